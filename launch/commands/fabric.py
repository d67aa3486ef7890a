"""`trainscale fabric`: bandwidth and latency of the path that training will use, before training."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from launch.commands.options import make_placement, placement_options


@click.command()
@click.option("--interconnect", default="loopback", show_default=True, metavar="NAME|FILE")
@placement_options
@click.option(
    "--ranks-per-node", type=click.IntRange(1), help="2 or more also measures inside a node; default: the site's, or 1."
)
@click.option("--smallest", "smallest_bytes", type=click.IntRange(4), default=4096, show_default=True, metavar="BYTES")
@click.option("--largest", "largest_bytes", type=click.IntRange(4), default=256 * 2**20, show_default=True, metavar="BYTES")
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, help="About how long for each size."
)
@click.option("--expect", metavar="PERCENT", help="Fail unless busbw reaches this share of the line rate, for example 90%.")
@click.option("--line-rate", metavar="RATE", help="Of one rail, for example 100gbit; default: what the interconnect states.")
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="The result goes to RUNS/fabric."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Folder of this one result; default: one of its own under RUNS/fabric."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else.")
@click.option("--dry-run", is_flag=True, help="Print the exact command, and start nothing.")
def command(
    interconnect: str,
    launcher: str | None,
    hosts: tuple[str, ...],
    hostfile: Path | None,
    site_file: Path | None,
    ranks_per_node: int | None,
    smallest_bytes: int,
    largest_bytes: int,
    seconds: float,
    expect: str | None,
    line_rate: str | None,
    runs: Path,
    folder: Path | None,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Measure allreduce by message size through Horovod, and latency and bandwidth between ranks through MPI.

    algbw and busbw are those of nccl-tests. Which rails carried the bytes is verified. With --expect it is an acceptance check:
    exit status 1 when busbw at 8 MiB and more stays below, or when other rails than asked carried it.
    """
    from launch import fabric
    from results.fabric import FabricSettings
    from results.report import fabric as report
    from results.yaml_file import ConfigurationError

    if smallest_bytes >= largest_bytes:
        raise ConfigurationError(f"--smallest {smallest_bytes} must be below --largest {largest_bytes}")
    placement = make_placement(launcher, hosts, hostfile, site_file)
    asked = placement.interconnect(interconnect)
    per_node = ranks_per_node or (placement.site.ranks_per_node if site_file else 1)
    settings = FabricSettings(
        smallest_bytes=smallest_bytes, largest_bytes=largest_bytes, seconds_per_size=seconds, stall_s=fabric.STALL_S
    )
    expected = fabric.expectation(expect, line_rate, asked)
    if expected is not None and fabric.node_count(placement) < 2:
        raise ConfigurationError("--expect compares with the line rate between nodes; name at least two hosts with --host")
    folder = folder.absolute() if folder else fabric.new_folder(runs, interconnect)
    if dry_run:
        from launch.launchers import get_launcher

        job = fabric.make_job(placement, asked, per_node, folder)
        click.echo(shlex.join(get_launcher(placement.launcher, placement.site).command(job)))
        return
    try:
        result = fabric.measure(placement, asked, per_node, settings, expected, folder)
    except fabric.FabricError as error:
        raise click.ClickException(str(error)) from error
    report.draw(result, folder / "fabric.svg")
    click.echo(result.model_dump_json(indent=1) if as_json else f"{report.render(result)}{folder}")
    sys.exit(1 if result.outcome[0] == "failed" else 0)
