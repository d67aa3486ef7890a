"""The keys under `model` of an SSD preset."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat

from results.model import Document


class SsdOptions(Document):
    """Defaults are those of the MLPerf reference."""

    backbone: Literal["resnet18", "resnet34"] = "resnet34"
    backbone_weights: Path | None = None
    """State dict of torchvision's backbone (.pt, .pth or .safetensors)."""
    smallest_box: PositiveFloat | None = None
    """Side of the default boxes of the first map as a share of the image; None: the reference's scales for 300 pixels."""
    largest_box: PositiveFloat | None = None
    """The same beyond the last map; the maps between have boxes at even steps."""
    crop_attempts: Literal[1, 50] = 1
    """Tries of a random crop for each drawn overlap; MLPerf's `max_samples`."""
