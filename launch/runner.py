"""One run from its spec to its record: a run directory, a command, its processes, and a record whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from launch.interconnect import load_interconnect
from launch.job import Host, Job, passed_on
from launch.launchers import Launcher, get_launcher
from launch.rails import add_evidence, asked_rails
from launch.salvage import salvage_record
from launch.show import Display
from launch.supervise import supervise
from results.model import write_atomically
from results.record import RunRecord
from results.rundir import RunDirectory
from results.spec import RunSpec
from results.yaml_file import ConfigurationError

MIB = 2**20
SPACE_FOR_A_RUN_BYTES = 64 * MIB


class BusyError(Exception):
    """Another process works on this run at this moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """How and where the ranks of a run are started."""

    launcher: str = "mpirun"
    hosts: list[str] = field(default_factory=list)


def make_job(spec: RunSpec, placement: Placement, run_dir: Path) -> Job:
    """The launch of a spec; pure but for the environment it passes on.

    Raises:
        ConfigurationError: unknown interconnect, malformed host, or more ranks than slots.
    """
    threads = str(spec.settings.threads_per_rank)
    environment = {
        **passed_on(os.environ),
        "OMP_NUM_THREADS": threads,
        "HOROVOD_FUSION_THRESHOLD": str(spec.settings.communication.fusion_threshold_bytes),
        "HOROVOD_CYCLE_TIME": str(spec.settings.communication.cycle_time_ms),
        "NCCL_DEBUG": "INFO",
        **load_interconnect(spec.interconnect).environment(),
    }
    job = Job(
        tokens=[sys.executable, "-m", "training", str(run_dir)],
        ranks=spec.ranks,
        ranks_per_node=spec.ranks_per_node,
        hosts=[Host.parse(host, spec.ranks_per_node) for host in placement.hosts],
        environment=environment,
        one_host=spec.emulated_nodes,
        cores_per_rank=spec.settings.threads_per_rank,
    )
    job.check()
    return job


def execute(spec: RunSpec, run_dir: RunDirectory, placement: Placement, display: Display) -> RunRecord:
    """Do a run, or go on with it if it was interrupted; returns its record.

    Raises:
        ConfigurationError: it cannot be started, or the folder holds a finished run.
        BusyError: another process works on it.
    """
    prepare_folder(run_dir)
    try:
        with FileLock(run_dir.path / ".lock", timeout=0):
            _put_failed_attempt_aside(run_dir)
            if run_dir.record.exists():
                raise ConfigurationError(f"{run_dir.path} holds a finished run; choose another --run-id, or delete the folder")
            launcher = get_launcher(placement.launcher)
            job = make_job(spec, placement, run_dir.path)
            command = launcher.command(job)
            _write_down(spec, run_dir, launcher, job, command)
            outcome = supervise(command, launcher.environment(job), run_dir, display)
            if not run_dir.record.exists():
                salvage_record(run_dir, outcome)
            add_evidence(run_dir, asked_rails(load_interconnect(spec.interconnect)))
    except Timeout:
        raise BusyError(f"{run_dir.path}: another process works on this run") from None
    except OSError as error:
        raise ConfigurationError(
            f"{run_dir.path}: {error.strerror or error}; free space or choose another --runs folder"
        ) from error
    return RunRecord.model_validate_json(run_dir.record.read_text())


def prepare_folder(run_dir: RunDirectory) -> None:
    """Make the folder and see that a run fits.

    Raises:
        ConfigurationError: it is read-only or full.
    """
    try:
        (run_dir.path / "logs").mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(run_dir.path).free
        probe = run_dir.path / ".probe"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"run folder {run_dir.path} cannot be written: {error.strerror}; choose another with --runs"
        ) from error
    if free_bytes < SPACE_FOR_A_RUN_BYTES:
        raise ConfigurationError(
            f"run folder {run_dir.path} has {free_bytes // MIB} MiB left, a run needs {SPACE_FOR_A_RUN_BYTES // MIB}; "
            "free space or choose another --runs folder"
        )


def _put_failed_attempt_aside(run_dir: RunDirectory) -> None:
    """A failed or target-missed run stays as evidence, beside its new attempt; an interrupted one is gone on with."""
    if not run_dir.record.exists():
        return
    status = RunRecord.model_validate_json(run_dir.record.read_text()).status
    if status == "interrupted":
        run_dir.record.rename(run_dir.path / "record.interrupted.json")
    elif status == "failed":
        number = 1
        while (aside := run_dir.path.with_name(f"{run_dir.path.name}.attempt-{number}")).exists():
            number += 1
        aside.mkdir()
        for entry in list(run_dir.path.iterdir()):
            if entry.name != ".lock":
                entry.rename(aside / entry.name)
        (run_dir.path / "logs").mkdir()


def _write_down(spec: RunSpec, run_dir: RunDirectory, launcher: Launcher, job: Job, command: list[str]) -> None:
    if not run_dir.spec.exists():
        write_atomically(run_dir.spec, spec.model_dump_json(indent=1) + "\n")
    written = {"tokens": command, "environment": launcher.environment(job)}
    write_atomically(run_dir.command, json.dumps(written, indent=1) + "\n")
