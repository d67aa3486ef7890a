"""bf16 and fp16 follow fp32; fp16 with loss scaling on several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.record import RunRecord
from tests.training.support import make_spec, train, write_spec


def losses(data_dir: Path, run_dir: Path, precision: str, ranks: int = 1) -> list[float]:
    spec = make_spec(
        data_dir, ranks=ranks, precision=precision, image_size=32, local_batch_size=16 if ranks == 1 else 9, max_epochs=2,
        evaluation__local_batch_size=31, schedule__warmup_epochs=0, quality_target={"accuracy": 1.01},
        learning_rate={"rule": "constant", "value": 0.001, "batch_size": 16},
    )  # fmt: skip
    assert train(write_spec(run_dir, spec), ranks) == 3
    return [figures.loss for figures in RunRecord.model_validate_json((run_dir / "record.json").read_text()).epochs]


def test_half_precision_follows_fp32(few_digits_dir: Path, tmp_path: Path) -> None:
    """The same seed, images and order; 8 bits of mantissa are worth some percent of the loss in the first dozen steps."""
    full = losses(few_digits_dir, tmp_path / "fp32", "fp32")
    half = losses(few_digits_dir, tmp_path / "bf16", "bf16")
    assert half != full
    assert half == pytest.approx(full, rel=0.05)


def test_fp16_with_loss_scaling_on_two_ranks(few_digits_dir: Path, tmp_path: Path) -> None:
    found = losses(few_digits_dir, tmp_path / "fp16", "fp16", ranks=2)
    assert found == pytest.approx(losses(few_digits_dir, tmp_path / "fp32", "fp32", ranks=2), rel=0.05)
