"""The record of a run whose ranks ended before they could write one: what its events and logs still tell."""

from __future__ import annotations

import datetime
import json
from typing import Any

from launch.supervise import Outcome
from results import events
from results.facts import git_facts, host_facts, software_facts
from results.model import write_atomically
from results.record import Accounts, EpochFigures, EvaluationFigures, Failure, RunRecord
from results.rundir import RunDirectory
from results.spec import RunSpec

LAST_LINES = 15


def salvage_record(run_dir: RunDirectory, outcome: Outcome) -> RunRecord:
    """Write and return a record with status `failed` or `interrupted`."""
    spec = RunSpec.model_validate_json(run_dir.spec.read_text())
    seen = list(events.read(run_dir.path))
    epochs = list({e["epoch"]: EpochFigures.model_validate(e["figures"]) for e in seen if e["event"] == "epoch_stop"}.values())
    evaluations = list(
        {e["epoch"]: EvaluationFigures.model_validate(e["figures"]) for e in seen if e["event"] == "evaluation"}.values()
    )
    # Exit status 5: a rank saw the signal itself, for example from the scheduler, before this supervisor did.
    interrupted = outcome.interrupted_by is not None or (outcome.exit_status == 5 and not list(_failures(run_dir)))
    command = json.loads(run_dir.command.read_text())
    record = RunRecord(
        spec=spec,
        status="interrupted" if interrupted else "failed",
        failure=_interruption(outcome) if interrupted else _failure(run_dir, outcome, spec.ranks),
        started_at=_iso(seen[0]["time_s"] if seen else run_dir.command.stat().st_mtime),
        stopped_at=_iso(datetime.datetime.now(datetime.UTC).timestamp()),
        time_to_train_s=None,
        accounts=_accounts(seen, epochs, evaluations),
        epochs=epochs,
        evaluations=evaluations,
        restarts=sum(event["event"] == "resumed" for event in seen),
        hosts=[host_facts()],
        software=software_facts(),
        git=git_facts(),
        command=command["tokens"],
        environment=command["environment"],
        notes=["the ranks ended before they could write this record; it was put together from their events and logs"],
    )
    write_atomically(run_dir.record, record.model_dump_json(indent=1) + "\n")
    return record


def _accounts(seen: list[dict[str, Any]], epochs: list[EpochFigures], evaluations: list[EvaluationFigures]) -> Accounts:
    def total(event_name: str, field: str) -> float:
        return float(sum(event[field] for event in seen if event["event"] == event_name))

    return Accounts(
        initialization_s=total("init_stop", "initialization_s"),
        training_s=sum(figures.seconds_s for figures in epochs),
        evaluation_s=sum(figures.seconds_s for figures in evaluations),
        checkpoint_and_logging_s=total("checkpoint", "seconds_s"),
        restart_s=total("resumed", "restart_s"),
    )


def _interruption(outcome: Outcome) -> Failure:
    return Failure(
        message=f"interrupted by {outcome.interrupted_by or 'a signal'}; trainscale resume goes on from the last checkpoint"
    )


def _failures(run_dir: RunDirectory) -> list[Failure]:
    """What failing ranks left, the first one first."""
    paths = sorted((run_dir.path / "logs").glob("failure-*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [Failure.model_validate_json(path.read_text()) for path in paths]


def _failure(run_dir: RunDirectory, outcome: Outcome, ranks: int) -> Failure:
    told = _failures(run_dir)
    if told:
        rank = told[0].rank
        lines = _last_lines(run_dir, rank) if rank is not None else []
        return told[0].model_copy(update={"last_lines": lines})
    started = [rank for rank in range(ranks) if run_dir.rank_log(rank).exists()]
    launcher = _tail(run_dir.launcher_log.read_text(errors="replace"))
    if not started:
        reason = next((line for line in launcher if line.strip(" -*")), "it said nothing")
        message = f"no rank started; the launcher ended with status {outcome.exit_status}: {reason.strip()}"
        return Failure(message=message, last_lines=launcher)
    message = f"a rank was killed (the launcher ended with status {outcome.exit_status}); see {run_dir.launcher_log}"
    return Failure(message=message, last_lines=launcher)


def _last_lines(run_dir: RunDirectory, rank: int) -> list[str]:
    path = run_dir.rank_log(rank)
    return _tail(path.read_text(errors="replace")) if path.exists() else []


def _tail(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-LAST_LINES:]


def _iso(time_s: float) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).isoformat(timespec="seconds")
