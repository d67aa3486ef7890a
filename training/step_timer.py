"""Step time, input wait and exposed communication of each step of one rank, on the host's clock or by CUDA events.

A step is: wait for input | forward, backward | synchronize (exposed communication) | update. Reading a device's clock in every
step would stop its queue, so on GPUs events are recorded, and read when they have long passed.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import torch

READ_AFTER_STEPS = 64
"""Steps whose events are kept before the oldest are read: more than any queue is deep, few enough to hold."""


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
    """For GPUs: everything as the stream has it.

    The host queues work ahead, so that a wait of the host for input costs nothing while the GPU still computes. What counts is
    how long the stream was empty: between the end of the last update and the arrival of the batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._marks: list[torch.cuda.Event] = []
        self._unread: deque[list[torch.cuda.Event]] = deque()
        self._free: list[torch.cuda.Event] = []

    def _mark(self) -> None:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def start_step(self) -> None:
        self._free += self._marks  # of the search for a batch after the last
        self._marks = []
        self._mark()

    def waiting_for_input(self) -> None:
        self._mark()

    def input_arrived(self) -> None:
        self._mark()

    def exchange_begins(self) -> None:
        self._mark()

    def exchange_ends(self) -> None:
        self._mark()

    def end_step(self) -> None:
        self._mark()
        self._unread.append(self._marks)
        self._marks = []
        # Asking whether an event has passed stops nothing.
        while len(self._unread) > READ_AFTER_STEPS and self._unread[0][-1].query():
            self._read_oldest()

    def _read_oldest(self) -> None:
        marks = self._unread.popleft()
        start, *inputs, exchange_begins, exchange_ends, end = marks
        waits_ms = [before.elapsed_time(after) for before, after in zip(inputs[::2], inputs[1::2], strict=True)]
        row_ms = start.elapsed_time(end), sum(waits_ms), exchange_begins.elapsed_time(exchange_ends)
        self._rows.append((row_ms[0] / 1e3, row_ms[1] / 1e3, row_ms[2] / 1e3))
        self._free += marks

    def take(self) -> np.ndarray:
        torch.cuda.synchronize()
        while self._unread:
            self._read_oldest()
        return super().take()


def step_timer(device: torch.device) -> HostStepTimer:
    """The timer for a device."""
    return CudaStepTimer() if device.type == "cuda" else HostStepTimer()
