"""Our training loop beside a bare loop of the same model, batch, backend and optimizer (goal: at most 1% slower).

Both loops run in one process on the same model and the same random batch, in alternating rounds, so that a machine that gets
slower or faster meanwhile does not favour either; the ratio is that of the fastest rounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import torch
import yaml
from torch.nn import functional

from results.rundir import RunDirectory
from results.settings import Settings
from results.spec import RunSpec
from training.clock import RunClock
from training.communicator import connect
from training.journal import NullJournal
from training.process import RankPlace
from training.resnet50.workload import ResNet50
from training.trainer import Trainer
from training.workload import Batch, Shard

ROUNDS = 12
STEPS = 8
PRESET = Path(__file__).parents[1] / "training/resnet50/presets/digits.yaml"


def make_trainer() -> Trainer:
    """One rank of the embedded ResNet-50 on synthetic input."""
    document = yaml.safe_load(PRESET.read_text())
    document["input"]["source"] = "synthetic"
    spec = RunSpec(
        run_id="bench", workload="resnet50", preset="digits", nodes=1, ranks_per_node=1, interconnect="loopback",
        emulated_nodes=False, seed=1, data_dir=Path("unused"), settings=Settings.model_validate(document),
    )  # fmt: skip
    place = RankPlace(rank=0, size=1, local_rank=0)
    device = torch.device("cpu")
    communicator = connect("horovod", place, spec.settings.communication)
    workload = ResNet50(spec=spec, shard=Shard(index=0, count=1), device=device)
    trainer = Trainer(
        spec=spec, run_dir=RunDirectory(Path("unused")), workload=workload, communicator=communicator, device=device,
        clock=RunClock(), journal=NullJournal(),
    )  # fmt: skip
    trainer.warm_up()
    trainer.open_data()
    trainer.model.train()
    return trainer


def ours_s(trainer: Trainer, batch: Batch) -> float:
    """Seconds of STEPS steps of our loop, with its timer, weights and checks, and the question whether to stop."""

    def batches() -> Iterator[Batch]:
        while True:
            yield batch

    source = trainer._timed(batches())
    start_s = time.perf_counter()
    trainer.agreement.begin()
    for _ in range(STEPS):
        loss, _, _ = trainer._step(source, 0.01)
        trainer._check(loss, 0.01)
        trainer.agreement.after_step()
    return time.perf_counter() - start_s


def bare_s(trainer: Trainer, batch: Batch) -> float:
    """Seconds of STEPS steps of the loop that a tutorial shows."""
    model, optimizer = trainer.model, trainer.optimizer.inner
    start_s = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(batch.inputs), batch.targets, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
    return time.perf_counter() - start_s


def main() -> None:
    """Print both and their ratio."""
    torch.set_num_threads(1)
    trainer = make_trainer()
    batch = next(iter(trainer.source.epoch(1)))
    rounds = [(ours_s(trainer, batch), bare_s(trainer, batch)) for _ in range(ROUNDS)]
    ours, bare = min(row[0] for row in rounds), min(row[1] for row in rounds)
    print(
        f"  ours {1e3 * ours / STEPS:.1f} ms a step, bare loop {1e3 * bare / STEPS:.1f} ms, ratio {ours / bare:.4f} "
        f"(ResNet-50 at 64x64, batch {batch.samples}, bf16, fastest of {ROUNDS} alternating rounds)"
    )
