"""Which images each rank sees in which batch of which epoch: a function of the seed and the epoch alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.workload import Shard


@dataclass(frozen=True, slots=True)
class RankBatch:
    """One rank's part of one global batch."""

    images: np.ndarray
    """Image numbers, as many as the local batch holds; those beyond `samples` are repeats that count nothing."""
    samples: int
    global_samples: int


class CocoOrder:
    """Global batches of shuffled images, each dealt to the ranks in shares that differ by one image at most.

    With groups (of like aspect ratio), all images of a global batch come from one group as far as they go round, so that images
    need little padding and no rank waits for another's larger ones. The images left over in each group share the last batches.
    """

    def __init__(self, *, images: int, groups: np.ndarray | None, local_batch_size: int, shard: Shard, seed: int) -> None:
        self.images = images
        self.groups = np.zeros(images, dtype=np.int64) if groups is None else groups
        self.local_batch_size = local_batch_size
        self.shard = shard
        self.seed = seed

    @property
    def batches_per_epoch(self) -> int:
        """Global batches per epoch; the last may be partial."""
        return -(-self.images // (self.local_batch_size * self.shard.count))

    def global_batches(self, epoch: int) -> list[np.ndarray]:
        """All images once, in global batches; only the last may hold fewer than the others."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(self.images)
        size = self.local_batch_size * self.shard.count
        whole: list[np.ndarray] = []
        rest: list[np.ndarray] = []
        for group in np.unique(self.groups):
            members = order[self.groups[order] == group]
            full = len(members) // size * size
            whole += list(members[:full].reshape(-1, size))
            rest.append(members[full:])
        left = np.concatenate(rest)
        mixed = [left[start : start + size] for start in range(0, len(left), size)]
        last = mixed.pop() if mixed and len(mixed[-1]) < size else None
        whole += mixed
        shuffled = [whole[number] for number in rng.permutation(len(whole))]
        return shuffled if last is None else [*shuffled, last]

    def epoch(self, epoch: int) -> list[RankBatch]:
        """This rank's batches of an epoch, as many as every other rank's."""
        return [self._share(batch) for batch in self.global_batches(epoch)]

    def _share(self, batch: np.ndarray) -> RankBatch:
        own = batch[self.shard.start(len(batch)) : self.shard.end(len(batch))]
        # A rank that got nothing trains on an image that counts nothing.
        filler = np.full(self.local_batch_size - len(own), own[0] if len(own) else batch[0])
        return RankBatch(images=np.concatenate([own, filler]), samples=len(own), global_samples=len(batch))


def aspect_groups(sizes: np.ndarray) -> np.ndarray:
    """0 for images at least as wide as high, 1 for the others: the two groups of the MLPerf reference (ASPECT_RATIO_GROUPING)."""
    return (sizes[:, 1] > sizes[:, 0]).astype(np.int64)
