"""Names within a run directory: the one place where `launch` and `training` meet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The whole truth of one run; never shared by two."""

    path: Path

    @property
    def spec(self) -> Path:
        """What was asked (`RunSpec`), written by `launch`."""
        return self.path / "spec.json"

    @property
    def command(self) -> Path:
        """Exact command and environment, written by `launch` before it starts (JSON: `tokens`, `environment`)."""
        return self.path / "command.json"

    @property
    def record(self) -> Path:
        """What happened (`RunRecord`): by rank 0, or by `launch` when the ranks died before they could."""
        return self.path / "record.json"

    @property
    def launcher_log(self) -> Path:
        """Output of the launcher itself (mpirun, srun)."""
        return self.path / "logs" / "launcher.log"

    def rank_log(self, rank: int) -> Path:
        """Standard output and error of one rank."""
        return self.path / "logs" / f"rank-{rank:05d}.log"

    def heartbeat(self, rank: int) -> Path:
        """Touched by a rank as long as it lives (`results.heartbeat`)."""
        return self.path / "logs" / f"alive-{rank:05d}"

    def failure(self, rank: int) -> Path:
        """Left by a rank that fails (`Failure`)."""
        return self.path / "logs" / f"failure-{rank:05d}.json"

    @property
    def mlperf_log(self) -> Path:
        """MLPerf log in the `:::MLLOG` format (v0.7 and later)."""
        return self.path / "mlperf.log"

    @property
    def mlperf_log_v06(self) -> Path:
        """The same run in the v0.6 `:::MLL` line format."""
        return self.path / "mlperf-v0.6.log"

    @property
    def steps(self) -> Path:
        """Per-step figures over ranks (NumPy .npz)."""
        return self.path / "steps.npz"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard events of rank 0."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """`latest.pt` and `best.pt`."""
        return self.path / "checkpoints"

    @property
    def rails_before(self) -> Path:
        """Device counters of all nodes before the timed part."""
        return self.path / "rails-before.json"

    @property
    def rails_after(self) -> Path:
        """Device counters of all nodes after the timed part."""
        return self.path / "rails-after.json"
