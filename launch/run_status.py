"""How far every run of a folder is, by its own records and by what Slurm says of its job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from launch.fabric_check import refusal_in
from launch.slurm import JobTicket
from launch.slurm_queue import JobState
from launch.sweep import read_record
from results import events
from results.rundir import RunDirectory

Row = dict[str, Any]
"""run, status, epochs, minutes, job, detail, launch (`LaunchTimes`)."""


def rows_of(folders: Iterable[Path]) -> list[Row]:
    """A row for each run directory.

    Raises:
        ConfigurationError: a record is not readable.
    """
    return [_row(path) for path in folders]


def jobs_to_ask_for(rows: Iterable[Row]) -> list[int]:
    """Jobs of the runs that have no last word yet."""
    return [row["job"] for row in rows if row["job"] is not None and row["status"] in ("interrupted", "planned", "running")]


def with_jobs(rows: list[Row], states: Mapping[int, JobState]) -> list[Row]:
    """The rows, with what Slurm says of the jobs of those that have no last word yet."""
    told = []
    for row in rows:
        job = states.get(row["job"])
        if job is not None and row["status"] in ("interrupted", "planned"):
            if job.active:
                status = "queued" if job.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD") else "starting"
                row = row | {"status": status, "detail": job.words}
            else:
                row = row | {"detail": f"{job.words}; {row['detail']}"}
        told.append(row)
    return told


def _row(path: Path) -> Row:
    run_dir = RunDirectory(path)
    ticket = JobTicket.read(run_dir)
    job = ticket.job_id if ticket else None
    worked_on = _is_worked_on(path)  # before the record is looked for: rank 0 writes it, and the launcher adds to it
    if run_dir.record.exists() and not worked_on:
        record = read_record(run_dir)
        minutes = record.time_to_train_s / 60 if record.time_to_train_s is not None else None
        detail = record.failure.message if record.failure else ""
        launch = record.launch.model_dump() if record.launch else None
        return _cells(path, record.status, len(record.epochs), minutes, job, detail, launch)
    epochs = [event for event in events.read(path) if event["event"] == "epoch_stop"]
    if worked_on:
        status, detail = "running", f"loss {epochs[-1]['loss']:.4f}" if epochs else "starting"
    else:
        began = run_dir.command.exists()
        status = "interrupted" if began else "planned"
        detail = "its processes are gone; trainscale resume goes on" if began else _why_not_started(ticket)
    return _cells(path, status, len(epochs), None, job, detail)


def _is_worked_on(path: Path) -> bool:
    """Some process holds the run: its launcher, from before the ranks start until the record is complete."""
    lock = path / ".lock"
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # an archive that may only be read
        return False


def _why_not_started(ticket: JobTicket | None) -> str:
    refused = refusal_in(ticket.fabric_check) if ticket and ticket.fabric_check else ""
    return refused or "was not started"


def _cells(
    path: Path, status: str, epochs: int, minutes: float | None, job: int | None, detail: str, launch: Row | None = None
) -> Row:
    return {
        "run": path.name, "status": status, "epochs": epochs, "minutes": minutes, "job": job, "detail": detail, "launch": launch,
    }  # fmt: skip
