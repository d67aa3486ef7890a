"""What a run pays before its first step: stamps of Slurm, of the kernel and of the run's events, and what lies between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.overhead import launch_times, note_own_job, slurm_times
from launch.slurm import JobTicket, SlurmTimes
from results.rundir import RunDirectory
from tests.launch.support import TINY, overrides, trainscale

EVENTS: list[dict[str, object]] = [
    {"event": "process_start", "time_s": 106.5, "created_s": 104.25},
    {"event": "init_stop", "time_s": 109.4},
    {"event": "run_start", "time_s": 109.5},
    {"event": "data_open", "time_s": 110.0},
    {"event": "progress", "time_s": 111.0},
]


def test_within_a_job_the_stretches_go_from_sbatch_to_the_first_step() -> None:
    found = launch_times(EVENTS, 103.0, SlurmTimes(submitted_s=60, eligible_s=90, started_s=102))
    assert found.model_dump() == {
        "held_s": 30, "queue_s": 12, "start_of_ranks_s": 2.25, "imports_s": 2.25, "initialization_s": 3, "opening_data_s": 0.5,
    }  # fmt: skip


def test_without_slurm_they_begin_with_the_launcher() -> None:
    found = launch_times(EVENTS, 103.0, None)
    assert (found.held_s, found.queue_s, found.start_of_ranks_s) == (None, None, 1.25)


def test_what_never_happened_has_no_time() -> None:
    found = launch_times(EVENTS[:1], 103.0, None)
    assert (found.imports_s, found.initialization_s, found.opening_data_s) == (2.25, None, None)
    assert launch_times([], 103.0, None).start_of_ranks_s is None


def test_slurms_stamps_are_asked_for_by_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\n[ "$SLURM_TIME_FORMAT $2" = "%s --jobs=7" ] && echo "1000|1010|1020|"\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert slurm_times(7) == SlurmTimes(submitted_s=1000, eligible_s=1010, started_s=1020)
    assert slurm_times(8) is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    run_dir = RunDirectory(tmp_path)
    JobTicket(job_id=3, submitted_at="2026-01-01T00:00:00+00:00", depends_on=2).write(run_dir)
    note_own_job(run_dir)
    ticket = JobTicket.read(run_dir)
    assert ticket is not None
    assert (ticket.job_id, ticket.depends_on, ticket.slurm) == (7, 2, slurm_times(7))


def test_a_run_tells_what_its_start_cost(few_digits_dir: Path, tmp_path: Path) -> None:
    words = ["run", "resnet50", "--data-dir", few_digits_dir, "--runs", tmp_path, "--launcher", "local", "--backend", "single"]
    done = trainscale(*words, *overrides(*TINY))
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(trainscale("status", tmp_path, "--json").stdout)
    launch = row["launch"]
    assert launch["imports_s"] > 0.1  # torch
    assert launch["initialization_s"] > 0
    assert launch["start_of_ranks_s"] >= 0
    assert launch["opening_data_s"] > 0
    assert launch["queue_s"] is None
