"""Our twelve numbers against pycocotools, COCO's own evaluation, on random and adversarial detections."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from training.coco_eval import CocoEvaluator, DetectionPacker, join
from training.detections import Detections

WIDTH, HEIGHT = 160, 120
Kind = Literal["bbox", "segm"]


@dataclass(frozen=True)
class Case:
    """What a detector might meet: counts for each image, and how much is alike."""

    seed: int
    truths: tuple[int, ...]
    found: tuple[int, ...]
    categories: int
    crowd_share: float
    score_levels: int
    """Few levels make ties."""
    grid_px: int
    """A coarse grid makes ties in IoU, and IoU on the thresholds."""
    not_numbers: int = 0
    """Detections with a box or score that is no number."""


cases = st.integers(1, 4).flatmap(
    lambda images: st.builds(
        Case,
        seed=st.integers(0, 2**32 - 1),
        truths=st.tuples(*[st.integers(0, 5)] * images),
        found=st.tuples(*[st.sampled_from([0, 1, 7, 130])] * images),
        categories=st.integers(1, 4),
        crowd_share=st.sampled_from([0.0, 0.4, 1.0]),
        score_levels=st.sampled_from([1, 3, 10**6]),
        grid_px=st.sampled_from([1, 10, 40]),
        not_numbers=st.sampled_from([0, 2]),
    )
)


def random_boxes(count: int, case: Case, rng: np.random.Generator) -> np.ndarray:
    """[count, 4] left, top, right, bottom on the grid, from slivers to the whole image; whole pixels."""
    columns = np.sort(rng.integers(0, WIDTH // case.grid_px + 1, (count, 2)), axis=1)
    rows = np.sort(rng.integers(0, HEIGHT // case.grid_px + 1, (count, 2)), axis=1)
    corners = np.stack([columns[:, 0], rows[:, 0], columns[:, 1], rows[:, 1]], axis=1) * case.grid_px
    corners[:, 2:] += (corners[:, 2:] == corners[:, :2]) * case.grid_px
    return corners


def bitmaps(boxes: np.ndarray) -> np.ndarray:
    """[n, height, width]: the lower triangle of each box."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    found = np.zeros((len(boxes), HEIGHT, WIDTH), dtype=np.uint8)
    for bitmap, (left, top, right, bottom) in zip(found, boxes, strict=True):
        inside = (columns >= left) & (columns < right) & (rows >= top) & (rows < bottom)
        bitmap[inside & ((rows - top) * (right - left) >= (columns - left) * (bottom - top))] = 1
    return found


def run_lengths(bitmap: np.ndarray) -> dict[str, Any]:
    packed = coco_mask.encode(np.asfortranarray(bitmap))
    return {"size": packed["size"], "counts": packed["counts"].decode()}


def truth(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    annotations: list[dict[str, Any]] = []
    for image, count in enumerate(case.truths):
        boxes = random_boxes(count, case, rng)
        for box, bitmap in zip(boxes.tolist(), bitmaps(boxes), strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1, "image_id": image + 1, "category_id": int(rng.integers(case.categories)) + 1,
                    "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]], "area": float(bitmap.sum()),
                    "iscrowd": int(rng.random() < case.crowd_share), "segmentation": run_lengths(bitmap),
                }
            )  # fmt: skip
    return {
        "images": [
            {"id": n + 1, "file_name": f"{n}.jpg", "width": WIDTH, "height": HEIGHT} for n in range(len(case.truths))
        ],
        "annotations": annotations,
        # One more, which nothing shows and nothing finds.
        "categories": [{"id": n + 1, "name": str(n)} for n in range(case.categories + 1)],
    }  # fmt: skip


def detections(case: Case, rng: np.random.Generator) -> list[Detections]:
    found = []
    for count in case.found:
        boxes = random_boxes(count, case, rng)
        scores = rng.integers(1, case.score_levels + 1, count) / case.score_levels
        corners = torch.from_numpy(boxes).float()
        values = torch.from_numpy(scores).float()
        corners[: case.not_numbers, 2] = float("nan")
        values[case.not_numbers : 2 * case.not_numbers] = float("nan")
        labels = torch.from_numpy(rng.integers(1, case.categories + 1, count))
        masks = torch.from_numpy(bitmaps(boxes)).bool()
        found.append(Detections(boxes=corners, scores=values, labels=labels, masks=masks))
    return found


def judged(annotations: Path, found: list[Detections], kind: Kind) -> np.ndarray:
    """By pycocotools, from its own result format."""
    items: list[dict[str, Any]] = []
    for image, one in enumerate(found):
        assert one.masks is not None
        for box, score, label, mask in zip(one.boxes.numpy(), one.scores.numpy(), one.labels.numpy(), one.masks, strict=True):
            if np.isnan(box).any() or np.isnan(score):
                continue
            item: dict[str, Any] = {"image_id": image + 1, "category_id": int(label), "score": float(score)}
            if kind == "bbox":
                item["bbox"] = [float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])]
            else:
                item["segmentation"] = run_lengths(mask.numpy().astype(np.uint8))
            items.append(item)
    with contextlib.redirect_stdout(io.StringIO()):
        judge = COCO(str(annotations))
        results = judge.loadRes(items) if items else COCO()
        if not items:  # pycocotools does not load an empty list
            results.dataset = {**judge.dataset, "annotations": []}
            results.createIndex()
        evaluation = COCOeval(judge, results, kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return np.asarray(evaluation.stats)


def check(case: Case, folder: Path) -> np.ndarray:
    """Both kinds equal to the judge's; returns the box numbers."""
    rng = np.random.default_rng(case.seed)
    annotations = folder / "truth.json"
    annotations.write_text(json.dumps(truth(case, rng)))
    found = detections(case, rng)
    packer = DetectionPacker()
    for image, one in enumerate(found):
        packer.add(image + 1, one, one.labels.numpy())
    evaluator = CocoEvaluator(annotations)
    numbers = {kind: evaluator.evaluate(packer.packed(), kind) for kind in ("bbox", "segm")}
    for kind, values in numbers.items():
        np.testing.assert_allclose(values, judged(annotations, found, kind), rtol=0, atol=1e-12)
        assert values.shape == (12,)
    return numbers["bbox"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases)
def test_random_cases_equal_the_judge(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


NAMED = {
    "nothing is found": Case(1, (3, 2), (0, 0), 2, 0.0, 10, 10),
    "nothing is there": Case(2, (0, 0), (7, 9), 2, 0.0, 10, 10),
    "nothing at all": Case(3, (0,), (0,), 1, 0.0, 10, 10),
    "crowds alone": Case(4, (4, 4), (40, 40), 2, 1.0, 10, 10),
    "some crowds": Case(5, (5, 5, 5), (60, 60, 60), 2, 0.4, 1000, 10),
    "all scores alike": Case(6, (5, 5, 5), (90, 90, 90), 2, 0.2, 1, 10),
    "more than a hundred": Case(7, (5, 5), (400, 400), 2, 0.0, 10**6, 5),
    "found where nothing is": Case(8, (6, 0, 0), (30, 90, 90), 1, 0.0, 100, 10),
    "no numbers": Case(9, (5, 5), (50, 50), 2, 0.2, 100, 10, not_numbers=10),
    "not a number among them": Case(10, (3,), (6,), 1, 0.0, 100, 10, not_numbers=6),
}


@pytest.mark.parametrize("name", NAMED)
def test_adversarial_cases_equal_the_judge(name: str, tmp_path: Path) -> None:
    numbers = check(NAMED[name], tmp_path)
    if name in ("nothing is there", "nothing at all", "crowds alone"):
        assert (numbers == -1).all()
    if name == "nothing is found":
        assert numbers[0] == 0
    if name in ("some crowds", "more than a hundred"):
        assert numbers[0] > 0


def test_perfect_detections_score_one(tmp_path: Path) -> None:
    case = Case(11, (4, 5), (0, 0), 3, 0.0, 1, 10)
    content = truth(case, np.random.default_rng(11))
    content["annotations"] = [a for a in content["annotations"] if a["area"]]  # an empty mask is like nothing
    (tmp_path / "truth.json").write_text(json.dumps(content))
    packer = DetectionPacker()
    for image in (1, 2):
        own = [a for a in content["annotations"] if a["image_id"] == image]
        boxes = torch.tensor([a["bbox"] for a in own])
        boxes[:, 2:] += boxes[:, :2]
        masks = torch.from_numpy(np.stack([coco_mask.decode(a["segmentation"]) for a in own])).bool()
        labels = torch.tensor([a["category_id"] for a in own])
        packer.add(image, Detections(boxes=boxes, scores=torch.ones(len(own)), labels=labels, masks=masks), labels.numpy())
    evaluator = CocoEvaluator(tmp_path / "truth.json")
    for kind in ("bbox", "segm"):
        assert evaluator.evaluate(packer.packed(), kind)[0] == pytest.approx(1.0)


def test_parts_join_in_order() -> None:
    """Detections of several ranks are those of one: masks keep their owners, ranks without any disturb nothing."""
    found = detections(Case(12, (1, 1, 1), (5, 0, 9), 2, 0.0, 100, 10), np.random.default_rng(12))
    whole, parts = DetectionPacker(), []
    for image, one in enumerate(found):
        part = DetectionPacker()
        for packer in (whole, part):
            packer.add(image + 1, one, one.labels.numpy())
        parts.append(part.packed())
    joined, expected = join(parts), whole.packed()
    for name in ("image_ids", "categories", "scores", "boxes", "mask_sizes", "mask_ends"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(expected, name))
    assert joined.masks == expected.masks
