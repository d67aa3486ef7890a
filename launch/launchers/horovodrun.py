"""Horovod's own launcher."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from launch.job import Job

BINDING = "--bind-to none --map-by slot"
"""horovodrun's own way to say this, with one dash, is not understood by Open MPI 5."""


@dataclass(frozen=True, slots=True)
class Horovodrun:
    """`horovodrun` over ssh or on this host.

    Its Gloo controller needs no MPI at run time, but Horovod 0.28.1 then sends gradients over the interface that the host's
    name leads to, whatever `--network-interfaces` says. Where interfaces are asked for, it is told to go through mpirun.
    """

    name: str = "horovodrun"
    program: str = field(default_factory=lambda: str(Path(sys.executable).parent / "horovodrun"))

    def command(self, job: Job) -> list[str]:
        rails = job.environment.get("OMPI_MCA_btl_tcp_if_include")
        way = ["--mpi", "--network-interfaces", rails, "--binding-args", BINDING] if rails else ["--gloo"]
        hosts = [f"{host.name}:{host.slots}" for host in job.hosts] or [f"localhost:{job.ranks}"]
        return [self.program, *way, "-np", str(job.ranks), "-H", ",".join(hosts), *job.tokens]

    def environment(self, job: Job) -> dict[str, str]:
        # It looks for mpirun on PATH: the site's if there is one, else that of the wheel beside horovodrun.
        path = job.environment.get("PATH", os.defpath)
        return {**job.environment, "PATH": f"{path}{os.pathsep}{Path(self.program).parent}"}
