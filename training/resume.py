"""What a checkpoint keeps, and how a later process of the same run goes on from it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from results.record import EpochFigures, EvaluationFigures
from results.yaml_file import ConfigurationError
from training import checkpoint
from training.device import random_state, set_random_state
from training.epoch import EpochUnderWay
from training.stop import StopRequest
from training.trainer import Progress, Trainer


def save(trainer: Trainer, *, evaluated: bool = True) -> None:
    """Write the latest checkpoint, and the best when the last evaluation was; collective.

    `evaluated`: the model is that of the last evaluation.

    Raises:
        ConfigurationError: on rank 0; it cannot be written.
    """
    ranks = trainer.communicator.gather_objects_to_first(_own(trainer))
    if trainer.communicator.rank == 0:
        _write(trainer, ranks, best=evaluated and _is_best(trainer.progress))


def keep_if_best(trainer: Trainer) -> None:
    """After an evaluation beside training: the latest checkpoint, written when it began, is the best where the figures say so."""
    if trainer.communicator.rank == 0 and _is_best(trainer.progress):
        checkpoint.keep_as_best(trainer.run_dir)


@contextmanager
def kept_if_asked(trainer: Trainer, stop: StopRequest) -> Iterator[None]:
    """While an evaluation goes on, which may outlast the patience of whoever asks the run to stop: rank 0 then keeps at once
    what was trained before it. Nothing that it writes changes in an evaluation. Collective."""
    with trainer.clock.account("checkpoint_and_logging"):
        ranks = trainer.communicator.gather_objects_to_first(_own(trainer))

    def keep() -> None:
        with suppress(ConfigurationError):  # it is told when the evaluation is over, and a checkpoint is tried again
            _write(trainer, ranks, best=False)

    with stop.at_once(keep) if trainer.communicator.rank == 0 else nullcontext():
        yield


def _is_best(progress: Progress) -> bool:
    return progress.evaluations[-1] is max(progress.evaluations, key=lambda evaluation: sum(evaluation.metrics.values()))


def _own(trainer: Trainer) -> dict[str, Any]:
    """What differs from rank to rank."""
    return {
        "pipeline": trainer.source.state().hex(),
        "random": random_state(trainer.device),
        # Batch norm gathers its running statistics from the rank's own batches.
        "buffers": {name: buffer.to("cpu", copy=True) for name, buffer in trainer.model.named_buffers()},
        "under_way": trainer.under_way.state(trainer.timer) if trainer.under_way else None,
    }


def _write(trainer: Trainer, ranks: list[dict[str, Any]], *, best: bool) -> None:
    start_s = time.monotonic()
    progress, under_way = trainer.progress, trainer.under_way
    state = {
        "time_s": time.time(),
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.inner.state_dict(),
        "scaler": trainer.precision.scaler.state_dict() if trainer.precision.scaler else {},
        "ranks": ranks,
        "accounts_s": trainer.clock.so_far_s(),
        "progress": _to_json(progress),
        "history": trainer.history.state(),
        "spec": trainer.spec.model_dump_json(),
    }
    checkpoint.save(trainer.run_dir, state, best=best)
    trainer.journal.event(
        "checkpoint", epoch=progress.epoch, step=under_way.steps if under_way else 0, seconds_s=time.monotonic() - start_s
    )


def take_over(trainer: Trainer, earlier: list[dict[str, Any]], initialization_s: float) -> None:
    """Go on where an earlier process of this run stopped; `earlier` are its events.

    Work after its last checkpoint is lost. That, and starting again, is `restart` time; the time between is nobody's.
    """
    latest = trainer.run_dir.checkpoints / "latest.pt"
    kept_until_s = next(event["time_s"] for event in earlier if event["event"] == "run_start")
    if latest.exists():
        state = checkpoint.load(latest)
        kept_until_s = state["time_s"]
        _restore(trainer, state)
    last_sign_s = max(event["time_s"] for event in earlier)
    restart_s = max(last_sign_s - kept_until_s, 0.0) + initialization_s
    trainer.clock.add("restart", restart_s)
    trainer.progress.restarts += 1
    step = trainer.under_way.steps if trainer.under_way else 0
    trainer.journal.event("resumed", epoch=trainer.progress.epoch, step=step, restart_s=restart_s)


def _restore(trainer: Trainer, state: dict[str, Any]) -> None:
    ranks = state["ranks"]
    if len(ranks) != trainer.communicator.size:
        raise ConfigurationError(
            f"the checkpoint was written by {len(ranks)} ranks and this run has {trainer.communicator.size}; "
            "resume with as many, or start a new run"
        )
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.inner.load_state_dict(state["optimizer"])
    if trainer.precision.scaler:
        trainer.precision.scaler.load_state_dict(state["scaler"])
    own = ranks[trainer.communicator.rank]
    trainer.source.restore(bytes.fromhex(own["pipeline"]))
    set_random_state(trainer.device, own["random"])
    for name, buffer in trainer.model.named_buffers():
        buffer.copy_(own["buffers"][name])
    if own["under_way"] is not None:
        trainer.under_way = EpochUnderWay.of_state(own["under_way"], trainer.device)
    trainer.history.restore(state["history"])
    trainer.progress = _from_json(state["progress"])
    for account, seconds_s in state["accounts_s"].items():
        if account != "initialization":
            trainer.clock.add(account, seconds_s)


def _to_json(progress: Progress) -> str:
    document = {field.name: getattr(progress, field.name) for field in dataclasses.fields(progress)}
    for name in ("epochs", "evaluations"):
        document[name] = [figures.model_dump(mode="json") for figures in document[name]]
    return json.dumps(document)


def _from_json(text: str) -> Progress:
    document = json.loads(text)
    document["epochs"] = [EpochFigures.model_validate(figures) for figures in document["epochs"]]
    document["evaluations"] = [EvaluationFigures.model_validate(figures) for figures in document["evaluations"]]
    return Progress(**document)
