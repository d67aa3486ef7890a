"""What goes wrong in a run is told in one line that names the thing, with a non-zero exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from results.record import RunRecord
from tests.training.support import make_spec, train, write_spec

SMALL = {"image_size": 32, "local_batch_size": 16, "max_epochs": 1, "evaluation__local_batch_size": 31}


def failure(folder: Path, data_dir: Path, ranks: int = 1, **overrides: Any) -> dict[str, Any]:
    run_dir = write_spec(folder / "run", make_spec(data_dir, ranks=ranks, **SMALL | overrides))
    assert train(run_dir, ranks) == 4
    told = sorted((run_dir / "logs").glob("failure-*.json"))
    found: dict[str, Any] = json.loads(told[0].read_text())
    assert "\n" not in found["message"]
    return found


def test_infinite_loss_ends_the_run_with_step_rank_and_rate(few_digits_dir: Path, tmp_path: Path) -> None:
    told = failure(
        tmp_path, few_digits_dir, ranks=2, precision="fp32",
        learning_rate={"rule": "constant", "value": 1e30, "batch_size": 1}, schedule__warmup_epochs=0,
    )  # fmt: skip
    assert told["step"] >= 1
    assert told["rank"] in (0, 1)
    assert told["learning_rate"] == pytest.approx(1e30, rel=0.5)
    assert f"at step {told['step']} on rank {told['rank']}" in told["message"]


def test_missing_data_folder(tmp_path: Path) -> None:
    assert f"{tmp_path}/nothing/train is missing" in failure(tmp_path, tmp_path / "nothing")["message"]


def test_broken_image_ends_the_run_or_is_left_out(few_digits_dir: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(few_digits_dir, root)
    (root / "train/3/note.jpg").write_text("this is no picture")
    assert "train/3/note.jpg" in failure(tmp_path, root)["message"]
    run_dir = write_spec(tmp_path / "skipping", make_spec(root, **SMALL | {"input__skip_broken_images": True}))
    assert train(run_dir) == 3
    record = RunRecord.model_validate_json((run_dir / "record.json").read_text())
    assert record.train_samples_per_epoch == 83


def test_classes_that_do_not_match_the_preset(few_digits_dir: Path, tmp_path: Path) -> None:
    assert (
        "10 training and 10 validation classes, the preset expects 7" in failure(tmp_path, few_digits_dir, classes=7)["message"]
    )


def test_backend_single_refuses_several_ranks(few_digits_dir: Path, tmp_path: Path) -> None:
    told = failure(tmp_path, few_digits_dir, ranks=2, communication__backend="single")
    assert "backend single has no way to join 2 ranks" in told["message"]


def test_horovod_that_does_not_load(few_digits_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Horovod built for another torch fails in the dynamic linker; here one stands first on the path that does the same."""
    package = tmp_path / "shadow" / "horovod" / "torch"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("raise ImportError('mpi_lib_v2.so: undefined symbol: _ZN5torch8autograd')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    told = failure(tmp_path, few_digits_dir)["message"]
    assert "Horovod does not load with torch" in told
    assert "python -m launch.horovod_build" in told
