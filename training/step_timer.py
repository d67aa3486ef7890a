"""Step time, input wait and exposed communication of each step of one rank, on the host's clock or by CUDA events.

A step is: wait for input | forward, backward | synchronize (exposed communication) | update. Reading a device's clock in every
step would stop its queue, so on GPUs events are recorded and read once, at the end of the epoch.
"""

from __future__ import annotations

import time

import numpy as np
import torch


class HostStepTimer:
    """For CPUs, where work is done when the call returns."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, float, float]] = []
        self._start_s = self._input_s = self._exposed_s = self._mark_s = 0.0

    def start_step(self) -> None:
        """The step begins: the input is asked for."""
        self._start_s = time.perf_counter()
        self._input_s = self._exposed_s = 0.0

    def waiting_for_input(self) -> None:
        """A wait for the input pipeline begins (once per forward pass)."""
        self._mark_s = time.perf_counter()

    def input_arrived(self) -> None:
        """The batch is here."""
        self._input_s += time.perf_counter() - self._mark_s

    def exchange_begins(self) -> None:
        """Backward is done; what is still to be waited for is exposed communication."""
        self._mark_s = time.perf_counter()

    def exchange_ends(self) -> None:
        """All gradients are exchanged."""
        self._exposed_s += time.perf_counter() - self._mark_s

    def end_step(self) -> None:
        """The update is done."""
        self._rows.append((time.perf_counter() - self._start_s, self._input_s, self._exposed_s))

    def take(self) -> np.ndarray:
        """Seconds since the last call, [steps, 3]: step time, input wait, exposed communication."""
        rows, self._rows = self._rows, []
        return np.asarray(rows, dtype=np.float64).reshape(-1, 3)


class CudaStepTimer(HostStepTimer):
    """For GPUs: the input wait is the host's, step time and exposed communication are the stream's."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[list[torch.cuda.Event]] = []
        self._inputs_s: list[float] = []

    def _record(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events[-1].append(event)

    def start_step(self) -> None:
        super().start_step()
        self._events.append([])
        self._record()

    def exchange_begins(self) -> None:
        self._record()

    def exchange_ends(self) -> None:
        self._record()

    def end_step(self) -> None:
        self._record()
        self._inputs_s.append(self._input_s)

    def take(self) -> np.ndarray:
        torch.cuda.synchronize()
        rows = [
            (e[0].elapsed_time(e[3]) / 1e3, input_s, e[1].elapsed_time(e[2]) / 1e3)
            for e, input_s in zip(self._events, self._inputs_s, strict=True)
        ]
        self._events, self._inputs_s = [], []
        return np.asarray(rows, dtype=np.float64).reshape(-1, 3)


def step_timer(device: torch.device) -> HostStepTimer:
    """The timer for a device."""
    return CudaStepTimer() if device.type == "cuda" else HostStepTimer()
