"""Energy of GPU boards: NVML's counters by a module of its shape, and what the record makes of them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from results.record import EnergyFigures
from training.communicator import SingleProcess
from training.energy import EnergyMeter, Measured, total
from training.process import RankPlace

HERE = socket.gethostname()


class Nvml(ModuleType):
    """The part of nvidia-ml-py that is used, over GPUs whose counters (mJ) rise by a list of readings."""

    class NVMLError(Exception):
        pass

    def __init__(self, counters_mj: dict[str, list[int] | str]) -> None:
        super().__init__("pynvml")
        self.counters_mj = counters_mj

    def nvmlInit(self) -> None:
        if not self.counters_mj:
            raise self.NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.counters_mj:
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        readings = self.counters_mj[handle]
        if isinstance(readings, str):
            raise self.NVMLError(readings)
        return readings.pop(0)


class Ranks(SingleProcess):
    """All ranks' values at once."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__(RankPlace(rank=0, size=1, local_rank=0))
        self.values = values

    def gather_objects(self, value: Any) -> list[Any]:
        return self.values


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[EnergyMeter]]:
    """A meter for each rank; CUDA numbers the GPUs in the order given, NVML in its own."""

    def make(cuda_order: list[str], counters_mj: dict[str, list[int] | str]) -> list[EnergyMeter]:
        monkeypatch.setitem(sys.modules, "pynvml", Nvml(counters_mj))
        names = [name.removeprefix("GPU-") for name in cuda_order]
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=names[device.index]))
        return [EnergyMeter(torch.device("cuda", index)) for index in range(len(cuda_order))]

    return make


def figures(found: list[EnergyMeter], restarts: int = 0) -> tuple[EnergyFigures | None, list[str]]:
    for _ in range(2):
        for meter in found:
            meter.read()
    return total(Ranks([meter.measured() for meter in found]), found[0], restarts=restarts)


def test_each_rank_reads_its_own_board_whatever_order_nvml_has(meters: Callable[..., list[EnergyMeter]]) -> None:
    found = meters(["GPU-b", "GPU-a"], {"GPU-a": [1_000, 4_000], "GPU-b": [5_000, 12_500]})
    energy, notes = figures(found)
    assert energy is not None
    assert notes == []
    assert {board.gpu: board.energy_j for board in energy.boards} == {"GPU-a": 3.0, "GPU-b": 7.5}
    assert {board.host for board in energy.boards} == {HERE}
    assert energy.energy_j == 10.5
    assert energy.mean_power_w == 10.5 / energy.seconds_s


def test_a_board_that_ranks_share_counts_once(meters: Callable[..., list[EnergyMeter]]) -> None:
    energy, _ = figures(meters(["GPU-a", "GPU-a"], {"GPU-a": [1_000, 1_000, 3_000, 3_500]}))
    assert energy is not None
    assert [board.energy_j for board in energy.boards] == [2.5]  # the last rank's


def test_the_same_name_on_two_hosts_is_two_boards() -> None:
    values = [
        Measured(host=host, gpu="GPU-a", seconds_s=seconds_s, energy_j=3.0, problem="")
        for host, seconds_s in (("one", 2.0), ("two", 4.0))
    ]
    energy, _ = total(Ranks(values), EnergyMeter(torch.device("cpu")), restarts=0)
    assert energy is not None
    assert (len(energy.boards), energy.seconds_s, energy.mean_power_w) == (2, 4.0, 1.5)


def test_a_cpu_has_no_board() -> None:
    meter = EnergyMeter(torch.device("cpu"))
    meter.read()
    assert meter.measured() is None
    assert total(Ranks([None, None]), meter, restarts=0) == (None, [])


@pytest.mark.parametrize(
    ("counters_mj", "restarts", "why"),
    [
        ({"GPU-a": [5_000, 6_000], "GPU-b": "Not Supported"}, 0, f"GPU-b of {HERE}: Not Supported"),
        ({"GPU-a": [5_000, 6_000]}, 0, f"GPU-b of {HERE}: Not Found"),
        ({"GPU-a": [5_000, 6_000], "GPU-b": [5_000, 20]}, 0, "the counter went back"),
        ({"GPU-a": [5_000, 6_000], "GPU-b": [5_000, 6_000]}, 1, "the run was interrupted"),
        ({}, 0, "NVML Shared Library Not Found"),
    ],
)
def test_what_cannot_be_measured_whole_is_not_recorded_in_part(
    meters: Callable[..., list[EnergyMeter]], counters_mj: dict[str, list[int] | str], restarts: int, why: str
) -> None:
    energy, (note,) = figures(meters(["GPU-a", "GPU-b"], counters_mj), restarts)
    assert energy is None
    assert note.startswith("the energy of the GPU boards was not measured: ")
    assert why in note


def test_a_meter_that_was_read_once_says_so(meters: Callable[..., list[EnergyMeter]]) -> None:
    (meter,) = meters(["GPU-a"], {"GPU-a": [1_000]})
    meter.read()
    measured = meter.measured()
    assert measured is not None
    assert (measured.energy_j, measured.problem) == (None, "the counter was not read twice")


def test_without_the_package_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="a"))
    _, (note,) = figures([EnergyMeter(torch.device("cuda", 0))])
    assert "nvidia-ml-py is not installed" in note
