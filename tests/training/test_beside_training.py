"""COCO's metrics reckoned beside training: the same figures, and the run ends with the weights that were evaluated."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from results import events
from results.record import RunRecord
from tests.training.support import make_spec, run_ranks, train, write_spec
from training import checkpoint
from training.coco_eval import CocoEvaluator, DetectionPacker, PackedDetections
from training.coco_worker import CocoWorker
from training.data.coco_index import annotation_path
from training.detections import Detections

SMALL = {"image_size": 64, "local_batch_size": 8, "max_epochs": 2, "evaluation__local_batch_size": 5, "precision": "fp32"}
NEVER, AT_ONCE = {"box_ap": 1.01}, {"box_ap": 0.0}


def small(data_dir: Path, *, ranks: int, target: dict[str, float], beside: bool) -> Any:
    options = SMALL | {"quality_target": target, "evaluation__beside_training": beside}
    return make_spec(data_dir, workload="ssd", preset="digits-coco", ranks=ranks, **options)


def run(run_dir: Path, spec: Any, ranks: int, status: int) -> RunRecord:
    assert train(write_spec(run_dir, spec), ranks) == status
    return RunRecord.model_validate_json((run_dir / "record.json").read_text())


@pytest.fixture(scope="module")
def waited(scenes_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 2 ranks that waits for its evaluations."""
    run_dir = tmp_path_factory.mktemp("waited") / "run"
    run(run_dir, small(scenes_dir, ranks=2, target=NEVER, beside=False), 2, 3)
    return run_dir


def evaluations(run_dir: Path) -> list[tuple[int, int, dict[str, float]]]:
    record = RunRecord.model_validate_json((run_dir / "record.json").read_text())
    return [(evaluation.epoch, evaluation.samples, evaluation.metrics) for evaluation in record.evaluations]


def test_the_figures_are_the_same(scenes_dir: Path, waited: Path, tmp_path: Path) -> None:
    record = run(tmp_path / "run", small(scenes_dir, ranks=2, target=NEVER, beside=True), 2, 3)
    assert evaluations(tmp_path / "run") == evaluations(waited)
    assert len(record.evaluations) == len(record.epochs) == 2
    assert any(metrics["box_ap"] > 0 for _, _, metrics in evaluations(waited))  # or the comparison would say nothing


def test_the_target_reached_ends_training_with_the_weights_that_reached_it(
    scenes_dir: Path, waited: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    record = run(run_dir, small(scenes_dir, ranks=2, target=AT_ONCE, beside=True), 2, 0)
    assert evaluations(run_dir) == evaluations(waited)[:1]
    assert (record.status, record.epochs_to_target) == ("finished", 1)
    assert record.time_to_train_s == record.evaluations[0].elapsed_s
    names = [event["event"] for event in events.read(run_dir)]
    # The checkpoint was written when training went on, before the figures were there.
    assert names.index("checkpoint") < names.index("evaluation") < names.index("run_stop")
    best = checkpoint.load(run_dir / "checkpoints" / "best.pt")
    once = tmp_path / "once"
    run(once, small(scenes_dir, ranks=2, target=AT_ONCE, beside=False), 2, 0)
    expected = checkpoint.load(once / "checkpoints" / "best.pt")
    assert best["model"].keys() == expected["model"].keys()
    for name, tensor in best["model"].items():
        assert torch.equal(tensor, expected["model"][name]), name


def test_the_checker_takes_the_log(scenes_dir: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run(run_dir, small(scenes_dir, ranks=1, target=AT_ONCE, beside=True), 1, 0)
    checker = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training"]
    done = subprocess.run(
        [*checker, "--ruleset", "0.6.0", "--log_output", str(tmp_path / "log"), str(run_dir / "mlperf-v0.6.log")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_asked_to_stop_while_figures_are_due(scenes_dir: Path, waited: Path, tmp_path: Path) -> None:
    run_dir = write_spec(tmp_path / "run", small(scenes_dir, ranks=2, target=NEVER, beside=True))
    assert run_ranks(2, "tests.training.ranks.stopped", str(run_dir), "evaluation", "0,1").returncode == 5
    assert evaluations(run_dir) == evaluations(waited)[:1]
    (run_dir / "record.json").unlink()
    assert train(run_dir, 2) == 3
    assert evaluations(run_dir) == evaluations(waited)


def test_a_workload_without_it_says_so(few_digits_dir: Path, tmp_path: Path) -> None:
    run_dir = write_spec(tmp_path / "run", make_spec(few_digits_dir, evaluation__beside_training=True))
    assert train(run_dir) not in (0, 3)
    (told,) = (run_dir / "logs").glob("failure-*.json")
    assert "resnet50 leaves nothing to reckon beside training: evaluation.beside_training=false" in told.read_text()


def some_detections(annotations: Path) -> PackedDetections:
    packer, generator = DetectionPacker(), torch.Generator().manual_seed(1)
    for image in [image["id"] for image in json.loads(annotations.read_text())["images"]]:
        corners = torch.rand(20, 2, generator=generator) * 50
        boxes = torch.cat([corners, corners + 5 + torch.rand(20, 2, generator=generator) * 40], dim=1)
        labels = torch.randint(1, 11, (20,), generator=generator)
        packer.add(image, Detections(boxes=boxes, scores=torch.rand(20, generator=generator), labels=labels), labels.numpy())
    return packer.packed()


def test_the_worker_answers_as_the_evaluator_does(scenes_dir: Path) -> None:
    annotations = annotation_path(scenes_dir, "val")
    packed = some_detections(annotations)
    worker = CocoWorker(annotations)
    for _ in range(2):
        worker.start(packed, ["bbox"])
        found = worker.take()
    assert not worker.ready()
    worker._questions.close()  # as when the parent ends
    assert worker._process.wait() == 0
    np.testing.assert_array_equal(found["bbox"], CocoEvaluator(annotations).evaluate(packed, "bbox"))


def test_a_worker_that_is_gone_is_told(scenes_dir: Path) -> None:
    annotations = annotation_path(scenes_dir, "val")
    worker = CocoWorker(annotations)
    worker.start(some_detections(annotations), ["bbox"])
    worker._process.send_signal(signal.SIGKILL)
    worker._process.wait()
    with pytest.raises(RuntimeError, match="ended with status -9"):
        worker.take()
