"""Start-up time of `trainscale --help` (goal: under 0.3 s), beside that of an empty Python."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15


def median_s(command: list[str]) -> float:
    """Median wall time of a command."""
    seconds = []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - start_s)
    return statistics.median(seconds)


def main() -> None:
    """Print both and their ratio."""
    ours = median_s([sys.executable, "-m", "launch.cli", "--help"])
    empty = median_s([sys.executable, "-c", "pass"])
    print(f"  trainscale --help {ours:.3f} s, python -c pass {empty:.3f} s, ratio {ours / empty:.1f} (median of {ROUNDS})")
