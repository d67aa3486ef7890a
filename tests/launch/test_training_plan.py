"""Plans of 4 to 32 ranks against values worked out by hand, and against what training itself does with the same settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch import catalog
from launch.footprint import known_footprint
from launch.plan_table import render
from launch.training_plan import TrainingPlan, make_plan
from results.yaml_file import ConfigurationError
from tests.launch.support import ROOT, overrides, trainscale
from training.schedule import Schedule
from training.workload import Shard


def plan(workload: str, preset: str, nodes: int, ranks_per_node: int = 4, **changes: Any) -> TrainingPlan:
    settings = catalog.settings(
        workload, preset, {key.replace("__", "."): value for key, value in changes.items()}, nodes * ranks_per_node
    )
    return make_plan(
        workload, preset, settings, nodes=nodes, ranks_per_node=ranks_per_node,
        footprint=known_footprint(workload, preset, settings),
    )  # fmt: skip


def test_resnet50_on_32_v100_by_hand() -> None:
    found = plan("resnet50", "mlperf-v0.6", 8)
    assert found.input_shape == (208, 3, 224, 224)
    assert found.global_batch_size == 6656
    assert found.shard_samples == (40_036, 40_037)  # 1,281,167 / 32 = 40,036.5
    assert found.steps_per_epoch == 193  # 40,037 / 208 = 192.5
    assert found.last_batch_samples == (100, 101)  # 40,037 - 192 x 208
    assert found.evaluation_samples == (1562, 1563)  # 50,000 / 32 = 1,562.5
    assert found.evaluation_batches == 8  # 1,563 / 208 = 7.5
    assert (found.max_epochs, found.max_steps, found.evaluations) == (72, 72 * 193, 18)  # after epochs 4, 8, ..., 72
    assert (found.warmup_steps, found.decay_steps) == (965, [72 * 193])
    assert found.gradient_bytes == 25_557_032 * 4
    # NVIDIA's v0.6 DGX-1: 11,171 images/s on 8 V100, so 208 images take 149.0 ms, the backward pass 99.3 ms; 8 bits,
    # 102.2 MB, 2 x 31 / 32: 15.95 Gbit/s.
    assert found.hiding_busbw_bits_per_s == pytest.approx(15.95e9, rel=1e-3)


def test_ssd_and_mask_rcnn_by_hand() -> None:
    ssd = plan("ssd", "mlperf-v0.6", 8)
    assert (ssd.global_batch_size, ssd.steps_per_epoch, ssd.shard_samples) == (4096, 29, (3664, 3665))  # 117,266 / 32 = 3,664.6
    assert ssd.last_batch_samples == (80, 81)  # 3,665 - 28 x 128
    assert (ssd.evaluations, ssd.max_epochs) == (12, 100)  # 40, 50, 55, ..., 100
    assert ssd.hyperparameters == "the preset's values for a global batch of 4096"
    mask = plan("maskrcnn", "mlperf-v0.6", 1)
    assert mask.input_shape == (6, 3, 800, 1333)
    assert mask.steps_per_epoch == 4887  # 117,266 / 24 = 4,886.1
    assert mask.last_batch_samples == (0, 1)  # two images are left for four ranks
    assert (mask.evaluation_samples, mask.evaluation_batches) == ((1250, 1250), 209)


def test_passes_summed_before_an_exchange() -> None:
    found = plan("resnet50", "mlperf-v0.6", 8, local_batch_size=104, communication__backward_passes_per_step=2)
    assert (found.global_batch_size, found.steps_per_epoch) == (6656, 193)  # 40,037 / 104 = 384.97, so 385 passes
    assert found.last_batch_samples == (100, 101)  # 40,037 - 384 x 104 = 101
    assert plan("resnet50", "mlperf-v0.6", 8, communication__compression="fp16").gradient_bytes == 25_557_032 * 2


@pytest.mark.parametrize("workload", catalog.workloads())
@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
def test_training_would_do_the_same(workload: str, nodes: int) -> None:
    for preset in catalog.presets(workload):
        found = plan(workload, preset, nodes)
        settings = catalog.settings(workload, preset, {}, found.ranks)
        shards = [Shard(index=index, count=found.ranks) for index in range(found.ranks)]
        batches = [shard.batch_sizes(found.samples_per_epoch, settings.local_batch_size) for shard in shards]
        owned = [sum(own for own, _ in rank) for rank in batches]
        assert found.shard_samples == (min(owned), max(owned))
        last = [rank[-1][0] for rank in batches]
        assert found.last_batch_samples == (min(last), max(last))
        assert found.steps_per_epoch == len(batches[0])
        schedule = Schedule(
            settings.schedule, peak=found.peak_learning_rate, steps_per_epoch=found.steps_per_epoch, max_epochs=found.max_epochs
        )
        assert found.warmup_steps == schedule.warmup_steps
        for step in found.decay_steps:
            if step < found.max_steps:
                assert schedule.rate(step) < schedule.rate(step - 1)
        assert schedule.rate(found.decay_steps[-1]) == schedule.rate(found.max_steps)


def test_command_needs_no_torch_and_fits_100_columns(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')")
    done = trainscale("plan", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "…" not in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["8", "32", "208", "6656", "14.142", "0.0002", "193", "965", "13896", "72", "18"] in rows
    assert ["8", "40036–40037", "100–101", "1562–1563", "8", "102.2", "MB", "16", "Gbit/s", "11.3", "GiB"] in rows


def test_command_as_json_with_changed_settings() -> None:
    done = trainscale(
        "plan", "ssd", "--preset", "mlperf-v0.6", "--nodes", "2", "--ranks-per-node", "8", "--json", *overrides("image_size=600")
    )
    (found,) = json.loads(done.stdout)
    assert (found["nodes"], found["ranks_per_node"], found["global_batch_size"]) == (2, 8, 2048)
    assert found["memory_bytes"] is None  # not the preset's own image size
    assert trainscale("plan", "--preset", "digits").returncode == 2
    assert "unknown workload ssdd; did you mean ssd?" in trainscale("plan", "ssdd").stderr


def test_table_is_told_from_changed_settings() -> None:
    assert "–" in render([plan("resnet50", "digits", 1, image_size=32)])
    assert known_footprint("resnet50", "mlperf-v0.6", catalog.settings("resnet50", "mlperf-v0.6", {"precision": "fp32"})) is None
    with pytest.raises(ConfigurationError, match="unknown preset"):
        plan("resnet50", "mlperf", 1)
