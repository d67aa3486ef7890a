"""`python docs/gallery/build.py FOLDER`: make this gallery again from the published logs.

FOLDER holds `training_results_v0.7/DellEMC` of https://github.com/mlcommons/training_results_v0.7 (a clone, or these files).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOGS = "training_results_v0.7/DellEMC"


def main() -> None:
    """Write the page, the Markdown and the figures beside this file."""
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / LOGS).is_dir():
        raise SystemExit(f"usage: {sys.argv[0]} FOLDER, where FOLDER/{LOGS} holds the published logs")
    command = [sys.executable, "-m", "launch.cli", "report", LOGS, "--against", "mlperf-v0.7-others"]
    command += ["--html", str(HERE / "c4140.html"), "--figures", str(HERE)]
    command += ["--format", "markdown", "--output", str(HERE / "c4140.md")]
    subprocess.run(command, cwd=sys.argv[1], check=True)


if __name__ == "__main__":
    main()
