"""Sums and averaged gradients over ranks on each rank's device; rank 0 writes what every rank has.

python -m tests.training.ranks.allreduce OUT.json BACKEND
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.training.support import make_spec
from training.communicator import Communicator, connect
from training.device import check_not_shared, rank_device
from training.process import rank_place


def sums(communicator: Communicator, device: torch.device) -> dict[str, float]:
    """Of rank + 1 in every type that training sums, small and large; all elements must agree."""
    found = {}
    for dtype in (torch.float16, torch.float32, torch.float64, torch.int64):
        for size in (1, 3_000_001):
            total = communicator.sum(torch.full((size,), communicator.rank + 1, dtype=dtype, device=device))
            assert total.device == device
            assert torch.equal(total, total[:1].expand(size))
            found[f"{dtype} x {size}"] = float(total[0])
    return found


def gradients(communicator: Communicator, device: torch.device) -> dict[str, float]:
    """Averages of rank + 1 by the distributed optimizer, in channels_last."""
    settings = make_spec(Path("unused")).settings.communication
    model = nn.Conv2d(3, 64, 3).to(device, memory_format=torch.channels_last)
    inner = torch.optim.SGD(model.parameters(), lr=1.0, fused=True)
    communicator.broadcast_state(model, inner)
    optimizer = communicator.distribute(inner, model, settings)
    optimizer.zero_grad()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    sum((parameter * (communicator.rank + 1)).sum() for parameter in model.parameters()).backward()
    optimizer.synchronize()
    assert all(p.grad is not None and p.grad.stride() == p.stride() for p in model.parameters())
    optimizer.step()
    found = {}
    for name, parameter in model.named_parameters():
        moved = before[name] - parameter.detach()
        found[name] = float(moved.mean())
        assert torch.allclose(moved, moved.mean().expand_as(moved), atol=1e-5)
    return found


def main() -> None:
    out, backend = Path(sys.argv[1]), sys.argv[2]
    place = rank_place()
    device = rank_device(place)
    torch.set_num_threads(1)
    communicator = connect(backend, place, make_spec(Path("unused"), ranks=place.size).settings.communication)
    communicator.check_device(device)
    check_not_shared(communicator, device)
    own: dict[str, Any] = {"device": str(device), "nccl": communicator.exchanges_by_nccl}
    own |= {"sums": sums(communicator, device), "gradients": gradients(communicator, device)}
    ranks = communicator.gather_objects(own)
    if communicator.rank == 0:
        out.write_text(json.dumps(ranks))
    communicator.barrier()
    communicator.close()


if __name__ == "__main__":
    main()
