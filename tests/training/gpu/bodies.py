"""What the GPU tests do, on any device: the tests here at full length on a GPU, `test_gpu_bodies.py` in short on the CPU."""

from __future__ import annotations

import datetime
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image

from results.rundir import RunDirectory
from results.spec import RunSpec
from tests.training.support import make_spec
from training.clock import RunClock
from training.communicator import SingleProcess
from training.data.folder import write_manifest
from training.device import device_name, set_numerics
from training.journal import NullJournal
from training.process import RankPlace
from training.step_timer import step_timer
from training.trainer import Trainer
from training.workload import Batch, Shard, load_workload

ALONE = Shard(index=0, count=1)
PRESETS = {"resnet50": "digits", "ssd": "digits-coco", "maskrcnn": "digits-coco"}
PHOTO_PX = (500, 400)
"""Width and height: about those of an ImageNet photograph."""


@dataclass(slots=True)
class Course:
    """What some steps of training left behind."""

    losses: list[float] = field(default_factory=list)
    """Mean loss of each step."""
    allocated_bytes: list[int] = field(default_factory=list)
    """GPU memory in tensors after each step; zeros on a CPU."""
    resident_bytes: list[int] = field(default_factory=list)
    """Memory of the process after each step."""


def spec_of(workload: str, data_dir: Path, **overrides: Any) -> RunSpec:
    """The embedded preset of a workload for one rank without exchange."""
    return make_spec(data_dir, workload=workload, preset=PRESETS[workload], communication__backend="single", **overrides)


def make_trainer(spec: RunSpec, device: torch.device) -> Trainer:
    """A rank that has opened its data."""
    workload = load_workload(spec=spec, shard=ALONE, device=device)
    set_numerics(device, fixed_sizes=workload.fixed_sizes)
    trainer = Trainer(
        spec=spec, run_dir=RunDirectory(Path("unused")), workload=workload, device=device, clock=RunClock(),
        communicator=SingleProcess(RankPlace(rank=0, size=1, local_rank=0)), journal=NullJournal(),
    )  # fmt: skip
    trainer.warm_up()
    trainer.open_data()
    trainer.model.train()
    return trainer


def endless(trainer: Trainer) -> Iterator[Batch]:
    """Batches of epoch after epoch."""
    for epoch in range(1, trainer.settings.max_epochs + 1):
        yield from trainer.source.epoch(epoch)


def train_steps(spec: RunSpec, device: torch.device, steps: int) -> Course:
    """The trainer's own steps at the rates of its schedule."""
    trainer = make_trainer(spec, device)
    course, process = Course(), psutil.Process()
    batches = trainer._timed(endless(trainer))
    for step in range(steps):
        loss, samples, _ = trainer._step(batches, trainer.schedule.rate(step))
        course.losses.append(float(loss) / samples)
        course.allocated_bytes.append(torch.cuda.memory_allocated(device) if device.type == "cuda" else 0)
        course.resident_bytes.append(process.memory_info().rss)
    trainer.source.close()
    return course


def windows(values: list[float], size: int) -> list[float]:
    """Means of successive windows."""
    return [statistics.fmean(values[start : start + size]) for start in range(0, len(values) - size + 1, size)]


def growth_bytes(values: list[int]) -> int:
    """How much more there was at the end than after the first half: what a leak would show."""
    half = len(values) // 2
    return max(values[half:]) - max(values[:half])


def first_batches(spec: RunSpec, device: torch.device, count: int) -> list[Batch]:
    """The first training batches; what is random in them follows from the seed."""
    workload = load_workload(spec=spec, shard=ALONE, device=device)
    source = workload.open_data()
    batches = source.epoch(1)
    found = [next(batches) for _ in range(count)]
    source.close()
    return found


def pixels(batch: Batch) -> list[torch.Tensor]:
    """Images [3, H, W] in single precision on the host."""
    return [image.float().cpu() for image in batch.inputs]


def throughput(spec: RunSpec, device: torch.device, *, warm_up_steps: int, steps: int) -> dict[str, Any]:
    """Images per second of training steps, and what part of them waited for input."""
    trainer = make_trainer(spec, device)
    batches = trainer._timed(endless(trainer))
    for _ in range(warm_up_steps):
        trainer._step(batches, 1e-3)
    synchronize(device)
    trainer.timer = step_timer(device)
    start_s = time.perf_counter()
    samples = sum(trainer._step(batches, 1e-3)[2] for _ in range(steps))
    synchronize(device)
    seconds_s = time.perf_counter() - start_s
    rows = trainer.timer.take()
    trainer.source.close()
    return {
        "workload": spec.workload, "input": spec.settings.input.source, "precision": spec.settings.precision,
        "image_size": spec.settings.image_size, "local_batch_size": spec.settings.local_batch_size, "steps": steps,
        "images_per_s": round(samples / seconds_s, 1), "median_step_s": round(float(np.median(rows[:, 0])), 5),
        "input_wait_share": round(float(rows[:, 1].sum() / rows[:, 0].sum()), 4),
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0,
    }  # fmt: skip


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def show(measured: str, device: torch.device, figures: dict[str, Any]) -> dict[str, Any]:
    """Print figures as one line of JSON with device, versions and date: what docs/gpu.md asks to keep."""
    line = {
        "measured": measured, "device": device_name(device), "torch": torch.__version__, "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), **figures,
    }  # fmt: skip
    print(json.dumps(line), flush=True)
    return line


def write_photos(root: Path, count: int) -> Path:
    """JPEGs of a photograph's size in ten classes, for input that costs what photographs cost to decode."""
    rng = np.random.default_rng(0)
    width, height = PHOTO_PX
    for split, number in (("train", count), ("val", 10)):
        for index in range(number):
            coarse = rng.integers(0, 256, (height // 20, width // 20, 3), dtype=np.uint8)
            image = Image.fromarray(coarse).resize(PHOTO_PX, Image.Resampling.BICUBIC)
            grain = rng.normal(0, 6, (height, width, 1))
            path = root / split / str(index % 10) / f"{index}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8)).save(path, quality=90)
    write_manifest(root, name="photos")
    return root
