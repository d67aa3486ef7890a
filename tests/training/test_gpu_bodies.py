"""The bodies of the GPU tests on the CPU, in short, so that they are not broken when they meet a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.training.gpu import bodies, test_dali
from tests.training.support import run_ranks

CPU = torch.device("cpu")
SMALL = {"image_size": 32, "local_batch_size": 4, "precision": "fp32"}


@pytest.mark.parametrize("source", ["dali", "torch"])
def test_first_batches_are_the_same_each_time(few_digits_dir: Path, source: str) -> None:
    spec = bodies.spec_of("resnet50", few_digits_dir, input__source=source, **SMALL)
    one, other = (bodies.first_batches(spec, CPU, 2) for _ in range(2))
    for first, second in zip(one, other, strict=True):
        assert torch.equal(first.targets, second.targets)
        assert all(torch.equal(a, b) for a, b in zip(bodies.pixels(first), bodies.pixels(second), strict=True))


@pytest.mark.parametrize("workload", ["resnet50", "ssd", "maskrcnn"])
def test_steps_leave_losses_and_memory(few_digits_dir: Path, scenes_dir: Path, workload: str) -> None:
    data_dir = few_digits_dir if workload == "resnet50" else scenes_dir
    options = {"local_batch_size": 2, "precision": "fp32"} | ({"image_size": 32} if workload == "resnet50" else {})
    course = bodies.train_steps(bodies.spec_of(workload, data_dir, **options), CPU, 3)
    assert len(course.losses) == len(course.allocated_bytes) == len(course.resident_bytes) == 3
    assert all(loss > 0 for loss in course.losses)


def test_throughput_says_what_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = bodies.write_photos(tmp_path / "photos", 12)
    for source in ("synthetic", "dali"):
        spec = bodies.spec_of("resnet50", photos, input__source=source, **SMALL)
        bodies.show("throughput", CPU, bodies.throughput(spec, CPU, warm_up_steps=1, steps=2))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["input"] for line in lines] == ["synthetic", "dali"]
    assert {line["device"] for line in lines} == {"cpu"}
    assert all(line["images_per_s"] > 0 and 0 <= line["input_wait_share"] <= 1 for line in lines)


@pytest.mark.parametrize("backend", ["horovod", "torch"])
def test_ranks_sum_and_average(tmp_path: Path, backend: str) -> None:
    done = run_ranks(2, "tests.training.ranks.allreduce", str(tmp_path / "out.json"), backend)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in json.loads((tmp_path / "out.json").read_text()):
        assert set(rank["sums"].values()) == {3.0}
        assert rank["gradients"] == pytest.approx({"weight": 1.5, "bias": 1.5}, rel=1e-3)


@pytest.mark.parametrize("workload", ["resnet50", "ssd", "maskrcnn"])
def test_batches_of_one_device_are_compared_with_those_of_another(digits_dir: Path, scenes_dir: Path, workload: str) -> None:
    """The GPU's own test, CPU against CPU: no difference."""
    test_dali.test_gpu_batches_are_those_of_the_cpu(CPU, digits_dir, scenes_dir, workload, "fp16")


def test_a_batch_with_other_pixels_or_labels_is_seen(digits_dir: Path) -> None:
    one, other = (
        bodies.first_batches(bodies.spec_of("resnet50", digits_dir, flip=flip, local_batch_size=8), CPU, 1)[0]
        for flip in (False, True)
    )
    assert max(test_dali.check_pixels(bodies.pixels(one), bodies.pixels(other))) > 3
    with pytest.raises(AssertionError):
        test_dali.same_targets(one.targets + 1, other.targets, CPU)


def test_sums_of_batches_do_not_depend_on_waiting(digits_dir: Path) -> None:
    test_dali.test_images_are_there_when_they_are_read(CPU, digits_dir)


def test_a_leak_is_seen() -> None:
    assert bodies.growth_bytes([5, 9, 7, 8, 9, 7]) == 0
    assert bodies.growth_bytes([5, 6, 7, 8, 9, 10]) == 3
    assert bodies.windows([1.0, 3.0, 5.0, 7.0, 9.0], 2) == [2.0, 6.0]
