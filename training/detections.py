"""What a detector says of one image."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Detections:
    """Objects found in one image, best first."""

    boxes: torch.Tensor
    """[found, 4] left, top, right, bottom."""
    scores: torch.Tensor
    """[found] in [0, 1]."""
    labels: torch.Tensor
    """[found] from 1."""
    masks: torch.Tensor | None = None
    """[found, height, width] bool, where the model has masks."""

    def above(self, least_score: float) -> Detections:
        """Those with at least this score."""
        kept = self.scores >= least_score
        masks = None if self.masks is None else self.masks[kept]
        return Detections(boxes=self.boxes[kept], scores=self.scores[kept], labels=self.labels[kept], masks=masks)

    def scaled(self, width: float, height: float) -> Detections:
        """Boxes as shares of an image, in its pixels."""
        sides = torch.tensor([width, height, width, height], device=self.boxes.device)
        return Detections(boxes=self.boxes * sides, scores=self.scores, labels=self.labels)
