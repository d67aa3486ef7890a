"""Bandwidths as nccl-tests prints them, the fit, and the acceptance check."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import fabric
from results.fabric import AllreducePoint, Expectation, FabricMeasurement, FabricResult, Fit, PointToPoint
from results.rails import AskedRails, RailSample
from results.record import RailEvidence
from results.report import fabric as report


def point(size_bytes: int, seconds_s: float) -> AllreducePoint:
    return AllreducePoint(size_bytes=size_bytes, seconds_s=seconds_s, fastest_s=seconds_s, slowest_s=seconds_s, iterations=3)


def measurement(points: list[AllreducePoint], hosts: list[str], pairs: list[PointToPoint] | None = None) -> FabricMeasurement:
    return FabricMeasurement(
        started_at="2026-12-01T00:00:00+00:00",
        ranks=len(hosts),
        hosts=hosts,
        device="cpu",
        operations="mpi",
        mpi="Open MPI v5.0.11",
        allreduce=points,
        point_to_point=pairs or [],
        least_exchange_bytes=1,
        before=RailSample(nodes=[]),
        after=RailSample(nodes=[]),
    )


def result(points: list[AllreducePoint], expectation: Expectation | None, verdict: str = "as-asked") -> FabricResult:
    found = measurement(
        points, ["node01", "node02"], [PointToPoint(hosts=("node01", "node02"), size_bytes=8, latency_s=1e-5, bits_per_s=6e6)]
    )
    return FabricResult(
        interconnect="emulated-1",
        emulated_nodes=True,
        command=["mpirun"],
        asked=AskedRails(source="interface-counters", devices=["ib0"]),
        measurement=found,
        evidence=RailEvidence.model_validate({"verdict": verdict, "reason": "why"}),
        fit=fabric.allreduce_fit(found),
        expectation=expectation,
    )


@pytest.mark.parametrize(
    ("size_bytes", "time_us", "algbw_gbyte_per_s", "busbw_gbyte_per_s"),
    [  # all_reduce_perf on 8 GPUs: https://github.com/kvcache-ai/Mooncake/pull/3484
        (8388608, 81.16, 103.36, 180.88),
        (33554432, 195.40, 171.72, 300.51),
        (524288, 20.39, 25.71, 45.00),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(
    size_bytes: int, time_us: float, algbw_gbyte_per_s: float, busbw_gbyte_per_s: float
) -> None:
    measured = point(size_bytes, time_us * 1e-6)
    assert measured.algbw_bits_per_s / 8e9 == pytest.approx(algbw_gbyte_per_s, rel=2e-4)
    assert measured.busbw_bits_per_s(8) / 8e9 == pytest.approx(busbw_gbyte_per_s, rel=2e-4)


def test_two_ranks_have_equal_algbw_and_busbw() -> None:
    assert point(1000, 1.0).busbw_bits_per_s(2) == point(1000, 1.0).algbw_bits_per_s


@given(latency_s=st.floats(1e-6, 1e-2), gbit_per_s=st.floats(0.01, 400), factor=st.sampled_from([1.0, 1.5, 1.75]))
def test_the_fit_finds_the_line_that_made_the_times(latency_s: float, gbit_per_s: float, factor: float) -> None:
    sizes = [4096 * 4**step for step in range(9)]
    times = [latency_s + 8 * size * factor / (gbit_per_s * 1e9) for size in sizes]
    fitted = fabric.fit(sizes, times, factor=factor)
    assert fitted is not None
    assert fitted.latency_s == pytest.approx(latency_s, rel=1e-3)
    assert fitted.bits_per_s == pytest.approx(gbit_per_s * 1e9, rel=1e-3)
    assert fitted.relative_error < 1e-3


def test_the_fit_is_the_weighted_least_squares_of_numpy() -> None:
    import numpy as np

    generator = random.Random(1)
    sizes = [4096 * 4**step for step in range(8)]
    times = [(5e-4 + 8 * size / 2e8) * generator.uniform(0.9, 1.1) for size in sizes]
    weights = 1 / np.sqrt(times)
    design = np.column_stack([weights, weights * np.array(sizes)])
    (latency_s, per_byte_s), *_ = np.linalg.lstsq(design, weights * np.array(times), rcond=None)
    fitted = fabric.fit(sizes, times)
    assert fitted is not None
    assert fitted.latency_s == pytest.approx(latency_s)
    assert fitted.bits_per_s == pytest.approx(8 / per_byte_s)


def test_a_fit_never_has_a_negative_latency() -> None:
    fitted = fabric.fit([1000, 2000, 4000], [0.5, 2.0, 5.0])
    assert fitted is not None
    assert fitted.latency_s == 0


def test_no_fit_through_one_size_or_falling_times() -> None:
    assert fabric.fit([4096], [1.0]) is None
    assert fabric.fit([4096, 4096], [1.0, 1.1]) is None


def test_the_check_looks_at_bulk_sizes() -> None:
    # 64 KiB passed through the shaper's burst, faster than the line; 25 MiB tells the truth.
    points = [point(65536, 65536 * 8 / 400e6), point(26214400, 26214400 * 8 / 100e6)]
    outcome, line = result(points, Expectation(share=0.9, line_rate_bits_per_s=200e6, rails=1)).outcome
    assert outcome == "failed"
    assert "50.0% of 1 x 200 Mbit/s" in line


@pytest.mark.parametrize(("rate", "outcome"), [(181e6, "passed"), (179e6, "failed")])
def test_the_check_passes_at_the_share(rate: float, outcome: str) -> None:
    found = result([point(26214400, 26214400 * 8 / rate)], Expectation(share=0.9, line_rate_bits_per_s=200e6, rails=1))
    assert found.outcome[0] == outcome


def test_rails_count_in_the_line_rate() -> None:
    found = result([point(26214400, 26214400 * 8 / 300e6)], Expectation(share=0.9, line_rate_bits_per_s=200e6, rails=2))
    assert found.outcome[0] == "failed"


def test_other_rails_than_asked_fail_the_check() -> None:
    found = result([point(26214400, 0.1)], Expectation(share=0.9, line_rate_bits_per_s=200e6, rails=1), "rails-differ")
    assert found.outcome == ("failed", "the rails differ: why")


def test_without_an_expectation_nothing_is_judged() -> None:
    assert result([point(26214400, 1.0)], None).outcome[0] == "not-asked"


def test_a_result_survives_the_disk() -> None:
    found = result([point(4096, 1e-3), point(8192, 2e-3)], Expectation(share=0.9, line_rate_bits_per_s=2e8, rails=1))
    assert FabricResult.model_validate_json(found.model_dump_json()) == found


def test_the_table_fits_a_terminal_and_says_emulated() -> None:
    found = result([point(4096, 1e-3), point(26214400, 1.1)], Expectation(share=0.9, line_rate_bits_per_s=2e8, rails=1))
    text = report.render(found)
    assert max(len(line) for line in text.splitlines()) <= report.WIDTH
    assert "EMULATED" in text
    for word in ("25 MiB", "191 Mbit/s", "node01 - node02", "as-asked", "Passed: busbw 191 Mbit/s", "10 us"):
        assert word in text


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "fabric.svg"
    report.draw(
        result([point(4096, 1e-3), point(26214400, 1.1)], Expectation(share=0.9, line_rate_bits_per_s=2e8, rails=1)), path
    )
    assert path.read_text().lstrip().startswith("<?xml")


def test_fits_are_named_by_ranks() -> None:
    found = measurement([point(1000, 1.0), point(2000, 2.0)], ["a", "b", "c", "d"])
    fitted = fabric.allreduce_fit(found)
    assert isinstance(fitted, Fit)
    assert fitted.bits_per_s == pytest.approx(8000 * 1.5)
