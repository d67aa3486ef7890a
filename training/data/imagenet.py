"""Check and index an ImageNet (ILSVRC2012) folder that the user has, before any run."""

from __future__ import annotations

from pathlib import Path

from results.datasets import DATASETS
from training.data.faults import FaultList, check_images
from training.data.folder import list_split, write_manifest

CLASSES = 1000


def prepare(root: Path) -> Path:
    """Check both splits, write ROOT/faults.txt and the manifest, and print one summary; returns the manifest.

    ILSVRC2012 as it is published has faults of its own, which training copes with: one PNG and some CMYK files named .JPEG.

    Raises:
        ConfigurationError: folders are missing, or there are faults that training does not cope with.
    """
    facts, faults = DATASETS["imagenet"], FaultList()
    listed = []
    for split, expected in (("train", facts.train_samples), ("val", facts.validation_samples)):
        images = list_split(root, split)
        if len(images.classes) != CLASSES:
            faults.add("wrong number of classes", f"{split} has {len(images.classes)} class folders, expected {CLASSES}")
        if len(images.files) != expected:
            faults.add("wrong number of images", f"{split} has {len(images.files)}, expected {expected}")
        check_images(root, images.files, faults)
        listed.append(images)
    print("\n".join(faults.report(root)))
    faults.raise_serious(root)
    return write_manifest(root, "imagenet", listed)
