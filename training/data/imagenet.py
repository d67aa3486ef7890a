"""Check and index an ImageNet (ILSVRC2012) folder that the user has."""

from __future__ import annotations

import json
from pathlib import Path

from results.datasets import DATASETS
from results.yaml_file import ConfigurationError
from training.data.folder import list_split, write_manifest

CLASSES = 1000


def prepare(root: Path) -> Path:
    """Count, screen and index; returns the manifest.

    Raises:
        ConfigurationError: classes or images are missing, or images cannot be read (all are named in the manifest).
    """
    facts = DATASETS["imagenet"]
    for split, expected in (("train", facts.train_samples), ("val", facts.validation_samples)):
        images = list_split(root, split)
        if len(images.classes) != CLASSES:
            raise ConfigurationError(f"{root / split} has {len(images.classes)} class folders, expected {CLASSES}")
        if len(images.files) != expected:
            raise ConfigurationError(f"{root / split} has {len(images.files)} images, expected {expected}")
    manifest = write_manifest(root, name="imagenet")
    unreadable = json.loads(manifest.read_text())["unreadable"]
    if unreadable:
        raise ConfigurationError(f"{len(unreadable)} images cannot be read, first {unreadable[0]}; all are named in {manifest}")
    return manifest
