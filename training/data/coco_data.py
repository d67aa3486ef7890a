"""Open a COCO data set for detection: which images are trained on, which are evaluated, and whether they fit the preset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from results.settings import Settings
from results.yaml_file import ConfigurationError
from training.data.coco_index import CocoIndex, image_list, read_index
from training.data.folder import check_readable
from training.workload import Shard


@dataclass(frozen=True, slots=True)
class CocoData:
    """Both sides of a data set."""

    training: CocoIndex
    """Images that have objects: 117,266 of 118,287 in COCO 2017, as both references train on."""
    validation: CocoIndex
    """All images: an image without objects can still raise false alarms."""


def open_coco(root: Path, settings: Settings, shard: Shard, *, contiguous: bool, segmentations: bool) -> CocoData:
    """Read and check the annotations of both splits.

    `contiguous`: labels count the categories from 1; else category ids are labels as they are.

    Raises:
        ConfigurationError: files are missing or wrong, images cannot be read, or the categories do not fit the preset.
    """
    training = _readable(root, "train", settings, segmentations=segmentations)
    validation = open_validation(root, settings, contiguous=contiguous)
    check_categories(training, settings, contiguous=contiguous)
    if training.category_ids != validation.category_ids:
        raise ConfigurationError(f"{training.annotations} and {validation.annotations} have different categories")
    training = training.subset(np.flatnonzero(training.counts() > 0))
    if len(training) < shard.count or len(validation) < shard.count:
        raise ConfigurationError(f"{root} holds fewer images than there are ranks ({shard.count})")
    return CocoData(training, validation)


def open_validation(root: Path, settings: Settings, *, contiguous: bool) -> CocoIndex:
    """Read and check the validation split alone.

    Raises:
        ConfigurationError: as `open_coco`.
    """
    validation = _readable(root, "val", settings, segmentations=False)
    check_categories(validation, settings, contiguous=contiguous)
    return validation


def _readable(root: Path, split: str, settings: Settings, *, segmentations: bool) -> CocoIndex:
    index = read_index(root, split, segmentations=segmentations)
    listed = image_list(root, split, index)
    kept = set(check_readable(listed, skip_broken=settings.input.skip_broken_images).files)
    if len(kept) == len(index):
        return index
    return index.subset(np.array([number for number, file in enumerate(listed.files) if file in kept], dtype=np.int64))


def check_categories(index: CocoIndex, settings: Settings, *, contiguous: bool) -> None:
    """The preset's `classes` must count the background and all labels.

    Raises:
        ConfigurationError: it does not.
    """
    wanted = len(index.category_ids) + 1 if contiguous else max(index.category_ids, default=0) + 1
    if settings.classes != wanted:
        kind = f"{len(index.category_ids)} categories" if contiguous else f"category ids up to {wanted - 1}"
        raise ConfigurationError(
            f"{index.annotations} has {kind}, so the model needs {wanted} classes (background included), not {settings.classes}; "
            f"name the right data folder, or --set classes={wanted}"
        )
