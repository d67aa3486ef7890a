"""DALI beside torch's DataLoader: the same JPEGs, the same transforms, one CPU thread or worker each; images/s."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image

from results.settings import Settings
from training.data.classification import open_classification
from training.workload import Shard

IMAGES = 600
SIDE_PX = (500, 375)
"""The usual size of an ImageNet photograph."""
PRESET = Path(__file__).parents[1] / "training/resnet50/presets/mlperf-v0.6.yaml"


def write_images(root: Path) -> None:
    """Smooth random pictures, whose JPEGs are about as large as ImageNet's (110 kB on average)."""
    rng = np.random.default_rng(0)
    for split, count in (("train", IMAGES), ("val", 10)):
        for index in range(count):
            folder = root / split / str(index % 10)
            folder.mkdir(parents=True, exist_ok=True)
            small = Image.fromarray(rng.integers(0, 255, (75, 100, 3), dtype=np.uint8))
            small.resize(SIDE_PX, Image.Resampling.BICUBIC).save(folder / f"{index}.jpg", quality=92)


def images_per_s(root: Path, source: str) -> float:
    """Throughput of the second epoch, when workers and caches are warm."""
    document = yaml.safe_load(PRESET.read_text())
    document |= {"classes": 10, "local_batch_size": 32}
    document["input"] |= {"source": source, "threads": 1}
    training = open_classification(
        root, Settings.model_validate(document), Shard(index=0, count=1), torch.device("cpu"), 1
    ).training
    seconds_s = 0.0
    for epoch in (1, 2):
        start_s = time.perf_counter()
        samples = sum(batch.samples for batch in training.epoch(epoch))
        seconds_s = time.perf_counter() - start_s
    return samples / seconds_s


def main() -> None:
    """Print both throughputs and their ratio."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder))
        dali, loader = images_per_s(Path(folder), "dali"), images_per_s(Path(folder), "torch")
    print(
        f"  DALI {dali:.0f} images/s, DataLoader {loader:.0f} images/s, ratio {dali / loader:.2f} (500x375 to 224x224, 1 thread)"
    )
