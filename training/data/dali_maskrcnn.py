"""DALI pipelines for Mask R-CNN: images of unequal sizes, with boxes and polygon masks that follow the resize and the flip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, pipeline_def, types

from results.settings import Settings
from training.data import coco_masks
from training.data.coco_index import CocoIndex
from training.data.coco_order import RankBatch
from training.data.dali_coco import DaliCocoEvaluation, DaliCocoTraining, read_coco
from training.data.dali_options import decoder_device, normalised, placed
from training.data.prefetch import prefetched
from training.data.transfer import to_device
from training.workload import Batch


@pipeline_def
def _training_pipeline(index: CocoIndex, names: list[str], settings: Settings, seed: int, on_gpu: bool) -> tuple[Any, ...]:
    # Category ids serve as labels as they are: 91 classes for COCO's 80 categories, as torchvision has it.
    encoded, boxes, labels, polygons, vertices = read_coco(index, names, polygon_masks=True, avoid_class_remapping=True)
    images = _resized(fn.decoders.image(encoded, device=decoder_device(on_gpu), output_type=types.RGB), settings)
    mirrored = fn.random.coin_flip(probability=0.5 if settings.flip else 0.0, seed=seed)
    boxes = fn.bb_flip(boxes, ltrb=True, horizontal=mirrored)
    vertices = fn.coord_flip(vertices, layout="xy", flip_x=mirrored, flip_y=0)
    return normalised(images, settings, mirror=mirrored), boxes, labels, polygons, vertices, mirrored


@pipeline_def
def _evaluation_pipeline(index: CocoIndex, names: list[str], settings: Settings, on_gpu: bool) -> Any:
    # Else the next evaluation would begin beyond the images that filled the last batch of this one.
    encoded, *_ = read_coco(index, names, pad_last_batch=True)
    images = fn.decoders.image(encoded, device=decoder_device(on_gpu), output_type=types.RGB)
    return normalised(_resized(images, settings), settings)


def _resized(images: Any, settings: Settings) -> Any:
    """The shorter side to `image_size`, unless the longer then passes `max_image_size`."""
    return fn.resize(
        images, resize_shorter=settings.image_size, max_size=settings.max_image_size or 0,
        interp_type=types.INTERP_LINEAR, antialias=True,
    )  # fmt: skip


class DaliMaskRcnnTraining(DaliCocoTraining):
    """Lists of images [3, H, W] and of targets (boxes, labels, masks); masks become bitmaps in a thread beside training."""

    outputs = ["images", "boxes", "labels", "polygons", "vertices", "mirrored"]
    ragged = {"images", "boxes", "labels", "polygons", "vertices"}

    def pipeline(self, names: list[str], seed: int, on_gpu: bool, **options: Any) -> Any:
        return _training_pipeline(self.index, names, self.settings, seed, on_gpu, **options)

    _state = b""

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        for batch, state in prefetched(self._batches(epoch, done), self.settings.input.prefetch):
            self._state = state
            yield batch

    def _batches(self, epoch: int, done: int) -> Iterator[tuple[Batch, bytes]]:
        """Batches, each with the state behind it (half a kilobyte): the thread is ahead of training, and so is DALI."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # every thread has its own current GPU, at first number 0
        for batch in super().epoch(epoch, done):
            yield batch, super().state()

    def state(self) -> bytes:
        return self._state

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self._state = state

    def batch(self, outputs: dict[str, Any], batch: RankBatch) -> Batch:
        kept = range(max(batch.samples, 1))
        images = [placed(outputs["images"][place], self.settings) for place in kept]
        targets = [
            self._target(int(batch.images[place]), images[place], {name: values[place] for name, values in outputs.items()})
            for place in kept
        ]
        return Batch(inputs=images, targets=targets, samples=batch.samples, global_samples=batch.global_samples)

    def _target(self, number: int, image: torch.Tensor, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        height, width = image.shape[-2:]
        vertices = outputs["vertices"].numpy().reshape(-1, 2) * np.array([width, height], dtype=np.float32)
        parts: dict[int, list[np.ndarray]] = {}
        for owner, start, end in outputs["polygons"].numpy().reshape(-1, 3):
            parts.setdefault(int(owner), []).append(vertices[start:end])
        bitmaps = []
        for place in range(len(outputs["boxes"])):
            if place in parts:
                bitmaps.append(coco_masks.rasterise(parts[place], height, width))
            else:  # DALI's reader gives no polygons for run lengths
                run_lengths = self.index.segmentation(number, place)
                bitmaps.append(coco_masks.from_run_lengths(run_lengths, height, width, mirrored=bool(outputs["mirrored"])))
        target = {
            "boxes": outputs["boxes"] * torch.tensor([width, height, width, height]),
            "labels": outputs["labels"].long(),
            "masks": coco_masks.stack(bitmaps, height, width),
        }
        return {name: to_device(value, self.device) for name, value in target.items()}


class DaliMaskRcnnEvaluation(DaliCocoEvaluation):
    """Images with the shorter side at `image_size`."""

    @staticmethod
    def pipeline(index: CocoIndex, names: list[str], settings: Settings, on_gpu: bool, **options: Any) -> Any:
        return _evaluation_pipeline(index, names, settings, on_gpu, **options)
