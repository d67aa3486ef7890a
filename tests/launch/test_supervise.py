"""A launcher that hangs over a dead rank is ended, and one that does not stop when asked."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.show import SilentDisplay
from launch.standstill import STALL_S, StallWatch
from launch.supervise import supervise
from results.rundir import RunDirectory

HANGING_LAUNCHER = """
import subprocess, sys, time
rank = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])  # never waited for
time.sleep(300)
"""


def test_a_launcher_that_never_buries_its_dead_rank_is_ended(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    outcome = supervise([sys.executable, "-c", HANGING_LAUNCHER], {}, RunDirectory(tmp_path), SilentDisplay())
    assert outcome.exit_status != 0


def test_copying_a_data_set_to_scratch_may_take_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    copying, training = StallWatch(), StallWatch()
    copying.seen({"event": "staging_start"})
    training.seen({"event": "progress"})
    later_s = time.monotonic() + 3 * 3600
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert not copying.stalled()
    assert training.stalled()
    assert training.reason == f"nothing was done for {STALL_S:.0f} s after progress"


DEAF_LAUNCHER = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGUSR1, lambda *_: Path(sys.argv[1], "asked").touch())
Path(sys.argv[1], "started").touch()
time.sleep(300)
time.sleep(300)  # a handler that ran does not end it
"""
SUPERVISOR = """
import sys
from pathlib import Path
from launch import supervise
from launch.show import Display
from results.rundir import RunDirectory
supervise.STOP_S = 600.0
outcome = supervise.supervise([sys.argv[1], sys.argv[2], sys.argv[3]], {}, RunDirectory(Path(sys.argv[3])), Display())
print(outcome.interrupted_by)
"""


def test_who_asks_twice_does_not_wait(tmp_path: Path) -> None:
    """The first signal asks the ranks for a checkpoint, through launchers that hand it on; a later one ends them."""
    (tmp_path / "logs").mkdir()
    program = tmp_path / "deaf.py"
    program.write_text(DEAF_LAUNCHER)
    launcher = tmp_path / "mpirun"
    launcher.symlink_to(sys.executable)
    command = [sys.executable, "-c", SUPERVISOR, launcher, program, tmp_path]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
        deadline_s = time.monotonic() + 200
        while process.poll() is None:
            assert time.monotonic() < deadline_s
            if (tmp_path / "started").exists():
                process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.stdout is not None
        told = process.stdout.read().splitlines()
    assert (tmp_path / "asked").exists()
    assert told == ["  stopping at the next step, with a checkpoint; ask again to end it at once", "SIGINT"]
