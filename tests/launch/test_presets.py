"""The mlperf presets at 4, 8, 16 and 32 V100 against the logs and configurations that they name, and the rules between them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from launch import catalog
from results.settings import LearningRateSettings, Settings
from results.yaml_file import ConfigurationError
from training.schedule import Schedule

SAMPLES = {"resnet50": 1_281_167, "ssd": 117_266, "maskrcnn": 117_266}
"""ILSVRC2012, and the COCO 2017 training images with objects: train_samples of MLPerf Training logs."""


def preset(workload: str, ranks: int, **overrides: Any) -> tuple[Settings, Schedule]:
    """Settings and schedule of the mlperf preset; steps in an epoch by hand: whole global batches and a partial one."""
    settings = catalog.settings(
        workload, "mlperf-v0.6", {key.replace("__", "."): value for key, value in overrides.items()}, ranks
    )
    batch = settings.global_batch_size(ranks)
    steps = SAMPLES[workload] // batch + 1
    return settings, Schedule(
        settings.schedule, peak=settings.learning_rate.at(batch), steps_per_epoch=steps, max_epochs=settings.max_epochs
    )


@pytest.mark.parametrize(
    ("ranks", "batch", "rate", "steps", "warmup_steps", "decay_steps"),
    [
        # NVIDIA v0.6 logs opt_base_learning_rate, and lars_opt_learning_rate_decay_steps counted from the end of warm-up:
        # 5.0 and 51,590 at 1,664 images; 10.0 and 25,795 at 3,328. The other two are half and sqrt(2) of their neighbours.
        (4, 832, 2.5, 1540, 5 * 1540, 67 * 1540),
        (8, 1664, 5.0, 770, 5 * 770, 51_590),
        (16, 3328, 10.0, 385, 5 * 385, 25_795),
        (32, 6656, 14.1421, 193, 5 * 193, 67 * 193),
        (5, 1040, 3.125, 1232, 5 * 1232, 67 * 1232),  # outside the table: 5 x 1,040 / 1,664
        (64, 13_312, 20.0, 97, 5 * 97, 67 * 97),  # 10 x sqrt(4)
    ],
)
def test_resnet50(ranks: int, batch: int, rate: float, steps: int, warmup_steps: int, decay_steps: int) -> None:
    settings, schedule = preset("resnet50", ranks)
    assert settings.global_batch_size(ranks) == batch
    assert schedule.peak == pytest.approx(rate, rel=1e-4)
    assert (schedule.steps_per_epoch, schedule.warmup_steps) == (steps, warmup_steps)
    assert schedule.decay_steps - schedule.warmup_steps == decay_steps
    assert schedule.rate(warmup_steps) == pytest.approx(rate, rel=1e-4)
    assert schedule.rate(72 * steps) == pytest.approx(1e-4)  # lars_opt_end_learning_rate
    assert (settings.optimizer.name, settings.optimizer.weight_decay) == ("lars", 2e-4)


@pytest.mark.parametrize(
    ("ranks", "local", "rate", "warmup_steps", "decays", "weight_decay"),
    [
        # Dell v0.7 logs of 1, 2 and 4 C4140: opt_base_learning_rate, warmup_steps, decay_boundary_epochs [44, 55], weight_decay.
        (4, 128, 0.0475, 1202, (44 * 230, 55 * 230), 1.6e-4),
        (8, 128, 0.1875, 601, (44 * 115, 55 * 115), 1.6e-4),
        (16, 56, 0.09, 654, (44 * 131, 55 * 131), 1.3e-4),
        # MLPerf's points ssd_ref_2048_s16 and ssd_ref_4096_s64 (v1.0): 0.00457 x 64 and 0.0025 x 128; 26 and 40 epochs.
        (16, 128, 0.29248, 26 * 58, (60 * 58, 75 * 58), 4e-5),
        (32, 128, 0.32, 40 * 29, (80 * 29, 100 * 29), 4e-5),
        # NVIDIA v0.6, DGX-1: `--warmup 650 --lr 2.92e-3`, logged as 0.0875; "lr decay step #1" after 160,000 x 32 / 960 steps.
        (8, 120, 0.0875, 650, (5333, 6667), 1.6e-4),
        # Outside the table, the reference's rule: 0.0025 x 640 / 32, 5 epochs, [40, 50], 5e-4.
        (5, 128, 0.05, 5 * 184, (40 * 184, 50 * 184), 5e-4),
    ],
)
def test_ssd(ranks: int, local: int, rate: float, warmup_steps: int, decays: tuple[int, int], weight_decay: float) -> None:
    settings, schedule = preset("ssd", ranks, local_batch_size=local)
    assert schedule.peak == pytest.approx(rate)
    assert schedule.warmup_steps == warmup_steps
    assert rates_around(schedule, decays) == pytest.approx([rate, rate / 10, rate / 10, rate / 100])
    assert settings.optimizer.weight_decay == weight_decay
    assert settings.max_epochs * schedule.steps_per_epoch >= decays[1]


@pytest.mark.parametrize(
    ("ranks", "rate", "warmup_steps", "decays"),
    [
        (4, 0.03, 625, (48_000, 64_000)),  # Dell v0.7, config_C4140.sh
        (8, 0.06, 625, (24_000, 32_000)),  # NVIDIA v0.6, DGX-1, log
        (16, 0.12, 625, (12_000, 16_000)),  # Dell v0.7, config_4xC4140.sh
        (32, 0.24, 1250, (7_000, 9_333)),  # NVIDIA v0.6, config_DGX1_multi.sh
        (5, 0.0375, 1000, (38_386, 51_182)),  # outside the table: 0.02 x 30 / 16; 9.82 and 13.0933 epochs of 3,909 steps
    ],
)
def test_maskrcnn(ranks: int, rate: float, warmup_steps: int, decays: tuple[int, int]) -> None:
    settings, schedule = preset("maskrcnn", ranks)
    assert schedule.peak == pytest.approx(rate)
    assert schedule.warmup_steps == warmup_steps
    assert rates_around(schedule, decays) == pytest.approx([rate, rate / 10, rate / 10, rate / 100])
    assert settings.optimizer.weight_decay == 1e-4


def rates_around(schedule: Schedule, decays: tuple[int, int]) -> list[float]:
    """The rates of the steps before and after each decay."""
    return [schedule.rate(step) for decay in decays for step in (decay - 1, decay)]


@pytest.mark.parametrize("workload", catalog.workloads())
def test_every_entry_of_the_tables_is_valid(workload: str) -> None:
    for name, path in catalog.presets(workload).items():
        table = yaml.safe_load(path.read_text()).get("by_global_batch_size", {})
        assert table or not name.startswith("mlperf")
        for batch in table:
            catalog.settings(workload, name, {"local_batch_size": batch})  # one rank
            assert catalog.origin(workload, name, batch) == f"the preset's values for a global batch of {batch}"


def test_outside_the_table_the_nearest_is_named() -> None:
    said = catalog.origin("maskrcnn", "mlperf-v0.6", 30)
    assert said == "by the preset's rules: it has values for 24, 48, 96, 192; the nearest is 24"
    assert catalog.origin("maskrcnn", "mlperf-v0.6", 150).endswith("the nearest is 192")
    assert catalog.origin("resnet50", "digits", 32) == ""


def test_a_rate_of_the_users_own_wins_over_the_table() -> None:
    assert preset("ssd", 4, learning_rate__value=0.005)[1].peak == pytest.approx(0.08)  # 0.005 x 512 / 32, not 0.0475
    settings, _ = preset("ssd", 4, optimizer__weight_decay=0.001)
    assert settings.optimizer.weight_decay == 0.001


def test_a_knee_needs_a_line() -> None:
    with pytest.raises(ValueError, match="linear_up_to goes with rule linear, not sqrt"):
        LearningRateSettings(rule="sqrt", value=1.0, batch_size=32, linear_up_to=64)
    with pytest.raises(ConfigurationError, match="linear_up_to goes with rule linear"):
        preset("resnet50", 4, learning_rate__rule="constant")
