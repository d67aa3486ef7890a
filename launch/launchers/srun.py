"""Slurm's srun, which starts the ranks itself through PMIx."""

from __future__ import annotations

from dataclasses import dataclass, field

from launch.job import Job


@dataclass(frozen=True, slots=True)
class Srun:
    """`srun --mpi=pmix` inside an allocation, or asking for one."""

    name: str = "srun"
    mpi_plugin: str = "pmix"
    options: list[str] = field(default_factory=list)
    """Further options of the site, such as a container's."""

    def command(self, job: Job) -> list[str]:
        nodes = -(-job.ranks // job.ranks_per_node)
        tokens = [
            "srun",
            f"--mpi={self.mpi_plugin}",
            f"--nodes={nodes}",
            f"--ntasks={job.ranks}",
            f"--ntasks-per-node={job.ranks_per_node}",
            f"--cpus-per-task={job.cores_per_rank}",
            "--cpu-bind=none",  # ranks bind themselves, or are not bound
            "--kill-on-bad-exit=1",
        ]
        if job.hosts:
            tokens.append(f"--nodelist={','.join(host.name for host in job.hosts)}")
        # Slurm hands the whole environment on, the job's variables with it.
        return [*tokens, "--export=ALL", *self.options, *job.tokens]

    def environment(self, job: Job) -> dict[str, str]:
        return dict(job.environment)
