"""What SSD and Mask R-CNN have in common: COCO data, evaluation over ranks, pictures, and the options under `model`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from training import backbone_weights
from training.batch_norm import average_running_statistics
from training.coco_eval import CocoEvaluator, DetectionPacker, Kind, PackedDetections, join
from training.coco_worker import CocoWorker
from training.communicator import Communicator
from training.data.coco_data import open_coco, open_validation
from training.data.coco_index import CocoIndex
from training.data.coco_order import CocoOrder
from training.data.synthetic_coco import SyntheticCocoEvaluation, SyntheticCocoTraining
from training.detections import Detections
from training.workload import EvaluatesBeside, Evaluation, PendingEvaluation, Shard, TrainSource, Workload

METRICS: dict[Kind, str] = {"bbox": "box_ap", "segm": "mask_ap"}
PICTURES = 4
PICTURE_SCORE = 0.5
"""Detections below this are not drawn."""

ValidationImages = Iterable[tuple[range, list[torch.Tensor]]]
"""Numbers of images in the index, and the images [3, H, W] as the network takes them."""


class DetectionWorkload(Workload, EvaluatesBeside):
    """An object detector on COCO 2017's layout."""

    kinds: ClassVar[tuple[Kind, ...]]
    contiguous_labels: ClassVar[bool]
    """Labels count the categories from 1; otherwise category ids are labels as they are."""
    weights: Path | None
    """The pretrained backbone."""
    validation: CocoIndex
    validation_images: ValidationImages
    worker: CocoWorker | None = None
    """Of rank 0, where it reckons beside training."""

    @abstractmethod
    def make_model(self, weights: Path | None) -> nn.Module:
        """The model with the backbone's weights from a file, or random ones."""

    @abstractmethod
    def training_source(self, index: CocoIndex, order: CocoOrder) -> TrainSource:
        """The input pipeline that the settings name."""

    @abstractmethod
    def validation_source(self, index: CocoIndex, shard: Shard) -> ValidationImages:
        """The same for evaluation."""

    @abstractmethod
    def detect(self, model: nn.Module, images: list[torch.Tensor], originals: Sequence[tuple[int, int]]) -> list[Detections]:
        """What the model finds, in pixels of the original images, whose sizes are (height, width)."""

    def groups(self, index: CocoIndex) -> np.ndarray | None:
        """Groups of images that go well into one batch; None: any."""
        return None

    def build_model(self) -> nn.Module:
        return self.make_model(self.weights)

    def random_model(self) -> nn.Module:
        return self.make_model(None)

    def open_data(self) -> TrainSource:
        if self.synthetic:
            return self._synthetic()
        data = open_coco(
            self.spec.data_dir, self.settings, self.shard, contiguous=self.contiguous_labels, segmentations="segm" in self.kinds
        )
        self._evaluate_on(data.validation)
        order = CocoOrder(
            images=len(data.training), groups=self.groups(data.training), local_batch_size=self.settings.local_batch_size,
            shard=self.shard, seed=self.spec.seed,
        )  # fmt: skip
        return self.training_source(data.training, order)

    def open_validation(self) -> None:
        """Open the validation images alone.

        Raises:
            ConfigurationError: as `open_data`.
        """
        self._evaluate_on(open_validation(self.spec.data_dir, self.settings, contiguous=self.contiguous_labels))

    def _evaluate_on(self, index: CocoIndex) -> None:
        self.validation = index
        self.evaluation_samples = len(index)
        self.evaluator = CocoEvaluator(index.annotations)
        if self.settings.evaluation.beside_training and self.shard.index == 0:
            self.worker = CocoWorker(index.annotations)
        self.validation_images = self.validation_source(index, self.shard)

    def _synthetic(self) -> TrainSource:
        batch = self.dummy_batch()
        images = list(batch.inputs) * -(-self.settings.evaluation.local_batch_size // len(batch.inputs))
        validation = SyntheticCocoEvaluation(self.settings, self.shard, images)
        self.validation_images, self.evaluation_samples = validation, validation.total
        return SyntheticCocoTraining(self.settings, self.shard, batch.inputs, batch.targets)

    def evaluate(self, model: nn.Module, communicator: Communicator) -> Evaluation:
        packed, samples = self._detections(model, communicator)
        if self.synthetic:  # what is found in noise means nothing
            return Evaluation(metrics={METRICS[kind]: 0.0 for kind in self.kinds}, samples=samples)
        return Evaluation(metrics=metrics(self.evaluator.over_ranks(packed, self.kinds, communicator)), samples=samples)

    def evaluate_beside(self, model: nn.Module, communicator: Communicator) -> PendingEvaluation:
        packed, samples = self._detections(model, communicator)
        parts = communicator.gather_objects_to_first(packed)
        if self.worker is not None:
            self.worker.start(join(parts), self.kinds)
        return _Reckoning(self.worker, self.kinds, samples)

    @property
    def synthetic(self) -> bool:
        """Images are noise."""
        return self.settings.input.source == "synthetic"

    def _detections(self, model: nn.Module, communicator: Communicator) -> tuple[PackedDetections, int]:
        """What the model finds in this rank's images, and the number of images of all ranks."""
        average_running_statistics(model, communicator)
        packer, counted, synthetic = DetectionPacker(), 0, self.synthetic
        for numbers, images in self.validation_images:
            if synthetic:
                originals = [(image.shape[-2], image.shape[-1]) for image in images]
            else:
                originals = [self.original(number) for number in numbers]
            for number, found in zip(numbers, self.detect(model, images, originals), strict=True):
                counted += 1
                if not synthetic:
                    packer.add(int(self.validation.ids[number]), found, self.categories(found.labels))
        samples = int(communicator.sum(torch.tensor([counted]))[0])
        if samples != self.evaluation_samples:
            raise RuntimeError(f"evaluated {samples} images, the validation set has {self.evaluation_samples}")
        return packer.packed(), samples

    def original(self, number: int) -> tuple[int, int]:
        """(height, width) of a validation image."""
        width, height = self.validation.sizes[number].tolist()
        return height, width

    def categories(self, labels: torch.Tensor) -> np.ndarray:
        """COCO's category ids of labels."""
        found = labels.cpu().numpy()
        return np.asarray(self.validation.category_ids)[found - 1] if self.contiguous_labels else found

    def pictures(self, model: nn.Module, count: int, least_score: float) -> Iterable[tuple[str, torch.Tensor]]:
        """File names and pictures [3, H, W] uint8 of the first validation images with what the model finds in them."""
        from training.draw import draw

        names = dict(zip(self.validation.category_ids, self.validation.category_names, strict=True))
        for numbers, images in self.validation_source(self.validation.subset(np.arange(min(count, len(self.validation)))), ALONE):
            originals = [self.original(number) for number in numbers]
            for number, found in zip(numbers, self.detect(model, images, originals), strict=True):
                kept = found.above(least_score)
                classes = [names.get(int(category), "?") for category in self.categories(kept.labels)]
                file = self.validation.files[number]
                yield file, draw(self.validation.folder / file, kept, classes)

    def show_predictions(self, model: nn.Module) -> torch.Tensor | None:
        if self.synthetic:
            return None
        from training.draw import side_by_side

        return side_by_side([picture for _, picture in self.pictures(model, PICTURES, PICTURE_SCORE)])

    def record_extra(self) -> dict[str, Any]:
        if self.weights is None:
            return {"backbone_weights": "none: random initial weights"}
        return {"backbone_weights": self.weights.name, "backbone_weights_sha256": backbone_weights.digest(self.weights)}

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of the warm-up, as MLPerf logs them."""
        return round(self.settings.schedule.warmup_epochs * steps_per_epoch)


def metrics(numbers: dict[Kind, np.ndarray]) -> dict[str, float]:
    """The metrics of the quality target among COCO's twelve numbers; COCO says -1 where there is nothing to find."""
    return {METRICS[kind]: max(float(values[0]), 0.0) for kind, values in numbers.items()}


class _Reckoning(PendingEvaluation):
    """COCO's metrics on their way from rank 0's worker; on other ranks, and for noise, there is none."""

    def __init__(self, worker: CocoWorker | None, kinds: Sequence[Kind], samples: int) -> None:
        self.worker, self.kinds, self.samples = worker, kinds, samples

    def ready(self) -> bool:
        return self.worker is not None and self.worker.ready()

    def metrics(self, communicator: Communicator) -> dict[str, float]:
        nothing = {kind: np.zeros(12) for kind in self.kinds}
        found = metrics(self.worker.take() if self.worker is not None else nothing)
        return communicator.gather_objects(found)[0]


ALONE = Shard(index=0, count=1)
