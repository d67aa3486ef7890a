"""What is known of each data set before it is opened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFacts:
    """Sizes of a data set, for checks, plans and synthetic input."""

    train_samples: int
    validation_samples: int


DATASETS = {
    "digits": DatasetFacts(train_samples=1_437, validation_samples=360),
    # Training images that have objects; all 1,200 and 118,287 are more.
    "digits-coco": DatasetFacts(train_samples=1_135, validation_samples=240),
    "coco": DatasetFacts(train_samples=117_266, validation_samples=5_000),
    # ILSVRC2012: train_samples and eval_samples of MLPerf Training logs.
    "imagenet": DatasetFacts(train_samples=1_281_167, validation_samples=50_000),
}
