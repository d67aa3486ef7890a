"""torch's DataLoader with torchvision transforms: the same images and the same shares as DALI's, for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from results.settings import Settings
from training.data.folder import ImageList
from training.data.normalization import MEAN, STD
from training.workload import Batch, Shard, TrainSource


class _Images(Dataset[tuple[torch.Tensor, int]]):
    """Images by (number, seed of what is random)."""

    def __init__(self, images: ImageList, transform: Any) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images.files)

    def __getitem__(self, key: tuple[int, list[int]]) -> tuple[torch.Tensor, int]:
        index, seed = key
        # torchvision draws from the worker's generator. Its place must not depend on the images before: a resumed run skips them.
        torch.default_generator.manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]))
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


def _loader(dataset: _Images, settings: Settings, batches: list[list[tuple[int, list[int]]]]) -> Any:
    return DataLoader(
        dataset,
        batch_sampler=batches,  # type: ignore[arg-type]
        num_workers=settings.input.threads,
        prefetch_factor=settings.input.prefetch,
        # Of its own, lest opening a loader draws from the state that a checkpoint keeps.
        generator=torch.Generator(),
        # A forked child of a process in which MPI runs is undefined behaviour.
        multiprocessing_context="forkserver",
        pin_memory=torch.cuda.is_available(),
    )


class TorchClassification(TrainSource):
    """One rank's shard of a permutation that depends on seed and epoch alone; what is random of an image does, too."""

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

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        own, size = [(index, [self.seed, epoch, index]) for index in self.indices(epoch)], self.settings.local_batch_size
        # A rank whose shard ran out trains on an image that counts nothing.
        batches = [own[start : start + size] or own[:1] for start in range(0, len(self.sizes) * size, size)]
        loader = _loader(self.dataset, self.settings, batches[done:])
        for (samples, global_samples), (images, labels) in zip(self.sizes[done:], loader, strict=True):
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
        own = [(index, [index]) for index in range(shard.start(len(images.files)), shard.end(len(images.files)))]
        self.batches = [own[start : start + size] for start in range(0, len(own), size)]

    def __iter__(self) -> Iterator[Batch]:
        loader = _loader(self.dataset, self.settings, self.batches)
        for (samples, global_samples), (images, labels) in zip(self.sizes, loader, strict=True):
            inputs = _placed(images, self.settings, self.device)
            yield Batch(
                inputs=inputs, targets=labels.to(self.device, non_blocking=True), samples=samples, global_samples=global_samples
            )


def _placed(images: torch.Tensor, settings: Settings, device: torch.device) -> torch.Tensor:
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return images.to(device, non_blocking=True, memory_format=layout)
