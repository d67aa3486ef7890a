"""SSD's training augmentation in numbers, and done with Pillow: the MLPerf reference's `SSDCropping` and `SSDTransformer`.

Source: mlcommons/training, single_stage_detector/ssd/utils.py. The DALI pipeline does the same with DALI's operators.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from PIL import Image

from results.settings import Settings

CROP_OVERLAPS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]
"""Least IoU of every object with the crop; one is drawn for each image. Not to crop at all is one more choice."""
CROP_ASPECTS = [0.5, 2.0]
BRIGHTNESS, CONTRAST, SATURATION, HUE_DEGREES = 0.125, 0.5, 0.5, 18.0
"""Largest change of each: the reference's `ColorJitter`, with hue 0.05 of the circle."""

Objects: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Boxes [n, 4] left, top, right, bottom as shares of the image, and their labels [n]."""


def crop_sides(settings: Settings) -> list[float]:
    """Smallest and largest side of a crop as a share of the image's side; 0.3 to 1 in the reference."""
    return [float(area**0.5) for area in settings.crop_area]


def random_crop(
    image: Image.Image, boxes: np.ndarray, labels: np.ndarray, sides: list[float], attempts: int, rng: np.random.Generator
) -> tuple[Image.Image, np.ndarray, np.ndarray]:
    """Crop so that every object overlaps the crop by the drawn IoU, and keep the objects whose centres lie inside."""
    while True:
        choice = rng.integers(len(CROP_OVERLAPS) + 1)
        if choice == len(CROP_OVERLAPS):
            return image, boxes, labels
        for _ in range(attempts):
            window = _window(sides, rng)
            if window is None or not (_overlaps(boxes, window) >= CROP_OVERLAPS[choice]).all():
                continue
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
            inside = ((centres > window[:2]) & (centres < window[2:])).all(axis=1)
            if inside.any():
                return _cut(image, window), _moved(boxes[inside], window), labels[inside]


def _window(sides: list[float], rng: np.random.Generator) -> np.ndarray | None:
    """Left, top, right, bottom of a candidate; None where its aspect is out of range."""
    width, height = rng.uniform(sides[0], sides[1], size=2)
    if not CROP_ASPECTS[0] <= width / height <= CROP_ASPECTS[1]:
        return None
    left, top = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
    return np.array([left, top, left + width, top + height])


def _overlaps(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    """[n] IoU of each box with the window."""
    common = (np.minimum(boxes[:, 2:], window[2:]) - np.maximum(boxes[:, :2], window[:2])).clip(min=0).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) + (window[2:] - window[:2]).prod() - common
    overlaps: np.ndarray = common / areas
    return overlaps


def _cut(image: Image.Image, window: np.ndarray) -> Image.Image:
    left, top, right, bottom = (window * np.tile([image.width, image.height], 2)).astype(int).tolist()
    return image.crop((left, top, right, bottom))


def _moved(boxes: np.ndarray, window: np.ndarray) -> np.ndarray:
    span = np.tile(window[2:] - window[:2], 2)
    moved: np.ndarray = ((boxes - np.tile(window[:2], 2)) / span).clip(0, 1)
    return moved


def mirror(image: Image.Image, boxes: np.ndarray) -> tuple[Image.Image, np.ndarray]:
    """Left and right exchanged."""
    mirrored = boxes.copy()
    mirrored[:, [0, 2]] = 1 - boxes[:, [2, 0]]
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), mirrored


def colour(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Brightness, contrast, saturation and hue, each by a random amount."""
    from torchvision.transforms import functional

    image = functional.adjust_brightness(image, 1 + rng.uniform(-BRIGHTNESS, BRIGHTNESS))
    image = functional.adjust_contrast(image, 1 + rng.uniform(-CONTRAST, CONTRAST))
    image = functional.adjust_saturation(image, 1 + rng.uniform(-SATURATION, SATURATION))
    return functional.adjust_hue(image, rng.uniform(-HUE_DEGREES, HUE_DEGREES) / 360)
