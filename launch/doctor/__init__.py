"""Is this machine ready to train, and if not, which command makes it so.

Heavy libraries are probed in processes of their own: a broken one must not take the doctor down with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from launch.doctor import gpu, infiniband, interfaces, mpi, nodes, slurm, stack, system
from launch.doctor.machine import Finding, Level, Machine
from launch.interconnect import Interconnect
from launch.site import SiteProfile

PROBES = {"torch": stack.TORCH, "dali": stack.DALI, "mpi4py": mpi.MPI4PY, "horovod": mpi.HOROVOD}


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What the machine shall be ready for."""

    site: SiteProfile = field(default_factory=SiteProfile)
    interconnect: Interconnect | None = None
    """Whose devices must be there, with the site's names; None: whatever there is."""
    hosts: Sequence[str] = ()
    """Nodes that ranks shall run on, as `name` or `name:slots`; empty: those of the surrounding allocation."""
    over_ssh: bool = True
    """Ranks are started over ssh, and not by srun."""
    runs: Path = Path("runs")
    data: Path | None = None


def examine(machine: Machine | None = None, asked: Question | None = None) -> list[Finding]:
    """Look at everything on this machine, and at the way from here to the nodes."""
    machine, asked = machine or Machine(), asked or Question()
    names = nodes.names(machine, asked.hosts)
    over_ssh = asked.over_ssh and bool(asked.hosts)
    return [*on_this_node(machine, asked), *slurm.findings(machine, asked.site), *nodes.findings(machine, names, needed=over_ssh)]


def on_this_node(machine: Machine, asked: Question) -> list[Finding]:
    """What every node must have by itself."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        probed = dict(zip(PROBES, pool.map(machine.probe, PROBES.values()), strict=True))
    torch, horovod = probed["torch"], probed["horovod"]
    listed, why_none = gpu.listed(machine)
    capabilities = stack.capabilities(torch)
    gpus = max(len(listed), len(capabilities))
    hcas = len(machine.folders("/sys/class/infiniband"))
    lines = [
        stack.python(),
        stack.torch(torch, len(listed)),
        *gpu.driver(machine, listed, why_none, torch),
        stack.dali(probed["dali"], capabilities),
        stack.apex(machine),
        *mpi.findings(probed["mpi4py"], horovod, gpus),
        gpu.nccl(torch, horovod),
        *infiniband.findings(machine, asked.interconnect),
        *interfaces.findings(machine, asked.interconnect),
        gpu.gpudirect(machine, gpus, hcas),
        system.limits(machine),
        system.shared_memory(),
        system.clock(machine),
        *system.folders(asked.runs, asked.site.scratch, asked.data),
    ]
    return [line for line in lines if line is not None]


def worst(findings: Sequence[Finding]) -> Level:
    """The gravest level of several lines."""
    levels = {finding.level for finding in findings}
    return "broken" if "broken" in levels else "warning" if "warning" in levels else "ok"


__all__ = ["Finding", "Level", "Machine", "Question", "examine", "on_this_node", "worst"]
