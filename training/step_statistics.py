"""From each rank's step times to figures over ranks: minimum, median, maximum, and which rank is slowest."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from results.record import Spread

STEP, INPUT, EXPOSED = 0, 1, 2


def spread(values: np.ndarray) -> Spread:
    """Minimum, median and maximum of one value per rank."""
    return Spread(minimum=float(values.min()), median=float(np.median(values)), maximum=float(values.max()))


@dataclass(frozen=True, slots=True)
class EpochSteps:
    """All ranks' steps of one epoch, seconds [ranks, steps, 3]: step time, input wait, exposed communication."""

    seconds_s: np.ndarray

    @property
    def busy_s(self) -> np.ndarray:
        """Time of each step not spent on the exchange, [ranks, steps]: what makes the others wait."""
        return self.seconds_s[:, :, STEP] - self.seconds_s[:, :, EXPOSED]

    @property
    def slowest_rank(self) -> int:
        """The rank with the most busy time."""
        return int(self.busy_s.sum(axis=1).argmax())

    @property
    def straggler_s(self) -> float:
        """Sum over steps of the slowest rank's busy time less the mean's."""
        busy = self.busy_s
        return float((busy.max(axis=0) - busy.mean(axis=0)).sum())

    def mean_sum_s(self, column: int) -> float:
        """Sum over steps, mean over ranks."""
        return float(self.seconds_s[:, :, column].sum(axis=1).mean())


@dataclass(slots=True)
class StepHistory:
    """Per-step figures of the whole run, kept small: three numbers over ranks instead of one for each."""

    rows: list[np.ndarray] = field(default_factory=list)
    slowest: list[np.ndarray] = field(default_factory=list)

    def add(self, steps: EpochSteps) -> None:
        """Take in one epoch."""
        seconds = steps.seconds_s
        reduced = np.stack([seconds.min(axis=0), np.median(seconds, axis=0), seconds.max(axis=0)], axis=-1)
        self.rows.append(reduced.astype(np.float32))
        self.slowest.append(steps.busy_s.argmax(axis=0).astype(np.int32))

    def state(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What a checkpoint keeps."""
        return [(torch.from_numpy(rows), torch.from_numpy(ranks)) for rows, ranks in zip(self.rows, self.slowest, strict=True)]

    def restore(self, state: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Go on after the steps of an earlier process."""
        self.rows, self.slowest = [rows.numpy() for rows, _ in state], [ranks.numpy() for _, ranks in state]

    def write(self, path: Path) -> None:
        """Write `seconds_s` [steps, (step, input wait, exposed communication), (min, median, max)] and `slowest_rank` [steps]."""
        if self.rows:
            partial = path.with_name(f".{path.stem}.partial.npz")
            np.savez_compressed(partial, seconds_s=np.concatenate(self.rows), slowest_rank=np.concatenate(self.slowest))
            partial.replace(path)
