"""The same random images and objects over and over: what training would do with an input pipeline that costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from results.datasets import DATASETS
from results.settings import Settings
from training.data.normalization import pixel_type
from training.workload import Batch, Shard, TrainSource

OBJECTS_PER_IMAGE = 7
"""COCO has 7.3 on the mean."""


def random_objects(width: int, height: int, classes: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Boxes in pixels, a tenth to a half of the image wide and high, with labels and filled masks."""
    sides = torch.tensor([width, height]) * (0.1 + 0.4 * torch.rand(OBJECTS_PER_IMAGE, 2, generator=generator))
    corners = (torch.tensor([width, height]) - sides) * torch.rand(OBJECTS_PER_IMAGE, 2, generator=generator)
    boxes = torch.cat([corners, corners + sides], dim=1)
    masks = torch.zeros(OBJECTS_PER_IMAGE, height, width, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
        mask[top:bottom, left:right] = 1
    labels = torch.randint(1, classes, (OBJECTS_PER_IMAGE,), generator=generator)
    return {"boxes": boxes, "labels": labels, "masks": masks}


def random_images(settings: Settings, samples: int, size: tuple[int, int], device: torch.device, seed: int) -> torch.Tensor:
    """Normal pixels [samples, 3, height, width]; `size` is (height, width)."""
    images = torch.randn(samples, 3, *size, generator=torch.Generator().manual_seed(seed))
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return images.to(device, pixel_type(settings), memory_format=layout)


class SyntheticCocoTraining(TrainSource):
    """As many batches as the real data set would give, all of them `batch`."""

    def __init__(self, settings: Settings, shard: Shard, inputs: Any, targets: Any) -> None:
        self.samples_per_epoch = DATASETS[settings.dataset].train_samples
        self.sizes = shard.batch_sizes(self.samples_per_epoch, settings.local_batch_size)
        self.batches_per_epoch = len(self.sizes)
        self.inputs, self.targets = inputs, targets

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        for samples, global_samples in self.sizes[done:]:
            kept = slice(0, max(samples, 1))
            targets = tuple(part[kept] for part in self.targets) if isinstance(self.targets, tuple) else self.targets[kept]
            yield Batch(inputs=self.inputs[kept], targets=targets, samples=samples, global_samples=global_samples)


class SyntheticCocoEvaluation:
    """As many random validation images as the real data set has; what is found in them means nothing."""

    def __init__(self, settings: Settings, shard: Shard, images: list[torch.Tensor]) -> None:
        self.total = DATASETS[settings.dataset].validation_samples
        self.numbers = range(shard.start(self.total), shard.end(self.total))
        self.size = settings.evaluation.local_batch_size
        self.images = images

    def __iter__(self) -> Iterator[tuple[range, list[torch.Tensor]]]:
        for start in range(0, len(self.numbers), self.size):
            numbers = self.numbers[start : start + self.size]
            yield numbers, self.images[: len(numbers)]
