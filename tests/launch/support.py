"""`trainscale` as a user calls it, and runs small enough for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TINY = (
    "image_size=32", "local_batch_size=16", "max_epochs=2", "evaluation.local_batch_size=31", "precision=fp32",
    "quality_target={accuracy: 0.01}", "schedule.warmup_epochs=0",
)  # fmt: skip
"""A run of one epoch over a few images whose target any model reaches."""


def overrides(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


def trainscale(*arguments: str | Path, timeout_s: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launch.cli", *map(str, arguments)],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip


def start_trainscale(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "launch.cli", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
