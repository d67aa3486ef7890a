"""RunSpec: what was asked of one run. `launch` writes it as `spec.json`, `training` reads it."""

from __future__ import annotations

from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt

from results.model import Document
from results.settings import Settings


class RunSpec(Document):
    """Everything that decides how one run goes; a run directory holds exactly one."""

    run_id: str
    """Name of the run directory, unique within an experiment."""
    experiment: str | None = None
    workload: str
    """`resnet50`, `ssd` or `maskrcnn`."""
    preset: str
    """Name of the preset, or path of the user's own file."""
    nodes: PositiveInt
    ranks_per_node: PositiveInt
    interconnect: str
    """Name of the interconnect configuration."""
    system: str = "unnamed"
    """Name of the machine in reports; runs of different systems are never mixed."""
    emulated_nodes: bool
    """True when several nodes are emulated on one host: reports say so in their titles."""
    repeat: PositiveInt = 1
    seed: NonNegativeInt
    """Drawn from the operating system unless the user names it; recorded either way."""
    data_dir: Path
    settings: Settings

    @property
    def ranks(self) -> int:
        """Number of ranks over all nodes."""
        return self.nodes * self.ranks_per_node

    @property
    def global_batch_size(self) -> int:
        """Samples per optimizer step over all ranks."""
        return self.settings.global_batch_size(self.ranks)

    @property
    def peak_learning_rate(self) -> float:
        """Learning rate after warm-up, by the preset's rule for this global batch size."""
        return self.settings.learning_rate.at(self.global_batch_size)
