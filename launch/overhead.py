"""What a run pays before its first step: Slurm's queue, the start of its ranks, their imports and initialization."""

from __future__ import annotations

import os
import subprocess

from launch.slurm import JobTicket, SlurmTimes
from results import events
from results.model import write_atomically
from results.record import LaunchTimes, RunRecord
from results.rundir import RunDirectory

ASK_TIMEOUT_S = 30


def slurm_times(job_id: int) -> SlurmTimes | None:
    """Slurm's own stamps of a job that runs; None where Slurm does not tell."""
    command = ["squeue", "--noheader", f"--jobs={job_id}", "--Format=SubmitTime:|,EligibleTime:|,StartTime:|"]
    environment = os.environ | {"SLURM_TIME_FORMAT": "%s"}  # seconds since 1970, whatever the time zone
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=ASK_TIMEOUT_S)
        submitted, eligible, started = (float(word) for word in done.stdout.strip().split("|")[:3])
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return SlurmTimes(submitted_s=submitted, eligible_s=eligible, started_s=started)


def note_own_job(run_dir: RunDirectory) -> None:
    """Within a job, leave in the run's ticket which job that is and when Slurm started it; `submit` may know nothing of it."""
    own = os.environ.get("SLURM_JOB_ID")
    if own:
        ticket = JobTicket.read(run_dir) or JobTicket.now(int(own))
        ticket.model_copy(update={"job_id": int(own), "slurm": slurm_times(int(own))}).write(run_dir)


def add_launch_times(run_dir: RunDirectory, launched_s: float) -> None:
    """Write what the start cost into the record of a run that was started once; `launched_s` is when its launcher was."""
    record = RunRecord.model_validate_json(run_dir.record.read_text(encoding="utf-8"))
    if not record.restarts:
        ticket = JobTicket.read(run_dir) if "SLURM_JOB_ID" in os.environ else None
        found = launch_times(list(events.read(run_dir.path)), launched_s, ticket.slurm if ticket else None)
        write_atomically(run_dir.record, record.model_copy(update={"launch": found}).model_dump_json(indent=2) + "\n")


def launch_times(seen: list[dict[str, object]], launched_s: float, slurm: SlurmTimes | None) -> LaunchTimes:
    """The stretches between the stamps that there are; `seen` are the run's events."""
    last = {event["event"]: event for event in seen if event["event"] in ("process_start", "run_start", "data_open")}
    at: dict[str, float | None] = {name: _number(event["time_s"]) for name, event in last.items()}
    created_s = _number(last["process_start"].get("created_s")) if "process_start" in last else None
    return LaunchTimes(
        held_s=_between(slurm.submitted_s, slurm.eligible_s) if slurm else None,
        queue_s=_between(slurm.eligible_s, slurm.started_s) if slurm else None,
        start_of_ranks_s=_between(slurm.started_s if slurm else launched_s, created_s),
        imports_s=_between(created_s, at.get("process_start")),
        initialization_s=_between(at.get("process_start"), at.get("run_start")),
        opening_data_s=_between(at.get("run_start"), at.get("data_open")),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _between(start_s: float | None, end_s: float | None) -> float | None:
    """Seconds from one stamp to another; clocks of two hosts may differ a little, and Slurm's stamps are whole seconds."""
    return None if start_s is None or end_s is None else round(max(end_s - start_s, 0.0), 3)
