"""Masks of objects, from COCO's polygons and run lengths to bitmaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pycocotools import mask as coco_mask


def rasterise(polygons: list[np.ndarray], height: int, width: int) -> np.ndarray:
    """[height, width] uint8 bitmap of the union of polygons, each [vertices, 2] x and y in pixels."""
    usable = [polygon.reshape(-1).tolist() for polygon in polygons if len(polygon) >= 3]
    if not usable:
        return np.zeros((height, width), dtype=np.uint8)
    return decode(coco_mask.merge(coco_mask.frPyObjects(usable, height, width)))


def decode(run_lengths: dict[str, Any]) -> np.ndarray:
    """[height, width] uint8 bitmap of COCO's run lengths, packed or not."""
    if isinstance(run_lengths["counts"], list):
        run_lengths = coco_mask.frPyObjects(run_lengths, *run_lengths["size"])
    bitmap: np.ndarray = coco_mask.decode(run_lengths)
    return np.ascontiguousarray(bitmap)


def from_run_lengths(run_lengths: dict[str, Any], height: int, width: int, *, mirrored: bool) -> np.ndarray:
    """[height, width] bitmap of run lengths of another size: each pixel takes what lies at its centre."""
    bitmap = decode(run_lengths)
    rows = ((np.arange(height) + 0.5) * bitmap.shape[0] / height).astype(np.int64)
    columns = ((np.arange(width) + 0.5) * bitmap.shape[1] / width).astype(np.int64)
    resized = bitmap[np.ix_(rows, columns)]
    return resized[:, ::-1] if mirrored else resized


def stack(bitmaps: list[np.ndarray], height: int, width: int) -> torch.Tensor:
    """[objects, height, width] uint8."""
    if not bitmaps:
        return torch.zeros(0, height, width, dtype=torch.uint8)
    return torch.from_numpy(np.stack(bitmaps))
