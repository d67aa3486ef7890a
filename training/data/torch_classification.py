"""torch's DataLoader with torchvision transforms: the same images and the same shares as DALI's, for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from results.settings import Settings
from training.data.folder import ImageList
from training.data.normalization import MEAN, STD
from training.workload import Batch, Shard, TrainSource


class _Images(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, images: ImageList, transform: Any) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.images.root / self.images.files[index]) as image:
            return self.transform(image.convert("RGB")), self.images.labels[index]


def _training_transform(settings: Settings) -> Any:
    steps = [
        transforms.RandomResizedCrop(settings.image_size, scale=settings.crop_area, antialias=True),
        *([transforms.RandomHorizontalFlip()] if settings.flip else []),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    return transforms.Compose(steps)


def _evaluation_transform(settings: Settings) -> Any:
    return transforms.Compose(
        [
            transforms.Resize(round(settings.image_size / settings.evaluation_crop), antialias=True),
            transforms.CenterCrop(settings.image_size),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def _loader(dataset: _Images, settings: Settings, batches: list[list[int]], generator: torch.Generator | None) -> Any:
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=settings.input.threads,
        prefetch_factor=settings.input.prefetch,
        generator=generator,
        # A forked child of a process in which MPI runs is undefined behaviour.
        multiprocessing_context="forkserver",
        pin_memory=torch.cuda.is_available(),
    )


class TorchClassification(TrainSource):
    """One rank's shard of a permutation that depends on seed and epoch alone."""

    def __init__(self, images: ImageList, settings: Settings, shard: Shard, device: torch.device, seed: int) -> None:
        self.dataset = _Images(images, _training_transform(settings))
        self.settings, self.shard, self.device, self.seed = settings, shard, device, seed
        self.sizes = shard.batch_sizes(len(images.files), settings.local_batch_size)
        self.samples_per_epoch = len(images.files)
        self.batches_per_epoch = len(self.sizes)

    def indices(self, epoch: int) -> list[int]:
        """This rank's samples of an epoch, in order."""
        generator = torch.Generator().manual_seed(self.seed + epoch)
        order = torch.randperm(self.samples_per_epoch, generator=generator).tolist()
        return order[self.shard.start(self.samples_per_epoch) : self.shard.end(self.samples_per_epoch)]

    def epoch(self, epoch: int) -> Iterator[Batch]:
        own, size = self.indices(epoch), self.settings.local_batch_size
        # A rank whose shard ran out trains on an image that counts nothing.
        batches = [own[start : start + size] or own[:1] for start in range(0, len(self.sizes) * size, size)]
        generator = torch.Generator().manual_seed(self.seed + 7919 * (self.shard.index + 1) + epoch)
        loader = _loader(self.dataset, self.settings, batches, generator)
        for (samples, global_samples), (images, labels) in zip(self.sizes, loader, strict=True):
            inputs = _placed(images, self.settings, self.device)
            targets = labels.to(self.device, non_blocking=True)
            yield Batch(inputs=inputs, targets=targets, samples=samples, global_samples=global_samples)


class TorchEvaluation:
    """The validation images of one rank, each once."""

    def __init__(self, images: ImageList, settings: Settings, shard: Shard, device: torch.device) -> None:
        self.dataset = _Images(images, _evaluation_transform(settings))
        self.settings, self.device = settings, device
        size = settings.evaluation.local_batch_size
        self.sizes = [pair for pair in shard.batch_sizes(len(images.files), size) if pair[0]]
        own = list(range(shard.start(len(images.files)), shard.end(len(images.files))))
        self.batches = [own[start : start + size] for start in range(0, len(own), size)]

    def __iter__(self) -> Iterator[Batch]:
        loader = _loader(self.dataset, self.settings, self.batches, None)
        for (samples, global_samples), (images, labels) in zip(self.sizes, loader, strict=True):
            inputs = _placed(images, self.settings, self.device)
            yield Batch(
                inputs=inputs, targets=labels.to(self.device, non_blocking=True), samples=samples, global_samples=global_samples
            )


def _placed(images: torch.Tensor, settings: Settings, device: torch.device) -> torch.Tensor:
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return images.to(device, non_blocking=True, memory_format=layout)
