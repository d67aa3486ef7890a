"""Three fp16 steps; in the first one the last rank overflows. Rank 0 writes what every rank has after each.

python -m tests.training.ranks.overflow OUT.json BACKEND
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from results.rundir import RunDirectory
from tests.training.ranks.gradients import batches
from tests.training.support import make_spec
from training.clock import RunClock
from training.communicator import connect
from training.journal import NullJournal
from training.process import rank_place
from training.resnet50.workload import ResNet50
from training.trainer import Trainer
from training.workload import Shard


class Small(ResNet50):
    """The kinds of layers that ResNet-50 has, few of them, and one that takes no part, as branches of a model may."""

    def build_model(self) -> nn.Module:
        layers = OrderedDict(
            first=nn.Conv2d(3, 16, 3, stride=2, bias=False), norm=nn.BatchNorm2d(16), relu=nn.ReLU(), narrow=nn.Conv2d(16, 8, 1),
            pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(8, 10),
        )  # fmt: skip
        model = nn.Sequential(layers)
        model.get_submodule("norm").register_module("unused", nn.Conv2d(8, 4, 3))
        return model


def look(trainer: Trainer) -> dict[str, Any]:
    """What must agree between ranks, and the layout that fused kernels insist on."""
    parameters = dict(trainer.model.named_parameters())
    scaler = trainer.precision.scaler
    assert scaler is not None
    return {
        "scale": scaler.get_scale(),
        "finite": all(bool(p.grad.isfinite().all()) for p in parameters.values() if p.grad is not None),
        "weights": [float(p.detach().double().sum()) for p in parameters.values()],
        "other_strides": [n for n, p in parameters.items() if p.grad is None or p.grad.stride() != p.stride()],
        "fused": bool(getattr(trainer.optimizer.inner, "_step_supports_amp_scaling", False)),
    }


def main() -> None:
    out, backend = Path(sys.argv[1]), sys.argv[2]
    place = rank_place()
    spec = make_spec(Path("unused"), ranks=place.size, precision="fp16", communication__backend=backend)
    torch.set_num_threads(1)
    device = torch.device("cpu")
    communicator = connect(backend, place, spec.settings.communication)
    shard = Shard(index=communicator.rank, count=communicator.size)
    trainer = Trainer(
        spec=spec, run_dir=RunDirectory(out.parent), workload=Small(spec=spec, shard=shard, device=device),
        communicator=communicator, device=device, clock=RunClock(), journal=NullJournal(),
    )  # fmt: skip
    assert trainer.precision.scaler is not None
    # torch's own beginning overflows by itself in the first steps.
    trainer.precision.scaler.load_state_dict(trainer.precision.scaler.state_dict() | {"scale": 1024.0})
    trainer.warm_up()
    found = [look(trainer)]
    for number in range(3):
        overflow = None
        if number == 0 and communicator.rank == communicator.size - 1:
            overflow = trainer.model.fc.weight.register_hook(lambda gradient: gradient * float("inf"))
        trainer._step(batches(shard, 1), rate=0.01)
        if overflow is not None:
            overflow.remove()
        found.append(look(trainer))
    ranks = communicator.gather_objects(found)
    if communicator.rank == 0:
        out.write_text(json.dumps(ranks))
    communicator.barrier()
    communicator.close()


if __name__ == "__main__":
    main()
