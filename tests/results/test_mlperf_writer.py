"""The real compliance checker of MLCommons reads the logs that we write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from results.mlperf_log import MlperfLogWriter, write_submission_header

pytest.importorskip("mlperf_logging", reason="the compliance checker (package mlperf-logging) is not installed")

COMMON: dict[str, Any] = {"train_samples": 1000, "eval_samples": 100, "gradient_accumulation_steps": 1}
LARS = {
    "global_batch_size": 64, "opt_name": "lars", "lars_opt_base_learning_rate": 1.7, "lars_opt_end_learning_rate": 1e-4,
    "lars_opt_learning_rate_decay_poly_power": 2, "lars_opt_learning_rate_decay_steps": 100, "lars_epsilon": 0.0,
    "lars_opt_learning_rate_warmup_epochs": 1, "lars_opt_momentum": 0.9, "lars_opt_weight_decay": 1e-4, "model_bn_span": 32,
}  # fmt: skip
SGD = {
    "global_batch_size": 64, "opt_name": "sgd", "sgd_opt_base_learning_rate": 0.1, "sgd_opt_end_learning_rate": 1e-4,
    "sgd_opt_learning_rate_decay_poly_power": 2, "sgd_opt_learning_rate_decay_steps": 100, "sgd_opt_weight_decay": 1e-4,
    "sgd_opt_momentum": 0.9, "model_bn_span": 32, "opt_learning_rate_warmup_epochs": 1,
    "opt_learning_rate_decay_boundary_epochs": [8],
}  # fmt: skip
SSD = {
    "global_batch_size": 64, "model_bn_span": 32, "opt_learning_rate_warmup_factor": 0, "opt_learning_rate_warmup_steps": 10,
    "opt_weight_decay": 5e-4, "opt_base_learning_rate": 2.5e-3, "max_samples": 1,
    "opt_learning_rate_decay_boundary_epochs": [40, 50],
}  # fmt: skip
MASKRCNN = {
    "global_batch_size": 8, "opt_base_learning_rate": 0.02, "opt_learning_rate_warmup_steps": 10, "num_image_candidates": 1000,
    "opt_learning_rate_warmup_factor": 0.001, "opt_learning_rate_decay_factor": 0.1, "opt_learning_rate_decay_steps": [60, 80],
    "min_image_size": 800, "max_image_size": 1333,
}  # fmt: skip
RUNS = {
    "resnet-lars": ("resnet50", LARS, 0.7591, 0.7589),
    "resnet-sgd": ("resnet50", SGD, 0.7591, 0.7589),
    "ssd": ("ssd", SSD, 0.2301, 0.2299),
    "maskrcnn": ("maskrcnn", MASKRCNN, {"BBOX": 0.3771, "SEGM": 0.3391}, {"BBOX": 0.3771, "SEGM": 0.3389}),
}
"""Name: workload, settings, an accuracy that reaches the target, one just below it."""


def write_run(folder: Path, workload: str, settings: dict[str, Any], accuracy: Any) -> tuple[Path, Path]:
    """A complete run of two epochs, an evaluation after each."""
    new, old = folder / "mlperf.log", folder / "mlperf-v0.6.log"
    with MlperfLogWriter(new, old) as log:
        write_submission_header(log, workload=workload, platform="2xLaptop")
        log.event("cache_clear", True)
        log.start("init_start")
        for key, value in {**COMMON, **settings}.items():
            log.event(key, value)
        log.end("init_stop")
        log.start("run_start")
        for epoch in (1, 2):
            log.start("block_start", first_epoch_num=epoch, epoch_count=1)
            log.start("epoch_start", epoch_num=epoch)
            log.end("epoch_stop", epoch_num=epoch)
            log.start("eval_start", epoch_num=epoch)
            log.end("eval_stop", epoch_num=epoch)
            log.event("eval_accuracy", accuracy, epoch_num=epoch)
            log.end("block_stop", first_epoch_num=epoch)
        log.end("run_stop", status="success")
    return new, old


def check(log: Path, ruleset: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", ruleset]
    command += ["--log_output", str(log.with_suffix(".check")), str(log)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", RUNS)
def test_both_formats_pass_their_round(name: str, tmp_path: Path) -> None:
    workload, settings, reached, _ = RUNS[name]
    new, old = write_run(tmp_path, workload, settings, reached)
    for log, ruleset in ((new, "1.0.0"), (old, "0.6.0")):
        done = check(log, ruleset)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout + done.stderr


@pytest.mark.parametrize("name", RUNS)
def test_below_target_fails(name: str, tmp_path: Path) -> None:
    workload, settings, _, missed = RUNS[name]
    new, _ = write_run(tmp_path, workload, settings, missed)
    done = check(new, "1.0.0")
    assert done.returncode != 0
    assert "eval_accuracy" in done.stdout + done.stderr


def test_lines_of_both_files_tell_the_same(tmp_path: Path) -> None:
    with MlperfLogWriter(tmp_path / "new", tmp_path / "old") as log:
        log.event("eval_accuracy", 0.5, epoch_num=3)
        new, old = (tmp_path / "new").read_text(), (tmp_path / "old").read_text()  # flushed before it is closed
    assert new.startswith(':::MLLOG {"namespace": "", "time_ms": ')
    assert '"key": "eval_accuracy", "value": 0.5, "metadata": {"file": "test_mlperf_writer.py", "lineno": ' in new
    assert old.split()[2:4] == ["eval_accuracy:", '{"value":']
    milliseconds = int(new.split('"time_ms": ')[1].split(",")[0])
    assert old.split()[1] == f"{milliseconds / 1000:.3f}"
