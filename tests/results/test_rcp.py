"""Reference convergence points: the same data and the same verdicts as MLCommons' own checker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from results.published import RCP_FILE
from results.rcp import judge, reference_points, rounds

CASES = [(mlperf_round, workload) for mlperf_round in rounds() for workload in yaml.safe_load(RCP_FILE.read_text())[mlperf_round]]
BENCHMARKS = {"resnet50": "resnet", "ssd": "ssd", "maskrcnn": "maskrcnn"}


@pytest.mark.parametrize(("mlperf_round", "workload"), CASES)
def test_points_are_those_of_the_checker(mlperf_round: str, workload: str) -> None:
    checker = pytest.importorskip("mlperf_logging.rcp_checker.rcp_checker", reason="package mlperf-logging is not installed")
    theirs = checker.RCP_Checker("training", f"{mlperf_round[1:]}.0", BENCHMARKS[workload], False)
    folder = Path(checker.__file__).parent / f"training_{mlperf_round[1:]}.0"
    raw = json.loads((folder / f"rcps_{BENCHMARKS[workload]}.json").read_text())
    ours = yaml.safe_load(RCP_FILE.read_text())[mlperf_round][workload]
    assert ours == {point["BS"]: point["Epochs to converge"] for point in raw.values()}
    pruned = {point["BS"]: (point["RCP Mean"], point["Min Epochs"]) for point in theirs.pruned_rcp_data.values()}
    found = {
        point.global_batch_size: (point.mean_epochs, point.least_epochs) for point in reference_points(mlperf_round, workload)
    }
    assert found.keys() == pruned.keys()
    for batch, (mean, least) in found.items():
        assert mean == pytest.approx(float(pruned[batch][0]))
        assert least == pytest.approx(float(pruned[batch][1]), abs=2e-4)  # theirs is a search with this tolerance


@pytest.mark.parametrize("batch", [1632, 2048, 6656, 13056, 40000])
@pytest.mark.parametrize("epochs", [[30] * 5, [34, 35, 35, 35, 36], [41] * 5, [70] * 5])
def test_verdicts_are_those_of_the_checker(batch: int, epochs: list[float], tmp_path: Path) -> None:
    checker = pytest.importorskip("mlperf_logging.rcp_checker.rcp_checker", reason="package mlperf-logging is not installed")
    for number, value in enumerate(epochs):
        events = [
            ("submission_benchmark", "resnet", {}),
            ("global_batch_size", batch, {}),
            ("eval_accuracy", 0.76, {"epoch_num": value}),
        ]
        events.append(("run_stop", None, {"status": "success"}))
        lines = [
            f":::MLLOG {json.dumps({'time_ms': 1, 'key': key, 'value': value, 'metadata': meta})}\n"
            for key, value, meta in events
        ]
        (tmp_path / f"result_{number}.txt").write_text("".join(lines))
    passed, _, _ = checker.check_directory(str(tmp_path), "training", "1.0.0", False, False, rcp_pass="pruned_rcps")
    verdict = judge("resnet50", batch, epochs)
    assert verdict is not None
    assert verdict.suspicious is not passed


def test_where_there_is_no_reference() -> None:
    assert judge("resnet50", 1632, []) is None
    assert judge("bert", 1632, [3.0]) is None
    beyond = judge("resnet50", 100_000, [90] * 5)
    assert beyond is not None
    assert (beyond.point, beyond.suspicious) == (None, False)
    smaller = judge("ssd", 512, [40] * 5)
    assert smaller is not None
    assert not smaller.suspicious


def test_two_runs_are_too_few_to_be_called_suspicious() -> None:
    few, enough = judge("resnet50", 1632, [30, 30]), judge("resnet50", 1632, [30, 30, 30])
    assert few is not None
    assert enough is not None
    assert (few.suspicious, enough.suspicious) == (False, True)
