"""The page on adding a workload: its example, taken from the page as it stands, trains on two ranks to its target."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from results.record import RunRecord
from tests.training.support import ROOT

PAGE = ROOT / "docs" / "adding-a-workload.md"


def blocks() -> dict[str, str]:
    """The code blocks of the page by the file that their heading names."""
    parts = re.findall(r"^## [^\n]*`([^`\n]+)`\n\n```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return dict(parts)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project with the example in it, as the page says to add it."""
    root = tmp_path / "project"
    for package in ("launch", "results", "training"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    found = blocks()
    line = found.pop("training/workload.py")
    registry = root / "training" / "workload.py"
    head, opened, rest = registry.read_text().partition("WORKLOADS = {\n")
    assert opened
    registry.write_text(head + opened + line + rest)
    for name, text in found.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "training/softmax/__init__.py").touch()
    return root


def test_the_page_has_the_three_parts() -> None:
    assert set(blocks()) == {"training/softmax/workload.py", "training/workload.py", "training/softmax/presets/digits.yaml"}


def test_the_example_trains_on_two_ranks_to_its_target(project: Path, digits_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "launch.cli", "run", "softmax", "--nodes", "2", "--data-dir", str(digits_dir)]
    command += ["--runs", str(tmp_path / "runs"), "--run-id", "softmax"]
    environment = os.environ | {"PYTHONPATH": str(project), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    record = RunRecord.model_validate_json((tmp_path / "runs/softmax/record.json").read_text())
    assert record.spec.workload == "softmax"
    assert record.status == "finished"
    assert record.evaluations[-1].metrics["accuracy"] >= 0.90
    assert record.evaluations[-1].samples == 360
    assert all(epoch.samples == 1437 for epoch in record.epochs)
    assert record.model_parameters == 650


def test_the_example_keeps_to_our_style(project: Path) -> None:
    """As ruff and mypy have it for the rest."""
    files = ["training/softmax/workload.py"]
    shutil.copy(ROOT / "pyproject.toml", project)
    for check in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *check, *files], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
