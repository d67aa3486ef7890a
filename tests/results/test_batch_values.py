"""Hyperparameters that a preset has by global batch size: rows of one curve, and no override among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launch import catalog
from results.archive import load
from results.report.build import build_report
from tests.results.records import a_record, write_records


def ssd_record(nodes: int, minutes: float, **overrides: Any) -> Any:
    settings = catalog.settings("ssd", "mlperf-v0.6", overrides, ranks=4 * nodes)
    return a_record(workload="ssd", nodes=nodes, minutes=minutes, settings=settings)


def test_rows_with_published_values_share_a_curve(tmp_path: Path) -> None:
    records = [ssd_record(1, 250), ssd_record(2, 130), ssd_record(8, 50)]  # global batches 512, 1,024 and 4,096
    assert records[0].spec.settings.schedule.warmup_epochs == 5.2261
    assert (records[2].spec.settings.schedule.warmup_epochs, records[2].spec.settings.max_epochs) == (40, 100)
    report = build_report(load([write_records(tmp_path, records)]), [tmp_path])
    assert [[row.nodes for row in curve.rows] for curve in report.curves] == [[1, 2, 8]]


def test_a_batch_outside_the_table_shares_the_curve(tmp_path: Path) -> None:
    records = [ssd_record(1, 250), ssd_record(3, 100)]  # 1,536 is not in the table
    assert records[1].spec.settings.schedule.warmup_epochs == 5
    report = build_report(load([write_records(tmp_path, records)]), [tmp_path])
    assert [[row.nodes for row in curve.rows] for curve in report.curves] == [[1, 3]]


def test_an_override_stays_apart(tmp_path: Path) -> None:
    records = [ssd_record(1, 250), ssd_record(2, 130, **{"schedule.warmup_epochs": 9.0})]
    assert records[1].spec.settings.schedule.warmup_epochs == 9
    report = build_report(load([write_records(tmp_path, records)]), [tmp_path])
    assert sorted([row.nodes for row in curve.rows] for curve in report.curves) == [[1], [2]]


def test_unequal_images_are_told(tmp_path: Path) -> None:
    records = []
    for nodes, minutes, shares in ((1, 100, (0.02, 0.07)), (2, 60, (0.03, 0.11))):
        record = a_record(workload="maskrcnn", nodes=nodes, minutes=minutes, exposed_share=0.1, straggler_share=0.04)
        extra = {"imbalance": {"waiting_share": shares[0], "waiting_share_ungrouped": shares[1], "padding_share": 0.1}}
        records.append(record.model_copy(update={"extra": extra}))
    report = build_report(load([write_records(tmp_path, records)]), [tmp_path])
    (curve,) = report.curves
    assert "wait 3.0% of the computation (11.0% without grouping by aspect ratio)" in curve.rows[1].sentence
    assert "seen to wait 4.0% of the training time for the slowest" in curve.rows[1].sentence
