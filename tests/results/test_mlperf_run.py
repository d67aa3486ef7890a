"""From submitters' logs to figures; right values come from outside this project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published_logs import DATA, OLYMPIC_MINUTES, SHARED, TWO_RUNS, full_logs

from results.archive import load
from results.mlperf_run import SystemFile, UnusableLog, read_system_file, run_of_log
from results.scaling import curves, speedup

SSD = DATA / "v0.7/DellEMC/results/4xC4140/ssd/result_0.txt"


@full_logs
@pytest.mark.parametrize("folder", [*OLYMPIC_MINUTES, *TWO_RUNS])
def test_published_scores(folder: str) -> None:
    (curve,) = curves(load([SHARED / folder]).runs)
    (row,) = curve.rows
    if folder in TWO_RUNS:
        times, batch = TWO_RUNS[folder]
        assert [round(time_s / 60, 2) for time_s in row.score.times_s] == times
    else:
        minutes, batch = OLYMPIC_MINUTES[folder]
        assert round(row.score.value_s / 60, 4) == minutes
        assert row.score.runs == 5
    assert row.global_batch_size == batch


@pytest.mark.parametrize("folder", [folder for folder in OLYMPIC_MINUTES if (DATA / folder).is_dir() and "ssd" in folder])
def test_published_scores_of_the_cut_down_logs(folder: str) -> None:
    (curve,) = curves(load([DATA / folder]).runs)
    assert round(curve.rows[0].score.value_s / 60, 4) == OLYMPIC_MINUTES[folder][0]


@full_logs
def test_all_eleven_groups_and_the_c4140_speedups() -> None:
    archive = load([SHARED])
    assert archive.problems == []
    found = curves(archive.runs)
    assert sum(len(curve.rows) for curve in found) == 11
    ratios = {}
    for curve in found:
        if curve.series.system == "C4140" and curve.base:
            ratios[curve.series.workload] = [round((speedup(curve.base, row) or (0,))[0], 3) for row in curve.rows]
    assert ratios == {"resnet50": [1.0, 2.011, 3.863], "ssd": [1.0, 1.935, 3.527]}


@full_logs
def test_throughput_agrees_with_an_independent_reading() -> None:
    """Facts of others: 5,592, 11,240 and 22,146 images/s (median epochs) of the C4140, evaluation 6.6, 3.2 and 1.5 s each."""
    (curve,) = curves(
        load([SHARED / "v0.7/DellEMC/results" / system / "resnet" for system in ("C4140", "2xC4140", "4xC4140")]).runs
    )
    for row, expected in zip(curve.rows, (5592, 11240, 22146), strict=True):
        assert row.samples_per_s == pytest.approx(expected, rel=0.005)
    assert [row.epochs for row in curve.rows] == [40, 40, 41]
    assert [row.ranks for row in curve.rows] == [4, 8, 16]


def test_speedups_of_the_cut_down_logs() -> None:
    (curve,) = curves(load([DATA / "v0.7"]).runs)
    assert curve.scaling == "neither weak nor strong scaling"  # 128, 128 and 56 images per GPU
    assert curve.base is not None
    assert [round((speedup(curve.base, row) or (0,))[0], 3) for row in curve.rows] == [1.0, 1.935, 3.527]


def test_an_old_log_of_interleaved_ranks() -> None:
    """Eight init_start, accuracy as {"accuracy": {"BBOX", "SEGM"}}, evaluation beside the next epoch."""
    path = DATA / "v0.6/NVIDIA/results/dgx1_ngc19.05_pytorch/maskrcnn/result_0.txt"
    run = run_of_log(path)
    assert (run.workload, run.mlperf_round, run.ranks, run.epochs, run.status) == ("maskrcnn", "v0.6", 8, 13, "finished")
    assert run.metrics["box_ap"] == pytest.approx(0.3770, abs=1e-4)
    assert run.time_to_train_s == pytest.approx(192.93 * 60, abs=1)


def test_system_files_as_they_are() -> None:
    assert read_system_file(DATA / "v0.7/DellEMC/systems/2xC4140.json") == SystemFile(2, 4, "Nvidia Tesla V100-SXM2-32GB")
    assert read_system_file(DATA / "v0.6/NVIDIA/systems/dgx1_ngc19.05_mxnet.json") == SystemFile(1, 8, "Tesla V100-SXM2-16GB")
    assert read_system_file(DATA / "README.md") == SystemFile()
    assert read_system_file(DATA / "none.json") == SystemFile()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line[9:]) for line in path.read_text().splitlines()]


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f":::MLLOG {json.dumps(event)}\n" for event in events))
    return path


def changed(tmp_path: Path, key: str, **changes: Any) -> Path:
    """The SSD log with the events of one key changed."""
    return write(tmp_path / "result_0.txt", [event | changes if event["key"] == key else event for event in lines_of(SSD)])


@pytest.mark.parametrize("key", ["run_start", "run_stop"])
def test_no_start_or_stop(key: str, tmp_path: Path) -> None:
    path = write(tmp_path / "result_0.txt", [event for event in lines_of(SSD) if event["key"] != key])
    with pytest.raises(UnusableLog, match=f"{key} is missing"):
        run_of_log(path)


def test_negative_time(tmp_path: Path) -> None:
    start = next(event["time_ms"] for event in lines_of(SSD) if event["key"] == "run_start")
    events = [event for event in lines_of(SSD) if event["key"] in ("run_start", "submission_benchmark")]
    stop = next(event for event in lines_of(SSD) if event["key"] == "run_stop") | {"time_ms": start - 5000}
    with pytest.raises(UnusableLog, match=r"run_stop is 5\.000 s before run_start"):
        run_of_log(write(tmp_path / "r.txt", [*events, stop]))


def test_a_clock_that_jumps_back(tmp_path: Path) -> None:
    with pytest.raises(UnusableLog, match="the clock jumps back"):
        run_of_log(changed(tmp_path, "eval_accuracy", time_ms=1_000_000_000_000))


@pytest.mark.parametrize(
    ("value", "reason"), [(0.2299, "best accuracy is map 0.2299; the target is map 0.23"), (float("nan"), "map nan")]
)
def test_success_is_not_believed_below_the_target(value: float, reason: str, tmp_path: Path) -> None:
    run = run_of_log(changed(tmp_path, "eval_accuracy", value=value))
    assert run.status == "target-missed"
    assert reason in run.reason
    assert run.time_to_train_s is None


def test_aborted(tmp_path: Path) -> None:
    run = run_of_log(changed(tmp_path, "run_stop", metadata={"status": "aborted"}))
    assert run.status == "target-missed"
    assert "aborted" in run.reason


def test_no_epochs_leave_the_figures_empty(tmp_path: Path) -> None:
    path = write(
        tmp_path / "result_0.txt", [e for e in lines_of(SSD) if e["key"] not in ("epoch_start", "epoch_stop", "eval_stop")]
    )
    run = run_of_log(path)
    assert run.status == "finished"
    assert run.samples is None
    assert run.samples_time_s is None
    assert run.evaluation_s is None


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**400), 10**400) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["BBOX", "SEGM", "accuracy", "epoch_num"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_values_in_a_log_give_a_run_or_a_reason(tmp_path: Path, data: st.DataObject) -> None:
    events = lines_of(SSD)[-25:]
    start = next(event for event in lines_of(SSD) if event["key"] == "run_start")
    for _ in range(data.draw(st.integers(1, 6))):
        event = data.draw(st.sampled_from(events))
        event[data.draw(st.sampled_from(["value", "metadata", "time_ms", "key"]))] = data.draw(anything)
    try:
        run = run_of_log(write(tmp_path / "result_0.txt", [start, *events]))
    except UnusableLog:
        return
    assert run.time_to_train_s is None or 0 < run.time_to_train_s < 1e12
    curves([run])


def test_mixed_formats(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(SSD.read_text() + ':::MLL 1593183303.8 run_start: {"value": null, "metadata": {}}\n')
    with pytest.raises(UnusableLog, match="mixes lines"):
        run_of_log(path)
