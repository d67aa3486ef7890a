"""Pictures of detections."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from training.detections import Detections

LEAST_SIDE_PX = 384
"""Smaller pictures are enlarged, so that boxes and words can be told apart."""


def draw(path: Path, found: Detections, names: Sequence[str]) -> torch.Tensor:
    """[3, H, W] uint8: the image with masks, boxes, class names and scores; `names` are those of the detections' classes."""
    with Image.open(path) as stored:
        image = stored.convert("RGB")
    factor = max(1, -(-LEAST_SIDE_PX // max(image.width, image.height)))
    image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    picture = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
    if len(found.boxes) == 0:
        return picture
    colours = [_colour(int(label)) for label in found.labels]
    if found.masks is not None:
        masks = found.masks.cpu().repeat_interleave(factor, dim=1).repeat_interleave(factor, dim=2)
        picture = draw_segmentation_masks(picture, masks, alpha=0.45, colors=colours)
    words = [f"{name} {float(score):.2f}" for name, score in zip(names, found.scores, strict=True)]
    boxes = _within(found.boxes.cpu() * factor, image.size)
    return draw_bounding_boxes(picture, boxes, words, colors=colours, width=2, font=_font(), font_size=15)


def side_by_side(pictures: Sequence[torch.Tensor]) -> torch.Tensor:
    """[3, H, W] of pictures of any sizes in a row."""
    height = max(picture.shape[1] for picture in pictures)
    padded = [torch.nn.functional.pad(picture, (0, 4, 0, height - picture.shape[1])) for picture in pictures]
    return torch.cat(padded, dim=2)


def _colour(label: int) -> tuple[int, int, int]:
    """The same colour for the same class; neighbours are far apart on the circle (the golden angle)."""
    red, green, blue = colorsys.hsv_to_rgb((label * 0.381966) % 1.0, 0.9, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def _font() -> str:
    """A scalable font that comes with a package this project needs anyway."""
    from matplotlib.font_manager import findfont

    return str(findfont("DejaVu Sans"))


def _within(boxes: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    width, height = size
    return torch.stack([boxes[:, k].clamp(0, (width, height)[k % 2] - 1) for k in range(4)], dim=1)
