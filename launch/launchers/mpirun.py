"""Open MPI's mpirun, versions 4 and 5."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from launch.job import Job
from launch.mpi import MpiInstallation


@dataclass(frozen=True, slots=True)
class Mpirun:
    """`mpirun` from a login node over ssh, inside an allocation, or on this host."""

    mpi: MpiInstallation
    as_root: bool = field(default_factory=lambda: os.geteuid() == 0)
    name: str = "mpirun"

    def command(self, job: Job) -> list[str]:
        tokens = [str(self.mpi.mpirun), "-np", str(job.ranks)]
        if self.as_root:
            tokens.append("--allow-run-as-root")
        if job.hosts:
            tokens += ["--host", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
        if job.one_host:
            # Emulated nodes share one host: its slots say nothing.
            tokens += ["--host", f"localhost:{job.ranks}", "--map-by", ":OVERSUBSCRIBE"]
        elif not job.bind:
            tokens += ["--map-by", f"ppr:{job.ranks_per_node}:node:OVERSUBSCRIBE"]
        elif job.ranks > 1:
            tokens += ["--map-by", f"ppr:{job.ranks_per_node}:node"]
        tokens += ["--bind-to", "none"]  # ranks bind themselves, or are not bound
        for name in sorted(job.environment):
            tokens += ["-x", name]
        return [*tokens, *job.tokens]

    def environment(self, job: Job) -> dict[str, str]:
        found = dict(job.environment)
        if job.one_host and job.ranks >= job.available_cores:
            # Open MPI polls; ranks that share cores must yield while they wait.
            found["OMPI_MCA_mpi_yield_when_idle"] = "1"
        return found
