"""Start munge, sshd and Slurm's daemons on emulated nodes, and ask Slurm how the nodes are."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from launch.emulation.node import EmulationError, Node
from launch.emulation.packages import search_path
from launch.emulation.plan import HEAD, StateFolder

MPI_DEFAULTS = {
    # More ranks than processors: a rank that waits must let others run. Open MPI cannot see that all nodes are one machine.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Open MPI's own choice of allreduce reached half of the line rate on one rail; the ring reaches 95%.
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_allreduce_algorithm": "ring",
    # The cluster's user is root by necessity.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""What a site keeps in openmpi-mca-params.conf. Variables of the caller win; launchers hand them on to the ranks."""
READY_TIMEOUT_S = 60.0
POLL_S = 0.05


def environment(state: StateFolder) -> dict[str, str]:
    """This process's environment with what a node adds to it."""
    return {**MPI_DEFAULTS, **os.environ, "SLURM_CONF": str(state.slurm_conf), "PATH": search_path()}


def start(state: StateFolder, nodes: Sequence[Node]) -> None:
    """Start the daemons of the given nodes, all nodes at once and in order on each.

    Raises:
        EmulationError: a daemon refused to start.
    """
    for daemon in ("munged", "sshd", "slurmctld", "slurmd"):
        running = []
        for node in nodes:
            command = _command(daemon, node, state)
            if command:
                log = state.log / f"start-{daemon}-{node.name}.log"
                inside = node.inside(command, working_directory=Path("/"))
                with log.open("w") as stream:
                    running.append((node, log, subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                                                                env=environment(state))))  # fmt: skip
        for node, log, process in running:
            if process.wait() != 0:
                why = log.read_text().strip().splitlines()[-1:] or ["no message"]
                raise EmulationError(f"{daemon} did not start on {node.name}: {why[0]} (logs: {state.log})")


def _command(daemon: str, node: Node, state: StateFolder) -> list[str] | None:
    """Tokens that start a daemon on a node, None where the node has none of it. Each goes to the background once it is ready."""
    if daemon == "munged":
        files = {"key-file": state.munge_key, "log-file": state.log / f"munged-{node.name}.log", "seed-file": "/run/munge/seed"}
        return ["munged", "--num-threads=2", *(f"--{name}={path}" for name, path in files.items())]
    if daemon == "sshd":
        program = shutil.which("sshd", path=search_path()) or "sshd"  # sshd wants to be called by its full path
        return [program, "-f", str(state.etc / "sshd_config"), "-E", str(state.log / f"sshd-{node.name}.log")]
    if daemon == "slurmctld":
        return ["slurmctld"] if node.name == HEAD else None
    return None if node.name == HEAD else ["slurmd"]


def wait_idle(state: StateFolder, head: Node, names: Sequence[str]) -> None:
    """Return when Slurm shows all the named nodes as idle.

    Raises:
        EmulationError: that did not happen in time; the message tells how each node is.
    """
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        states = node_states(state, head)
        if all(states.get(name) == "idle" for name in names):
            return
        if time.monotonic() > deadline_s:
            shown = ", ".join(f"{name} {states.get(name, 'unknown')}" for name in names if states.get(name) != "idle")
            raise EmulationError(f"not idle after {READY_TIMEOUT_S:.0f} s: {shown} (logs: {state.log})")
        time.sleep(POLL_S)


def node_states(state: StateFolder, head: Node) -> dict[str, str]:
    """Node names and their states as `sinfo` gives them; empty while slurmctld does not answer."""
    command = head.inside(["sinfo", "--noheader", "--Node", "--format=%N %T"])
    done = subprocess.run(command, capture_output=True, text=True, env=environment(state))
    return (
        dict(pair for line in done.stdout.splitlines() if len(pair := line.split(maxsplit=1)) == 2)
        if done.returncode == 0
        else {}
    )
