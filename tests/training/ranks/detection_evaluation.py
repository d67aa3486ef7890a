"""Evaluate fixed detections with as many ranks as there are, on the validation scenes.

python -m tests.training.ranks.detection_evaluation OUT_DIR ROOT BACKEND
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.training.support import make_spec
from training.communicator import Communicator, connect
from training.data.coco_index import annotation_path
from training.detection_workload import DetectionWorkload
from training.detections import Detections
from training.process import rank_place
from training.workload import Shard, load_workload


def jittered_truth(root: Path) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each image id, what a fair detector would find: shifted boxes, labels, scores; some wrong, some missed."""
    document: dict[str, Any] = json.loads(annotation_path(root, "val").read_text())
    found = {}
    for image in document["images"]:
        rng = np.random.default_rng(image["id"])
        own = [a for a in document["annotations"] if a["image_id"] == image["id"] and rng.random() < 0.8]
        boxes = np.array([a["bbox"] for a in own], dtype=np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = np.array([a["category_id"] if rng.random() < 0.9 else 1 for a in own], dtype=np.int64)
        found[image["id"]] = (boxes + rng.normal(0, 1.5, boxes.shape), labels, rng.integers(1, 5, len(own)) / 4)
    return found


class FixedDetections(nn.Module):
    """Finds the same in each image, whatever it looks like."""

    def __init__(self, workload: DetectionWorkload, root: Path) -> None:
        super().__init__()
        self.found = jittered_truth(root)
        self.workload = workload
        self.place = 0
        self.numbers = [number for numbers, _ in workload.validation_images for number in numbers]

    def detect(self, model: nn.Module, images: list[torch.Tensor], originals: Sequence[tuple[int, int]]) -> list[Detections]:
        """Stands in for the workload's own."""
        found = []
        for height, width in originals:
            number = self.numbers[self.place % len(self.numbers)]
            self.place += 1
            boxes, labels, scores = self.found[int(self.workload.validation.ids[number])]
            masks = torch.zeros(len(boxes), height, width, dtype=torch.bool)
            for mask, (left, top, right, bottom) in zip(masks, boxes.clip(0).astype(int).tolist(), strict=True):
                mask[top:bottom, left:right] = True
            found.append(
                Detections(
                    boxes=torch.from_numpy(boxes), scores=torch.from_numpy(scores), labels=torch.from_numpy(labels), masks=masks
                )
            )
        return found


def evaluate(root: Path, communicator: Communicator) -> dict[str, Any]:
    """What this rank saw, and what it was told, of two evaluations."""
    spec = make_spec(root, workload="maskrcnn", preset="digits-coco", ranks=communicator.size, evaluation__local_batch_size=3)
    shard = Shard(index=communicator.rank, count=communicator.size)
    workload = load_workload(spec=spec, shard=shard, device=torch.device("cpu"))
    assert isinstance(workload, DetectionWorkload)
    workload.open_validation()
    model = FixedDetections(workload, root)
    workload.detect = model.detect  # type: ignore[method-assign]
    with torch.inference_mode():
        evaluations = [workload.evaluate(model, communicator) for _ in range(2)]
        gathered = communicator.gather_objects_to_first((communicator.rank, np.full(100_000, communicator.rank)))
    return {
        "numbers": model.numbers,
        "evaluations": [[e.samples, e.metrics] for e in evaluations],
        "gathered": [[rank, len(array), int(array.max())] for rank, array in gathered],
    }


def main() -> None:
    out, root, backend = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    place = rank_place()
    settings = make_spec(root, workload="maskrcnn", preset="digits-coco", ranks=place.size).settings
    communicator = connect(backend, place, settings.communication)
    (out / f"{communicator.rank}.json").write_text(json.dumps(evaluate(root, communicator)))
    communicator.barrier()
    communicator.close()


if __name__ == "__main__":
    main()
