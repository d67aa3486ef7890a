"""One rank without any launcher."""

from __future__ import annotations

from dataclasses import dataclass

from launch.job import Job
from results.yaml_file import ConfigurationError


@dataclass(frozen=True, slots=True)
class Local:
    """The rank is this launcher's own child."""

    name: str = "local"

    def command(self, job: Job) -> list[str]:
        """The rank's own tokens.

        Raises:
            ConfigurationError: more than one rank.
        """
        if job.ranks > 1:
            raise ConfigurationError(f"launcher local starts one rank, not {job.ranks}; use --launcher mpirun")
        return list(job.tokens)

    def environment(self, job: Job) -> dict[str, str]:
        return dict(job.environment)
