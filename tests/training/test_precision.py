"""bf16 and fp16 follow fp32; fp16 with loss scaling on several ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.record import RunRecord
from tests.training.support import make_spec, run_ranks, train, write_spec


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


@pytest.mark.parametrize(("backend", "ranks"), [("horovod", 2), ("torch", 2), ("single", 1)])
def test_an_overflow_on_one_rank_skips_the_update_of_all(tmp_path: Path, backend: str, ranks: int) -> None:
    """The exchange spreads the infinity, so that scales and weights stay the same everywhere; and gradients come back in the
    memory layout of their parameters, which fused kernels on GPUs insist on."""
    done = run_ranks(ranks, "tests.training.ranks.overflow", str(tmp_path / "found.json"), backend)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    first = found[0]
    assert [rank for rank in found if rank != first] == []
    before, one, two, three = (state["weights"] for state in first)
    assert one == before  # skipped
    assert two != one
    assert three != two
    assert [state["scale"] for state in first[1:]] == [512.0, 512.0, 512.0]  # halved once: torch's documented backoff
    assert [state["finite"] for state in first[1:]] == [False, True, True]
    if ranks > 1:
        assert [state["other_strides"] for state in first[1:]] == [[], [], []]
    assert all(state["fused"] for state in first)
    # What the first update leaves behind must not be in the second: torch's fused SGD keeps uninitialised momentum.
    assert max(abs(value) for value in two + three) < 100
