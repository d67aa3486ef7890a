"""The main job, whole: two emulated nodes train ResNet-50 to its quality target, and MLCommons' own checker takes the logs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from results.record import RunRecord
from tests.launch.support import trainscale


@pytest.fixture(scope="module")
def run_dir(digits_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("target")
    done = trainscale(
        "run", "resnet50", "--nodes", "2", "--data-dir", digits_dir, "--runs", runs, "--run-id", "digits", timeout_s=550
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return runs / "digits"


def check(log: Path, ruleset: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", ruleset, str(log)],
        capture_output=True, text=True, cwd=log.parent,
    )  # fmt: skip


def test_the_target_is_reached_and_recorded(run_dir: Path) -> None:
    record = RunRecord.model_validate_json((run_dir / "record.json").read_text())
    assert record.status == "finished"
    assert record.evaluations[-1].metrics["accuracy"] >= 0.90
    assert all(evaluation.samples == 360 for evaluation in record.evaluations)
    assert all(epoch.samples == 1437 for epoch in record.epochs)
    assert record.epochs_to_target == len(record.epochs)


@pytest.mark.parametrize(("name", "ruleset"), [("mlperf.log", "1.0.0"), ("mlperf-v0.6.log", "0.6.0")])
def test_the_compliance_checker_says_success(run_dir: Path, name: str, ruleset: str) -> None:
    done = check(run_dir / name, ruleset)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr


def test_a_log_below_the_target_fails_the_checker(run_dir: Path, tmp_path: Path) -> None:
    """0.759 for ResNet under 1.0.0: the same log with the accuracies of its early epochs alone."""
    import re

    low = tmp_path / "low.log"
    text = (run_dir / "mlperf.log").read_text()
    low.write_text(re.sub(r'("key": "eval_accuracy", "value": )[0-9.]+', r"\g<1>0.7", text))
    assert low.read_text() != text
    assert check(low, "1.0.0").returncode != 0


def test_the_report_shows_the_run(run_dir: Path) -> None:
    done = trainscale("report", run_dir.parent)
    assert done.returncode == 0, done.stderr
    assert "emulated" in done.stdout.lower()
