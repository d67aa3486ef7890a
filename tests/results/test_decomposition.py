"""The three factors multiply to the speedup, the points add up to what is lost, and each loss is named for what it is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import a_record, a_settings
from test_scaling import counted

from results.archive import load
from results.decomposition import allreduce_time_s, compare_row, log_mean
from results.explain import base_sentence, sentence
from results.fabric import AllreducePoint
from results.record import RunRecord
from results.scaling import curves

DATA = Path(__file__).parent / "data"


def compared(base: RunRecord, other: RunRecord):  # type: ignore[no-untyped-def]
    (curve,) = counted(base, other)
    row = curve.rows[-1]
    found = compare_row(curve, row)
    assert found is not None
    return curve, row, found


def test_epochs_alone() -> None:
    """Eight nodes, eight times the rate, 45 epochs against 35: 35/45 of the ideal, whatever the interconnect."""
    base = a_record(minutes=35 * 1_281_167 / 5500 / 60, samples_per_s=5500)
    other = a_record(nodes=8, minutes=45 * 1_281_167 / 44000 / 60, epochs=45, samples_per_s=44000)
    curve, row, found = compared(base, other)
    assert found.factors is not None
    assert found.factors.throughput == pytest.approx(8)
    assert found.factors.epochs == pytest.approx(35 / 45)
    assert found.factors.overhead == pytest.approx(1)
    assert found.points["epochs"] == pytest.approx(100 * (1 - 35 / 45))
    assert found.lost_points == pytest.approx(100 * (1 - 35 / 45))
    assert "22 points lost are epochs: global batch 6656 needs 45 epochs against 35; no interconnect changes that" in sentence(
        curve, row, found
    )


def test_the_published_eight_node_curve() -> None:
    """Dell R750xa, MLPerf v1.1, ResNet-50: 62.95 and 10.59 minutes, 35 and 45 epochs: 5.94x, 7.64x of it but for the epochs."""
    base = a_record(minutes=62.95, samples_per_s=35 * 1_281_167 / (62.95 * 60))
    other = a_record(nodes=8, minutes=10.59, epochs=45, samples_per_s=45 * 1_281_167 / (10.59 * 60))
    _, _, found = compared(base, other)
    assert found.speedup == pytest.approx(5.94, abs=0.005)
    assert found.factors is not None
    assert found.factors.throughput == pytest.approx(7.64, abs=0.005)


@pytest.mark.parametrize(
    ("waits", "cause", "words"),
    [
        ({"exposed_share": 0.2}, "exposed communication", "a faster interconnect"),
        ({"exposed_share": 0.2, "straggler_share": 0.2}, "stragglers", "for the slowest rank, most often on node1"),
        ({"input_wait_share": 0.2}, "input wait", "more input threads"),
        ({}, "compute", "compare clocks"),
    ],
)
def test_inside_throughput(waits: dict[str, float], cause: str, words: str) -> None:
    """A rate of 80% of the ideal, and the ranks waiting for a fifth of the time: all of the loss is that wait."""
    time_s = 35 * 1_281_167 / 5500
    base = a_record(minutes=time_s / 60, samples_per_s=5500)
    other = a_record(nodes=2, minutes=time_s / 1.6 / 60, samples_per_s=8800, **waits)
    curve, row, found = compared(base, other)
    assert found.points[cause] == pytest.approx(20)  # type: ignore[index]
    assert sum(abs(value) for value in found.points.values()) == pytest.approx(20)
    assert f"20 points lost are {cause}" in sentence(curve, row, found)
    assert words in sentence(curve, row, found)


def test_evaluation_that_does_not_scale() -> None:
    base = a_record(minutes=200, epochs=30, samples_per_s=5500, evaluation_share=1.0)
    rest_s = 200 * 60 - 30 * 1_281_167 / 5500
    other = a_record(
        nodes=4, minutes=(30 * 1_281_167 / 22000 + rest_s) / 60, epochs=30, samples_per_s=22000, evaluation_share=1.0
    )
    curve, row, found = compared(base, other)
    assert max(found.points, key=lambda cause: found.points[cause]) == "evaluation"
    assert found.points["evaluation"] == pytest.approx(found.lost_points)
    assert found.bounds.amdahl == pytest.approx(found.speedup), "a serial part is all that is lost, so Amdahl's bound is reached"
    assert "evaluation" in sentence(curve, row, found)


def test_restarts_are_named() -> None:
    time_s = 35 * 1_281_167 / 5500
    other = a_record(nodes=2, minutes=time_s / 2 / 60 + 20, samples_per_s=11000, restart_s=20 * 60)
    curve, row, found = compared(a_record(minutes=time_s / 60, samples_per_s=5500), other)
    assert found.points["restarts"] == pytest.approx(found.lost_points)
    assert "restarts" in sentence(curve, row, found)


def test_local_batch_is_named_where_compute_suffers() -> None:
    time_s = 35 * 1_281_167 / 5500
    other = a_record(nodes=2, minutes=time_s / 1.5 / 60, samples_per_s=8250, settings=a_settings(local_batch_size=104))
    curve, row, found = compared(a_record(minutes=time_s / 60, samples_per_s=5500), other)
    assert "a local batch of 104 uses a rank less well than one of 208" in sentence(curve, row, found)


rates = st.floats(min_value=0.3, max_value=1.2)
shares = st.floats(min_value=0.0, max_value=0.3)


@settings(max_examples=60)
@given(
    nodes=st.sampled_from([2, 4, 8]),
    rate=rates,
    epochs=st.integers(20, 80),
    rest=st.floats(0, 2000),
    waits=st.tuples(shares, shares, shares),
)
def test_factors_multiply_and_points_add_up(
    nodes: int, rate: float, epochs: int, rest: float, waits: tuple[float, float, float]
) -> None:
    base = a_record(minutes=35 * 1_281_167 / 5500 / 60 + 5, exposed_share=0.01, input_wait_share=0.02)
    per_s = 5500 * nodes * rate
    other = a_record(
        nodes=nodes, epochs=epochs, samples_per_s=per_s, minutes=(epochs * 1_281_167 / per_s + rest) / 60 + 1e-6,
        input_wait_share=waits[0], exposed_share=waits[1], straggler_share=waits[1] * waits[2], restart_s=rest / 4,
    )  # fmt: skip
    _, _, found = compared(base, other)
    assert found.factors is not None
    assert found.factors.throughput * found.factors.epochs * found.factors.overhead == pytest.approx(found.speedup)
    assert sum(found.points.values()) == pytest.approx(found.lost_points, abs=1e-6)
    assert found.bounds.amdahl is not None


def test_points_add_up_on_published_logs() -> None:
    (curve,) = curves(load([DATA / "v0.7"]).runs)
    for row in curve.rows[1:]:
        found = compare_row(curve, row)
        assert found is not None
        assert found.factors is not None
        assert sum(found.points.values()) == pytest.approx(found.lost_points, abs=1e-6)
        assert math.prod((found.factors.throughput, found.factors.epochs, found.factors.overhead)) == pytest.approx(found.speedup)


def test_log_mean() -> None:
    assert log_mean(1, 1) == 1
    assert log_mean(1, 2) == pytest.approx(1 / math.log(2))
    assert log_mean(3.0, 3.0 + 1e-13) == pytest.approx(3)


def points(*pairs: tuple[int, float]) -> list[AllreducePoint]:
    return [AllreducePoint(size_bytes=size, seconds_s=time, fastest_s=time, slowest_s=time, iterations=9) for size, time in pairs]


def test_allreduce_between_and_beyond_measured_sizes() -> None:
    measured = points((2_000_000, 0.02), (1_000_000, 0.01))
    assert [allreduce_time_s(measured, size) for size in (1_500_000, 1000, 4_000_000)] == pytest.approx([0.015, 0.01, 0.04])


def test_communication_bound() -> None:
    """102 MB of gradients in 0.6 s a step of 1,664 images is 2,773 images/s: half of what one node does without a fabric."""
    time_s = 35 * 1_281_167 / 5500
    (curve,) = counted(
        a_record(minutes=time_s / 60, samples_per_s=5500), a_record(nodes=2, minutes=time_s / 60 * 2, samples_per_s=2750)
    )
    slow = compare_row(curve, curve.rows[1], points((25_557_032 * 4, 0.6)))
    fast = compare_row(curve, curve.rows[1], points((25_557_032 * 4, 0.001)))
    assert slow is not None
    assert fast is not None
    assert slow.bounds.communication == pytest.approx(1664 / 0.6 / 5500)
    assert fast.bounds.communication == fast.bounds.amdahl
    assert slow.speedup < slow.bounds.communication  # type: ignore[operator]


def test_base_case_in_words_or_which_run_to_add() -> None:
    (with_base,) = counted(a_record(minutes=154.04, samples_per_s=5592))
    assert base_sentence(with_base) == "Base case: 1 node, 4 ranks: 154.04 min, 5,592 images/s."
    (without,) = counted(a_record(nodes=2, interconnect="edr-2"))
    assert "Add: trainscale run resnet50 --nodes 1 --interconnect edr-2" in base_sentence(without)
