"""The sums of one epoch while it goes on. Where a run is stopped within an epoch, a later process goes on with them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from results.record import EpochFigures
from training import step_statistics
from training.communicator import Communicator
from training.step_timer import HostStepTimer


class EpochUnderWay:
    """What one rank knows of an epoch so far."""

    def __init__(self, epoch: int, device: torch.device) -> None:
        self.epoch = epoch
        self.steps = 0
        """Optimizer steps done."""
        self.samples = 0
        """Of all ranks."""
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        """Over this rank's samples."""
        self._timed = np.zeros((0, 3))
        self._earlier_s = 0.0
        self._start_s = time.monotonic()

    def go_on(self) -> None:
        """Steps begin, or begin again in another process."""
        self._start_s = time.monotonic()

    def add(self, loss: torch.Tensor, global_samples: int) -> None:
        """Take in one step: the sum of this rank's losses, and all ranks' samples."""
        self.loss_sum += loss
        self.samples += global_samples
        self.steps += 1

    @property
    def seconds_s(self) -> float:
        """Training time of this rank."""
        return self._earlier_s + time.monotonic() - self._start_s

    def timed(self, timer: HostStepTimer) -> np.ndarray:
        """Seconds of all steps so far, [steps, 3], as a step timer has them."""
        self._timed = np.concatenate([self._timed, timer.take()])
        return self._timed

    def state(self, timer: HostStepTimer) -> dict[str, Any]:
        """What a checkpoint keeps of this rank's part; tensors and numbers."""
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "samples": self.samples,
            "loss_sum": float(self.loss_sum),
            "seconds_s": self.seconds_s,
            "timed": torch.from_numpy(self.timed(timer)),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any], device: torch.device) -> EpochUnderWay:
        """The epoch as it was when `state` was taken."""
        epoch = cls(state["epoch"], device)
        epoch.steps, epoch.samples, epoch._earlier_s = state["steps"], state["samples"], state["seconds_s"]
        epoch.loss_sum += state["loss_sum"]
        epoch._timed = state["timed"].numpy()
        return epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochEnd:
    """What all ranks know at the end of an epoch."""

    figures: EpochFigures
    steps: step_statistics.EpochSteps
    asked_to_stop: bool
    """Some rank was."""


def finish_epoch(epoch: EpochUnderWay, timer: HostStepTimer, communicator: Communicator, *, rate: float, asked: bool) -> EpochEnd:
    """Bring the ranks' figures together; collective."""
    # One gathering for all figures; it is the ranks' meeting point too, so the seconds are the slowest rank's.
    loss = float(epoch.loss_sum)
    gathered = communicator.gather_objects((epoch.timed(timer), loss, epoch.seconds_s, asked))
    steps = step_statistics.EpochSteps(np.stack([row[0] for row in gathered]))
    columns = steps.seconds_s
    figures = EpochFigures(
        epoch=epoch.epoch,
        samples=epoch.samples,
        steps=epoch.steps,
        seconds_s=max(row[2] for row in gathered),
        loss=sum(row[1] for row in gathered) / epoch.samples,
        learning_rate=rate,
        step_time_s=step_statistics.spread(columns[:, :, step_statistics.STEP].mean(axis=1)),
        input_wait_s=step_statistics.spread(columns[:, :, step_statistics.INPUT].sum(axis=1)),
        exposed_communication_s=step_statistics.spread(columns[:, :, step_statistics.EXPOSED].sum(axis=1)),
        slowest_rank=steps.slowest_rank,
    )
    return EpochEnd(figures=figures, steps=steps, asked_to_stop=any(row[3] for row in gathered))
