"""What Slurm knows of jobs: squeue for those that wait, run or ended just now, sacct for older ones."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

TIMEOUT_S = 30
ACTIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "RESIZING", "STAGE_OUT", "SUSPENDED"}
"""States of jobs that Slurm will still work on."""

# Slurm's reasons in words for a person (squeue(1), JOB REASON CODES).
REASONS = {
    "Priority": "other jobs come first",
    "Resources": "waits for nodes to become free",
    "Dependency": "waits for the run before it",
    "DependencyNeverSatisfied": "the job it waits for can never end as asked; scancel it and submit again",
    "BeginTime": "was queued again and starts when its pause is over",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "asks for more nodes than the partition has or allows",
    "PartitionTimeLimit": "asks for more time than the partition allows; set time_limit in the site profile",
    "PartitionConfig": "the partition does not allow what it asks for",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has what it asks for",
    "JobHeldUser": "is held by the user; scontrol release",
    "JobHeldAdmin": "is held by an administrator",
    "AssociationJobLimit": "the account has reached its limit of jobs",
    "AssocGrpNodeLimit": "the account has reached its limit of nodes",
    "AssocGrpGRES": "the account has reached its limit of GPUs",
    "QOSMaxNodePerUserLimit": "the user has reached the limit of nodes",
    "QOSMaxJobsPerUserLimit": "the user has reached the limit of jobs",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
    "launch failed requeued held": "could not be started on its nodes and is held; scontrol release",
}
ENDINGS = {
    "TIMEOUT": "ran into its time limit",
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "used more memory than it had asked for",
    "BOOT_FAIL": "a node did not start",
    "PREEMPTED": "gave way to another job",
    "DEADLINE": "ran into its deadline",
    "FAILED": "failed",
    "COMPLETED": "is over",
}


@dataclass(frozen=True, slots=True)
class JobState:
    """One job as Slurm sees it."""

    state: str
    """Slurm's own word, such as `PENDING`."""
    reason: str = ""
    """Slurm's own word why it waits or failed; `None` is left out."""
    nodes: str = ""
    """Nodes that it has, in Slurm's notation."""

    @property
    def active(self) -> bool:
        """Slurm will still work on it."""
        return self.state in ACTIVE

    @property
    def words(self) -> str:
        """Why it waits or how it ended, for a person."""
        if self.state == "PENDING":
            code = self.reason.split(",")[0]
            return REASONS.get(code, f"Slurm's reason: {self.reason or 'none given'}")
        if self.state in ENDINGS:
            also = f" ({self.reason})" if self.reason and self.reason != self.state else ""
            return f"the job {ENDINGS[self.state]}{also}"
        return f"on {self.nodes}" if self.nodes else self.state.lower()


class QueueUnknownError(Exception):
    """Slurm is not here or gives no answer; the message says which."""


def job_states(job_ids: Iterable[int]) -> dict[int, JobState]:
    """States of the jobs that Slurm still knows.

    Raises:
        QueueUnknownError: there is no Slurm here, or slurmctld does not answer.
    """
    wanted = set(job_ids)
    if not wanted:
        return {}
    found = _squeue(wanted)
    forgotten = wanted - set(found)
    return found | (_sacct(forgotten) if forgotten else {})


def _squeue(wanted: set[int]) -> dict[int, JobState]:
    # `--jobs` with an id that is forgotten is an error, so that all of the queue's rows are read.
    done = _run(["squeue", "--noheader", "--states=all", "--format=%A|%T|%r|%N"])
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise QueueUnknownError(f"squeue does not tell: {lines[-1]}")
    found = {}
    for line in done.stdout.splitlines():
        job_id, state, reason, nodes = line.split("|", 3)
        if int(job_id) in wanted:
            found[int(job_id)] = JobState(state, "" if reason == "None" else reason, nodes)
    return found


def _sacct(wanted: set[int]) -> dict[int, JobState]:
    """From the accounting, or, where a cluster has none, from the log of completed jobs (`sacct -c`)."""
    chosen = ["--noheader", "--parsable2", "--format=JobID,State", f"--jobs={','.join(map(str, sorted(wanted)))}"]
    try:
        done = _run(["sacct", "--allocations", *chosen])
        if done.returncode:
            done = _run(["sacct", "--completion", *chosen])
    except QueueUnknownError:
        return {}
    found = {}
    for line in done.stdout.splitlines():
        job_id, _, state = line.partition("|")
        if job_id.isdigit() and int(job_id) in wanted and state:
            found[int(job_id)] = JobState(state.split()[0])  # `CANCELLED by 0`
    return found


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        raise QueueUnknownError(f"there is no {command[0]} here")
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise QueueUnknownError(f"{command[0]} gave no answer within {TIMEOUT_S} s; is slurmctld up?") from None
