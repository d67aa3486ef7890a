"""The record of a run whose ranks ended before they could write one: what its events and logs still tell."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from launch.launcher_words import Loss, cause, find_loss, unreachable_hosts
from launch.supervise import Outcome
from results import events, heartbeat
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
    told = _failures(run_dir)
    loss = find_loss(_launcher_text(run_dir, outcome))
    # Exit status 5: a rank saw the signal itself, for example from the scheduler, before this supervisor did.
    blameless = outcome.exit_status == 5 or (loss is not None and loss.blameless)
    interrupted = outcome.interrupted_by is not None or (blameless and not outcome.stalled and not told)
    command = json.loads(run_dir.command.read_text())
    record = RunRecord(
        spec=spec,
        status="interrupted" if interrupted else "failed",
        failure=_interruption(outcome, loss) if interrupted else _failure(run_dir, outcome, told, loss, spec.ranks),
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


def blame_standstill(run_dir: RunDirectory, stalled: str) -> None:
    """A run that was ended because it stood still failed, also where its ranks came to life at that and left a record."""
    record = RunRecord.model_validate_json(run_dir.record.read_text())
    if record.status == "interrupted":
        failed = record.model_copy(update={"status": "failed", "failure": _standstill(run_dir, stalled)})
        write_atomically(run_dir.record, failed.model_dump_json(indent=1) + "\n")


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


def _interruption(outcome: Outcome, loss: Loss | None) -> Failure:
    why = f"interrupted by {outcome.interrupted_by or 'a signal'}"
    if outcome.interrupted_by is None and loss is not None and loss.blameless:
        why = loss.message
    return Failure(message=f"{why}; trainscale resume goes on from the last checkpoint")


def _failures(run_dir: RunDirectory) -> list[Failure]:
    """What failing ranks of this start left, the first one first; those of earlier starts were put aside."""
    paths = sorted((run_dir.path / "logs").glob("failure-*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [Failure.model_validate_json(path.read_text()) for path in paths]


def _launcher_text(run_dir: RunDirectory, outcome: Outcome) -> str:
    """What the launcher said since this start; the log also holds what it said before a resume."""
    with run_dir.launcher_log.open("rb") as stream:
        stream.seek(outcome.log_start_bytes)
        return stream.read().decode(errors="replace")


def _failure(run_dir: RunDirectory, outcome: Outcome, told: list[Failure], loss: Loss | None, ranks: int) -> Failure:
    launcher = _tail(_launcher_text(run_dir, outcome))
    if outcome.stalled:
        return _standstill(run_dir, outcome.stalled)
    if told:
        rank = told[0].rank
        lines = _last_lines(run_dir, rank) if rank is not None else []
        return told[0].model_copy(update={"last_lines": lines})
    started = [rank for rank in range(ranks) if run_dir.rank_log(rank).exists()]
    if not started:
        text = _launcher_text(run_dir, outcome)
        message = unreachable_hosts(text) or (
            f"no rank started; the launcher ended with status {outcome.exit_status}: {cause(text)}"
        )
        return Failure(message=message, last_lines=launcher)
    if loss is not None:
        lines = _last_lines(run_dir, loss.rank) if loss.rank is not None else []
        return Failure(message=loss.message, rank=loss.rank, last_lines=lines or launcher)
    message = f"a rank was killed (the launcher ended with status {outcome.exit_status}); see {run_dir.launcher_log}"
    return Failure(message=message, last_lines=launcher)


def _standstill(run_dir: RunDirectory, stalled: str) -> Failure:
    """Who is missing: ranks without a sign of life, or those that Horovod's stall check names in the log of rank 0."""
    signs = heartbeat.signs_of_life(run_dir)
    gone = [sign for sign in signs if sign.behind_s > heartbeat.SILENT_S]
    if gone:
        message = f"{stalled}; {heartbeat.by_host(gone)} {'is' if len(gone) == 1 else 'are'} gone"
    elif missing := [sign for sign in signs if sign.rank in _missing_ranks(run_dir)]:
        message = f"{stalled}; the others wait for {heartbeat.by_host(missing)}"
    elif not signs:
        message = f"{stalled}; no rank ever began"
    else:
        message = (
            f"{stalled}; {heartbeat.by_host(signs)} live, so the network between them is gone: "
            "trainscale doctor --all-nodes and trainscale fabric look at it"
        )
    rank = gone[0].rank if gone else 0
    return Failure(message=message, rank=gone[0].rank if gone else None, last_lines=_last_lines(run_dir, rank))


def _missing_ranks(run_dir: RunDirectory) -> set[int]:
    path = run_dir.rank_log(0)
    _, told, after = (path.read_text(errors="replace") if path.exists() else "").rpartition("Missing ranks:")
    return {int(rank) for rank in re.findall(r"^(\d+): \[", after, re.MULTILINE)} if told else set()


def _last_lines(run_dir: RunDirectory, rank: int) -> list[str]:
    path = run_dir.rank_log(rank)
    return _tail(path.read_text(errors="replace")) if path.exists() else []


def _tail(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-LAST_LINES:]


def _iso(time_s: float) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).isoformat(timespec="seconds")
