"""A small network with batch norm over groups of ranks: outputs, gradients and running statistics, by each rank.

python -m tests.training.ranks.batch_norm OUT_DIR BACKEND GROUP_SIZE
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from tests.training.support import make_spec
from training.batch_norm import average_running_statistics, share_batch_norm
from training.communicator import connect
from training.process import rank_place

SAMPLES_PER_RANK = (3, 1, 2, 4)
"""Batches of neighbours differ in size, as at the end of an epoch."""


def network() -> nn.Sequential:
    """Two batch norms, so that the second sees what the first made."""
    torch.manual_seed(11)
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.Tanh()
    )
    with torch.no_grad():
        for layer in (model[1], model[4]):
            layer.weight.uniform_(0.5, 2)
            layer.bias.uniform_(-1, 1)
    return model


def images(ranks: list[int]) -> torch.Tensor:
    """What these ranks see, together."""
    first = [sum(SAMPLES_PER_RANK[:rank]) for rank in range(len(SAMPLES_PER_RANK) + 1)]
    whole = 5 + 3 * torch.randn(first[-1], 3, 9, 8, generator=torch.Generator().manual_seed(12))
    return torch.cat([whole[first[rank] : first[rank + 1]] for rank in ranks])


def passes(model: nn.Module, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two training passes; the outputs of the second, and the gradients of a sum that weighs each value differently."""
    inputs = inputs.clone().requires_grad_()
    model.train()(inputs.detach() + 1)
    outputs = model(inputs)
    (outputs * torch.linspace(-1, 2, outputs[0].numel()).view_as(outputs[0])).sum().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    found |= {f"buffer:{name}": buffer.clone() for name, buffer in model.named_buffers()}
    return {"outputs": outputs.detach(), "inputs": inputs.grad, **found}  # type: ignore[dict-item]


def main() -> None:
    out, backend, group_size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    place = rank_place()
    torch.set_num_threads(1)
    spec = make_spec(Path("unused"), ranks=place.size, communication__batch_norm_ranks=group_size)
    communicator = connect(backend, place, spec.settings.communication)
    model = network()
    if group_size > 1:
        share_batch_norm(model, communicator)
    found = passes(model, images([communicator.rank]))
    average_running_statistics(model, communicator)
    found |= {f"averaged:{name}": buffer for name, buffer in model.named_buffers()}
    torch.save(found, out / f"{communicator.rank}.pt")
    communicator.barrier()
    communicator.close()


if __name__ == "__main__":
    main()
