"""`trainscale run`, for real: mpirun, Horovod, DALI, a record; and every way it can go wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from results import events
from results.heartbeat import SILENT_S, signs_of_life
from results.record import RunRecord
from results.rundir import RunDirectory
from tests.launch.support import TINY, overrides, start_trainscale, trainscale


def record_of(run_dir: Path) -> RunRecord:
    return RunRecord.model_validate_json((run_dir / "record.json").read_text())


@pytest.fixture(scope="module")
def finished(few_digits_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of a finished run on two emulated nodes."""
    runs = tmp_path_factory.mktemp("runs")
    done = trainscale(
        "run", "resnet50", "--nodes", "2", "--seed", "7", "--data-dir", few_digits_dir, "--runs", runs, "--run-id", "two",
        *overrides(*TINY)
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "target reached" in done.stdout
    return runs / "two"


def test_record_tells_everything(finished: Path) -> None:
    record = record_of(finished)
    assert record.status == "finished"
    assert record.spec.emulated_nodes
    assert record.spec.seed == 7
    assert record.model_parameters == 25_557_032 - 990 * 2049  # 10 classes instead of 1,000
    assert record.epochs[0].samples == 83
    assert record.evaluations[0].samples == 31
    assert record.time_to_train_s == pytest.approx(record.accounts.on_the_clock_s, rel=0.1)
    assert record.accounts.initialization_s > 0
    assert record.accounts.straggler_s >= 0
    assert record.accounts.input_wait_s + record.accounts.exposed_communication_s < record.accounts.training_s
    assert "mpirun" in record.command[0]
    assert record.environment["OMP_NUM_THREADS"] == "1"
    assert {"torch", "horovod", "mpi4py"} <= set(record.software.packages)
    assert any(name.startswith("nvidia-dali-cuda") for name in record.software.packages)  # each stack has its own
    assert "Open MPI" in record.software.mpi
    assert record.hosts[0].cpus >= 1
    assert len(record.data_digest) == 64
    assert record.epochs[0].step_time_s.minimum > 0


def test_files_beside_the_record(finished: Path) -> None:
    import numpy as np

    steps = np.load(finished / "steps.npz")
    assert steps["seconds_s"].shape == (3, 3, 3)  # 83 images in steps of 32; step, input, communication; min, median, max
    assert set(steps["slowest_rank"]) <= {0, 1}
    assert [e["event"] for e in events.read(finished) if e["event"] in ("run_start", "evaluation", "run_stop")] == [
        "run_start", "evaluation", "run_stop",
    ]  # fmt: skip
    assert list((finished / "tensorboard").glob("events.out.tfevents.*"))
    assert (finished / "checkpoints" / "best.pt").exists()
    signs = signs_of_life(RunDirectory(finished))
    assert [(sign.rank, sign.host) for sign in signs] == [(0, socket.gethostname()), (1, socket.gethostname())]
    assert max(sign.behind_s for sign in signs) < SILENT_S


def test_tensorboard_holds_the_scalars(finished: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(finished / "tensorboard"))
    board.Reload()
    wanted = {"loss_epoch", "images_per_s", "share_input_wait", "share_exposed_communication", "accuracy", "learning_rate"}
    assert wanted <= set(board.Tags()["scalars"])


def test_a_finished_run_is_not_run_over(finished: Path, few_digits_dir: Path) -> None:
    before = (finished / "record.json").read_bytes()
    done = trainscale("run", "resnet50", "--runs", finished.parent, "--run-id", "two", "--data-dir", few_digits_dir)
    assert done.returncode == 2
    assert "two holds a finished run" in done.stderr
    assert (finished / "record.json").read_bytes() == before


def test_json_is_the_record_alone(finished: Path) -> None:
    done = trainscale("status", finished.parent, "--json")
    rows = json.loads(done.stdout)
    assert [(row["run"], row["status"], row["epochs"]) for row in rows] == [("two", "finished", 1)]


def test_target_missed(few_digits_dir: Path, tmp_path: Path) -> None:
    changed = [word for word in TINY if not word.startswith(("quality", "max_epochs"))]
    done = trainscale(
        "run", "resnet50", "--data-dir", few_digits_dir, "--runs", tmp_path, "--run-id", "miss",
        "--launcher", "local", "--backend", "single",
        *overrides(*changed, "quality_target={accuracy: 1.01}", "max_epochs=1"),
    )  # fmt: skip
    assert done.returncode == 3
    assert "target-missed" in done.stdout
    record = record_of(tmp_path / "miss")
    assert (record.status, record.time_to_train_s) == ("target-missed", None)


def test_a_failing_run_is_told_kept_and_tried_again(few_digits_dir: Path, tmp_path: Path) -> None:
    arguments = ["run", "resnet50", "--runs", tmp_path, "--run-id", "f", "--nodes", "2", *overrides(*TINY)]
    done = trainscale(*arguments, "--data-dir", tmp_path / "nothing")
    assert done.returncode == 4
    assert "failed (rank" in done.stdout
    assert "nothing/train is missing" in done.stdout
    record = record_of(tmp_path / "f")
    assert record.status == "failed"
    assert record.failure is not None
    assert any("ConfigurationError" in line for line in record.failure.last_lines)
    assert trainscale(*arguments, "--data-dir", tmp_path / "nothing").returncode == 4
    assert record_of(tmp_path / "f.attempt-1").status == "failed"


LONG = [*TINY[:1], *TINY[3:5], *TINY[6:], "local_batch_size=6", "max_epochs=200", "quality_target={accuracy: 1.01}"]


def is_rank(process: psutil.Process) -> bool:
    words = process.cmdline()
    return "training" in words and "-np" not in words


@contextlib.contextmanager
def long_run(data_dir: Path, runs: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A run of two ranks in the middle of training: the command's process and all below it."""
    arguments = ["run", "resnet50", "--nodes", "2", "--data-dir", data_dir, "--runs", runs, "--run-id", "long"]
    process = start_trainscale(*arguments, *overrides(*LONG))
    try:
        deadline_s = time.monotonic() + 120
        while not any(event["event"] == "checkpoint" for event in events.read(runs / "long")):
            assert time.monotonic() < deadline_s
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        assert sum(is_rank(member) for member in family) == 2
        yield process, family
    finally:
        process.terminate()
        process.wait(timeout=120)


def gone(family: list[psutil.Process], within_s: float = 10) -> bool:
    _, alive = psutil.wait_procs(family, timeout=within_s)
    return not alive


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_by_the_user_and_resumed(few_digits_dir: Path, tmp_path: Path, number: signal.Signals) -> None:
    """The ranks are asked for a checkpoint at once, and nothing but starting again is lost."""
    with long_run(few_digits_dir, tmp_path) as (process, family):
        process.send_signal(number)
        assert gone(family, within_s=100)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 5
    assert "stopping at the next step, with a checkpoint" in out
    kept, interrupted = list(events.read(tmp_path / "long"))[-2:]
    assert (kept["event"], interrupted["event"]) == ("checkpoint", "interrupted")
    record = record_of(tmp_path / "long")
    assert record.status == "interrupted"
    assert [e.epoch for e in record.epochs] == list(range(1, kept["epoch"] + 1))
    place = f"step {kept['step']} of 7 of epoch {kept['epoch'] + 1}" if kept["step"] else f"epoch {kept['epoch']}"
    assert f"interrupted after {place}; trainscale resume goes on from there" in out

    spec = tmp_path / "long" / "spec.json"
    spec.write_text(spec.read_text().replace('"accuracy": 1.01', '"accuracy": 0.0'))  # let the next evaluation be the last
    done = trainscale("resume", tmp_path / "long")
    assert done.returncode == 0, done.stdout + done.stderr
    resumed = record_of(tmp_path / "long")
    assert (resumed.status, resumed.restarts) == ("finished", 1)
    assert f"resumed after {place.replace(' of 7', '')}" in done.stdout
    assert resumed.accounts.restart_s > 0
    assert [e.epoch for e in resumed.epochs] == list(range(1, len(resumed.epochs) + 1))


def test_a_killed_rank_ends_all_and_is_told(few_digits_dir: Path, tmp_path: Path) -> None:
    with long_run(few_digits_dir, tmp_path) as (process, family):
        victim = next(member for member in family if is_rank(member))
        os.kill(victim.pid, signal.SIGKILL)
        assert gone(family)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 4
    assert "was ended by the system: Killed" in out
    record = record_of(tmp_path / "long")
    assert record.status == "failed"
    assert record.failure is not None
    assert record.failure.last_lines


def test_nothing_outlives_a_killed_command(few_digits_dir: Path, tmp_path: Path) -> None:
    with long_run(few_digits_dir, tmp_path) as (process, family):
        process.kill()
        assert gone(family)
    status = json.loads(trainscale("status", tmp_path, "--json").stdout)
    assert status[0]["status"] == "interrupted"


def test_a_resumed_run_does_not_fail_for_an_earlier_starts_reason(few_digits_dir: Path, tmp_path: Path) -> None:
    with long_run(few_digits_dir, tmp_path) as (process, family):
        process.kill()
        assert gone(family)
    run_dir = tmp_path / "long"
    (run_dir / "logs" / "failure-00007.json").write_text('{"message": "an old story", "rank": 7}')
    spec = run_dir / "spec.json"
    spec.write_text(spec.read_text().replace(str(few_digits_dir), str(tmp_path / "nothing")))
    done = trainscale("resume", run_dir)
    assert done.returncode == 4
    assert "an old story" not in done.stdout
    assert str(tmp_path / "nothing") in done.stdout
