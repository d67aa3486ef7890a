"""A run that is asked to stop keeps a checkpoint at that step, and goes on from it as if nothing had been."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results import events
from results.mlperf_log import read_log
from results.record import RunRecord
from tests.training.support import make_spec, run_ranks, train, write_spec
from training import checkpoint

SMALL = {
    "image_size": 32, "max_epochs": 2, "evaluation__local_batch_size": 8, "quality_target": {"accuracy": 1.01}, "flip": True,
}  # fmt: skip
STEPS = 4
"""In an epoch of 83 images."""


def small(data_dir: Path, *, ranks: int, source: str, **overrides: Any) -> Any:
    options = SMALL | {"local_batch_size": 24 // ranks, "input__source": source} | overrides
    return make_spec(data_dir, ranks=ranks, **options)


def stopped(run_dir: Path, ranks: int, place: str, asked: str = "0,1") -> int:
    return run_ranks(ranks, "tests.training.ranks.stopped", str(run_dir), place, asked).returncode


def record_of(run_dir: Path) -> RunRecord:
    return RunRecord.model_validate_json((run_dir / "record.json").read_text())


def resume(run_dir: Path, ranks: int) -> RunRecord:
    (run_dir / "record.json").unlink(missing_ok=True)
    assert train(run_dir, ranks) == 3  # the target cannot be reached
    return record_of(run_dir)


def last(run_dir: Path, name: str) -> dict[str, Any]:
    return [event for event in events.read(run_dir) if event["event"] == name][-1]


@pytest.fixture(scope="module")
def uninterrupted(few_digits_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The record of a small run, trained once for all tests that compare with it."""

    @functools.cache
    def whole(ranks: int, source: str) -> RunRecord:
        run_dir = write_spec(tmp_path_factory.mktemp("whole"), small(few_digits_dir, ranks=ranks, source=source))
        assert train(run_dir, ranks) == 3
        return record_of(run_dir)

    return whole


def assert_equal(found: RunRecord, expected: RunRecord) -> None:
    """Bit for bit, and each sample once."""
    assert [epoch.loss for epoch in found.epochs] == [epoch.loss for epoch in expected.epochs]
    assert [epoch.samples for epoch in found.epochs] == [epoch.samples for epoch in expected.epochs]
    assert [epoch.steps for epoch in found.epochs] == [epoch.steps for epoch in expected.epochs]
    assert [evaluation.metrics for evaluation in found.evaluations] == [e.metrics for e in expected.evaluations]


@pytest.mark.parametrize(
    ("ranks", "source", "asked"), [(2, "dali", "0,1"), pytest.param(2, "torch", "1", marks=pytest.mark.slow), (1, "dali", "0")]
)
def test_stopped_within_an_epoch(
    few_digits_dir: Path, tmp_path: Path, uninterrupted: Any, ranks: int, source: str, asked: str
) -> None:
    """Also where one rank alone was asked."""
    run_dir = write_spec(tmp_path / "run", small(few_digits_dir, ranks=ranks, source=source))
    assert stopped(run_dir, ranks, f"step:{STEPS + 1}", asked) == 5
    kept = last(run_dir, "checkpoint")
    assert kept["epoch"] == 1
    assert 2 <= kept["step"] < STEPS
    record = record_of(run_dir)
    assert (record.status, len(record.epochs)) == ("interrupted", 1)
    assert record.failure.message.startswith(f"interrupted after step {kept['step']} of {STEPS} of epoch 2; trainscale resume")
    kept_until_s = checkpoint.load(run_dir / "checkpoints" / "latest.pt")["time_s"]
    last_sign_s = max(event["time_s"] for event in events.read(run_dir))

    resumed = resume(run_dir, ranks)
    assert_equal(resumed, uninterrupted(ranks, source))
    assert resumed.restarts == 1
    told = last(run_dir, "resumed")
    assert (told["epoch"], told["step"]) == (1, kept["step"])
    # Lost: starting again, and from the checkpoint to the last word.
    started_again_s = last(run_dir, "init_stop")["initialization_s"]
    assert told["restart_s"] == pytest.approx(last_sign_s - kept_until_s + started_again_s)
    assert resumed.accounts.restart_s == told["restart_s"]
    assert np.load(run_dir / "steps.npz")["slowest_rank"].shape == (2 * STEPS,)
    keys = [
        (e.key, e.metadata.get("epoch_num", e.metadata.get("first_epoch_num"))) for e in read_log(run_dir / "mlperf.log").events
    ]
    intervals = [key for key in keys if key[1] is not None]
    assert len(intervals) == len(set(intervals)) == 2 * (2 + 2 + 3)  # block, epoch, evaluation with its accuracy


def test_stopped_in_an_evaluation(few_digits_dir: Path, tmp_path: Path, uninterrupted: Any) -> None:
    """It ends the evaluation first."""
    run_dir = write_spec(tmp_path / "run", small(few_digits_dir, ranks=2, source="dali"))
    assert stopped(run_dir, 2, "evaluation") == 5
    told = [e["event"] for e in events.read(run_dir)]
    # What rank 0 keeps at the signal may be written before the evaluation is over or after; the last checkpoint has both.
    assert told[-2:] == ["checkpoint", "interrupted"]
    assert told.count("evaluation") == 1
    assert last(run_dir, "evaluation")["time_s"] < last(run_dir, "checkpoint")["time_s"]
    assert_equal(resume(run_dir, 2), uninterrupted(2, "dali"))


def test_killed_before_the_evaluation_is_over(few_digits_dir: Path, tmp_path: Path, uninterrupted: Any) -> None:
    """What was trained before it was kept at the signal."""
    run_dir = write_spec(tmp_path / "run", small(few_digits_dir, ranks=2, source="torch"))
    assert stopped(run_dir, 2, "killed", "0") not in (0, 3, 5)
    assert [e["event"] for e in events.read(run_dir)][-1] == "checkpoint"
    assert not any(e["event"] == "evaluation" for e in events.read(run_dir))
    assert_equal(resume(run_dir, 2), uninterrupted(2, "torch"))
    assert sum(e["event"] == "epoch_stop" for e in events.read(run_dir)) == 2  # no epoch was trained again


def test_a_peer_that_answers_no_more_ends_the_wait(few_digits_dir: Path, tmp_path: Path) -> None:
    run_dir = write_spec(tmp_path / "run", small(few_digits_dir, ranks=2, source="synthetic"))
    assert stopped(run_dir, 2, "frozen:2", "0") == 5
    assert not (run_dir / "record.json").exists()


@pytest.mark.parametrize(
    ("workload", "source", "ranks"),
    [("maskrcnn", "dali", 2), ("ssd", "dali", 1), pytest.param("maskrcnn", "torch", 1, marks=pytest.mark.slow)],
)
def test_detection_is_stopped_within_an_epoch(scenes_dir: Path, tmp_path: Path, workload: str, source: str, ranks: int) -> None:
    """Its samplers draw from torch's generator in each step, and its masks are made in a thread ahead of training."""
    thresholds = {"ssd": {"box_ap": 1.0}, "maskrcnn": {"box_ap": 1.0, "mask_ap": 1.0}}
    spec = make_spec(
        scenes_dir, workload=workload, preset="digits-coco", ranks=ranks, max_epochs=1, local_batch_size=28 // ranks,
        input__source=source, quality_target=thresholds[workload], image_size=64, flip=True,
        **({"max_image_size": 96} if workload == "maskrcnn" else {}),
    )  # fmt: skip
    whole, run_dir = write_spec(tmp_path / "whole", spec), write_spec(tmp_path / "run", spec)
    assert train(whole, ranks) == 3
    assert stopped(run_dir, ranks, "step:1") == 5
    assert 2 <= last(run_dir, "checkpoint")["step"] < 4
    assert_equal(resume(run_dir, ranks), record_of(whole))


def test_a_full_disk_is_one_line_and_leaves_the_checkpoint_before(few_digits_dir: Path, tmp_path: Path) -> None:
    run_dir = write_spec(tmp_path / "run", small(few_digits_dir, ranks=2, source="dali"))
    assert stopped(run_dir, 2, "step:1") == 5
    latest = run_dir / "checkpoints" / "latest.pt"
    before = latest.read_bytes()
    (run_dir / "checkpoints" / ".latest.partial").symlink_to("/dev/full")  # every write to it finds no space left
    (run_dir / "record.json").unlink()
    assert stopped(run_dir, 2, f"step:{STEPS - 1}") == 5
    message = record_of(run_dir).failure.message
    assert "a checkpoint could not be written (No space left on device; the one before is intact); free space" in message
    assert "\n" not in message
    assert latest.read_bytes() == before
    assert subprocess.run(["find", str(run_dir / "checkpoints"), "-name", "*partial"], capture_output=True).stdout == b""
