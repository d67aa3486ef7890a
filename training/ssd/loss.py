"""SSD's loss: smooth L1 on the offsets of positive boxes and cross-entropy on the labels, with hard negative mining.

Liu et al., arXiv 1512.02325, section 2.2, as the MLPerf reference computes it (single_stage_detector/ssd/base_model.py, `Loss`):
each image's loss is divided by its own number of positive boxes, then averaged over images. Nothing is normalised over a rank, so
that N ranks on shards compute what one rank computes on the whole.
"""

from __future__ import annotations

import torch
from torch.nn import functional

NEGATIVES_PER_POSITIVE = 3


def ssd_loss(
    offsets: torch.Tensor, scores: torch.Tensor, target_offsets: torch.Tensor, target_labels: torch.Tensor
) -> torch.Tensor:
    """Mean over images; an image without positive boxes adds nothing and counts all the same.

    Shapes: offsets [N, boxes, 4], scores [N, boxes, classes], target labels [N, boxes] with 0 for background.
    """
    offsets, scores = offsets.float(), scores.float()
    positive = target_labels > 0
    positives = positive.sum(dim=1)
    location = functional.smooth_l1_loss(offsets, target_offsets, reduction="none").sum(dim=2)
    confidence = functional.cross_entropy(scores.flatten(0, 1), target_labels.flatten(), reduction="none").view_as(location)
    with torch.no_grad():
        negatives = confidence.masked_fill(positive, 0.0)
        rank = negatives.argsort(dim=1, descending=True).argsort(dim=1)
        mined = rank < (NEGATIVES_PER_POSITIVE * positives)[:, None]
    weight = positive.float() + mined.float()
    per_image = (location * positive + confidence * weight).sum(dim=1)
    return torch.where(positives > 0, per_image / positives.clamp(min=1), 0.0).mean()
