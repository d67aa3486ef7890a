"""One run from its spec to its record: a run directory, a command, its processes, and a record whatever happens."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from launch.emulation import inside_emulated_node
from launch.host_lock import hosts_to_itself
from launch.interconnect import Interconnect, load_interconnect
from launch.job import Host, Job, binding_variables, passed_on
from launch.launchers import Launcher, get_launcher
from launch.overhead import add_launch_times, note_own_job
from launch.rails import add_evidence, asked_rails
from launch.salvage import blame_standstill, salvage_record
from launch.show import Display
from launch.site import SiteProfile
from launch.supervise import supervise
from results import heartbeat
from results.model import write_atomically
from results.record import RunRecord
from results.rundir import RunDirectory
from results.spec import RunSpec
from results.staging import VARIABLE as SCRATCH
from results.yaml_file import ConfigurationError

MIB = 2**20
SPACE_FOR_A_RUN_BYTES = 64 * MIB


class BusyError(ConfigurationError):
    """Another process works on this run at this moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """How and where the ranks of a run are started."""

    launcher: str = "mpirun"
    hosts: list[str] = field(default_factory=list)
    site: SiteProfile = field(default_factory=SiteProfile)

    def interconnect(self, name: str) -> Interconnect:
        """An interconnect configuration with the device names of this site."""
        return self.site.fit(load_interconnect(name))


def make_job(spec: RunSpec, placement: Placement, run_dir: Path) -> Job:
    """The launch of a spec; pure but for the environment it passes on.

    Raises:
        ConfigurationError: unknown interconnect, malformed host, more ranks than slots, or more nodes than the allocation has.
    """
    site, one_host = placement.site, spec.emulated_nodes and not inside_emulated_node()
    allocated = os.environ.get("SLURM_JOB_NUM_NODES")
    if allocated and not placement.hosts and not one_host and spec.nodes > int(allocated):
        raise ConfigurationError(
            f"{spec.run_id}: {spec.nodes} nodes do not fit into an allocation of {allocated}; sbatch -N {spec.nodes}"
        )
    threads = str(spec.settings.threads_per_rank)
    bind = site.bind_ranks and not one_host and not inside_emulated_node()
    environment = {
        **passed_on(os.environ),
        "OMP_NUM_THREADS": threads,
        "HOROVOD_FUSION_THRESHOLD": str(spec.settings.communication.fusion_threshold_bytes),
        "HOROVOD_CYCLE_TIME": str(spec.settings.communication.cycle_time_ms),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "30",  # rank 0's log then names the ranks that the others wait for
        "NCCL_DEBUG": "INFO",
        **(binding_variables(spec.ranks_per_node) if bind else {}),
        **placement.interconnect(spec.interconnect).environment(),
        **({SCRATCH: str(site.scratch)} if site.scratch else {}),
        **site.environment,
    }
    job = Job(
        tokens=[*site.container, site.python or sys.executable, "-m", "training", str(run_dir)],
        ranks=spec.ranks,
        ranks_per_node=spec.ranks_per_node,
        hosts=[Host.parse(host, spec.ranks_per_node) for host in placement.hosts],
        environment=environment,
        one_host=one_host,
        cores_per_rank=site.cpus_per_rank or spec.settings.threads_per_rank,
        bind=bind,
    )
    job.check()
    return job


def execute(spec: RunSpec, run_dir: RunDirectory, placement: Placement, display: Display) -> RunRecord:
    """Do a run, or go on with it if it was interrupted; returns its record.

    Raises:
        ConfigurationError: it cannot be started, or the folder holds a finished run.
        BusyError: another process works on it.
    """
    launcher = get_launcher(placement.launcher, placement.site)
    job = make_job(spec, placement, run_dir.path)
    command = launcher.command(job)
    prepare_folder(run_dir)
    try:
        with FileLock(run_dir.path / ".lock", timeout=0):
            put_failed_attempt_aside(run_dir)
            if run_dir.record.exists():
                raise ConfigurationError(f"{run_dir.path} holds a finished run; choose another --run-id, or delete the folder")
            _write_down(spec, run_dir, launcher, job, command)
            note_own_job(run_dir)
            with hosts_to_itself([host.name for host in job.hosts], display):
                launched_s = time.time()
                outcome = supervise(command, launcher.environment(job), run_dir, display)
            if not run_dir.record.exists():
                salvage_record(run_dir, outcome)
            elif outcome.stalled and outcome.interrupted_by is None:
                blame_standstill(run_dir, outcome.stalled)
            add_evidence(run_dir, asked_rails(placement.interconnect(spec.interconnect)))
            add_launch_times(run_dir, launched_s)
    except Timeout:
        raise BusyError(f"{run_dir.path}: another process works on this run") from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
        remedy = "; free space or choose another --runs folder" if full else ""
        raise ConfigurationError(f"{error.filename or run_dir.path}: {error.strerror or error}{remedy}") from error
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


def put_failed_attempt_aside(run_dir: RunDirectory) -> None:
    """A failed run stays as evidence, beside its new attempt; an interrupted one is gone on with."""
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
    for path in (run_dir.path / "logs").glob("failure-*.json"):
        path.rename(path.with_name(f"earlier-{path.name}"))  # of a start that was interrupted: not why this one ends
    heartbeat.forget(run_dir)
    if not run_dir.spec.exists():
        write_atomically(run_dir.spec, spec.model_dump_json(indent=1) + "\n")
    written = {"launcher": launcher.name, "tokens": command, "environment": launcher.environment(job)}
    write_atomically(run_dir.command, json.dumps(written, indent=1) + "\n")
