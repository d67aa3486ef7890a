"""SSD with ResNet-34 at 300x300: MLPerf Training's light-weight object detection benchmark, v0.5 to v1.1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from results.spec import RunSpec
from results.yaml_file import ConfigurationError, validate
from training.data.coco_index import CocoIndex
from training.data.coco_order import CocoOrder
from training.data.synthetic_coco import random_images, random_objects
from training.detection_workload import DetectionWorkload, ValidationImages
from training.detections import Detections
from training.ssd.boxes import SCALES_300, BoxCoder, default_boxes, even_scales
from training.ssd.loss import ssd_loss
from training.ssd.model import Ssd
from training.ssd.options import SsdOptions
from training.workload import Batch, Shard, TrainSource


class SsdWorkload(DetectionWorkload):
    """Boxes to a COCO AP of 0.23."""

    name = "ssd"
    kinds = ("bbox",)
    contiguous_labels = True

    def __init__(self, *, spec: RunSpec, shard: Shard, device: torch.device) -> None:
        super().__init__(spec=spec, shard=shard, device=device)
        self.options = validate(dict(self.settings.model), SsdOptions, source="options of the ssd model")
        self.weights = self.options.backbone_weights
        self.coder = BoxCoder(default_boxes(self.settings.image_size, self._scales()))
        self.device_coder = BoxCoder(self.coder.defaults.to(device))

    def _scales(self) -> list[float]:
        smallest, largest, side = self.options.smallest_box, self.options.largest_box, self.settings.image_size
        if smallest is not None and largest is not None:
            return even_scales(side, smallest, largest)
        if side != 300:
            raise ConfigurationError(
                f"the reference's default boxes are for 300 pixels, not {side}: set model.smallest_box and model.largest_box"
            )
        return SCALES_300

    def make_model(self, weights: Path | None) -> nn.Module:
        settings = self.settings
        return Ssd(backbone=self.options.backbone, classes=settings.classes, image_size=settings.image_size, weights=weights)

    def training_source(self, index: CocoIndex, order: CocoOrder) -> TrainSource:
        attempts = self.options.crop_attempts
        if self.settings.input.source == "dali":
            from training.data.dali_ssd import DaliSsdTraining

            return DaliSsdTraining(index, order, self.settings, self.device, self.coder, attempts=attempts)
        from training.data.torch_coco import SsdReader, TorchCocoTraining

        reader = SsdReader(self.settings, self.coder, attempts=attempts)
        return TorchCocoTraining(index, order, self.settings, self.device, reader, stacked=True)

    def validation_source(self, index: CocoIndex, shard: Shard) -> ValidationImages:
        if self.settings.input.source == "dali":
            from training.data.dali_ssd import DaliSsdEvaluation

            return DaliSsdEvaluation(index, self.settings, shard, self.device)
        from training.data.torch_coco import SsdImageReader, TorchCocoEvaluation

        return TorchCocoEvaluation(index, self.settings, shard, self.device, SsdImageReader(self.settings))

    def dummy_batch(self) -> Batch:
        samples, side = self.settings.local_batch_size, self.settings.image_size
        generator = torch.Generator().manual_seed(self.shard.index)
        targets = []
        for _ in range(samples):
            objects = random_objects(side, side, self.settings.classes, generator)
            targets.append(self.coder.encode(objects["boxes"] / side, objects["labels"]))
        offsets, labels = (torch.stack(parts).to(self.device) for parts in zip(*targets, strict=True))
        images = random_images(self.settings, samples, (side, side), self.device, seed=self.shard.index)
        return Batch(inputs=images, targets=(offsets, labels), samples=samples, global_samples=samples * self.shard.count)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        offsets, scores = model(batch.inputs)
        return ssd_loss(offsets, scores, *batch.targets)

    def detect(self, model: nn.Module, images: list[torch.Tensor], originals: Sequence[tuple[int, int]]) -> list[Detections]:
        layout = torch.channels_last if self.settings.channels_last else torch.contiguous_format
        offsets, scores = model(torch.stack(images).contiguous(memory_format=layout))
        found = self.device_coder.detect(offsets, scores)
        return [detections.scaled(width, height) for detections, (height, width) in zip(found, originals, strict=True)]

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """All in one: the reference decays biases and normalisation as well."""
        return [{"params": list(model.parameters()), "weight_decay": self.settings.optimizer.weight_decay}]

    def mlperf_accuracy(self, metrics: dict[str, float]) -> float:
        return metrics["box_ap"]

    def mlperf_hyperparameters(self, steps_per_epoch: int) -> dict[str, Any]:
        schedule = self.settings.schedule
        return {
            "opt_base_learning_rate": self.spec.peak_learning_rate,
            "opt_weight_decay": self.settings.optimizer.weight_decay,
            "opt_learning_rate_warmup_steps": self.warmup_steps(steps_per_epoch),
            # MLPerf's factor f starts the warm-up at 1 - 2^-f of the peak; 0 starts it at zero, as the presets do.
            "opt_learning_rate_warmup_factor": schedule.warmup_factor,
            "opt_learning_rate_decay_boundary_epochs": list(schedule.step_epochs),
            "max_samples": self.options.crop_attempts,
            "model_bn_span": self.settings.communication.batch_norm_ranks * self.settings.local_batch_size,
        }
