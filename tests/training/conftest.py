from __future__ import annotations

from pathlib import Path

import pytest
import torch

from training.data import digits_coco
from training.data.coco_index import SPLITS, list_coco_images
from training.data.folder import write_manifest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As a rank has: on a busy machine, threads of one tensor operation wait for one another longer than they compute."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def scenes_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 107 training (103 of them with objects) and 13 validation scenes of digits-coco: primes, which no rank count
    divides."""
    root = tmp_path_factory.mktemp("data") / "scenes"
    digits_coco.write_scenes(root, {"train": 107, "val": 13})
    write_manifest(root, "few digit scenes", [list_coco_images(root, split) for split in SPLITS])
    return root
