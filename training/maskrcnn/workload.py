"""Mask R-CNN with ResNet-50-FPN: MLPerf Training's heavy-weight object detection benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from results.spec import RunSpec
from results.yaml_file import ConfigurationError, validate
from training.data.coco_index import CocoIndex
from training.data.coco_order import CocoOrder, aspect_groups
from training.data.synthetic_coco import random_images, random_objects
from training.detection_workload import DetectionWorkload, ValidationImages
from training.detections import Detections
from training.maskrcnn.imbalance import Imbalance, measure_imbalance
from training.maskrcnn.model import MaskRcnn, build_mask_rcnn, to_detections
from training.maskrcnn.options import MaskRcnnOptions
from training.workload import Batch, Shard, TrainSource


class MaskRcnnWorkload(DetectionWorkload):
    """Boxes to a COCO AP of 0.377 and masks to 0.339, both in one evaluation."""

    name = "maskrcnn"
    kinds = ("bbox", "segm")
    contiguous_labels = False
    fixed_sizes = False
    imbalance: Imbalance | None = None

    def __init__(self, *, spec: RunSpec, shard: Shard, device: torch.device) -> None:
        super().__init__(spec=spec, shard=shard, device=device)
        self.options = validate(dict(self.settings.model), MaskRcnnOptions, source="options of the maskrcnn model")
        self.weights = self.options.backbone_weights

    def build_model(self) -> nn.Module:
        if self.options.batch_norm == "frozen" and self.weights is None:
            raise ConfigurationError(
                f"preset {self.spec.preset} freezes batch norm, which learns nothing from random weights: name torchvision's "
                f"{self.options.backbone} weights with --backbone-weights FILE"
            )
        return super().build_model()

    def make_model(self, weights: Path | None) -> nn.Module:
        return build_mask_rcnn(self.options, self.settings.classes, weights)

    def groups(self, index: CocoIndex) -> np.ndarray:
        return aspect_groups(index.sizes)

    def training_source(self, index: CocoIndex, order: CocoOrder) -> TrainSource:
        self.imbalance = measure_imbalance(index, order, self.settings)
        if self.settings.input.source == "dali":
            from training.data.dali_maskrcnn import DaliMaskRcnnTraining

            return DaliMaskRcnnTraining(index, order, self.settings, self.device)
        from training.data.torch_coco import MaskRcnnReader, TorchCocoTraining

        return TorchCocoTraining(index, order, self.settings, self.device, MaskRcnnReader(self.settings), stacked=False)

    def validation_source(self, index: CocoIndex, shard: Shard) -> ValidationImages:
        if self.settings.input.source == "dali":
            from training.data.dali_maskrcnn import DaliMaskRcnnEvaluation

            return DaliMaskRcnnEvaluation(index, self.settings, shard, self.device)
        from training.data.torch_coco import MaskRcnnImageReader, TorchCocoEvaluation

        return TorchCocoEvaluation(index, self.settings, shard, self.device, MaskRcnnImageReader(self.settings))

    def dummy_batch(self) -> Batch:
        # The largest landscape images that the resize lets through, so that memory is tried before the clock starts.
        samples, height = self.settings.local_batch_size, self.settings.image_size
        width = self.settings.max_image_size or height
        generator = torch.Generator().manual_seed(self.shard.index)
        targets = [random_objects(width, height, self.settings.classes, generator) for _ in range(samples)]
        images = random_images(self.settings, samples, (height, width), self.device, seed=self.shard.index)
        return Batch(
            inputs=list(images),
            targets=[{name: value.to(self.device) for name, value in target.items()} for target in targets],
            samples=samples,
            global_samples=samples * self.shard.count,
        )

    @contextmanager
    def worst_case(self, model: nn.Module) -> Iterator[None]:
        """Every image has as many proposals on its objects as the box loss samples, which trained weights bring and random ones
        do not; the mask head works on no others."""
        hook = cast(MaskRcnn, model).rpn.register_forward_hook(self._propose_objects)
        try:
            yield
        finally:
            hook.remove()

    def _propose_objects(self, _rpn: nn.Module, inputs: Any, outputs: Any) -> Any:
        proposals, losses = outputs
        repeats = -(-self.options.box_samples // min(len(target["boxes"]) for target in inputs[2]))
        found = [torch.cat([target["boxes"].repeat(repeats, 1), own]) for target, own in zip(inputs[2], proposals, strict=True)]
        return found, losses

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        losses: dict[str, torch.Tensor] = model(batch.inputs, batch.targets)
        return torch.stack([value.float() for value in losses.values()]).sum()

    def detect(self, model: nn.Module, images: list[torch.Tensor], originals: Sequence[tuple[int, int]]) -> list[Detections]:
        return [
            to_detections(found, (image.shape[-2], image.shape[-1]), original)
            for found, image, original in zip(model(images), images, originals, strict=True)
        ]

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Biases at twice the rate and without decay, as the reference has them (maskrcnn_benchmark/solver/build.py)."""
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        biases = [parameter for name, parameter in named if name.endswith("bias")]
        others = [parameter for name, parameter in named if not name.endswith("bias")]
        return [
            {"params": others, "weight_decay": self.settings.optimizer.weight_decay},
            {"params": biases, "weight_decay": 0.0, "undecayed": True, "rate_factor": self.options.bias_rate_factor},
        ]

    def record_extra(self) -> dict[str, Any]:
        extra = super().record_extra()
        return extra if self.imbalance is None else extra | {"imbalance": self.imbalance.as_dict()}

    def mlperf_accuracy(self, metrics: dict[str, float]) -> dict[str, float]:
        return {"BBOX": metrics["box_ap"], "SEGM": metrics["mask_ap"]}

    def mlperf_hyperparameters(self, steps_per_epoch: int) -> dict[str, Any]:
        schedule = self.settings.schedule
        return {
            "opt_base_learning_rate": self.spec.peak_learning_rate,
            "opt_learning_rate_warmup_steps": self.warmup_steps(steps_per_epoch),
            "opt_learning_rate_warmup_factor": schedule.warmup_factor,
            "opt_learning_rate_decay_factor": schedule.step_factor,
            "opt_learning_rate_decay_steps": [round(epoch * steps_per_epoch) for epoch in schedule.step_epochs],
            # MLPerf counts the candidates of all images of a rank's batch.
            "num_image_candidates": self.options.image_candidates * self.settings.local_batch_size,
            "min_image_size": self.settings.image_size,
            "max_image_size": self.settings.max_image_size or self.settings.image_size,
        }
