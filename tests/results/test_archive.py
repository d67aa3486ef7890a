"""What lies in a folder of runs, usable or not: each fault has a clear answer and the rest goes on."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from published_logs import DATA
from records import a_host, a_record, write_records

from results import archive as archive_module
from results.archive import UnusableRecord, load, load_record, migrate
from results.record import SCHEMA_VERSION
from results.report.build import build_report
from results.report.content import Report
from results.scaling import curves
from results.yaml_file import ConfigurationError


def report_of(folder: Path) -> Report:
    return build_report(load([folder]), [folder])


def put(folder: Path, **changes: Any) -> Path:
    """A run directory whose record has these top-level values."""
    folder.mkdir(parents=True)
    document = json.loads(a_record().model_dump_json()) | changes
    (folder / "record.json").write_text(json.dumps(document))
    return folder


def test_an_empty_folder_and_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no run found"):
        load([tmp_path])
    with pytest.raises(ConfigurationError, match="no such folder or file"):
        load([tmp_path / "none"])


def test_what_is_found_twice_counts_once(tmp_path: Path) -> None:
    write_records(tmp_path / "runs", [a_record()])
    (tmp_path / "again").symlink_to(tmp_path / "runs")
    assert len(load([tmp_path, tmp_path / "runs"]).runs) == 1


def test_a_run_directory_hides_its_own_logs(tmp_path: Path) -> None:
    write_records(tmp_path, [a_record()])
    log = DATA / "v0.7/DellEMC/results/C4140/ssd/result_0.txt"
    (tmp_path / "resnet50-1n-edr-1-1" / "mlperf.log").write_bytes(log.read_bytes())
    assert [run.origin for run in load([tmp_path]).runs] == ["record"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "is newer than this trainscale reads"),
        ({"time_to_train_s": 0}, "time to train of 0"),
        ({"time_to_train_s": -5}, "time_to_train_s: Input should be greater than or equal to 0"),
        ({"time_to_train_s": "NaN"}, "time_to_train_s"),
        ({"time_to_train_s": None}, "time to train of None"),
        ({"stopped_at": "2020-01-01T00:00:00Z"}, "the clock jumps"),
        ({"evaluations": []}, "no evaluation reached the target"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_records_that_cannot_be(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    put(tmp_path / "bad", **changes)
    put(tmp_path / "good")
    archive = load([tmp_path])
    assert len(archive.runs) == 1
    (problem,) = archive.problems
    assert reason in problem.reason
    assert problem.source == tmp_path / "bad" / "record.json"


def test_an_accuracy_that_is_not_a_number(tmp_path: Path) -> None:
    document = json.loads(a_record().model_dump_json())
    document["evaluations"][-1]["metrics"]["accuracy"] = "NaN"
    put(tmp_path / "bad", evaluations=document["evaluations"])
    assert "not a number" in load([tmp_path]).problems[0].reason


@pytest.mark.parametrize("data", [b"", b"{", b"[1, 2]", b"\xff\xfe", b'{"schema_version": 1}'])
def test_files_that_are_no_records(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_bytes(data)
    (problem,) = load([tmp_path]).problems
    assert problem.reason.startswith("not ")


def test_nan_losses_survive_in_a_record(tmp_path: Path) -> None:
    """A run that failed for a NaN loss must still be readable."""
    record = a_record(status="failed")
    epoch = record.epochs[-1].model_copy(update={"loss": float("nan")})
    path = tmp_path / "record.json"
    path.write_text(record.model_copy(update={"epochs": [epoch]}).model_dump_json())
    assert str(load_record(path).epochs[0].loss) == "nan"
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_an_older_record_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1 is the first, so the step is one that this test brings along."""

    def from_zero(document: dict[str, Any]) -> dict[str, Any]:
        return document | {"schema_version": 1, "restarts": document.pop("interruptions")}

    monkeypatch.setattr(archive_module, "MIGRATIONS", {0: from_zero})
    document = json.loads(a_record().model_dump_json()) | {"schema_version": 0, "interruptions": 3}
    del document["restarts"]
    path = tmp_path / "record.json"
    path.write_text(json.dumps(document))
    assert load_record(path).restarts == 3
    monkeypatch.setattr(archive_module, "MIGRATIONS", {})
    with pytest.raises(UnusableRecord):
        load_record(path)
    assert migrate({"schema_version": 1}) == {"schema_version": 1}


def test_ten_megabytes_of_noise(tmp_path: Path) -> None:
    noise = random.Random(5).randbytes(10_000_000)
    (tmp_path / "result_0.txt").write_bytes(noise)
    (tmp_path / "something.txt").write_bytes(noise)
    archive = load([tmp_path])
    assert [problem.source.name for problem in archive.problems] == ["result_0.txt"]
    assert "holds no MLPerf line" in archive.problems[0].reason
    assert "holds no MLPerf line" in load([tmp_path / "something.txt"]).problems[0].reason


def test_logs_in_gzip(tmp_path: Path) -> None:
    folder = tmp_path / "C4140" / "ssd"
    folder.mkdir(parents=True)
    for number in range(5):
        log = DATA / f"v0.7/DellEMC/results/C4140/ssd/result_{number}.txt"
        (folder / f"result_{number}.txt.gz").write_bytes(gzip.compress(log.read_bytes().replace(b"\n", b"\r\n")))
    (curve,) = curves(load([tmp_path]).runs)
    assert round(curve.rows[0].score.value_s / 60, 4) == 43.8716


def test_mixed_rounds_are_kept_apart_and_said(tmp_path: Path) -> None:
    report = report_of(DATA)
    assert {curve.mlperf_round for curve in report.curves} == {"v0.6", "v0.7"}
    assert any("different MLPerf rounds" in remark for remark in report.remarks)


def test_different_machines_under_one_name(tmp_path: Path) -> None:
    write_records(tmp_path, [a_record(), a_record(minutes=100, repeat=2, host=a_host(cpu="AMD EPYC 7742"))])
    report = report_of(tmp_path)
    assert len(report.curves) == 2
    assert any("C4140 come from different machines" in remark for remark in report.remarks)
    assert {"AMD EPYC" in curve.title for curve in report.curves} == {True, False}


def test_one_run_only(tmp_path: Path) -> None:
    report = report_of(write_records(tmp_path, [a_record()]))
    (row,) = report.curves[0].rows
    assert (row.score_kind, row.runs, row.speedup, row.speedup_low) == ("plain mean", 1, 1.0, None)
    assert any("fewer than three runs" in remark for remark in report.remarks)


def test_the_base_case_is_missing(tmp_path: Path) -> None:
    report = report_of(write_records(tmp_path, [a_record(nodes=2), a_record(nodes=4)]))
    (curve,) = report.curves
    assert "Add: trainscale run resnet50 --nodes 1 --interconnect edr-1" in curve.base_sentence
    assert all(row.speedup is None for row in curve.rows)


def test_a_run_without_a_record_is_named(tmp_path: Path) -> None:
    write_records(tmp_path, [a_record()])
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "spec.json").write_text("{}")
    assert [(source, reason.split(":")[0]) for source, reason in report_of(tmp_path).problems] == [
        (str(tmp_path / "started"), "no record yet")
    ]


def test_a_folder_that_cannot_be_read_is_no_crash(tmp_path: Path) -> None:
    write_records(tmp_path, [a_record()])
    (tmp_path / "resnet50-1n-edr-1-1" / "record.json").unlink()
    (tmp_path / "resnet50-1n-edr-1-1" / "record.json").mkdir()
    assert "cannot be read" in load([tmp_path]).problems[0].reason
