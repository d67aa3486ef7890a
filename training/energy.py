"""Energy of the GPU boards from run_start to run_stop, by the driver's own counters (NVML; Volta and newer keep them).

A counter is read twice in a run, so nothing samples beside training. It counts what the board takes: GPU and its memory, no
processors, no network, no fans of the node.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any

import torch

from results.record import EnergyFigures, GpuEnergy
from training.communicator import Communicator
from training.device import gpu_uuid


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one rank found."""

    host: str
    gpu: str
    seconds_s: float
    energy_j: float | None
    problem: str
    """Why there is no energy."""


class EnergyMeter:
    """Meter of one rank's GPU; on a CPU it measures nothing."""

    def __init__(self, device: torch.device) -> None:
        self._gpu = gpu_uuid(device) if device.type == "cuda" else ""
        self._problem = ""
        self._nvml: Any = None
        self._handle: Any = None
        self._readings: list[tuple[float, float]] = []
        if self._gpu:
            self._open()

    def _open(self) -> None:
        try:
            import pynvml
        except ImportError:
            self._problem = "the package nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            # By its own name: NVML counts GPUs in another order than CUDA, and sees those that are hidden from CUDA.
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(self._gpu)
            self._nvml = pynvml
        except pynvml.NVMLError as error:
            self._problem = str(error)

    def read(self) -> None:
        """Take a reading: once before run_start, once after run_stop."""
        if self._nvml is None:
            return
        try:
            energy_j = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3
        except self._nvml.NVMLError as error:
            self._nvml, self._problem = None, str(error)
            return
        self._readings.append((time.monotonic(), energy_j))

    def measured(self) -> Measured | None:
        """Between the first reading and the last; None on a CPU."""
        if not self._gpu:
            return None
        (start_s, before_j), (stop_s, after_j) = (self._readings[0], self._readings[-1]) if self._readings else ((0, 0), (0, 0))
        problem = self._problem
        if not problem and len(self._readings) < 2:
            problem = "the counter was not read twice"
        elif not problem and after_j < before_j:
            problem = "the counter went back, as it does when the driver is loaded again"
        return Measured(
            host=socket.gethostname(), gpu=self._gpu, seconds_s=stop_s - start_s,
            energy_j=None if problem else after_j - before_j, problem=problem,
        )  # fmt: skip


def total(communicator: Communicator, meter: EnergyMeter, *, restarts: int) -> tuple[EnergyFigures | None, list[str]]:
    """The boards of all ranks, each once, and what a reader must know where they could not be measured; collective."""
    boards = {(own.host, own.gpu): own for own in communicator.gather_objects(meter.measured()) if own is not None}
    if not boards:
        return None, []
    problem = next((f"{own.gpu} of {own.host}: {own.problem}" for own in boards.values() if own.problem), "")
    if restarts:
        problem = "the run was interrupted, and what its earlier processes took is not known"
    if problem:
        return None, [f"the energy of the GPU boards was not measured: {problem}"]
    return EnergyFigures(
        seconds_s=max(own.seconds_s for own in boards.values()),
        boards=[
            GpuEnergy(host=own.host, gpu=own.gpu, energy_j=own.energy_j) for own in boards.values() if own.energy_j is not None
        ],
    ), []
