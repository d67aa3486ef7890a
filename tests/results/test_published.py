"""Published numbers: each file loads, says what kind it is and where it comes from, and agrees with the logs."""

from __future__ import annotations

import pytest
from published_logs import OLYMPIC_MINUTES, SHARED, full_logs

from results.archive import load
from results.published import Published, load_published, names
from results.scaling import curves
from results.yaml_file import ConfigurationError, validate


@pytest.mark.parametrize("name", names())
def test_every_file_has_a_source_and_one_kind(name: str) -> None:
    (published,) = load_published(name)
    assert published.kind in ("official", "unofficial", "estimated")
    assert published.source
    assert published.figures
    assert (published.kind == "official") == name.startswith("mlperf-")
    assert published.url or published.kind != "official"


def test_no_estimate_is_published_as_a_result() -> None:
    """The minutes of the Dell blog's figures were never published: only its speedups may be here."""
    (blog,) = load_published("dell-blog-c4140-m")
    assert all(figure.minutes is None for figure in blog.figures)
    eight = {(figure.workload, figure.interconnect): figure.speedup for figure in blog.figures}
    assert eight == {
        ("resnet50", "edr-1"): 6.83, ("resnet50", "edr-2"): 6.83, ("ssd", "edr-1"): 5.57, ("ssd", "edr-2"): 5.78,
        ("maskrcnn", "edr-1"): 5.68, ("maskrcnn", "edr-2"): 5.74,
    }  # fmt: skip


@full_logs
@pytest.mark.parametrize("folder", OLYMPIC_MINUTES)
def test_minutes_are_those_of_the_logs(folder: str) -> None:
    (curve,) = curves(load([SHARED / folder]).runs)
    row = curve.rows[0]
    name = "mlperf-v0.6-nvidia" if folder.startswith("v0.6") else "mlperf-v0.7-dell"
    (published,) = load_published(name)
    system = {"dgx1": "DGX-1", "dgx2": "DGX-2"}.get(curve.series.system[:4], curve.series.system)
    (figure,) = [
        figure
        for figure in published.figures
        if (figure.workload, figure.system, figure.nodes) == (curve.series.workload, system, row.nodes)
    ]
    assert figure.minutes == pytest.approx(row.score.value_s / 60, abs=0.005)
    assert figure.global_batch_size == row.global_batch_size
    assert figure.accelerators == row.ranks
    assert figure.epochs == row.epochs


def test_by_round_and_unknown() -> None:
    assert [published.round for published in load_published("mlperf-v0.7")] == ["v0.7", "v0.7"]
    with pytest.raises(ConfigurationError, match=r"mlperf-v0\.8; did you mean mlperf-v0\.7"):
        load_published("mlperf-v0.8")


def test_a_figure_that_says_nothing_is_refused() -> None:
    document = {
        "title": "t", "kind": "official", "round": "v0.6", "source": "s", "url": "u",
        "figures": [{"workload": "ssd", "system": "x", "nodes": 1, "accelerators": 8}],
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match="needs minutes, a speedup or samples_per_s"):
        validate(document, Published, source="here")
