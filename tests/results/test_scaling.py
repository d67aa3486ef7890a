"""Rows and curves: what belongs together, what is weak and what is strong."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from records import a_host, a_record, a_settings

from results.record import RunRecord
from results.run import Run, SettingsTable, run_of_record
from results.scaling import Curve, curves, speedup


def runs_of(*records: RunRecord) -> list[Run]:
    table = SettingsTable()
    return [run_of_record(record, Path(f"run-{number}"), table) for number, record in enumerate(records)]


def counted(*records: RunRecord) -> list[Curve]:
    return curves(run for run in runs_of(*records) if run.counts)


def batches(local: int, **changes: Any) -> Any:
    return a_settings(local_batch_size=local, **changes)


def test_weak_strong_and_neither() -> None:
    weak = counted(a_record(nodes=1), a_record(nodes=2, minutes=75))
    strong = counted(a_record(nodes=1), a_record(nodes=2, minutes=75, settings=batches(104)))
    neither = counted(a_record(nodes=1), a_record(nodes=2, minutes=75, settings=batches(56)))
    assert [curve.scaling for curve in (*weak, *strong, *neither)] == [
        "weak scaling", "strong scaling", "neither weak nor strong scaling",
    ]  # fmt: skip


def test_a_weak_and_a_strong_sweep_share_their_base() -> None:
    found = counted(
        a_record(nodes=1),
        a_record(nodes=2, minutes=76), a_record(nodes=4, minutes=40),
        a_record(nodes=2, minutes=78, settings=batches(104)),
        a_record(nodes=4, minutes=44, settings=batches(52)),
    )  # fmt: skip
    assert sorted(curve.scaling for curve in found) == ["strong scaling", "weak scaling"]
    assert [[row.nodes for row in curve.rows] for curve in found] == [[1, 2, 4], [1, 2, 4]]
    assert all(curve.base is not None for curve in found)


@pytest.mark.parametrize(
    "other",
    [
        {"interconnect": "edr-2"}, {"system": "other"}, {"settings": a_settings(precision="bf16")}, {"emulated": True},
        {"host": a_host(cpu="AMD EPYC 7742")}, {"ranks_per_node": 2}, {"settings": a_settings(embedded=True)},
    ],
    ids=str,
)  # fmt: skip
def test_runs_that_differ_are_never_in_one_curve(other: dict[str, Any]) -> None:
    assert len(counted(a_record(), a_record())) == 1
    assert len(counted(a_record(), a_record(**other))) == 2


def test_failed_runs_and_runs_on_other_rails_do_not_count() -> None:
    (curve,) = counted(
        a_record(minutes=100), a_record(minutes=60, status="failed"), a_record(minutes=60, status="interrupted"),
        a_record(minutes=50, rails="rails-differ"),
    )  # fmt: skip
    assert [run.time_to_train_s for run in curve.rows[0].runs] == [6000]


def test_a_missed_target_counts_as_infinitely_slow() -> None:
    slow = [a_record(minutes=100 + n) for n in range(4)]
    (curve,) = counted(*slow, a_record(minutes=100, status="target-missed"))
    assert curve.rows[0].score.missed == 1
    assert curve.rows[0].score.value_s == 102 * 60  # 101, 102, 103


def test_figures_of_a_row_are_those_of_the_runs_that_its_score_keeps() -> None:
    records = [a_record(minutes=m, epochs=e, samples_per_s=x) for m, e, x in ((150, 35, 5400), (160, 36, 5500), (200, 50, 5600))]
    (curve,) = counted(*records)
    row = curve.rows[0]
    assert row.score.value_s == 160 * 60
    assert row.epochs == 36
    assert row.samples_per_s == pytest.approx(5500)


def test_rates_are_total_samples_over_total_seconds() -> None:
    """Hoefler and Belli's rule 3: never a mean of rates."""
    (curve,) = counted(a_record(minutes=400, samples_per_s=2000), a_record(minutes=400, samples_per_s=6000))
    assert curve.rows[0].samples_per_s == pytest.approx(2 / (1 / 2000 + 1 / 6000))


def test_the_order_of_runs_changes_nothing() -> None:
    records = [a_record(nodes=n, minutes=160 / n + r, repeat=r) for n in (1, 2, 4) for r in range(1, 6)]
    runs = runs_of(*records)
    first = curves(runs)
    for seed in range(5):
        random.Random(seed).shuffle(runs)
        assert curves(runs) == first


def test_a_speedup_over_itself_is_one_and_none_without_a_score() -> None:
    (curve,) = counted(a_record(), a_record(nodes=2, minutes=75, status="target-missed"))
    assert curve.base is not None
    assert speedup(curve.base, curve.base) == (1.0, None)
    assert speedup(curve.base, curve.rows[1]) is None


def test_no_base_case() -> None:
    (curve,) = counted(a_record(nodes=2, minutes=75), a_record(nodes=4, minutes=40))
    assert curve.base is None
