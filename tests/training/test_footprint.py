"""What passes keep alive: the tracker on sums that are known, models against the table of presets and published figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from launch import catalog
from launch.footprint import known_footprint
from results.footprint import estimate, largest_local_batch
from tests.launch.support import overrides, trainscale
from training.footprint import LiveBytes, load_for_measuring, measure

GIB = 2**30


def test_live_bytes_of_known_tensors() -> None:
    kept = torch.zeros(1000)
    with LiveBytes([kept]) as live:
        kept.add_(1)  # in place: nothing new
        one = kept + 1  # 4,000 bytes
        two = torch.cat([one, one])  # 8,000 more
        view = two[:10]
        del one, two  # 4,000 go, the 8,000 stay for the view
        three = kept * 2  # 4,000 again: 12,000 as before
        four = three.double()  # 8,000 more: 20,000
        del view, three, four
        assert live.peak_bytes == 20_000


@pytest.mark.parametrize(
    ("workload", "preset"),
    [
        ("resnet50", "digits"), ("resnet50", "mlperf-v0.6"), ("ssd", "digits-coco"), ("ssd", "mlperf-v0.6"),
        ("maskrcnn", "digits-coco"), pytest.param("maskrcnn", "mlperf-v0.6", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_table_is_what_the_models_need(workload: str, preset: str) -> None:
    settings = catalog.settings(workload, preset, {})
    table = known_footprint(workload, preset, settings)
    assert table is not None
    measured = measure(workload, preset, settings)
    assert (measured.parameters, measured.trained_parameters) == (table.parameters, table.trained_parameters)
    assert measured.bytes_per_image == pytest.approx(table.bytes_per_image, rel=0.05)
    assert measured.fixed_bytes == pytest.approx(table.fixed_bytes, rel=0.1, abs=20e6)


def test_mask_head_is_measured_with_all_the_objects_that_it_may_get() -> None:
    """A quarter of the sampled proposals lie on objects (Fast R-CNN's sampling); random weights would bring none."""
    settings = catalog.settings("maskrcnn", "digits-coco", {"local_batch_size": 3})
    workload = load_for_measuring("maskrcnn", "digits-coco", settings, torch.device("cpu"))
    model: Any = workload.random_model().train()
    seen: list[int] = []
    model.roi_heads.mask_head.register_forward_hook(lambda _head, inputs, _outputs: seen.append(len(inputs[0])))
    with workload.worst_case(model):
        workload.loss(model, workload.dummy_batch())
    workload.loss(model, workload.dummy_batch())
    assert seen[0] == 3 * 64 // 4
    assert seen[1] < seen[0]


def test_activations_of_resnet50_are_those_published() -> None:
    """Radosavovic et al., arXiv 2003.13678: 11.1 million outputs of convolutions, kept as they are and after batch norm."""
    table = known_footprint("resnet50", "mlperf-v0.6", catalog.settings("resnet50", "mlperf-v0.6", {}))
    assert table is not None
    assert table.bytes_per_image == pytest.approx(2 * 11.1e6 * 2, rel=0.05)


@pytest.mark.parametrize(
    ("workload", "memory_gib", "published", "most"),
    [
        # NVIDIA v0.6 on DGX-1 with V100-SXM2-16GB (systems/*.json): these local batches fit. They were chosen to fill the memory
        # and to converge, so that an estimate may allow more, but hardly twice as much.
        ("resnet50", 16, 208, 416),
        ("ssd", 16, 120, 256),
        ("maskrcnn", 16, 6, 12),
        # Dell v0.7 on C4140 with V100-SXM2-32GB, and NVIDIA DeepLearningExamples' Mask R-CNN on 32 GB: they fit too.
        ("resnet50", 32, 208, None),
        ("ssd", 32, 128, None),
        ("maskrcnn", 32, 12, None),
    ],
)
def test_estimate_allows_what_was_run(workload: str, memory_gib: int, published: int, most: int | None) -> None:
    settings = catalog.settings(workload, "mlperf-v0.6", {})
    table = known_footprint(workload, "mlperf-v0.6", settings)
    assert table is not None
    largest = largest_local_batch(table, settings, memory_gib * GIB)
    assert published <= largest <= (most or largest)
    assert estimate(table, settings, largest).total_bytes <= memory_gib * GIB < estimate(table, settings, largest + 1).total_bytes


def test_fit_measures_what_the_table_does_not_hold() -> None:
    asked = (
        "fit",
        "resnet50",
        "--preset",
        "digits",
        "--precision",
        "fp32",
        "--memory",
        "4",
        "--json",
        *overrides("image_size=32"),
    )
    done = trainscale(*asked)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    half = known_footprint("resnet50", "digits", catalog.settings("resnet50", "digits", {}))
    assert half is not None
    # A quarter of the pixels in twice the precision.
    assert found["footprint"]["bytes_per_image"] == pytest.approx(half.bytes_per_image / 2, rel=0.1)
    assert found["estimated_local_batch_size"]["4.0"] > 500


def test_fit_says_that_it_estimates_and_what_is_wrong() -> None:
    said = trainscale("fit", "ssd").stdout
    assert "ESTIMATE" in said
    assert "16 GiB: a local batch of" in said
    failed = trainscale("fit", "ssd", *overrides("image_size=301"))
    assert failed.returncode == 2
    assert failed.stderr.startswith("trainscale: the reference's default boxes are for 300 pixels, not 301")
    if not torch.cuda.is_available():
        assert "torch sees no GPU here" in trainscale("fit", "ssd", "--try").stderr
