"""Open the training and validation data of a classification workload from the source that the settings name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from results.settings import Settings
from results.yaml_file import ConfigurationError
from training.data.folder import check_readable, list_split
from training.workload import Batch, Shard, TrainSource


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassificationData:
    """Both sides of one rank's data."""

    training: TrainSource
    validation: Iterable[Batch]
    validation_samples: int
    """Over all ranks."""


def open_classification(root: Path, settings: Settings, shard: Shard, device: torch.device, seed: int) -> ClassificationData:
    """Open the data; the first touch of them.

    Raises:
        ConfigurationError: a folder is missing, has other classes than the preset says, or holds unreadable images.
    """
    if settings.input.source == "synthetic":
        from results.datasets import DATASETS
        from training.data.synthetic_classification import SyntheticClassification, SyntheticEvaluation

        return ClassificationData(
            training=SyntheticClassification(settings, shard, device, seed),
            validation=SyntheticEvaluation(settings, shard, device, seed),
            validation_samples=DATASETS[settings.dataset].validation_samples,
        )
    train, validation = (
        check_readable(list_split(root, split), skip_broken=settings.input.skip_broken_images) for split in ("train", "val")
    )
    if len(train.classes) != settings.classes or train.classes != validation.classes:
        raise ConfigurationError(
            f"{root} has {len(train.classes)} training and {len(validation.classes)} validation classes, "
            f"the preset expects {settings.classes} of the same names in both"
        )
    if len(validation.files) < shard.count or len(train.files) < shard.count:
        raise ConfigurationError(f"{root} holds fewer images than there are ranks ({shard.count})")
    if settings.input.source == "dali":
        from training.data.dali_classification import DaliClassification as Training
        from training.data.dali_classification import DaliEvaluation as Validation
    else:
        from training.data.torch_classification import TorchClassification as Training  # type: ignore[assignment]
        from training.data.torch_classification import TorchEvaluation as Validation  # type: ignore[assignment]
    return ClassificationData(
        training=Training(train, settings, shard, device, seed),
        validation=Validation(validation, settings, shard, device),
        validation_samples=len(validation.files),
    )
