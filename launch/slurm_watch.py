"""Wait for submitted runs, and tell what becomes of each."""

from __future__ import annotations

import time
from pathlib import Path

from launch.run_status import jobs_to_ask_for, rows_of, with_jobs
from launch.show import Display
from launch.slurm_queue import QueueUnknownError, job_states
from launch.sweep import read_record
from results.rundir import RunDirectory

POLL_S = 2.0
UNDER_WAY = ("queued", "starting", "running")


def watch(folders: list[Path], display: Display) -> dict[str, str]:
    """Return the status of every run, by its name, when Slurm works on none of them any more; each change is one line."""
    told: dict[str, str] = {}
    while True:
        # Asked in this order: the record of a job that has ended by now is there when the rows are read.
        try:
            states = job_states(jobs_to_ask_for(rows_of(folders)))
        except QueueUnknownError:
            time.sleep(POLL_S)  # slurmctld restarts, and knows its jobs afterwards
            continue
        rows = with_jobs(rows_of(folders), states)
        for row, folder in zip(rows, folders, strict=True):
            if told.get(row["run"]) != row["status"]:
                told[row["run"]] = row["status"]
                display.say(_line(row["run"], row["status"], row["detail"], folder))
        if not any(row["status"] in UNDER_WAY for row in rows):
            return told
        time.sleep(POLL_S)


def _line(name: str, status: str, detail: str, folder: Path) -> str:
    from launch.commands.run import summary

    run_dir = RunDirectory(folder)
    if status not in UNDER_WAY and run_dir.record.exists():
        return summary(read_record(run_dir), folder)
    return f"{name}: {status}, {detail}" if detail else f"{name}: {status}"
