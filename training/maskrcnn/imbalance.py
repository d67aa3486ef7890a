"""How much work unequal images make ranks wait for one another, known from the sizes before any step is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from results.settings import Settings
from training.data.coco_index import CocoIndex
from training.data.coco_order import CocoOrder
from training.maskrcnn.model import PADDED_TO
from training.workload import Shard


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Shares of the pixels of an epoch, in padded batches over all ranks."""

    waiting_share: float
    """1 - mean over ranks / slowest rank, summed over steps: the part of compute in which the mean rank waits for the largest
    batch, were time in proportion to pixels."""
    waiting_share_ungrouped: float
    """The same if images were not grouped by aspect ratio."""
    padding_share: float
    """Pixels that are padding."""

    def as_dict(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in asdict(self).items()}


def measure_imbalance(index: CocoIndex, order: CocoOrder, settings: Settings) -> Imbalance:
    """Imbalance of the first epoch of a run."""
    sizes = resized_sizes(index.sizes, settings)
    ungrouped = CocoOrder(
        images=order.images, groups=None, local_batch_size=order.local_batch_size, shard=order.shard, seed=order.seed
    )
    padded = _padded_pixels(sizes, order)
    own = float(sizes.prod(axis=1).sum())
    return Imbalance(_waiting(padded), _waiting(_padded_pixels(sizes, ungrouped)), 1 - own / float(padded.sum()))


def resized_sizes(sizes: np.ndarray, settings: Settings) -> np.ndarray:
    """[n, 2] width and height after the resize."""
    scale = settings.image_size / sizes.min(axis=1)
    if settings.max_image_size is not None:
        scale = np.minimum(scale, settings.max_image_size / sizes.max(axis=1))
    return np.round(sizes * scale[:, None])


def _padded_pixels(sizes: np.ndarray, order: CocoOrder) -> np.ndarray:
    """[steps, ranks] pixels of each rank's padded batch."""
    rows = []
    for batch in order.global_batches(1):
        shares = [Shard(index=rank, count=order.shard.count) for rank in range(order.shard.count)]
        parts = [batch[share.start(len(batch)) : share.end(len(batch))] for share in shares]
        rows.append([_batch_pixels(sizes[part]) if len(part) else 0.0 for part in parts])
    return np.array(rows)


def _batch_pixels(sizes: np.ndarray) -> float:
    sides = -(-sizes.max(axis=0) // PADDED_TO) * PADDED_TO
    return float(len(sizes) * sides.prod())


def _waiting(pixels: np.ndarray) -> float:
    slowest = float(pixels.max(axis=1).sum())
    return 1 - float(pixels.mean(axis=1).sum()) / slowest if slowest else 0.0
