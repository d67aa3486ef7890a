"""A part of the embedded digits, small enough for tests of many runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from training.data.folder import write_manifest


def copy_some(digits: Path, root: Path, counts: dict[str, int]) -> Path:
    """So many images of each split, classes in turn; returns the folder."""
    for split, count in counts.items():
        for index in range(count):
            label = str(index % 10)
            target = root / split / label
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(sorted((digits / split / label).iterdir())[index // 10], target)
    write_manifest(root, name="few digits")
    return root
