"""DALI on the GPU against DALI on the CPU: the same JPEGs and seeds give the same crops, labels, boxes and (nearly) pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.gpu import bodies
from training.workload import load_workload

pytestmark = pytest.mark.gpu
CPU = torch.device("cpu")
LEVEL = 1 / (255 * 0.225)
"""One of a JPEG's 256 levels after normalisation. nvJPEG and libjpeg-turbo round differently, and resizing does as well."""


def check_pixels(found: list[torch.Tensor], expected: list[torch.Tensor]) -> list[float]:
    """Mean difference of each image in levels."""
    assert [image.shape for image in found] == [image.shape for image in expected]
    return [float((one - other).abs().mean() / LEVEL) for one, other in zip(found, expected, strict=True)]


@pytest.mark.parametrize(
    ("workload", "precision"), [("resnet50", "fp32"), ("resnet50", "fp16"), ("ssd", "fp16"), ("maskrcnn", "fp16")]
)
def test_gpu_batches_are_those_of_the_cpu(
    gpu: torch.device, digits_dir: Path, scenes_dir: Path, workload: str, precision: str
) -> None:
    pytest.importorskip("nvidia.dali")
    data_dir = digits_dir if workload == "resnet50" else scenes_dir
    spec = bodies.spec_of(workload, data_dir, precision=precision, flip=True, local_batch_size=8)
    on_gpu, on_cpu = bodies.first_batches(spec, gpu, 3), bodies.first_batches(spec, CPU, 3)
    differences = []
    for found, expected in zip(on_gpu, on_cpu, strict=True):
        assert all(image.device == gpu for image in found.inputs)
        assert {image.dtype for image in found.inputs} == {image.dtype for image in expected.inputs}
        same_targets(found.targets, expected.targets, gpu)
        differences += check_pixels(bodies.pixels(found), bodies.pixels(expected))
    bodies.show(f"DALI GPU against CPU, {workload} {precision}", gpu, {"largest_mean_difference_levels": max(differences)})
    assert max(differences) < 3  # another crop or a mirrored image differs by tens


def same_targets(found: Any, expected: Any, device: torch.device) -> None:
    """Labels, boxes and masks, in tensors, tuples, lists and dictionaries; on the GPU all of them."""
    if isinstance(expected, torch.Tensor):
        assert found.device == device
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            same_targets(found[name], expected[name], device)
    else:
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same_targets(one, other, device)


def test_images_are_there_when_they_are_read(gpu: torch.device, digits_dir: Path) -> None:
    """Sums that the GPU takes while the host runs ahead equal those that are waited for: no batch is overwritten too soon."""
    pytest.importorskip("nvidia.dali")
    spec = bodies.spec_of("resnet50", digits_dir, precision="fp16", image_size=128, local_batch_size=64)
    side = 4096 if gpu.type == "cuda" else 16
    busy = torch.randn(side, side, device=gpu)

    def sums(*, wait: bool) -> list[float]:
        source = load_workload(spec=spec, shard=bodies.ALONE, device=gpu).open_data()
        kept = []
        for _, batch in zip(range(20), source.epoch(1), strict=False):
            for _ in range(4):
                busy @ busy  # keeps the queue full, so that the sum is taken long after the batch was let go
            kept.append(batch.inputs.double().sum())
            if wait:
                bodies.synchronize(gpu)
        source.close()
        return [float(value) for value in kept]

    assert sums(wait=False) == sums(wait=True)
