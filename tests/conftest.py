from __future__ import annotations

from pathlib import Path

import pytest

from tests.some_digits import copy_some
from training.data import digits


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole embedded data set: 1,437 + 360 images."""
    root = tmp_path_factory.mktemp("data") / "digits"
    digits.prepare(root)
    return root


@pytest.fixture(scope="session")
def few_digits_dir(digits_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """83 training and 31 validation images: numbers that no rank count divides."""
    return copy_some(digits_dir, tmp_path_factory.mktemp("data") / "few", {"train": 83, "val": 31})
