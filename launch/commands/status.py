"""`trainscale status`: what runs, what failed and why, what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("runs"))
@click.option("--json", "as_json", is_flag=True)
def command(folder: Path, as_json: bool) -> None:
    """Every run directory under FOLDER (default: runs) with its status, how far it came, and why it failed."""
    from results.yaml_file import ConfigurationError

    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder; name the folder of the runs")
    rows = with_jobs([_row(path.parent) for path in sorted(folder.rglob("spec.json"))])
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo(f"no runs under {folder}")
        return
    from tabulate import tabulate

    columns = ["run", "status", "epochs", "minutes", *(["job"] if any(row["job"] for row in rows) else []), "detail"]
    table = [[row[column] for column in columns] for row in rows]
    click.echo(tabulate(table, headers=columns, floatfmt=".2f", maxcolwidths=[None] * (len(columns) - 1) + [48]))


def with_jobs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with what Slurm says of the jobs of those that have no record yet."""
    from launch.slurm_queue import QueueUnknownError, job_states

    waiting = [row for row in rows if row["job"] is not None and row["status"] in ("interrupted", "planned", "running")]
    if not waiting:
        return rows
    try:
        states = job_states(row["job"] for row in waiting)
    except QueueUnknownError as error:
        for row in waiting:
            row["detail"] = f"{row['detail']}; job unknown: {error}"
        return rows
    for row in waiting:
        job = states.get(row["job"])
        if job is None or row["status"] == "running":
            continue
        if job.active:
            row["status"] = "queued" if job.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD") else "starting"
            row["detail"] = job.words
        else:
            row["detail"] = f"{job.words}; {row['detail']}"
    return rows


def _row(path: Path) -> dict[str, Any]:
    from filelock import FileLock, Timeout

    from launch.slurm import JobTicket
    from launch.sweep import read_record
    from results import events
    from results.rundir import RunDirectory

    run_dir = RunDirectory(path)
    ticket = JobTicket.read(run_dir)
    job = ticket.job_id if ticket else None
    if run_dir.record.exists():
        record = read_record(run_dir)
        minutes = record.time_to_train_s / 60 if record.time_to_train_s is not None else None
        detail = record.failure.message if record.failure else ""
        return _cells(path, record.status, len(record.epochs), minutes, job, detail)
    epochs = [event for event in events.read(path) if event["event"] == "epoch_stop"]
    try:
        with FileLock(path / ".lock", timeout=0):
            began = run_dir.command.exists()
            status = "interrupted" if began else "planned"
            detail = "its processes are gone; trainscale resume goes on" if began else "was not started"
    except Timeout:
        status, detail = "running", f"loss {epochs[-1]['loss']:.4f}" if epochs else "starting"
    return _cells(path, status, len(epochs), None, job, detail)


def _cells(path: Path, status: str, epochs: int, minutes: float | None, job: int | None, detail: str) -> dict[str, Any]:
    return {"run": path.name, "status": status, "epochs": epochs, "minutes": minutes, "job": job, "detail": detail}
