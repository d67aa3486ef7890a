"""How long ranks wait for one another, against arithmetic by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.training.support import make_spec
from training.data.coco_index import CocoIndex
from training.data.coco_order import CocoOrder, aspect_groups
from training.maskrcnn.imbalance import measure_imbalance, resized_sizes
from training.workload import Shard

SIZES = [(128, 64), (64, 128), (64, 64), (64, 64)]
SETTINGS = make_spec(Path("unused"), workload="maskrcnn", preset="digits-coco", image_size=32, max_image_size=60).settings


def index() -> CocoIndex:
    count = len(SIZES)
    return CocoIndex(
        folder=Path("unused"), annotations=Path("unused"), ids=np.arange(count), files=[""] * count, sizes=np.array(SIZES),
        category_ids=[], category_names=[], offsets=np.zeros(count + 1, dtype=np.int64), boxes=np.zeros((0, 4)),
        categories=np.zeros(0, dtype=np.int64), segmentations=[],
    )  # fmt: skip


def order(local_batch_size: int, ranks: int, groups: np.ndarray | None, seed: int) -> CocoOrder:
    return CocoOrder(
        images=4, groups=groups, local_batch_size=local_batch_size, shard=Shard(index=0, count=ranks), seed=seed
    )  # fmt: skip


def seed_of(batches: list[list[int]], local_batch_size: int, ranks: int) -> int:
    """A seed by which ungrouped images fall into these batches."""
    return next(
        seed
        for seed in range(1000)
        if [batch.tolist() for batch in order(local_batch_size, ranks, None, seed).global_batches(1)] == batches
    )


def test_sides_after_the_resize() -> None:
    # 32 / 64 halves all; 64 would be longer than 60, so the long ones shrink to 60 x 30.
    assert resized_sizes(np.array(SIZES), SETTINGS).tolist() == [[60, 30], [30, 60], [32, 32], [32, 32]]


def test_two_ranks_of_one_image_each() -> None:
    """Padded to multiples of 32: 64x32, 32x64, 32x32, 32x32: 2,048, 2,048, 1,024 and 1,024 pixels."""
    seed = seed_of([[0, 2], [3, 1]], 1, 2)
    found = measure_imbalance(index(), order(1, 2, None, seed), SETTINGS)
    # In both steps one rank has 2,048 pixels and the other 1,024: the mean of 1,536 waits a quarter.
    assert found.waiting_share == pytest.approx(0.25)
    # The images have 1,800 + 1,800 + 1,024 + 1,024 pixels of the 6,144.
    assert found.padding_share == pytest.approx(1 - 5648 / 6144)


def test_one_rank_waits_for_nobody_but_pads() -> None:
    seed = seed_of([[0, 1], [2, 3]], 2, 1)
    found = measure_imbalance(index(), order(2, 1, None, seed), SETTINGS)
    assert found.waiting_share == 0
    # The wide and the high image share a batch of 64x64 each: 8,192 pixels, and 2,048 for the square ones.
    assert found.padding_share == pytest.approx(1 - 5648 / 10240)


def test_groups_bring_like_images_together() -> None:
    groups = aspect_groups(np.array(SIZES))
    assert groups.tolist() == [0, 1, 0, 0]
    grouped = order(2, 1, groups, seed_of([[0, 1], [2, 3]], 2, 1))
    found = measure_imbalance(index(), grouped, SETTINGS)
    batches = sorted(sorted(batch.tolist()) for batch in grouped.global_batches(1))
    # Two of the three wide ones meet; the high one is left with the third.
    assert len(batches) == 2
    assert found.waiting_share_ungrouped == 0
    ungrouped = measure_imbalance(index(), order(2, 1, None, grouped.seed), SETTINGS)
    assert found.padding_share <= ungrouped.padding_share
