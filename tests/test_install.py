"""`pip install .` gives planning and reports without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_plan_and_report_work_without_torch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", str(ROOT)], check=True)
    trainscale = str(tmp_path / "venv" / "bin" / "trainscale")
    probe = subprocess.run([str(python), "-c", "import torch"], capture_output=True, cwd=tmp_path)
    assert probe.returncode != 0
    planned = subprocess.run(
        [trainscale, "run", "resnet50", "--preset", "mlperf-v0.6", "--dry-run", "--launcher", "srun"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert planned.returncode == 0, planned.stderr
    assert "208 local" in planned.stdout
    logs = ROOT / "tests" / "results" / "data"
    reported = subprocess.run([trainscale, "report", str(logs)], capture_output=True, text=True, cwd=tmp_path)
    assert reported.returncode == 0, reported.stderr
    assert "ResNet-50" in reported.stdout
    doctor = subprocess.run([trainscale, "doctor"], capture_output=True, text=True, cwd=tmp_path)
    assert doctor.returncode == 1
    assert "torch: ModuleNotFoundError" in doctor.stdout
