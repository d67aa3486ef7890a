"""The commands report, compare, check and import as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from published_logs import DATA
from records import a_record, a_settings, write_records
from test_mlperf_writer import RUNS, write_run

from launch.cli import cli
from results.archive import load
from results.report.build import build_report
from results.rundir import RunDirectory
from results.yaml_file import ConfigurationError


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def refused(*arguments: str | Path) -> str:
    """Message of the one-line fault that a call ends with."""
    result = call(*arguments)
    assert isinstance(result.exception, ConfigurationError), result.output
    return str(result.exception)


def sweep(folder: Path, rail: str, minutes: dict[int, float], repeats: int = 5, **changes: object) -> Path:
    records = [
        a_record(nodes=nodes, minutes=value * (1 + 0.001 * repeat), interconnect=rail, repeat=repeat, **changes)  # type: ignore[arg-type]
        for nodes, value in minutes.items()
        for repeat in range(1, repeats + 1)
    ]
    return write_records(folder, records)


def test_report_prints_and_writes_all_formats(tmp_path: Path) -> None:
    runs = sweep(tmp_path / "runs", "edr-1", {1: 150, 2: 77})
    page, figures = tmp_path / "out" / "report.html", tmp_path / "figures"
    result = call("report", runs, "--html", page, "--figures", figures, "--against", "mlperf-v0.6")
    assert result.exit_code == 0, result.output
    assert "Base case: 1 node, 4 ranks: 150.45 min" in result.output
    assert "DGX-1" in result.output
    assert page.read_text().startswith("<!doctype html>")
    assert sorted(path.suffix for path in figures.iterdir()) == [".png"] * 3 + [".svg"] * 3
    document = json.loads(call("report", runs, "--json").output)
    assert document["curves"][0]["rows"][1]["speedup"] == pytest.approx(150 / 77)
    assert call("report", runs, "--format", "csv").output.startswith("workload,system,interconnect")
    assert call("report", runs, "--format", "markdown").output.startswith("# Scale-out of ResNet-50")
    call("report", runs, "--format", "markdown", "--output", tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text().startswith("# Scale-out of ResNet-50")


def test_report_refuses_clearly(tmp_path: Path) -> None:
    runs = write_records(tmp_path / "runs", [a_record()])
    (tmp_path / "file").write_text("")
    assert "no such folder" in refused("report", tmp_path / "none")
    assert "did you mean mlperf-v0.6-nvidia" in refused("report", runs, "--against", "mlperf-v0.6-nvidi")
    assert "cannot be written" in refused("report", runs, "--html", tmp_path / "file" / "page.html")
    assert call("report").exit_code == 2


def test_compare_interconnects_and_dates(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    sweep(runs, "edr-1", {1: 150, 2: 80})
    sweep(runs, "edr-2", {1: 150, 2: 76})
    result = call("compare", "edr-1", "edr-2", "--runs", runs, "--fail-below", "99")
    assert result.exit_code == 0, result.output
    assert "B is faster by 5.3%" in result.output  # 80 / 76
    assert "no difference shown" in result.output
    assert "Passed: B has at least 99%" in result.output
    slower = call("compare", "edr-2", "edr-1", "--runs", runs, "--fail-below", "99")
    assert slower.exit_code == 1
    assert "FAILED: B has less than 99% of A's speed in 1 of 2 rows" in slower.output
    assert call("compare", "edr-2", "edr-1", "--runs", runs).exit_code == 0, "without --fail-below a difference is no failure"
    after = sweep(tmp_path / "after", "edr-1", {1: 150, 2: 80})
    document = json.loads(call("compare", runs, after, "--json").output)
    assert document["matched_by"].startswith("workload, system, interconnect, settings")
    assert [pair["speed"] for pair in document["pairs"]] == [1.0, 1.0]


def test_compare_does_not_pass_for_want_of_a_score(tmp_path: Path) -> None:
    before = sweep(tmp_path / "before", "edr-1", {1: 150})
    after = sweep(tmp_path / "after", "edr-1", {1: 150}, status="target-missed")
    result = call("compare", before, after, "--fail-below", "50")
    assert result.exit_code == 1
    assert "B void: 5 of 5 runs missed the target" in " ".join(result.output.split())
    few = call("compare", before, sweep(tmp_path / "few", "edr-1", {1: 200}, repeats=2), "--fail-below", "90")
    assert few.exit_code == 1
    assert "no difference shown: 2 runs are too few" in " ".join(few.output.split())


def test_compare_systems_of_different_shape() -> None:
    """4xC4140 and a DGX-1 share a workload and, at 2 nodes, a number of GPUs; rounds differ, and this is said."""
    result = call("compare", "C4140", "C4140", "--runs", DATA)
    assert result.exit_code == 0
    assert result.output.count("no difference shown") == 3
    assert "have no workload and number of ranks in common" in refused("compare", "C4140", "dgx1_ngc19.05_mxnet", "--runs", DATA)


def test_compare_refuses_clearly(tmp_path: Path) -> None:
    runs = sweep(tmp_path / "runs", "edr-1", {1: 150})
    sweep(runs, "edr-2", {1: 151})
    assert "did you mean edr-1" in refused("compare", "edr-1", "edr-11", "--runs", runs)
    assert "use --runs" in refused("compare", "edr-1", "edr-2", "--runs", tmp_path / "none")
    failed = write_records(tmp_path / "failed", [a_record(status="failed")])
    assert "no run that counts" in refused("compare", runs, failed)
    other = write_records(tmp_path / "other", [a_record(interconnect="hdr-1")])
    assert "is ambiguous" in refused("compare", runs, other)


def run_directory(folder: Path, name: str, accuracy: object = None) -> Path:
    """A run directory with both logs and a record."""
    workload, settings, reached, _ = RUNS[name]
    write_records(folder, [a_record(workload=workload, settings=a_settings(workload, embedded=True))])
    (run,) = folder.iterdir()
    new, old = write_run(folder, workload, settings, reached if accuracy is None else accuracy)
    new.rename(RunDirectory(run).mlperf_log)
    old.rename(RunDirectory(run).mlperf_log_v06)
    return run


def test_check_of_both_rounds_and_what_a_submission_lacks(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_logging", reason="the compliance checker (package mlperf-logging) is not installed")
    run = run_directory(tmp_path / "runs", "ssd")
    for mlperf_round in ("1.0.0", "0.6.0"):
        result = call("check", run, "--round", mlperf_round)
        assert result.exit_code == 0, result.output
        assert f"SUCCESS by the rules of {mlperf_round}" in result.output
    for missing in ("digits is embedded", "repeats: 1 of 5", "submission_org", "systems/C4140.json", "README.md"):
        assert missing in result.output
    document = json.loads(call("check", run / "mlperf.log", "--json").output)
    assert document["compliant"] is True


def test_check_says_why_not(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_logging", reason="the compliance checker (package mlperf-logging) is not installed")
    run = run_directory(tmp_path / "runs", "ssd", accuracy=0.2299)
    result = call("check", run)
    assert result.exit_code == 1
    assert "NOT COMPLIANT" in result.output
    assert "eval_accuracy : v['value'] >= 0.230" in result.output
    assert "no rules for round 0.5.0" in refused("check", run, "--round", "0.5.0")
    assert "no such run directory" in refused("check", tmp_path / "none")
    assert "no mlperf.log there" in refused("check", tmp_path)


def test_import_brings_records_and_cut_down_logs(tmp_path: Path) -> None:
    runs = sweep(tmp_path / "there", "edr-1", {1: 150}, repeats=2)
    checkpoint = next(runs.iterdir()) / "checkpoints" / "latest.pt"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"x" * 1000)
    into = tmp_path / "runs"
    assert call("import", runs, "--into", into).output.startswith("2 added")
    assert not list(into.rglob("*.pt"))
    assert call("import", DATA, "--into", into).output.startswith("17 added")
    again = call("import", DATA, "--into", into)
    assert again.output.startswith("0 added")
    assert again.exit_code == 0
    before, after = (build_report(load([folder]), []) for folder in (DATA, into))
    scores = [
        sorted(
            (curve.workload, row.nodes, row.time_to_train_s)
            for curve in report.curves
            for row in curve.rows
            if curve.mlperf_round
        )
        for report in (before, after)
    ]
    assert scores[0] == scores[1]
    assert len(after.curves) == len(before.curves) + 1


def test_import_names_what_it_cannot_use(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    source.mkdir()
    (source / "result_0.txt").write_text("nothing")
    result = call("import", source, "--into", tmp_path / "runs")
    assert result.exit_code == 1
    assert "holds no MLPerf line" in result.output
    first = sweep(tmp_path / "first", "edr-1", {1: 150}, repeats=1)
    second = sweep(tmp_path / "second", "edr-1", {1: 140}, repeats=1)
    call("import", first, "--into", tmp_path / "runs")
    assert "is there already and differs" in call("import", second, "--into", tmp_path / "runs").output
