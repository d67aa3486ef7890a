"""A launcher that hangs over a dead rank is ended."""

from __future__ import annotations

import sys
from pathlib import Path

from launch.show import SilentDisplay
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
