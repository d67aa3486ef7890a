"""torch's DataLoader over COCO images: the same images and shares as DALI's, for comparison and where DALI is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional

from results.settings import Settings
from training.data import coco_masks, ssd_augmentation
from training.data.coco_index import CocoIndex
from training.data.coco_order import CocoOrder
from training.data.normalization import MEAN, STD
from training.ssd.boxes import BoxCoder
from training.workload import Batch, Shard, TrainSource

Sample: TypeAlias = tuple[torch.Tensor, dict[str, torch.Tensor]]
"""An image [3, H, W] and its targets by name."""
Reader: TypeAlias = Callable[[CocoIndex, int, np.random.Generator], Sample]
"""Reads image number n; draws what is random from the generator."""


class SsdReader:
    """A training image for SSD and the targets of all default boxes."""

    def __init__(self, settings: Settings, coder: BoxCoder, *, attempts: int) -> None:
        self.settings, self.coder, self.attempts = settings, coder, attempts

    def __call__(self, index: CocoIndex, number: int, rng: np.random.Generator) -> Sample:
        image = open_image(index, number)
        objects = index.objects(number)
        boxes = (index.boxes[objects] / np.tile(index.sizes[number], 2)).astype(np.float32)
        labels = index.labels(index.categories[objects])
        image, boxes, labels = ssd_augmentation.random_crop(
            image, boxes, labels, ssd_augmentation.crop_sides(self.settings), self.attempts, rng
        )
        image = ssd_augmentation.colour(image.resize((self.settings.image_size,) * 2, Image.Resampling.BILINEAR), rng)
        if self.settings.flip and rng.random() < 0.5:
            image, boxes = ssd_augmentation.mirror(image, boxes)
        offsets, encoded = self.coder.encode(torch.from_numpy(boxes).float(), torch.from_numpy(labels))
        return to_tensor(image), {"offsets": offsets, "labels": encoded}


class MaskRcnnReader:
    """A training image for Mask R-CNN with boxes, labels and masks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, index: CocoIndex, number: int, rng: np.random.Generator) -> Sample:
        image = resize_shorter(open_image(index, number), self.settings)
        mirrored = self.settings.flip and rng.random() < 0.5
        objects = index.objects(number)
        shares = index.boxes[objects] / np.tile(index.sizes[number], 2)
        if mirrored:
            image, shares = ssd_augmentation.mirror(image, shares)
        boxes = torch.from_numpy(shares * np.tile([image.width, image.height], 2)).float()
        bitmaps = [self._bitmap(index, number, place, image, mirrored=mirrored) for place in range(len(boxes))]
        return to_tensor(image), {
            "boxes": boxes,
            "labels": torch.from_numpy(index.categories[objects]),
            "masks": coco_masks.stack(bitmaps, image.height, image.width),
        }

    def _bitmap(self, index: CocoIndex, number: int, place: int, image: Image.Image, *, mirrored: bool) -> np.ndarray:
        segmentation = index.segmentation(number, place)
        if isinstance(segmentation, dict):
            return coco_masks.from_run_lengths(segmentation, image.height, image.width, mirrored=mirrored)
        scale = np.array([image.width, image.height]) / index.sizes[number]
        polygons = [np.asarray(part, dtype=np.float64).reshape(-1, 2) * scale for part in segmentation]
        if mirrored:
            polygons = [np.array([image.width, 0]) + polygon * [-1, 1] for polygon in polygons]
        return coco_masks.rasterise(polygons, image.height, image.width)


class SsdImageReader:
    """A validation image squeezed to the square that SSD takes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, index: CocoIndex, number: int, rng: np.random.Generator) -> Sample:
        image = open_image(index, number).resize((self.settings.image_size,) * 2, Image.Resampling.BILINEAR)
        return to_tensor(image), {}


class MaskRcnnImageReader:
    """A validation image with the shorter side at `image_size`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, index: CocoIndex, number: int, rng: np.random.Generator) -> Sample:
        return to_tensor(resize_shorter(open_image(index, number), self.settings)), {}


def open_image(index: CocoIndex, number: int) -> Image.Image:
    """The image in RGB, whatever it is stored as."""
    with Image.open(index.folder / index.files[number]) as image:
        return image.convert("RGB")


def resized_size(width: int, height: int, settings: Settings) -> tuple[int, int]:
    """Width and height when the shorter side goes to `image_size`, unless the longer then passes `max_image_size`."""
    scale = settings.image_size / min(width, height)
    if settings.max_image_size is not None:
        scale = min(scale, settings.max_image_size / max(width, height))
    return round(width * scale), round(height * scale)


def resize_shorter(image: Image.Image, settings: Settings) -> Image.Image:
    """The image at `resized_size`."""
    size = resized_size(image.width, image.height, settings)
    return image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)


def to_tensor(image: Image.Image) -> torch.Tensor:
    """[3, H, W] floats by channel mean and deviation."""
    return functional.normalize(functional.to_tensor(image), MEAN, STD)


class _Images(Dataset[Sample]):
    """Samples by (image number, seed of what is random)."""

    def __init__(self, index: CocoIndex, reader: Reader) -> None:
        self.index, self.reader = index, reader

    def __getitem__(self, key: tuple[int, list[int]]) -> Sample:
        number, seed = key
        return self.reader(self.index, number, np.random.default_rng(seed))


def _loader(images: _Images, batches: list[list[tuple[int, list[int]]]], settings: Settings) -> Any:
    return DataLoader(
        images,
        batch_sampler=batches,  # type: ignore[arg-type]
        num_workers=settings.input.threads,
        prefetch_factor=settings.input.prefetch,
        collate_fn=list,
        # Of its own, lest opening a loader draws from the state that a checkpoint keeps.
        generator=torch.Generator(),
        # A forked child of a process in which MPI runs is undefined behaviour.
        multiprocessing_context="forkserver",
        pin_memory=torch.cuda.is_available(),
    )


class TorchCocoTraining(TrainSource):
    """Training batches of one rank. What is random depends on seed, epoch and image alone, on any number of workers."""

    def __init__(
        self, index: CocoIndex, order: CocoOrder, settings: Settings, device: torch.device, reader: Reader, *, stacked: bool
    ) -> None:
        """`stacked`: images of one size and targets in tensors [n, ...], as SSD takes them; else lists of them."""
        self.images = _Images(index, reader)
        self.order, self.settings, self.device, self.stacked = order, settings, device, stacked
        self.samples_per_epoch = len(index)
        self.batches_per_epoch = order.batches_per_epoch

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        batches = self.order.epoch(epoch)[done:]
        keys = [
            [(int(image), [self.order.seed, epoch, int(image)]) for image in batch.images[: max(batch.samples, 1)]]
            for batch in batches
        ]
        for batch, samples in zip(batches, _loader(self.images, keys, self.settings), strict=True):
            inputs: Any = [placed(image, self.settings, self.device) for image, _ in samples]
            targets: Any = [
                {name: value.to(self.device, non_blocking=True) for name, value in target.items()} for _, target in samples
            ]
            if self.stacked:
                inputs = stack_images(inputs, self.settings)
                targets = tuple(torch.stack([target[name] for target in targets]) for name in ("offsets", "labels"))
            yield Batch(inputs=inputs, targets=targets, samples=batch.samples, global_samples=batch.global_samples)


class TorchCocoEvaluation:
    """The validation images of one rank, each once: pairs of image numbers and images."""

    def __init__(self, index: CocoIndex, settings: Settings, shard: Shard, device: torch.device, reader: Reader) -> None:
        self.images = _Images(index, reader)
        self.settings, self.device = settings, device
        self.numbers = range(shard.start(len(index)), shard.end(len(index)))

    def __iter__(self) -> Iterator[tuple[range, list[torch.Tensor]]]:
        size = self.settings.evaluation.local_batch_size
        parts = [self.numbers[start : start + size] for start in range(0, len(self.numbers), size)]
        keys = [[(number, [number]) for number in part] for part in parts]
        for part, samples in zip(parts, _loader(self.images, keys, self.settings), strict=True):
            yield part, [placed(image, self.settings, self.device) for image, _ in samples]


def placed(image: torch.Tensor, settings: Settings, device: torch.device) -> torch.Tensor:
    """One image [3, H, W] on the device, in the memory order of `channels_last` where that is asked for."""
    image = image.to(device, non_blocking=True)
    return image.permute(1, 2, 0).contiguous().permute(2, 0, 1) if settings.channels_last else image


def stack_images(images: list[torch.Tensor], settings: Settings) -> torch.Tensor:
    """[n, 3, H, W] of images of one size."""
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return torch.stack(images).contiguous(memory_format=layout)
