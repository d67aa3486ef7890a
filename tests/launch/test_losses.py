"""Lost ranks and nodes, in words that launchers really said; and runs that stand still."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

from launch import standstill
from launch.launcher_words import cause, find_loss, unreachable_hosts
from launch.salvage import blame_standstill, salvage_record
from launch.show import SilentDisplay
from launch.supervise import supervise
from results.record import RunRecord
from results.rundir import RunDirectory
from tests.launch.support import trainscale
from tests.results.records import a_record

MPIRUN = """\
--------------------------------------------------------------------------
prterun noticed that process rank 1 with PID 6224 on node vm exited on
signal 9 (Killed).
--------------------------------------------------------------------------"""
MPIRUN_NODE = """\
--------------------------------------------------------------------------
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-head-774@0,0] on node head
  Remote daemon: [prterun-head-774@0,2] on node node02

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------"""
SRUN = """\
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
srun: error: node02: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=6.0
slurmstepd-node01: error: *** STEP 6.0 ON node01 CANCELLED AT 2026-12-01T03:39:42 ***
srun: error: node01: task 0: Exited with exit code 14"""
SRUN_NODE = """\
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
slurmstepd-node01: error: *** STEP 7.0 ON node01 CANCELLED AT 2026-12-01T03:40:35 ***
srun: error: node01: task 0: Killed
srun: launch/slurm: _step_signal: Terminating StepId=7.0
srun: error: Timed out waiting for job step to complete"""

SRUN_MEMORY = """\
slurmstepd-node01: error: StepId=3.0 exceeded memory limit (505774080 > 157286400), being killed
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
slurmstepd-node01: error: *** STEP 3.0 ON node01 CANCELLED AT 2026-12-01T04:11:51 ***
srun: error: node01: task 0: Killed"""


@pytest.mark.parametrize(
    ("text", "message", "rank", "blameless"),
    [
        (SRUN_MEMORY, "the job used more memory than it had asked for: 482 MiB of 150; sbatch --mem asks for more", None, False),
        (MPIRUN, "rank 1 on vm was ended by the system: Killed", 1, False),
        (MPIRUN_NODE, "node node02 no longer answers", None, True),
        (SRUN, "rank 1 on node02 was ended by the system: Killed", 1, False),
        (SRUN_NODE, "a node no longer answers", None, True),
        ("slurmstepd: error: *** STEP 8.0 ON n1 CANCELLED AT 2026-12-01T03:40:35 DUE TO TIME LIMIT ***",
         "the scheduler ended the job: time limit", None, True),
    ],
)  # fmt: skip
def test_what_was_lost(text: str, message: str, rank: int | None, blameless: bool) -> None:
    loss = find_loss(text)
    assert loss is not None
    assert (loss.message, loss.rank, loss.blameless) == (message, rank, blameless)


def test_a_rank_that_fails_by_itself_is_no_loss() -> None:
    assert find_loss("srun: error: node01: task 0: Exited with exit code 4") is None


def a_run(path: Path) -> RunDirectory:
    run_dir = RunDirectory(path)
    (path / "logs").mkdir(parents=True)
    run_dir.spec.write_text(a_record(nodes=2).spec.model_dump_json())
    run_dir.command.write_text('{"tokens": [], "environment": {}}')
    return run_dir


STANDS_STILL = """
import os, sys, time
from pathlib import Path
from results import events
run_dir, log, *ages_s = sys.argv[1:]
Path(run_dir, "logs", "rank-00000.log").write_text(log)
for rank, age_s in enumerate(ages_s):
    sign = Path(run_dir, "logs", f"alive-{rank:05d}")
    sign.write_text(f"node{1 + rank // 2:02d}")
    os.utime(sign, (time.time() - float(age_s),) * 2)
for step in (1, 2):
    events.append(Path(run_dir), "progress", epoch=3, step=step)
time.sleep(600)
"""
MISSING = "Missing ranks:\n0: [a, b]\nthen\nMissing ranks:\n1: [a]\n3: [a]\n"
NO_STEP = "nothing was done for 1 s after progress epoch 3, step 2"


@pytest.mark.parametrize(
    ("stall_s", "log", "ages_s", "message"),
    [
        (1, MISSING, [0, 0, 0, 0], f"{NO_STEP}; the others wait for rank 1 on node01 and rank 3 on node02"),
        (1, MISSING, [0, 0, 60, 60], "a rank gave no sign of life for 1 s; ranks 2, 3 on node02 are gone"),
        (70, "", [5, 0, 80, 9], "a rank gave no sign of life for 70 s; rank 2 on node02 is gone"),
        (1, "", [0.2, 0], f"{NO_STEP}; ranks 0, 1 on node01 live, so the network between them is gone: "
                          "trainscale doctor --all-nodes and trainscale fabric look at it"),
        (1, "", [], f"{NO_STEP}; no rank ever began"),
    ],
)  # fmt: skip
def test_a_run_that_stands_still_is_ended_and_says_who_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stall_s: float, log: str, ages_s: list[float], message: str
) -> None:
    monkeypatch.setattr(standstill, "STALL_S", float(stall_s))
    monkeypatch.setattr(standstill, "LOST_S", float(stall_s))
    monkeypatch.setattr(standstill, "LIFE_LOOK_S", 0.1)
    run_dir = a_run(tmp_path / "run")
    start_s = time.monotonic()
    words = [str(run_dir.path), log, *map(str, ages_s)]
    outcome = supervise([sys.executable, "-c", STANDS_STILL, *words], {}, run_dir, SilentDisplay())
    assert time.monotonic() - start_s < 60  # not the 600 s that the rank would sleep
    record = salvage_record(run_dir, outcome)
    assert record.status == "failed"
    assert record.failure is not None
    assert record.failure.message == message


@pytest.mark.parametrize(("status", "becomes"), [("interrupted", "failed"), ("finished", "finished")])
def test_ranks_that_came_to_life_when_they_were_ended_do_not_hide_that_they_stood_still(
    tmp_path: Path, status: str, becomes: str
) -> None:
    run_dir = a_run(tmp_path / "run")
    record = a_record(nodes=2).model_copy(update={"status": status})
    run_dir.record.write_text(record.model_dump_json())
    blame_standstill(run_dir, "nothing was done for 110 s")
    after = RunRecord.model_validate_json(run_dir.record.read_text())
    assert after.status == becomes
    assert (after == record) == (becomes == "finished")


def test_an_earlier_starts_losses_are_not_told_again(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    run_dir.launcher_log.write_text(SRUN_NODE + "\n")
    run_dir.rank_log(1).write_text("last words\n")
    told = f"import sys; print({MPIRUN!r}); sys.exit(137)"
    record = salvage_record(run_dir, supervise([sys.executable, "-c", told], {}, run_dir, SilentDisplay()))
    assert record.status == "failed"
    assert record.failure is not None
    assert (record.failure.rank, record.failure.last_lines) == (1, ["last words"])


UNREACHED = """\
ssh: Could not resolve hostname nosuchhost2: Name or service not known
ssh: Could not resolve hostname nosuchhost1: Name or service not known
------------------------------------------------------------
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
daemon executable, or the executable was unable to find its
required supporting libraries. In some cases, the daemon was
able to execute, but was unable to complete a TCP connection
back to prterun:

  Local host:    vm
  Remote host:   nosuchhost1
  Daemon exit status: 255
------------------------------------------------------------
------------------------------------------------------------
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
  Remote host:   nosuchhost2
  Daemon exit status: 255
"""


def test_hosts_that_cannot_be_reached_are_named_with_the_reason_and_the_way_out() -> None:
    line = unreachable_hosts(UNREACHED)
    assert line.startswith("no rank could be started on nosuchhost1, nosuchhost2: ssh: Could not resolve hostname nosuchhost2")
    assert line.endswith("`ssh nosuchhost1 true` must work without a question")
    assert unreachable_hosts(MPIRUN) == ""


def test_the_telling_line_is_taken_before_the_decoration() -> None:
    assert cause("-----\nsomething\nImportError: libmpi.so.40: cannot open shared object file\n-----\n").startswith("ImportError")
    assert cause("-----\nonly this\n") == "only this"
    assert cause("") == "it said nothing"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="mpirun reaches other hosts by ssh, which is not here")
def test_an_unreachable_host_is_one_clear_line(tmp_path: Path) -> None:
    hosts = ["--host", "no-such-host-1:1", "--host", "no-such-host-2:1"]
    done = trainscale("run", "resnet50", "--nodes", "2", "--interconnect", "ethernet", *hosts, "--runs", tmp_path)
    assert done.returncode == 4
    last = done.stdout.splitlines()[-1]
    assert "no rank could be started on no-such-host-1" in last
    assert "must work without a question" in last
