"""The same random batch over and over: what training would do with an input pipeline that costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from results.datasets import DATASETS
from results.settings import Settings
from training.data.normalization import pixel_type
from training.workload import Batch, Shard, TrainSource


def random_images(settings: Settings, samples: int, device: torch.device, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal pixels [samples, 3, side, side] and random labels [samples]."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(samples, 3, settings.image_size, settings.image_size, generator=generator)
    labels = torch.randint(settings.classes, (samples,), generator=generator)
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return images.to(device, pixel_type(settings), memory_format=layout), labels.to(device)


class SyntheticClassification(TrainSource):
    """As many batches as the real data set would give."""

    def __init__(self, settings: Settings, shard: Shard, device: torch.device, seed: int) -> None:
        self.samples_per_epoch = DATASETS[settings.dataset].train_samples
        self.sizes = shard.batch_sizes(self.samples_per_epoch, settings.local_batch_size)
        self.batches_per_epoch = len(self.sizes)
        self.images, self.labels = random_images(settings, settings.local_batch_size, device, seed + shard.index)

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        for samples, global_samples in self.sizes[done:]:
            kept = max(samples, 1)
            yield Batch(inputs=self.images[:kept], targets=self.labels[:kept], samples=samples, global_samples=global_samples)


class SyntheticEvaluation:
    """As many random validation images as the real data set has; the accuracy means nothing."""

    def __init__(self, settings: Settings, shard: Shard, device: torch.device, seed: int) -> None:
        size = settings.evaluation.local_batch_size
        self.sizes = [pair for pair in shard.batch_sizes(DATASETS[settings.dataset].validation_samples, size) if pair[0]]
        self.images, self.labels = random_images(settings, size, device, seed)

    def __iter__(self) -> Iterator[Batch]:
        for samples, global_samples in self.sizes:
            yield Batch(
                inputs=self.images[:samples], targets=self.labels[:samples], samples=samples, global_samples=global_samples
            )
