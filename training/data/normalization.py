"""Mean and standard deviation per colour channel of ImageNet, as torchvision's models expect them; the type of pixels."""

from __future__ import annotations

import torch

from results.settings import Settings

MEAN = (0.485, 0.456, 0.406)
"""Of values in [0, 1]; red, green, blue."""
STD = (0.229, 0.224, 0.225)
MEAN_255 = [255 * value for value in MEAN]
STD_255 = [255 * value for value in STD]


def pixel_type(settings: Settings) -> torch.dtype:
    """As the first layer takes them: what autocast would make of single precision, but for bf16, which DALI has not."""
    return torch.float16 if settings.precision == "fp16" else torch.float32
