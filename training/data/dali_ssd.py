"""DALI pipelines for SSD: random crop by overlap, flip, colour, and the encoding of objects to default boxes, all in DALI.

The augmentation is that of the MLPerf reference (single_stage_detector/ssd/utils.py, `SSDTransformer`).
"""

from __future__ import annotations

from typing import Any

import torch
from nvidia.dali import fn, pipeline_def, types

from results.settings import Settings
from training.data.coco_index import CocoIndex
from training.data.coco_order import CocoOrder, RankBatch
from training.data.dali_coco import DaliCocoEvaluation, DaliCocoTraining, read_coco
from training.data.dali_options import decoder_device, normalised, on_device, placed
from training.data.ssd_augmentation import BRIGHTNESS, CONTRAST, CROP_ASPECTS, CROP_OVERLAPS, HUE_DEGREES, SATURATION, crop_sides
from training.ssd.boxes import MATCH_IOU, VARIANCES, BoxCoder
from training.workload import Batch


@pipeline_def
def _training_pipeline(
    index: CocoIndex, names: list[str], settings: Settings, coder: BoxCoder, seed: int, attempts: int, on_gpu: bool
) -> tuple[Any, ...]:
    outputs: Any = read_coco(index, names)
    encoded, boxes, labels = outputs
    crop: Any = fn.random_bbox_crop(
        boxes, labels, bbox_layout="xyXY", thresholds=CROP_OVERLAPS, scaling=crop_sides(settings), aspect_ratio=CROP_ASPECTS,
        allow_no_crop=True, num_attempts=attempts, seed=seed,
    )  # fmt: skip
    anchor, shape, boxes, labels = crop
    images = fn.decoders.image_slice(encoded, anchor, shape, device=decoder_device(on_gpu), output_type=types.RGB)
    images = fn.color_twist(
        _square(images, settings),
        brightness=fn.random.uniform(range=[1 - BRIGHTNESS, 1 + BRIGHTNESS], seed=seed + 1),
        contrast=fn.random.uniform(range=[1 - CONTRAST, 1 + CONTRAST], seed=seed + 2),
        saturation=fn.random.uniform(range=[1 - SATURATION, 1 + SATURATION], seed=seed + 3),
        hue=fn.random.uniform(range=[-HUE_DEGREES, HUE_DEGREES], seed=seed + 4),
    )
    mirrored = fn.random.coin_flip(probability=0.5 if settings.flip else 0.0, seed=seed + 5)
    boxes = fn.bb_flip(boxes, ltrb=True, horizontal=mirrored)
    # Divided by the variances, but not scaled to pixels: the offsets that `BoxCoder.encode` gives.
    offsets, encoded_labels = fn.box_encoder(
        on_device(boxes, on_gpu), on_device(labels, on_gpu), anchors=coder.corners.flatten().tolist(), criteria=MATCH_IOU,
        offset=True, stds=list(VARIANCES),
    )  # fmt: skip
    return normalised(images, settings, mirror=mirrored), offsets, encoded_labels


@pipeline_def
def _evaluation_pipeline(index: CocoIndex, names: list[str], settings: Settings, on_gpu: bool) -> Any:
    # Else the next evaluation would begin beyond the images that filled the last batch of this one.
    encoded, *_ = read_coco(index, names, pad_last_batch=True)
    images = fn.decoders.image(encoded, device=decoder_device(on_gpu), output_type=types.RGB)
    return normalised(_square(images, settings), settings)


def _square(images: Any, settings: Settings) -> Any:
    # Antialiased when images shrink: what Pillow's, and so torchvision's, bilinear resize does.
    return fn.resize(images, size=[settings.image_size] * 2, interp_type=types.INTERP_LINEAR, antialias=True)


class DaliSsdTraining(DaliCocoTraining):
    """Images [n, 3, side, side] and the targets of all default boxes: offsets [n, boxes, 4] and labels [n, boxes]."""

    outputs = ["images", "offsets", "labels"]
    ragged = set()

    def __init__(
        self, index: CocoIndex, order: CocoOrder, settings: Settings, device: torch.device, coder: BoxCoder, *, attempts: int
    ) -> None:
        super().__init__(index, order, settings, device)
        self.coder, self.attempts = coder, attempts

    def pipeline(self, names: list[str], seed: int, on_gpu: bool, **options: Any) -> Any:
        return _training_pipeline(self.index, names, self.settings, self.coder, seed, self.attempts, on_gpu, **options)

    def batch(self, outputs: dict[str, Any], batch: RankBatch) -> Batch:
        kept = slice(0, max(batch.samples, 1))
        offsets, labels = outputs["offsets"][kept], outputs["labels"][kept]
        return Batch(
            inputs=placed(outputs["images"][kept], self.settings),
            targets=(offsets, labels.long()),
            samples=batch.samples,
            global_samples=batch.global_samples,
        )


class DaliSsdEvaluation(DaliCocoEvaluation):
    """Images squeezed to the square that the network takes."""

    @staticmethod
    def pipeline(index: CocoIndex, names: list[str], settings: Settings, on_gpu: bool, **options: Any) -> Any:
        return _evaluation_pipeline(index, names, settings, on_gpu, **options)
