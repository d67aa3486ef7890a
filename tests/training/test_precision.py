"""fp16 with loss scaling: overflowed gradients are skipped on every rank alike, and training goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.record import RunRecord
from tests.training.support import make_spec, train, write_spec


@pytest.mark.parametrize(("precision", "ranks"), [("fp32", 1), ("bf16", 1), ("fp16", 2)])
def test_every_precision_learns(few_digits_dir: Path, tmp_path: Path, precision: str, ranks: int) -> None:
    spec = make_spec(
        few_digits_dir, ranks=ranks, precision=precision, image_size=32, local_batch_size=16, max_epochs=3,
        evaluation__local_batch_size=31, schedule__warmup_epochs=0, quality_target={"accuracy": 1.01},
        learning_rate={"rule": "constant", "value": 0.02, "batch_size": 16},
    )  # fmt: skip
    run_dir = write_spec(tmp_path / precision, spec)
    assert train(run_dir, ranks) == 3
    record = RunRecord.model_validate_json((run_dir / "record.json").read_text())
    assert record.epochs[-1].loss < record.epochs[0].loss
    assert sum(figures.steps for figures in record.epochs) == 3 * -(-83 // (16 * ranks))
