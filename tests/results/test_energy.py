"""The energy of GPU boards in reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from records import a_record, write_records

from results.archive import load
from results.record import EnergyFigures, GpuEnergy, RunRecord
from results.report import cells, markdown, terminal
from results.report.build import build_report
from results.report.content import Report


def report_of(folder: Path, records: Sequence[RunRecord]) -> Report:
    write_records(folder, records)
    return build_report(load([folder]), [folder])


def with_energy(nodes: int, repeat: int, power_per_gpu_w: float, samples_per_s: float) -> RunRecord:
    record = a_record(nodes=nodes, repeat=repeat, minutes=150 / nodes, epochs=30, samples_per_s=samples_per_s)
    seconds_s = record.accounts.on_the_clock_s
    boards = [
        GpuEnergy(host=f"node{node}", gpu=f"GPU-{index}", energy_j=power_per_gpu_w * seconds_s)
        for node in range(nodes)
        for index in range(4)
    ]
    return record.model_copy(update={"gpu_boards": EnergyFigures(seconds_s=seconds_s, boards=boards)})


def test_the_report_shows_energy_where_it_was_measured(tmp_path: Path) -> None:
    """By hand: 4 boards at 250 W for 150 minutes are 9,000 kJ; 30 epochs of 1,281,167 images over that are 4.27 images/J."""
    measured = [with_energy(1, repeat, 250.0, 5_000.0) for repeat in (1, 2, 3)]
    without = [a_record(nodes=2, repeat=repeat, minutes=75, epochs=30, samples_per_s=10_000.0) for repeat in (1, 2, 3)]
    report = report_of(tmp_path / "both", [*measured, *without])
    (curve,) = report.curves
    assert cells.energy_table(curve).rows == [["1", "832", "9,000.0", "250", "4.27"]]
    for text in (terminal.render(report), markdown.render(report)):
        assert "no processors, network or cooling" in text
        assert "9,000.0" in text
    row = curve.rows[0]
    assert row.gpu_energy_j == pytest.approx(9e6)
    assert row.images_per_j == pytest.approx(30 * 1_281_167 / 9e6)
    assert curve.rows[1].gpu_energy_j is None
    nothing = terminal.render(report_of(tmp_path / "other", without))
    assert "GPU boards" not in nothing
