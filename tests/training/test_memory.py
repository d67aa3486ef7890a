"""Which local batch fits, by trial; a GPU's memory is stood in for by a workload that has room for so many images."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from results.rundir import RunDirectory
from results.yaml_file import ConfigurationError
from tests.training.support import make_spec
from training import memory
from training.clock import RunClock
from training.communicator import SingleProcess
from training.journal import NullJournal
from training.process import RankPlace
from training.resnet50.workload import ResNet50
from training.trainer import Trainer
from training.workload import Batch, Shard


@pytest.mark.parametrize("room", [0, 1, 6, 63, 64, 65, 207, 1000])
def test_bisection_finds_the_largest(room: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= room

    assert memory.find_largest(fits, 64) == room
    assert len(tried) <= 14  # 64, 128, ..., 1,024 and nine halvings of the last gap
    if room < 208:
        assert memory.largest_fitting(fits, 0, 208) == room


class Small(ResNet50):
    """Room for so many images; sees to it that nothing of an earlier pass is held when the next begins."""

    room = 11

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        earlier = getattr(self, "earlier", None)
        assert earlier is None or earlier() is None, "the batch of the failed pass is still held"
        self.earlier: Any = weakref.ref(batch.inputs)
        if batch.samples > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().loss(model, batch)


def trainer(tmp_path: Path, local_batch_size: int) -> Trainer:
    spec = make_spec(tmp_path, local_batch_size=local_batch_size, image_size=32, communication__backend="single")
    device, place = torch.device("cpu"), RankPlace(rank=0, size=1, local_rank=0)
    return Trainer(
        spec=spec, run_dir=RunDirectory(tmp_path), workload=Small(spec=spec, shard=Shard(index=0, count=1), device=device),
        communicator=SingleProcess(place), device=device, clock=RunClock(), journal=NullJournal(),
    )  # fmt: skip


def test_a_batch_too_large_names_the_largest_that_fits(tmp_path: Path) -> None:
    too_large = trainer(tmp_path, 40)
    with pytest.raises(
        ConfigurationError, match=r"40 does not fit into the memory of this host; a local batch of 11 fits: .*=4 to"
    ):
        memory.warm_up(too_large)
    assert too_large.workload.settings.local_batch_size == 40
    memory.warm_up(trainer(tmp_path, 11))


def test_the_warm_up_takes_the_most_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    within: list[bool] = []

    @contextmanager
    def worst_case(workload: Small, model: torch.nn.Module) -> Iterator[None]:
        monkeypatch.setattr(Small, "worst", True, raising=False)
        yield
        monkeypatch.setattr(Small, "worst", False, raising=False)

    def loss(workload: Small, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        within.append(Small.worst)  # type: ignore[attr-defined]
        return ResNet50.loss(workload, model, batch)

    monkeypatch.setattr(Small, "worst_case", worst_case)
    monkeypatch.setattr(Small, "loss", loss)
    memory.warm_up(trainer(tmp_path, 4))
    assert within == [True]


def test_not_even_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "room", 0)
    with pytest.raises(ConfigurationError, match="not even one image fits"):
        memory.warm_up(trainer(tmp_path, 4))
