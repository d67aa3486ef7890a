"""Model, optimizer, schedule, clock and shards against values worked out elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from results.settings import ScheduleSettings, Settings
from tests.training.support import ROOT, make_spec
from training.clock import RunClock
from training.process import rank_place
from training.resnet50.workload import ResNet50
from training.schedule import Schedule
from training.workload import Shard


def resnet(classes: int = 1000) -> tuple[ResNet50, torch.nn.Module]:
    spec = make_spec(Path("unused"), classes=classes)
    workload = ResNet50(spec=spec, shard=Shard(index=0, count=1), device=torch.device("cpu"))
    return workload, workload.build_model()


def test_resnet50_is_whole() -> None:
    _, model = resnet()
    assert sum(p.numel() for p in model.parameters()) == 25_557_032  # torchvision's model card of resnet50


def test_batch_norm_and_biases_are_not_decayed() -> None:
    workload, model = resnet()
    decayed, undecayed = workload.parameter_groups(model)
    assert undecayed["weight_decay"] == 0.0
    assert decayed["weight_decay"] == 1e-4
    names = {id(p): name for name, p in model.named_parameters()}
    assert len(decayed["params"]) == 54  # 53 convolutions and the classifier's matrix
    assert all("bn" in names[id(p)] or "downsample.1" in names[id(p)] or names[id(p)] == "fc.bias" for p in undecayed["params"])


def test_polynomial_schedule() -> None:
    settings = ScheduleSettings(warmup_epochs=2, decay="polynomial", decay_epochs=10, power=2, end_rate=0.0)
    schedule = Schedule(settings, peak=8.0, steps_per_epoch=5, max_epochs=10)
    assert schedule.rate(0) == pytest.approx(0.8)
    assert schedule.rate(9) == pytest.approx(8.0)
    assert schedule.rate(10) == pytest.approx(8.0)
    assert schedule.rate(30) == pytest.approx(2.0)  # half of the 40 decay steps: 8 * 0.5^2
    assert schedule.rate(50) == schedule.rate(99) == 0.0


def test_step_schedule() -> None:
    settings = ScheduleSettings(warmup_epochs=0, decay="step", step_epochs=[2, 3], step_factor=0.1)
    schedule = Schedule(settings, peak=1.0, steps_per_epoch=10, max_epochs=4)
    assert [schedule.rate(step) for step in (0, 19, 20, 30)] == pytest.approx([1.0, 1.0, 0.1, 0.01])


@pytest.mark.parametrize(("batch", "rate"), [(1664, 5.0), (3328, 10.0)])
def test_mlperf_learning_rates(batch: int, rate: float) -> None:
    """NVIDIA's v0.6 configurations: DGX-1 and DGX-2."""
    preset = yaml.safe_load((ROOT / "training/resnet50/presets/mlperf-v0.6.yaml").read_text())
    assert Settings.model_validate(preset).learning_rate.at(batch) == pytest.approx(rate)


@pytest.mark.parametrize(("batch", "rate"), [(32, 0.08), (64, 0.113), (128, 0.16)])
def test_sgd_rates_are_multiples_of_a_thousandth(batch: int, rate: float) -> None:
    """MLPerf Training rules, hyperparameters of ResNet under SGD; 0.08 * sqrt(2) = 0.11314."""
    assert make_spec(Path("unused")).settings.learning_rate.at(batch) == rate


def test_accounts_add_up() -> None:
    time_s = iter([0.0, 5.0, 15.0, 18.0, 20.0, 20.0])
    clock = RunClock(now=lambda: next(time_s))
    clock.switch("training")
    with clock.account("evaluation"):
        pass
    clock.stop()
    assert clock.seconds_s == {
        "initialization": 5.0, "training": 12.0, "evaluation": 3.0, "checkpoint_and_logging": 0.0, "restart": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(("samples", "count"), [(10, 3), (1437, 2), (7, 8), (50_000, 32)])
def test_shards_cover_everything_once(samples: int, count: int) -> None:
    shards = [Shard(index=index, count=count) for index in range(count)]
    assert [shard.start(samples) for shard in shards[1:]] == [shard.end(samples) for shard in shards[:-1]]
    assert sum(shard.size(samples) for shard in shards) == samples
    assert max(shard.size(samples) for shard in shards) - min(shard.size(samples) for shard in shards) <= 1


def test_rank_is_right_under_every_launcher() -> None:
    mpirun_in_slurm = {
        "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0",
    }  # fmt: skip
    place = rank_place(mpirun_in_slurm)
    assert (place.rank, place.size, place.local_rank) == (5, 8, 1)
    place = rank_place({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"})
    assert (place.rank, place.size, place.local_rank) == (3, 4, 1)
    place = rank_place({})
    assert (place.rank, place.size, place.local_rank) == (0, 1, 0)
