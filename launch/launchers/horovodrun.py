"""Horovod's own launcher, with the Gloo controller: no MPI is needed at run time."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from launch.job import Job


@dataclass(frozen=True, slots=True)
class Horovodrun:
    """`horovodrun --gloo` over ssh or on this host."""

    name: str = "horovodrun"
    program: str = field(default_factory=lambda: str(Path(sys.executable).parent / "horovodrun"))

    def command(self, job: Job) -> list[str]:
        tokens = [self.program, "--gloo", "-np", str(job.ranks)]
        hosts = [f"{host.name}:{host.slots}" for host in job.hosts] or [f"localhost:{job.ranks}"]
        if job.management_interfaces:
            tokens += ["--network-interfaces", ",".join(job.management_interfaces)]
        # horovodrun takes one set of interfaces for control and for data, which must be on this host as well;
        # a login node has no rails, so that each rank is told its own.
        rail = job.environment.get("GLOO_SOCKET_IFNAME")
        own = ["env", f"HOROVOD_GLOO_IFACE={rail}"] if rail else []
        return [*tokens, "-H", ",".join(hosts), *own, *job.tokens]

    def environment(self, job: Job) -> dict[str, str]:
        return dict(job.environment)
