"""Evaluate a fixed classifier with as many ranks as there are.

python -m tests.training.ranks.evaluation OUT.json ROOT SOURCE BACKEND
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.training.support import make_spec
from training.communicator import connect
from training.data.normalization import MEAN, STD
from training.process import RankPlace, rank_place
from training.resnet50.workload import ResNet50
from training.workload import Shard


class NearestCentroid(nn.Module):
    """The class whose mean training digit, 8x8, is nearest: a real classifier without training.

    Its batch norm has gathered another mean on each rank, far from the mean of all, 0: ranks must evaluate one model.
    """

    def __init__(self, place: RankPlace) -> None:
        super().__init__()
        from sklearn.datasets import load_digits

        digits = load_digits()
        training = np.arange(len(digits.target)) % 5 != 0
        means = [digits.images[training & (digits.target == label)].mean(axis=0) for label in range(10)]
        self.normalise = nn.BatchNorm2d(3, eps=0.0, affine=False)
        self.normalise.running_mean.fill_(3.0 * (place.rank - (place.size - 1) / 2))
        self.register_buffer("centroids", torch.tensor(np.stack(means), dtype=torch.float32).reshape(10, 64))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        grey = (self.normalise(images) * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)).mean(
            dim=1, keepdim=True
        )
        pixels = functional.adaptive_avg_pool2d(grey, 8).reshape(-1, 64) * 255 / 16
        return -torch.cdist(pixels, self.centroids)


def main() -> None:
    out, root, source, backend = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    place = rank_place()
    spec = make_spec(root, ranks=place.size, input__source=source, evaluation__local_batch_size=50)
    communicator = connect(backend, place, spec.settings.communication)
    shard = Shard(index=communicator.rank, count=communicator.size)
    workload = ResNet50(spec=spec, shard=shard, device=torch.device("cpu"))
    workload.open_data()
    with torch.inference_mode():
        evaluations = [workload.evaluate(NearestCentroid(place).eval(), communicator) for _ in range(2)]
    if communicator.rank == 0:
        out.write_text(json.dumps([[e.samples, e.metrics["accuracy"]] for e in evaluations]))
    communicator.barrier()
    communicator.close()


if __name__ == "__main__":
    main()
