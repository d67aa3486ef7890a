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
        interface = job.environment.get("GLOO_SOCKET_IFNAME")
        named = ["--network-interfaces", interface] if interface else []
        return [*tokens, *named, "-H", ",".join(hosts), *job.tokens]

    def environment(self, job: Job) -> dict[str, str]:
        return dict(job.environment)
