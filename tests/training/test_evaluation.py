"""Evaluation counts each validation image once on any number of ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.training.support import run_ranks


def evaluate(folder: Path, root: Path, ranks: int, source: str = "dali", backend: str = "horovod") -> list[list[float]]:
    out = folder / f"{ranks}-{source}-{backend}.json"
    done = run_ranks(ranks, "tests.training.ranks.evaluation", str(out), str(root), source, backend)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


def test_ranks_agree_with_each_other_and_with_scikit_learn(digits_dir: Path, tmp_path: Path) -> None:
    from sklearn.datasets import load_digits
    from sklearn.neighbors import NearestCentroid

    found = {ranks: evaluate(tmp_path, digits_dir, ranks) for ranks in (1, 2, 3)}
    found["torch backend"] = evaluate(tmp_path, digits_dir, 2, backend="torch")
    first, second = found[1]
    assert first == second  # a second evaluation starts anew
    assert first[0] == 360
    assert all(evaluations == found[1] for evaluations in found.values())
    digits = load_digits(return_X_y=True)
    held_out = np.arange(1797) % 5 == 0
    model = NearestCentroid().fit(digits[0][~held_out], digits[1][~held_out])
    assert first[1] == pytest.approx(model.score(digits[0][held_out], digits[1][held_out]), abs=0.02)


def test_torch_source_sees_the_same_images(digits_dir: Path, tmp_path: Path) -> None:
    by_torch, by_dali = (evaluate(tmp_path, digits_dir, 2, source=source)[0] for source in ("torch", "dali"))
    assert by_torch[0] == by_dali[0]
    assert by_torch[1] == pytest.approx(by_dali[1], abs=0.01)  # two decoders may round a pixel differently
