"""COCO's average precision over all ranks: packed detections, gathered once, evaluated by faster-coco-eval on rank 0.

The numbers are those of pycocotools, the judge (COCO's own evaluation code, https://cocodataset.org/#detection-eval); tests hold
both to the same twelve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:  # without torch, the process that evaluates beside training starts in no time
    from training.communicator import Communicator
    from training.detections import Detections

Kind = Literal["bbox", "segm"]


@dataclass(frozen=True, slots=True)
class PackedDetections:
    """Detections of many images in flat arrays: about 30 bytes each, and the mask's run lengths where there are masks."""

    image_ids: np.ndarray
    """[n] int64."""
    categories: np.ndarray
    """[n] int32 category ids."""
    scores: np.ndarray
    """[n] float32."""
    boxes: np.ndarray
    """[n, 4] float32: left, top, width, height in pixels of the original image."""
    mask_sizes: np.ndarray
    """[n, 2] int32: height and width of the mask; [0, 2] without masks."""
    mask_ends: np.ndarray
    """[n] int64: where each mask ends in `masks`."""
    masks: bytes
    """COCO's compressed run lengths, one after the other."""


@dataclass(slots=True)
class DetectionPacker:
    """Collects the detections of one rank."""

    _ids: list[np.ndarray] = field(default_factory=list)
    _categories: list[np.ndarray] = field(default_factory=list)
    _scores: list[np.ndarray] = field(default_factory=list)
    _boxes: list[np.ndarray] = field(default_factory=list)
    _mask_sizes: list[tuple[int, int]] = field(default_factory=list)
    _masks: list[bytes] = field(default_factory=list)

    def add(self, image_id: int, found: Detections, categories: np.ndarray) -> None:
        """One image's detections, boxes in pixels of the original image; `categories` [n] are their COCO ids."""
        boxes = found.boxes.float().cpu().numpy().copy()
        boxes[:, 2:] -= boxes[:, :2]
        self._ids.append(np.full(len(boxes), image_id, dtype=np.int64))
        self._categories.append(categories.astype(np.int32))
        self._scores.append(found.scores.float().cpu().numpy())
        self._boxes.append(boxes)
        if found.masks is not None and len(boxes):
            from pycocotools import mask as coco_mask

            # [height, width, n] in columns first is what COCO's run lengths are made from.
            bitmaps = np.asfortranarray(found.masks.byte().cpu().numpy().transpose(1, 2, 0))
            for run_lengths in coco_mask.encode(bitmaps):
                self._mask_sizes.append(tuple(run_lengths["size"]))
                self._masks.append(run_lengths["counts"])

    def packed(self) -> PackedDetections:
        """Everything added so far."""
        return PackedDetections(
            image_ids=np.concatenate([np.zeros(0, dtype=np.int64), *self._ids]),
            categories=np.concatenate([np.zeros(0, dtype=np.int32), *self._categories]),
            scores=np.concatenate([np.zeros(0, dtype=np.float32), *self._scores]),
            boxes=np.concatenate([np.zeros((0, 4), dtype=np.float32), *self._boxes]),
            mask_sizes=np.array(self._mask_sizes, dtype=np.int32).reshape(-1, 2),
            mask_ends=np.cumsum([len(mask) for mask in self._masks], dtype=np.int64),
            masks=b"".join(self._masks),
        )


def join(parts: Sequence[PackedDetections]) -> PackedDetections:
    """The detections of all ranks, in rank order."""
    starts = np.cumsum([0, *(len(part.masks) for part in parts)])
    return PackedDetections(
        image_ids=np.concatenate([part.image_ids for part in parts]),
        categories=np.concatenate([part.categories for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        boxes=np.concatenate([part.boxes for part in parts]),
        mask_sizes=np.concatenate([part.mask_sizes for part in parts]),
        mask_ends=np.concatenate([part.mask_ends + start for part, start in zip(parts, starts, strict=False)]),
        masks=b"".join(part.masks for part in parts),
    )


def results(packed: PackedDetections, kind: Kind) -> list[dict[str, Any]]:
    """COCO's result format. Detections with a box or score that is no number are left out."""
    usable = np.isfinite(packed.boxes).all(axis=1) & np.isfinite(packed.scores)
    starts = np.concatenate([[0], packed.mask_ends[:-1]]) if len(packed.mask_ends) else packed.mask_ends
    found = []
    for place in np.flatnonzero(usable):
        item: dict[str, Any] = {
            "image_id": int(packed.image_ids[place]),
            "category_id": int(packed.categories[place]),
            "score": float(packed.scores[place]),
        }
        if kind == "bbox":
            item["bbox"] = [float(value) for value in packed.boxes[place]]
        else:
            counts = packed.masks[starts[place] : packed.mask_ends[place]]
            item["segmentation"] = {"size": packed.mask_sizes[place].tolist(), "counts": counts}
        found.append(item)
    return found


class CocoEvaluator:
    """Evaluates against one annotation file, which is read once."""

    def __init__(self, annotations: Path) -> None:
        self.annotations = annotations
        self._truth: Any = None

    def evaluate(self, packed: PackedDetections, kind: Kind) -> np.ndarray:
        """COCO's twelve numbers: AP, AP50, AP75, AP small, medium, large, then AR for 1, 10, 100 detections and by area.

        -1 stands where the annotations have nothing to find.
        """
        from faster_coco_eval import COCO, COCOeval_faster

        if self._truth is None:
            self._truth = COCO(str(self.annotations), print_function=_silent)
        detected = self._truth.loadRes(results(packed, kind))
        evaluation = COCOeval_faster(self._truth, detected, iouType=kind, print_function=_silent)
        evaluation.run()
        return np.asarray(evaluation.stats[:12], dtype=np.float64)

    def over_ranks(self, own: PackedDetections, kinds: Sequence[Kind], communicator: Communicator) -> dict[Kind, np.ndarray]:
        """The same numbers over the detections of all ranks, on every rank; collective."""
        parts = communicator.gather_objects_to_first(own)
        numbers = {kind: self.evaluate(join(parts), kind) for kind in kinds} if communicator.rank == 0 else {}
        return communicator.gather_objects(numbers)[0]


def _silent(*_: Any) -> None:
    return
