"""A run that was killed and resumed has the loss curve of one that was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from results import events
from results.record import RunRecord
from tests.training.support import make_spec, train, write_spec

OPTIONS = {
    "image_size": 32, "local_batch_size": 16, "precision": "fp32", "max_epochs": 4, "evaluation__local_batch_size": 31,
    "quality_target": {"accuracy": 1.01},
}  # fmt: skip


def losses(record: RunRecord) -> list[float]:
    return [figures.loss for figures in record.epochs]


@pytest.mark.parametrize(("ranks", "source"), [(2, "dali"), (1, "torch")])
def test_resumed_run_equals_an_uninterrupted_one(few_digits_dir: Path, tmp_path: Path, ranks: int, source: str) -> None:
    spec = make_spec(few_digits_dir, ranks=ranks, input__source=source, **OPTIONS)
    whole = write_spec(tmp_path / "whole", spec)
    assert train(whole, ranks) == 3  # the target cannot be reached
    expected = RunRecord.model_validate_json((whole / "record.json").read_text())
    assert expected.status == "target-missed"
    assert len(expected.epochs) == 4

    # What a run leaves that is killed in its third epoch: the checkpoint of the second, and events up to the third. (The
    # preset names the end of its learning rate decay, so a shorter run has the same schedule.)
    cut = tmp_path / "cut"
    short = write_spec(cut, make_spec(few_digits_dir, ranks=ranks, input__source=source, **OPTIONS | {"max_epochs": 2}))
    assert train(short, ranks) == 3
    (cut / "record.json").unlink()
    events.append(cut, "progress", epoch=3)
    shutil.copy(whole / "spec.json", cut / "spec.json")
    assert train(cut, ranks) == 3
    resumed = RunRecord.model_validate_json((cut / "record.json").read_text())

    assert losses(resumed) == losses(expected)
    assert [e.metrics for e in resumed.evaluations] == [e.metrics for e in expected.evaluations]
    assert resumed.restarts == 1
    accounts = resumed.accounts
    assert accounts.restart_s > 0
    # The last evaluation's stamp has everything in it but the checkpoint that followed.
    before_s = accounts.restart_s + sum(epoch.seconds_s for epoch in resumed.epochs)
    assert before_s < resumed.evaluations[-1].elapsed_s <= accounts.on_the_clock_s


def test_a_damaged_checkpoint_is_named(few_digits_dir: Path, tmp_path: Path) -> None:
    run_dir = write_spec(tmp_path / "run", make_spec(few_digits_dir, **OPTIONS | {"max_epochs": 1}))
    (run_dir / "checkpoints").mkdir()
    (run_dir / "checkpoints" / "latest.pt").write_bytes(b"no checkpoint")
    events.append(run_dir, "run_start")
    assert train(run_dir) == 4
    failure = json.loads((run_dir / "logs" / "failure-00000.json").read_text())
    assert "latest.pt: not a readable checkpoint" in failure["message"]
