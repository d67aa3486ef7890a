"""One optimizer step over a fixed batch, by as many ranks as there are; rank 0 writes the gradients.

python -m tests.training.ranks.gradients OUT.npz BACKEND PASSES COMPRESSION
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from results.rundir import RunDirectory
from tests.training.support import make_spec
from training.clock import RunClock
from training.communicator import connect
from training.journal import NullJournal
from training.process import rank_place
from training.resnet50.workload import ResNet50
from training.trainer import Trainer
from training.workload import Batch, Shard

SAMPLES = 13


def batches(shard: Shard, passes: int) -> Iterator[Batch]:
    """This rank's part of the same 13 images, in `passes` forward passes; no rank count divides 13."""
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(SAMPLES, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (SAMPLES,), generator=generator)
    largest_shard = math.ceil(SAMPLES / shard.count)
    sizes = shard.batch_sizes(SAMPLES, math.ceil(largest_shard / passes))
    start = shard.start(SAMPLES)
    for samples, global_samples in sizes:
        kept = slice(start, start + samples) if samples else slice(0, 1)
        inputs = images[kept].contiguous(memory_format=torch.channels_last)
        yield Batch(inputs=inputs, targets=labels[kept], samples=samples, global_samples=global_samples)
        start += samples


def main() -> None:
    out, backend, passes, compression = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    place = rank_place()
    spec = make_spec(
        Path("unused"), ranks=place.size, precision="fp32",
        communication__backend=backend, communication__backward_passes_per_step=passes, communication__compression=compression,
        communication__fusion_threshold_bytes=4_000_000,
    )  # fmt: skip
    torch.set_num_threads(1)
    device = torch.device("cpu")
    communicator = connect(backend, place, spec.settings.communication)
    shard = Shard(index=communicator.rank, count=communicator.size)
    trainer = Trainer(
        spec=spec, run_dir=RunDirectory(out.parent), workload=ResNet50(spec=spec, shard=shard, device=device),
        communicator=communicator, device=device, clock=RunClock(), journal=NullJournal(),
    )  # fmt: skip
    trainer.warm_up()  # must leave no trace
    trainer.model.eval()  # batch statistics would differ with the batch that each rank sees
    trainer._step(batches(shard, passes), rate=0.1)
    if communicator.rank == 0:
        gradients = {name: p.grad.numpy() for name, p in trainer.model.named_parameters() if p.grad is not None}
        weights = {f"weight:{name}": p.detach().numpy() for name, p in trainer.model.named_parameters()}
        np.savez(out, **gradients, **weights)
    communicator.barrier()
    communicator.close()


if __name__ == "__main__":
    main()
