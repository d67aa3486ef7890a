"""N ranks on shards compute what 1 rank computes on the whole batch, last partial batch included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.training.support import run_ranks


def step(folder: Path, ranks: int, backend: str, passes: int = 1, compression: str = "none") -> dict[str, np.ndarray]:
    out = folder / f"{backend}-{ranks}-{passes}-{compression}.npz"
    done = run_ranks(ranks, "tests.training.ranks.gradients", str(out), backend, str(passes), compression)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(np.load(out))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """One process, no exchange, the whole batch."""
    return step(tmp_path_factory.mktemp("whole"), 1, "single")


def relative_error(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], names: list[str]) -> float:
    difference = sum(float(((found[n] - expected[n]) ** 2).sum()) for n in names)
    return (difference / sum(float((expected[n] ** 2).sum()) for n in names)) ** 0.5


@pytest.mark.parametrize(
    ("ranks", "backend", "passes"),
    [(2, "horovod", 1), (3, "horovod", 1), (3, "torch", 1), (2, "torch", 2), (2, "horovod", 2), (1, "single", 3)],
)
def test_ranks_on_shards_equal_one_rank_on_the_whole(
    whole: dict[str, np.ndarray], tmp_path: Path, ranks: int, backend: str, passes: int
) -> None:
    sharded = step(tmp_path, ranks, backend, passes)
    assert sharded.keys() == whole.keys()
    names = [name for name in whole if not name.startswith("weight:")]
    assert len(names) == 161  # parameter tensors of ResNet-50
    assert relative_error(sharded, whole, names) < 1e-4
    weights = [name for name in whole if name.startswith("weight:")]
    assert relative_error(sharded, whole, weights) < 1e-6


@pytest.mark.parametrize("backend", ["horovod", "torch"])
def test_half_precision_exchange_rounds_gradients_and_no_more(whole: dict[str, np.ndarray], tmp_path: Path, backend: str) -> None:
    sharded = step(tmp_path, 2, backend, compression="fp16")
    names = [name for name in whole if not name.startswith("weight:")]
    assert 1e-6 < relative_error(sharded, whole, names) < 2e-3
