"""Default boxes of SSD: where they lie, which object each one answers for, and how predictions become boxes.

Liu et al., SSD: Single Shot MultiBox Detector, arXiv 1512.02325, section 2; the numbers are those of the MLPerf reference
(mlcommons/training, single_stage_detector/ssd/utils.py and train.py, `dboxes300_coco`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torchvision.ops import batched_nms, box_convert, box_iou

from training.detections import Detections

STRIDE = 8
"""Image pixels per cell of the first feature map."""
SCALES_300 = [21 / 300, 45 / 300, 99 / 300, 153 / 300, 207 / 300, 261 / 300, 315 / 300]
"""Side of the default boxes of each feature map as a share of the image side, and one more for the last map's larger box."""
VARIANCES = (0.1, 0.1, 0.2, 0.2)
"""Offsets of centre and size are divided by these, so that they are of the order of one."""
MATCH_IOU = 0.5
NMS_IOU = 0.5
LEAST_SCORE = 0.05
MOST_PER_CLASS = 200
MOST_PER_IMAGE = 200


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """One feature map that predicts boxes."""

    cells: int
    """Cells along one side."""
    cells_per_image: float
    """Cells that would fit along the image side by the map's stride; centres lie at (i + 0.5) / this."""
    halved: bool
    """Half as wide as the map before it; otherwise narrower by two cells."""
    ratios: tuple[int, ...]
    """Aspect ratios beside 1; each stands for itself and its inverse."""

    @property
    def boxes_per_cell(self) -> int:
        return 2 + 2 * len(self.ratios)


def feature_maps(image_size: int) -> list[FeatureMap]:
    """The maps that predict: halved until at most 5 cells wide, then narrowed by 2 cells as unpadded 3x3 convolutions do.

    For 300 pixels: 38, 19, 10, 5, 3 and 1 cells.
    """
    cells = [-(-image_size // STRIDE)]
    strides = [STRIDE]
    while cells[-1] > 5:
        cells.append(-(-cells[-1] // 2))
        strides.append(2 * strides[-1])
    halved = len(cells)
    while cells[-1] >= 3:
        cells.append(cells[-1] - 2)
    spans = [image_size / stride for stride in strides] + [float(count) for count in cells[halved:]]
    last = len(cells) - 1
    ratios = [(2,) if number == 0 or number >= last - 1 else (2, 3) for number in range(len(cells))]
    return [
        FeatureMap(count, span, number < halved, ratio)
        for number, (count, span, ratio) in enumerate(zip(cells, spans, ratios, strict=True))
    ]


def default_boxes(image_size: int, scales: list[float]) -> torch.Tensor:
    """[boxes, 4] centre x, centre y, width, height as shares of the image, clamped to [0, 1]; 8,732 for 300 pixels.

    Order: feature map, row, column, then box of the cell, as the prediction heads give them.
    """
    boxes = []
    for number, grid in enumerate(feature_maps(image_size)):
        scale, following = scales[number], scales[number + 1]
        sides = [(scale, scale), (math.sqrt(scale * following),) * 2]
        for ratio in grid.ratios:
            wide, narrow = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
            sides += [(wide, narrow), (narrow, wide)]
        centres = [(index + 0.5) / grid.cells_per_image for index in range(grid.cells)]
        boxes += [(x, y, width, height) for y in centres for x in centres for width, height in sides]
    return torch.tensor(boxes, dtype=torch.float32).clamp(0, 1)


def even_scales(image_size: int, smallest: float, largest: float) -> list[float]:
    """One scale for each feature map and one more, in even steps: Liu et al., section 2.2."""
    steps = len(feature_maps(image_size))
    return [smallest + (largest - smallest) * number / steps for number in range(steps + 1)]


class BoxCoder:
    """Between objects and the offsets that the network predicts for each default box."""

    def __init__(self, defaults: torch.Tensor) -> None:
        self.defaults = defaults
        """[boxes, 4] centre and size."""
        self.corners = box_convert(defaults, "cxcywh", "xyxy")
        """[boxes, 4] left, top, right, bottom."""
        self.variances = torch.tensor(VARIANCES, device=defaults.device)

    def encode(self, boxes: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Targets of all default boxes from an image's objects.

        `boxes` [objects, 4] are left, top, right, bottom as shares of the image, `labels` [objects] count from 1. Returns
        offsets [boxes, 4] (zero where there is no object) and labels [boxes], 0 for background. Each object takes its best
        default box, whatever the overlap; beyond that a default box takes its best object, at an IoU above 0.5.
        """
        count = len(self.defaults)
        if len(boxes) == 0:
            return torch.zeros(count, 4), torch.zeros(count, dtype=torch.int64)
        overlaps = box_iou(boxes, self.corners)
        best_overlap, best_object = overlaps.max(dim=0)
        claimed = overlaps.argmax(dim=1)
        best_overlap[claimed] = 2.0
        best_object[claimed] = torch.arange(len(boxes))
        positive = best_overlap > MATCH_IOU
        encoded_labels = torch.where(positive, labels[best_object].long(), 0)
        matched = torch.where(positive[:, None], boxes[best_object], self.corners)
        return self.offsets(box_convert(matched, "xyxy", "cxcywh")), encoded_labels

    def offsets(self, matched: torch.Tensor) -> torch.Tensor:
        """[boxes, 4] offsets of centre-and-size boxes from the default boxes."""
        centres = (matched[:, :2] - self.defaults[:, :2]) / self.defaults[:, 2:]
        sizes = (matched[:, 2:] / self.defaults[:, 2:]).log()
        return torch.cat([centres, sizes], dim=1) / self.variances

    def decode(self, offsets: torch.Tensor) -> torch.Tensor:
        """[..., boxes, 4] offsets to left, top, right, bottom as shares of the image."""
        scaled = offsets * self.variances
        centres = scaled[..., :2] * self.defaults[:, 2:] + self.defaults[:, :2]
        sizes = scaled[..., 2:].exp() * self.defaults[:, 2:]
        return torch.cat([centres - sizes / 2, centres + sizes / 2], dim=-1)

    def detect(self, offsets: torch.Tensor, scores: torch.Tensor) -> list[Detections]:
        """Detections of each image, best first: `offsets` [N, boxes, 4], `scores` [N, boxes, classes] before softmax.

        As the reference: score above 0.05, the best 200 of each class, suppression at an IoU of 0.5, the best 200 of the image.
        """
        boxes = self.decode(offsets.float())
        probabilities = scores.float().softmax(dim=-1)
        return [self._detect_one(*image) for image in zip(boxes, probabilities, strict=True)]

    def _detect_one(self, boxes: torch.Tensor, probabilities: torch.Tensor) -> Detections:
        per_class = probabilities[:, 1:].t()
        scores, candidates = per_class.topk(min(MOST_PER_CLASS, len(boxes)), dim=1)
        label, rank = (scores > LEAST_SCORE).nonzero(as_tuple=True)
        found, found_scores = boxes[candidates[label, rank]], scores[label, rank]
        kept = batched_nms(found, found_scores, label, NMS_IOU)[:MOST_PER_IMAGE]
        return Detections(boxes=found[kept], scores=found_scores[kept], labels=label[kept] + 1)
