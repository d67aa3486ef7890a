"""The keys under `model` of a Mask R-CNN preset."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from results.model import Document


class MaskRcnnOptions(Document):
    """Defaults are those of the MLPerf reference's e2e_mask_rcnn_R_50_FPN_1x.yaml and of torchvision."""

    backbone: Literal["resnet18", "resnet34", "resnet50"] = "resnet50"
    backbone_weights: Path | None = None
    """State dict of torchvision's backbone (.pt, .pth or .safetensors)."""
    batch_norm: Literal["frozen", "trained"] = "frozen"
    """frozen: statistics and scales of the pretrained backbone stay as they are."""
    trained_stages: NonNegativeInt = 3
    """Stages of the backbone that are trained, counted from the last; 5 is all of them, the stem included."""
    width: PositiveInt = 256
    """Channels of the pyramid and the mask head; the box head has four times as many."""
    mask_layers: PositiveInt = 4
    """3x3 convolutions of the mask head."""
    smallest_anchor_px: PositiveInt = 32
    """Side of the anchors of the finest level; it doubles with each level."""
    rpn_candidates_per_level: PositiveInt = 2000
    """Best proposals of each level that go into suppression."""
    image_candidates: PositiveInt = 1000
    """Proposals of an image that reach the heads in training; MLPerf's `num_image_candidates` is that of a local batch."""
    evaluation_candidates: PositiveInt = 1000
    """The same in evaluation, before and after suppression."""
    rpn_samples: PositiveInt = 256
    """Anchors of an image that the proposal loss samples."""
    box_samples: PositiveInt = 512
    """Proposals of an image that the box loss samples."""
    bias_rate_factor: PositiveFloat = 2.0
    """Biases learn at this many times the rate; BIAS_LR_FACTOR of the reference."""
