"""Whole small runs of both detectors: the record, MLCommons' checker on their logs, pictures from checkpoints."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from results.record import RunRecord
from results.spec import RunSpec
from results.yaml_file import ConfigurationError
from tests.training.support import make_spec, train, write_spec
from training.detections import Detections
from training.draw import draw
from training.predict_images import predict_images

SMALL: dict[str, dict[str, Any]] = {
    "ssd": {"model__backbone": "resnet18", "image_size": 48, "local_batch_size": 16},
    "maskrcnn": {
        "image_size": 48, "max_image_size": 64, "local_batch_size": 8, "model__width": 8,
        "model__image_candidates": 125,  # of a local batch 1,000, as the rules want a multiple of that
        "model__evaluation_candidates": 20, "model__box_samples": 16,
    },
}  # fmt: skip
ACCURACIES = {"ssd": (0.2301, 0.2299), "maskrcnn": ({"BBOX": 0.3771, "SEGM": 0.3391}, {"BBOX": 0.3771, "SEGM": 0.3389})}
"""One that reaches MLPerf's target and one just below it."""


def spec_of(root: Path, name: str, ranks: int = 1, **overrides: Any) -> RunSpec:
    settings = {"precision": "fp32", "evaluation__local_batch_size": 5} | SMALL[name] | overrides
    return make_spec(root, workload=name, preset="digits-coco", ranks=ranks, **settings)


@pytest.fixture(scope="module")
def runs(scenes_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of one epoch of each: a target that anything reaches."""
    found = {}
    for name, target in (("ssd", {"box_ap": 0.0}), ("maskrcnn", {"box_ap": 0.0, "mask_ap": 0.0})):
        spec = spec_of(scenes_dir, name, quality_target=target)
        found[name] = write_spec(tmp_path_factory.mktemp(name) / "run", spec)
        assert train(found[name]) == 0
    return found


def record_of(run_dir: Path) -> RunRecord:
    return RunRecord.model_validate_json((run_dir / "record.json").read_text())


@pytest.mark.parametrize("name", SMALL)
def test_the_record_tells_the_whole_run(runs: dict[str, Path], name: str) -> None:
    record = record_of(runs[name])
    assert record.status == "finished"
    assert record.train_samples_per_epoch == record.epochs[0].samples == 103
    assert record.evaluations[0].samples == 13
    assert set(record.evaluations[0].metrics) == set(record.spec.settings.quality_target)
    assert record.extra["backbone_weights"] == "none: random initial weights"
    assert np.isfinite(record.epochs[0].loss)
    assert record.data_digest
    if name == "maskrcnn":
        imbalance = record.extra["imbalance"]
        assert set(imbalance) == {"waiting_share", "waiting_share_ungrouped", "padding_share"}
        assert 0 < imbalance["padding_share"] < 1


def check(log: Path, ruleset: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", ruleset, str(log)],
        capture_output=True, text=True, cwd=log.parent, timeout=240,
    )  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_the_compliance_checker_takes_the_log(runs: dict[str, Path], name: str, tmp_path: Path) -> None:
    """The run's own log, with the accuracy that a long run would have: 1.0.0 enforces it, 0.6.0 does not look."""
    text = (runs[name] / "mlperf.log").read_text()
    for accuracy, passes in zip(ACCURACIES[name], (True, False), strict=True):
        log = tmp_path / f"{passes}.log"
        value = json.dumps(accuracy)
        log.write_text(re.sub(r'("key": "eval_accuracy", "value": )(\{[^}]*\}|[0-9.]+)', rf"\g<1>{value}", text))
        assert value in log.read_text()
        done = check(log, "1.0.0")
        assert (done.returncode == 0) is passes, done.stdout + done.stderr
        assert ("SUCCESS" in done.stdout + done.stderr) is passes
    old = check(runs[name] / "mlperf-v0.6.log", "0.6.0")
    assert old.returncode == 0, old.stdout + old.stderr


@pytest.mark.parametrize("name", SMALL)
def test_pictures_are_drawn_from_a_checkpoint(runs: dict[str, Path], scenes_dir: Path, tmp_path: Path, name: str) -> None:
    checkpoint = runs[name] / "checkpoints" / "latest.pt"
    plain, drawn = (
        predict_images(checkpoint, tmp_path / part, data_dir=None, count=3, least_score=score)
        for part, score in (("plain", 1.1), ("drawn", 0.0))
    )
    names = sorted(path.stem for path in (scenes_dir / "val2017").iterdir())[:3]
    assert [path.name for path in drawn] == [f"{name}.png" for name in names]
    for path, other in zip(plain, drawn, strict=True):
        with Image.open(path) as one, Image.open(other) as two:
            assert max(one.size) >= 384
            assert one.size == two.size
            without = np.asarray(one)
            changed = (without != np.asarray(two)).any(axis=2).mean()
        with Image.open(scenes_dir / "val2017" / f"{path.stem}.jpg") as original:
            factor = without.shape[1] // original.width
            np.testing.assert_array_equal(without[::factor, ::factor], np.asarray(original.convert("RGB")))
        # After one epoch SSD finds something at score 0; torchvision's heads give nothing below 0.05.
        assert changed > 0.001 or name == "maskrcnn"
    assert len(list((tmp_path / "drawn").iterdir())) == 3


def test_masks_and_boxes_are_drawn_where_they_are(scenes_dir: Path) -> None:
    path = min((scenes_dir / "val2017").iterdir())
    with Image.open(path) as stored:
        width, height = stored.size
    mask = torch.zeros(1, height, width, dtype=torch.bool)
    mask[:, 40:60, 30:70] = True
    box = torch.tensor([[30.0, 40, 70, 60]])
    found = Detections(boxes=box, scores=torch.tensor([0.9]), labels=torch.tensor([3]), masks=mask)
    picture, plain = draw(path, found, ["two"]), draw(path, found.above(1.0), [])
    factor = plain.shape[2] // width
    changed = (picture != plain).any(dim=0)
    assert bool(changed[41 * factor : 59 * factor, 31 * factor : 69 * factor].float().mean() > 0.95)
    assert not bool(changed[62 * factor :].any())
    assert not bool(changed[:, : 29 * factor].any())


def test_checkpoints_that_do_not_fit_are_named(runs: dict[str, Path], scenes_dir: Path, tmp_path: Path) -> None:
    checkpoint = runs["ssd"] / "checkpoints" / "latest.pt"

    def refusal(path: Path, data_dir: Path | None = None) -> str:
        with pytest.raises(ConfigurationError) as caught:
            predict_images(path, tmp_path / "out", data_dir=data_dir, count=1, least_score=0.5)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    root = tmp_path / "fewer"
    shutil.copytree(scenes_dir, root)
    annotations = root / "annotations/instances_val2017.json"
    document = json.loads(annotations.read_text())
    kept = [category for category in document["categories"] if category["id"] <= 7]
    document["annotations"] = [a for a in document["annotations"] if a["category_id"] <= 7]
    annotations.write_text(json.dumps(document | {"categories": kept}))
    assert "has 7 categories, so the model needs 8 classes (background included), not 11" in refusal(checkpoint, root)
    assert "annotation file" in refusal(checkpoint, tmp_path / "nowhere")
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    assert "no checkpoint of this project" in refusal(tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no checkpoint")
    assert "not a readable checkpoint" in refusal(tmp_path / "text.pt")
    state = torch.load(checkpoint, weights_only=True)
    spec = RunSpec.model_validate_json(state["spec"])
    wider = spec.settings.model_copy(update={"classes": 8})
    torch.save(state | {"spec": spec.model_copy(update={"settings": wider}).model_dump_json()}, tmp_path / "classes.pt")
    assert "weights and model differ" in refusal(tmp_path / "classes.pt")
    torch.save(state | {"spec": spec.model_copy(update={"workload": "resnet50"}).model_dump_json()}, tmp_path / "resnet.pt")
    assert "resnet50" in refusal(tmp_path / "resnet.pt")


def failure(folder: Path, spec: RunSpec) -> str:
    run_dir = write_spec(folder / "run", spec)
    assert train(run_dir) == 4
    told: dict[str, Any] = json.loads((run_dir / "logs" / "failure-00000.json").read_text())
    assert "\n" not in told["message"]
    return str(told["message"])


def test_a_run_on_wrong_annotations_ends_in_one_line(scenes_dir: Path, tmp_path: Path) -> None:
    root = tmp_path / "coco"
    shutil.copytree(scenes_dir, root)
    path = root / "annotations/instances_train2017.json"
    document = json.loads(path.read_text())
    document["annotations"][3]["category_id"] = 99
    path.write_text(json.dumps(document))
    message = failure(tmp_path, spec_of(root, "ssd", max_epochs=1))
    assert f"annotation file {path} is not as COCO writes it" in message
    assert "unknown category 99" in message
    assert "trainscale data prepare" in message
