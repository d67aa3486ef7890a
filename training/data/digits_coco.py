"""The embedded detection data: scenes of scikit-learn's handwritten digits with boxes and masks, in the COCO 2017 layout.

ROOT/annotations/instances_{train,val}2017.json and ROOT/{train,val}2017/*.jpg. Every scene follows from its number alone, so
the data are the same wherever they are written. Validation scenes show digits that no training scene shows. As in COCO, masks
are polygons or run lengths (here: run lengths where a mask has holes, and for crowds), some scenes hold a crowd and some nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.data.coco_index import SPLITS, list_coco_images
from training.data.digits import HELD_OUT_EVERY, load_verified
from training.data.folder import write_manifest, write_once

SCENES = {"train": 1200, "val": 240}
FIRST_ID = {"train": 1, "val": 100_001}
SIZES_PX = ((128, 96), (96, 128), (112, 112))
"""Width and height; the three occur in the shares below."""
SIZE_SHARES = (0.45, 0.45, 0.10)
DIGIT_SIDE_PX = (24, 60)
EMPTY_SHARE = 0.04
CROWD_SHARE = 0.06
LARGEST_OVERLAP = 0.25
"""Share of a digit's own box that may lie under an earlier one."""
LEAST_VISIBLE_PX = 30


def prepare(root: Path) -> Path:
    """Write the data set to `root` unless it is there, whole; returns the manifest.

    Raises:
        RuntimeError: the installed scikit-learn ships other digits than the ones this project was measured with.
    """

    def write(partial: Path) -> None:
        write_scenes(partial, SCENES)
        write_manifest(partial, "digits-coco", [list_coco_images(partial, split) for split in SPLITS])

    return write_once(root, write)


def write_scenes(root: Path, scenes: dict[str, int]) -> None:
    """Write the first so many scenes of each split."""
    pixels, labels = load_verified()
    held_out = np.arange(len(labels)) % HELD_OUT_EVERY == 0
    (root / "annotations").mkdir(parents=True)
    for number, (split, count) in enumerate(scenes.items()):
        chosen = held_out if split == "val" else ~held_out
        digits = _Digits(pixels[chosen], labels[chosen])
        folder = root / f"{split}2017"
        folder.mkdir()
        images, annotations = [], []
        for index in range(count):
            scene = _Scene(digits, np.random.default_rng([number, index]))
            image_id = FIRST_ID[split] + index
            name = f"{image_id:012d}.jpg"
            scene.save(folder / name)
            images.append({"id": image_id, "file_name": name, "width": scene.width, "height": scene.height})
            annotations += [{"image_id": image_id, **annotation} for annotation in scene.annotations()]
        document = {
            "images": images,
            "annotations": [{"id": FIRST_ID[split] + number, **item} for number, item in enumerate(annotations)],
            # As in COCO, category 0 is left to the background.
            "categories": [{"id": digit + 1, "name": str(digit), "supercategory": "digit"} for digit in range(10)],
        }
        path = root / "annotations" / f"instances_{split}2017.json"
        path.write_text(json.dumps(document), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Digits:
    pixels: np.ndarray
    """[N, 8, 8], 0 to 16."""
    labels: np.ndarray


@dataclass(slots=True)
class _Instance:
    category: int
    mask: np.ndarray
    """[height, width] bool: its visible pixels."""
    crowd: bool


class _Scene:
    """One picture: a smooth dark or light ground with noise, and digits on it, the later ones on top."""

    def __init__(self, digits: _Digits, rng: np.random.Generator) -> None:
        self._digits, self._rng = digits, rng
        self.width, self.height = SIZES_PX[rng.choice(len(SIZES_PX), p=SIZE_SHARES)]
        self.dark = bool(rng.random() < 0.5)
        self.canvas = self._ground()
        self.instances: list[_Instance] = []
        if rng.random() < EMPTY_SHARE:
            return
        if rng.random() < CROWD_SHARE:
            self._add_crowd()
        for _ in range(rng.integers(1, 6)):
            self._add_digit()

    def _ground(self) -> np.ndarray:
        from PIL import Image

        low, high = (0, 90) if self.dark else (160, 255)
        coarse = self._rng.integers(low, high, (3, 3, 3)).astype(np.uint8)
        smooth = Image.fromarray(coarse).resize((self.width, self.height), Image.Resampling.BICUBIC)
        return np.asarray(smooth, dtype=np.float32) + self._rng.normal(0, 6, (self.height, self.width, 1)).astype(np.float32)

    def _colour(self) -> np.ndarray:
        low, high = (150, 256) if self.dark else (0, 110)
        return self._rng.integers(low, high, 3).astype(np.float32)

    def _paint(self, index: int, side: int, left: int, top: int, colour: np.ndarray) -> np.ndarray:
        """Blend one digit in; returns its mask [height, width]."""
        from PIL import Image

        ink = Image.fromarray((self._digits.pixels[index] * (255 / 16)).astype(np.uint8))
        enlarged = np.asarray(ink.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32) / 255
        opacity = np.clip((enlarged - 0.2) / 0.4, 0, 1)
        window = (slice(top, top + side), slice(left, left + side))
        blended = self.canvas[window] * (1 - opacity[:, :, None]) + colour * opacity[:, :, None]
        self.canvas[window] = blended
        mask = np.zeros((self.height, self.width), dtype=bool)
        mask[window] = opacity > 0.5
        return mask

    def _add_digit(self) -> None:
        for _ in range(10):
            side = int(self._rng.integers(*DIGIT_SIDE_PX))
            left = int(self._rng.integers(0, self.width - side + 1))
            top = int(self._rng.integers(0, self.height - side + 1))
            covered = np.zeros((self.height, self.width), dtype=bool)
            for instance in self.instances:
                covered |= _filled_box(instance.mask)
            if covered[top : top + side, left : left + side].mean() <= LARGEST_OVERLAP:
                index = int(self._rng.integers(len(self._digits.labels)))
                mask = self._paint(index, side, left, top, self._colour())
                self._put_on_top(int(self._digits.labels[index]) + 1, mask, crowd=False)
                return

    def _add_crowd(self) -> None:
        """A heap of small digits of one class, annotated as one region."""
        label = int(self._rng.integers(10))
        of_label = np.flatnonzero(self._digits.labels == label)
        span = 44
        left = int(self._rng.integers(0, self.width - span))
        top = int(self._rng.integers(0, self.height - span))
        colour = self._colour()
        union = np.zeros((self.height, self.width), dtype=bool)
        for _ in range(14):
            side = int(self._rng.integers(11, 15))
            x, y = left + int(self._rng.integers(0, span - side)), top + int(self._rng.integers(0, span - side))
            union |= self._paint(int(self._rng.choice(of_label)), side, x, y, colour)
        self._put_on_top(label + 1, union, crowd=True)

    def _put_on_top(self, category: int, mask: np.ndarray, *, crowd: bool) -> None:
        for instance in self.instances:
            instance.mask = instance.mask & ~mask
        self.instances.append(_Instance(category, mask, crowd))

    def save(self, path: Path) -> None:
        from PIL import Image

        Image.fromarray(np.clip(self.canvas, 0, 255).astype(np.uint8)).save(path, quality=95)

    def annotations(self) -> list[dict[str, Any]]:
        """One for each instance that is still to be seen, in COCO's form."""
        visible = [instance for instance in self.instances if instance.mask.sum() >= LEAST_VISIBLE_PX]
        return [
            {
                "category_id": instance.category,
                "iscrowd": int(instance.crowd),
                "bbox": _bounding_box(instance.mask),
                "area": float(instance.mask.sum()),
                "segmentation": _run_lengths(instance.mask) if instance.crowd else _segmentation(instance.mask),
            }
            for instance in visible
        ]


def _edges(mask: np.ndarray) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _bounding_box(mask: np.ndarray) -> list[float]:
    left, top, right, bottom = _edges(mask)
    return [float(left), float(top), float(right - left), float(bottom - top)]


def _filled_box(mask: np.ndarray) -> np.ndarray:
    filled = np.zeros_like(mask)
    if mask.any():
        left, top, right, bottom = _edges(mask)
        filled[top:bottom, left:right] = True
    return filled


def _segmentation(mask: np.ndarray) -> Any:
    """Polygons where the mask has no holes (COCO's polygons cannot say holes), else run lengths."""
    from contourpy import contour_generator
    from scipy.ndimage import binary_fill_holes

    if (binary_fill_holes(mask) != mask).any():
        return _run_lengths(mask)
    # Pixel i covers i to i + 1; the frame of zeros closes contours at the picture's border.
    lines: Any = contour_generator(z=np.pad(mask, 1).astype(np.float32)).lines(0.5)
    polygons = [(line[:-1] - 0.5).clip(0, [mask.shape[1], mask.shape[0]]) for line in lines if len(line) > 3]
    return [np.round(polygon, 2).reshape(-1).tolist() for polygon in polygons]


def _run_lengths(mask: np.ndarray) -> dict[str, Any]:
    """COCO's uncompressed run lengths: columns first, beginning with the zeros."""
    flat = np.concatenate([[False], mask.flatten(order="F"), [not mask[-1, -1]]])
    ends = np.flatnonzero(flat[1:] != flat[:-1])
    counts = np.diff(np.concatenate([[0], ends]))
    return {"counts": counts.tolist(), "size": list(mask.shape)}
