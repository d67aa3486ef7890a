"""What a checkpoint keeps, and how a later process of the same run goes on from it."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

from results.record import EpochFigures, EvaluationFigures
from results.yaml_file import ConfigurationError
from training import checkpoint
from training.device import random_state, set_random_state
from training.trainer import Progress, Trainer


def save(trainer: Trainer) -> None:
    """Write the latest checkpoint, and the best when the last evaluation was; collective."""
    own = {"pipeline": trainer.source.state().hex(), "random": random_state(trainer.device)}
    ranks = trainer.communicator.gather_objects(own)
    if trainer.communicator.rank != 0:
        return
    start_s = time.monotonic()
    progress = trainer.progress
    latest = progress.evaluations[-1]
    best = max(progress.evaluations, key=lambda evaluation: sum(evaluation.metrics.values()))
    trainer.clock.on_the_clock_s()  # charges the open account up to now, so that the checkpoint holds it
    state = {
        "time_s": time.time(),
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.inner.state_dict(),
        "scaler": trainer.precision.scaler.state_dict() if trainer.precision.scaler else {},
        "ranks": ranks,
        "accounts_s": dict(trainer.clock.seconds_s),
        "progress": _to_json(progress),
        "spec": trainer.spec.model_dump_json(),
    }
    checkpoint.save(trainer.run_dir, state, best=latest is best)
    trainer.journal.event("checkpoint", epoch=progress.epoch, seconds_s=time.monotonic() - start_s)


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
    trainer.journal.event("resumed", epoch=trainer.progress.epoch, restart_s=restart_s)


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
