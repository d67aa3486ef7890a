"""`trainscale cluster`: a real Slurm cluster of emulated nodes on this machine."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from launch.emulation.plan import ClusterPlan

F = TypeVar("F", bound=Callable[..., Any])
STATE_VARIABLE = "TRAINSCALE_CLUSTER_STATE"


def _state(function: F) -> F:
    return click.option(
        "--state",
        type=click.Path(path_type=Path, file_okay=False),
        required=True,
        envvar=STATE_VARIABLE,
        help=f"Folder that holds all state of the cluster; ${STATE_VARIABLE} does as well.",
    )(function)


def _one_line(function: F) -> F:
    """Show a failed step of the emulation as one line and exit status 1."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from launch.emulation.node import EmulationError

        try:
            return function(*args, **kwargs)
        except EmulationError as error:
            raise click.ClickException(str(error)) from error

    return wrapped  # type: ignore[return-value]


@click.group(name="cluster")
def command() -> None:
    """A real Slurm cluster of emulated nodes with shaped rails, on this machine. Needs root.

    Nodes differ in network, hostname, addresses, shared memory and processes; they share processors, disk and files.
    The host's interfaces, routes and /etc stay as they are.
    """


def _shape(function: F) -> F:
    for option in (
        click.option(
            "--cpus-per-node", type=click.IntRange(1), default=4, show_default=True, help="What Slurm believes a node to have."
        ),
        click.option("--rate", default="200mbit", show_default=True, help="Rate of each rail in each direction, or `unshaped`."),
        click.option("--rails", type=click.IntRange(1, 8), default=2, show_default=True, help="Shaped networks: ib0, ib1, …"),
        click.option("--nodes", type=click.IntRange(1, 99), default=8, show_default=True),
    ):
        function = option(function)
    return function


def _plan(**shape: Any) -> ClusterPlan:
    from launch.emulation.plan import ClusterPlan

    return ClusterPlan(memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20, **shape)


def _tell(line: str) -> None:
    click.echo(line, err=True)


@command.command()
@_shape
@_state
@_one_line
def up(state: Path, **shape: Any) -> None:
    """Bring the cluster up; returns when Slurm shows all nodes as idle."""
    from launch.emulation.cluster import Cluster

    plan = _plan(**shape)
    Cluster(state).up(plan, say=_tell)
    click.echo(f"{plan.nodes} nodes are idle. Try: trainscale cluster exec --state {state} head -- sinfo")


@command.command(name="run", context_settings={"ignore_unknown_options": True})
@_shape
@click.argument("tokens", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED, required=True)
@_one_line
def run(tokens: tuple[str, ...], **shape: Any) -> None:
    """Bring a cluster up, run a command on its login node, and take it down whatever happens; its exit status is this command's.

    The cluster ends with this command, however that ends, and leaves nothing but what the command wrote.
    """
    from launch.emulation.cluster import run_once

    sys.exit(run_once(_plan(**shape), tokens, say=_tell))


@command.command(name="exec", context_settings={"ignore_unknown_options": True})
@_state
@click.argument("node")
@click.argument("tokens", metavar="-- COMMAND…", nargs=-1, type=click.UNPROCESSED, required=True)
def execute(state: Path, node: str, tokens: tuple[str, ...]) -> None:
    """Run a command on a node (`head` is the login node); its exit status is this command's."""
    from launch.emulation.cluster import Cluster

    cluster = Cluster(state)
    inside = cluster.command(node, tokens)
    sys.stdout.flush()
    os.execvpe(inside[0], inside, cluster.environment)


@command.command()
@click.argument("value", metavar="RATE")
@click.option("--node", "nodes", multiple=True, help="Only this node (may be given again); all by default.")
@click.option("--rail", "rails", multiple=True, help="Only this rail (may be given again); all by default.")
@_state
@_one_line
def rate(value: str, nodes: tuple[str, ...], rails: tuple[str, ...], state: Path) -> None:
    """Change the rate of the rails while the cluster runs: 100mbit, `unshaped`, or `cut` (the link is down)."""
    from launch.emulation.cluster import Cluster

    Cluster(state).set_rate(value, nodes, rails)


@command.command()
@click.argument("switch", type=click.Choice(["off", "on"]))
@click.argument("node")
@_state
@_one_line
def power(switch: str, node: str, state: Path) -> None:
    """Cut a node's power (every process on it ends at once), or start it again."""
    from launch.emulation.cluster import Cluster

    cluster = Cluster(state)
    if switch == "off":
        cluster.power_off(node)
    else:
        cluster.power_on(node)


@command.command()
@_state
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_one_line
def status(state: Path, as_json: bool) -> None:
    """Show every node as the kernel and Slurm see it; exit status 1 when one does not run."""
    from dataclasses import asdict

    from launch.emulation.cluster import Cluster

    found = Cluster(state).status()
    if as_json:
        click.echo(json.dumps([asdict(node) for node in found], indent=2))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("node", "runs", "Slurm", "rails", title=f"Emulated cluster in {state}")
        for node in found:
            rails = ", ".join(f"{rail} {rate}" for rail, rate in node.rates.items())
            table.add_row(node.name, "yes" if node.running else "no", node.slurm_state, rails)
        Console().print(table)
    sys.exit(0 if all(node.running for node in found) else 1)


@command.command()
@_state
@_one_line
def down(state: Path) -> None:
    """End every process of the cluster, also of one that was left behind. Logs stay in the folder."""
    from launch.emulation.cluster import Cluster

    ended = Cluster(state).down()
    click.echo("the cluster is down" if ended else "nothing ran")
