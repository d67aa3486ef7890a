from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from training.data import digits
from training.data.folder import write_manifest


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole embedded data set: 1,437 + 360 images."""
    root = tmp_path_factory.mktemp("data") / "digits"
    digits.prepare(root)
    return root


@pytest.fixture(scope="session")
def few_digits_dir(digits_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """83 training and 31 validation images: numbers that no rank count divides."""
    root = tmp_path_factory.mktemp("data") / "few"
    for split, count in (("train", 83), ("val", 31)):
        for index in range(count):
            label = str(index % 10)
            source = sorted((digits_dir / split / label).iterdir())[index // 10]
            target = root / split / label
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    write_manifest(root, name="few digits")
    return root
