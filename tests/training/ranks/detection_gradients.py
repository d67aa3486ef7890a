"""One optimizer step of each detector over a fixed batch, by as many ranks as there are; rank 0 writes the gradients.

python -m tests.training.ranks.detection_gradients OUT_DIR BACKEND
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from results.rundir import RunDirectory
from results.spec import RunSpec
from tests.training.support import make_spec
from training.clock import RunClock
from training.communicator import Communicator, connect
from training.data.synthetic_coco import random_images
from training.journal import NullJournal
from training.process import rank_place
from training.ssd.workload import SsdWorkload
from training.trainer import Trainer
from training.workload import Batch, Shard, Workload, load_workload

SAMPLES = 7
SIDE = 64
CPU = torch.device("cpu")
OVERRIDES: dict[str, dict[str, Any]] = {
    "ssd": {"model__backbone": "resnet18"},
    # All anchors and proposals are sampled, so that no rank draws.
    "maskrcnn": {"max_image_size": SIDE, "model__rpn_samples": 100_000, "model__box_samples": 100_000, "model__width": 32},
}


def detector_spec(workload: str, ranks: int, **overrides: Any) -> RunSpec:
    """A small detector that meets only the batches below."""
    chosen = OVERRIDES[workload] | overrides
    return make_spec(
        Path("unused"), workload=workload, preset="digits-coco", ranks=ranks, precision="fp32", image_size=SIDE,
        communication__fusion_threshold_bytes=4_000_000, **chosen,
    )  # fmt: skip


def objects(number: int) -> dict[str, torch.Tensor]:
    """Boxes, labels and masks of image `number`: one to three objects."""
    generator = torch.Generator().manual_seed(100 + number)
    count = 1 + number % 3
    corners = 30 * torch.rand(count, 2, generator=generator)
    boxes = torch.cat([corners, corners + 12 + 20 * torch.rand(count, 2, generator=generator)], dim=1)
    masks = torch.zeros(count, SIDE, SIDE, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
        mask[top:bottom, left : (left + right) // 2] = 1
    return {"boxes": boxes, "labels": torch.randint(1, 11, (count,), generator=generator), "masks": masks}


def batch_of(workload: Workload, numbers: range, samples: int, global_samples: int) -> Batch:
    """These of the fixed images, as the workload takes them."""
    images = random_images(workload.settings, SAMPLES, (SIDE, SIDE), CPU, seed=5)[list(numbers)]
    targets: Any = [objects(number) for number in numbers]
    if isinstance(workload, SsdWorkload):
        encoded = [workload.coder.encode(target["boxes"] / SIDE, target["labels"]) for target in targets]
        targets = tuple(torch.stack(parts) for parts in zip(*encoded, strict=True))
        return Batch(inputs=images, targets=targets, samples=samples, global_samples=global_samples)
    return Batch(inputs=list(images), targets=targets, samples=samples, global_samples=global_samples)


def batches(workload: Workload, shard: Shard) -> Iterator[Batch]:
    """This rank's part of the same images; no rank count divides them."""
    own = range(shard.start(SAMPLES), shard.end(SAMPLES))
    yield batch_of(workload, own, len(own), SAMPLES)


def trained_mode(model: torch.nn.Module) -> None:
    """Training mode, batch norm apart: batch statistics would differ with the batch that each rank sees."""
    model.train()
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.eval()


def take_step(name: str, communicator: Communicator, out: Path) -> None:
    """Train one step and leave OUT/NAME.npz."""
    spec = detector_spec(name, communicator.size)
    shard = Shard(index=communicator.rank, count=communicator.size)
    workload = load_workload(spec=spec, shard=shard, device=CPU)
    trainer = Trainer(
        spec=spec, run_dir=RunDirectory(out), workload=workload, communicator=communicator, device=CPU, clock=RunClock(),
        journal=NullJournal(),
    )  # fmt: skip
    trained_mode(trainer.model)
    trainer._step(batches(workload, shard), rate=0.01)
    if communicator.rank == 0:
        np.savez(
            out / f"{name}.npz", **{name: p.grad.numpy() for name, p in trainer.model.named_parameters() if p.grad is not None}
        )


def main() -> None:
    out, backend = Path(sys.argv[1]), sys.argv[2]
    place = rank_place()
    torch.set_num_threads(1)
    communicator = connect(backend, place, detector_spec("ssd", place.size).settings.communication)
    for name in OVERRIDES:
        take_step(name, communicator, out)
    communicator.barrier()
    communicator.close()


if __name__ == "__main__":
    main()
