"""Detectors are evaluated on each validation image once, with the same numbers on any number of ranks."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.ranks.detection_evaluation import evaluate, jittered_truth
from tests.training.support import make_spec, run_ranks
from training.communicator import SingleProcess
from training.data.coco_index import annotation_path
from training.detections import Detections
from training.process import RankPlace
from training.ssd.workload import SsdWorkload
from training.workload import Shard


def by_ranks(folder: Path, root: Path, ranks: int, backend: str) -> list[dict[str, Any]]:
    folder.mkdir()
    done = run_ranks(ranks, "tests.training.ranks.detection_evaluation", str(folder), str(root), backend)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def judged_box_ap(root: Path) -> float:
    """By pycocotools from the same detections."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    items = [
        {
            "image_id": image, "category_id": int(label), "score": float(score),
            "bbox": [float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])],
        }
        for image, found in jittered_truth(root).items()
        for box, label, score in zip(*found, strict=True)
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotation_path(root, "val")))
        evaluation = COCOeval(truth, truth.loadRes(items), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])


def test_any_number_of_ranks_finds_the_same(scenes_dir: Path, tmp_path: Path) -> None:
    alone = evaluate(scenes_dir, SingleProcess(RankPlace(rank=0, size=1, local_rank=0)))
    expected = alone["evaluations"]
    runs = [
        [alone],
        by_ranks(tmp_path / "2", scenes_dir, 2, "torch"),
        by_ranks(tmp_path / "3", scenes_dir, 3, "horovod"),
    ]
    assert expected[0] == expected[1]  # a second evaluation starts anew
    samples, metrics = expected[0]
    assert samples == 13
    assert metrics["box_ap"] == pytest.approx(judged_box_ap(scenes_dir), abs=1e-6)
    assert 0.2 < metrics["box_ap"] < 1
    assert 0.05 < metrics["mask_ap"] < 1
    for ranks in runs:
        assert sorted(number for rank in ranks for number in rank["numbers"]) == list(range(13))
        assert all(rank["evaluations"] == expected for rank in ranks)
        # Large things go to the first rank alone.
        assert ranks[0]["gathered"] == [[rank, 100_000, rank] for rank in range(len(ranks))]
        assert all(rank["gathered"] == [] for rank in ranks[1:])


def ssd(root: Path) -> SsdWorkload:
    spec = make_spec(root, workload="ssd", preset="digits-coco")
    return SsdWorkload(spec=spec, shard=Shard(index=0, count=1), device=torch.device("cpu"))


def test_labels_become_category_ids_and_boxes_pixels(scenes_dir: Path) -> None:
    """SSD counts categories from 1 and gives boxes as shares of the image."""
    workload = ssd(scenes_dir)
    workload.open_validation()
    workload.validation.category_ids[:] = [category * 10 for category in range(1, 11)]
    assert workload.categories(torch.tensor([1, 10, 3])).tolist() == [10, 100, 30]
    found = Detections(boxes=torch.tensor([[0.25, 0.5, 0.5, 1.0]]), scores=torch.ones(1), labels=torch.ones(1))
    assert found.scaled(128, 96).boxes.tolist() == [[32, 48, 64, 96]]


def test_both_targets_of_mask_rcnn_are_needed() -> None:
    spec = make_spec(Path("unused"), workload="maskrcnn", preset="mlperf-v0.6")
    from training.maskrcnn.workload import MaskRcnnWorkload

    workload = MaskRcnnWorkload(spec=spec, shard=Shard(index=0, count=1), device=torch.device("cpu"))
    assert workload.reached({"box_ap": 0.377, "mask_ap": 0.339})
    assert not workload.reached({"box_ap": 0.5, "mask_ap": 0.3389})
    assert not workload.reached({"box_ap": 0.3769, "mask_ap": 0.5})
    assert not workload.reached({"box_ap": float("nan"), "mask_ap": 0.5})
    assert workload.mlperf_accuracy({"box_ap": 0.38, "mask_ap": 0.34}) == {"BBOX": 0.38, "SEGM": 0.34}
