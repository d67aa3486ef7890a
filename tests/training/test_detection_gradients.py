"""N ranks on shards compute what one process computes, for both detectors.

SSD normalises each image by its own positive boxes, so shards make no difference to the whole batch. Mask R-CNN normalises over
the images of one rank's pass, as the MLPerf reference does: ranks compute the mean, by images, of their shards' losses. That is
the loss of the whole batch wherever the shards sample equally many anchors, proposals and masks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.ranks.detection_gradients import CPU, SAMPLES, batch_of, detector_spec, trained_mode
from tests.training.support import run_ranks
from tests.training.test_gradients import relative_error
from training.workload import Shard, Workload, load_workload

ALONE = Shard(index=0, count=1)


@pytest.fixture(scope="module", params=[(2, "horovod"), (3, "horovod"), (2, "torch")], ids=str)
def by_ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A number of ranks, and the folder of what they computed."""
    ranks, backend = request.param
    out = tmp_path_factory.mktemp("gradients")
    done = run_ranks(ranks, "tests.training.ranks.detection_gradients", str(out), backend)
    assert done.returncode == 0, done.stderr[-3000:]
    return ranks, out


def detector(name: str) -> tuple[Workload, torch.nn.Module]:
    """The model as every rank builds it."""
    spec = detector_spec(name, ranks=1)
    workload = load_workload(spec=spec, shard=ALONE, device=CPU)
    torch.manual_seed(spec.seed)
    model = workload.build_model().to(memory_format=torch.channels_last)
    trained_mode(model)
    return workload, model


def by_plain_autograd(name: str, parts: list[range]) -> dict[str, np.ndarray]:
    """Gradients of the mean, by images, of the losses of parts of the batch; no trainer, no exchange."""
    workload, model = detector(name)
    total = sum(len(part) for part in parts)
    for part in parts:
        loss = workload.loss(model, batch_of(workload, part, len(part), total)) * len(part) / total
        loss.backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def shards(ranks: int) -> list[range]:
    return [range(SAMPLES * rank // ranks, SAMPLES * (rank + 1) // ranks) for rank in range(ranks)]


def test_ssd_on_shards_equals_ssd_on_the_whole(by_ranks: tuple[int, Path]) -> None:
    found = dict(np.load(by_ranks[1] / "ssd.npz"))
    whole = by_plain_autograd("ssd", [range(SAMPLES)])
    assert set(whole) == set(found)
    assert relative_error(found, whole, list(whole)) < 1e-5


def test_mask_rcnn_averages_the_losses_of_shards(by_ranks: tuple[int, Path]) -> None:
    found = dict(np.load(by_ranks[1] / "maskrcnn.npz"))
    expected = by_plain_autograd("maskrcnn", shards(by_ranks[0]))
    assert set(expected) == set(found)
    norm = float(np.sqrt(sum((value**2).sum() for value in expected.values())))
    clipped = {name: value * min(1.0, 5.0 / norm) for name, value in expected.items()}  # as the preset says
    assert relative_error(found, clipped, list(expected)) < 1e-4


def test_mask_rcnn_on_like_shards_equals_the_whole() -> None:
    """Two shards of the same images sample alike, so their mean is the loss of all four images together."""
    pair = range(2)
    apart = by_plain_autograd("maskrcnn", [pair, pair])
    workload, model = detector("maskrcnn")
    batch = batch_of(workload, pair, 2, 4)
    batch.inputs, batch.targets = batch.inputs * 2, batch.targets * 2
    workload.loss(model, batch).backward()
    together = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    assert relative_error(apart, together, list(together)) < 1e-4


def test_mask_rcnn_on_unlike_shards_is_normalised_by_the_rank() -> None:
    apart = by_plain_autograd("maskrcnn", shards(2))
    together = by_plain_autograd("maskrcnn", [range(SAMPLES)])
    assert relative_error(apart, together, list(together)) > 1e-3
