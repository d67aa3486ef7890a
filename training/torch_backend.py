"""torch.distributed behind the `Communicator` interface: gloo on CPUs, NCCL on GPUs, started by the same launcher.

The gradient exchange is our own small one, not DistributedDataParallel: DDP waits for its last bucket inside backward, where
the wait cannot be told from computation, and exposed communication is what this project measures. The buckets follow DDP
(Li et al., arXiv 2006.15704): reverse order of the parameters, one asynchronous allreduce each, launched in a fixed order.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from results.settings import CommunicationSettings
from training.communicator import Communicator, DistributedOptimizer, dense_view, rank_groups
from training.process import RankPlace


class TorchCommunicator(Communicator):
    """A torch.distributed process group over all ranks of the launcher."""

    name = "torch"

    def __init__(self, place: RankPlace, settings: CommunicationSettings) -> None:
        super().__init__(place)
        self.exchanges_by_nccl = torch.cuda.is_available()
        # Each tensor goes by the library of the device that it lies on, so that figures and objects stop no GPU's queue.
        libraries = "cpu:gloo,cuda:nccl" if self.exchanges_by_nccl else "gloo"
        dist.init_process_group(libraries, init_method=_rendezvous(place), rank=place.rank, world_size=place.size)
        self._group: Any = None
        if settings.batch_norm_ranks > 1:
            # Every rank makes every group, its own included.
            groups = [(ranks, dist.new_group(ranks)) for ranks in rank_groups(place.size, settings.batch_norm_ranks)]
            self._group = next(group for ranks, group in groups if place.rank in ranks)

    def broadcast_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for tensor in model.state_dict().values():
            dist.broadcast(dense_view(tensor), src=0)
        payload: list[Any] = [optimizer.state_dict() if self.rank == 0 and optimizer.state else None]
        dist.broadcast_object_list(payload, src=0)
        if payload[0] is not None:
            optimizer.load_state_dict(payload[0])

    def distribute(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, settings: CommunicationSettings
    ) -> DistributedOptimizer:
        return _BucketedOptimizer(optimizer, model, settings)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    def gather_objects(self, value: Any) -> list[Any]:
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def gather_objects_to_first(self, value: Any) -> list[Any]:
        if self.rank != 0:
            dist.send_object_list([value], dst=0)
            return []
        gathered: list[Any] = [value]
        for rank in range(1, self.size):
            received: list[Any] = [None]
            dist.recv_object_list(received, src=rank)
            gathered += received
        return gathered

    def largest(self, values: list[float]) -> list[float]:
        found = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return found.tolist()

    def sum_of_group(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        if self._group is None:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total, group=self._group)
        return total

    def close(self) -> None:
        dist.destroy_process_group()


def _rendezvous(place: RankPlace) -> str:
    """Address at which the ranks meet: told by the environment, else agreed on over MPI."""
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return "env://"
    from mpi4py import MPI

    hosts = MPI.COMM_WORLD.allgather(socket.gethostname())
    port = None
    if place.rank == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
    port = MPI.COMM_WORLD.bcast(port, root=0)
    return f"tcp://{hosts[0] if len(set(hosts)) > 1 else '127.0.0.1'}:{port}"


class _Bucket:
    """Some parameters whose gradients travel together in one flat buffer."""

    def __init__(self, parameters: list[nn.Parameter], dtype: torch.dtype) -> None:
        self.parameters = parameters
        first = parameters[0]
        self.buffer = torch.empty(sum(p.numel() for p in parameters), dtype=dtype, device=first.device)
        self.missing = len(parameters)
        self.work: Any = None

    def launch(self) -> None:
        views = self.buffer.split([p.numel() for p in self.parameters])
        for parameter, view in zip(self.parameters, views, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            view.copy_(dense_view(parameter.grad).reshape(-1))
        self.work = dist.all_reduce(self.buffer, async_op=True)

    def finish(self, size: int) -> None:
        self.work.wait()
        self.buffer.div_(size)
        views = self.buffer.split([p.numel() for p in self.parameters])
        for parameter, view in zip(self.parameters, views, strict=True):
            assert parameter.grad is not None
            dense = dense_view(parameter.grad)
            dense.copy_(view.view_as(dense))
        self.work, self.missing = None, len(self.parameters)


class _BucketedOptimizer(DistributedOptimizer):
    def __init__(self, inner: torch.optim.Optimizer, model: nn.Module, settings: CommunicationSettings) -> None:
        self.inner = inner
        self.passes = settings.backward_passes_per_step
        self.size = dist.get_world_size()
        dtype = torch.float16 if settings.compression == "fp16" else torch.float32
        self.buckets: list[_Bucket] = []
        chosen: list[nn.Parameter] = []
        for parameter in reversed([p for p in model.parameters() if p.requires_grad]):
            chosen.append(parameter)
            if sum(p.numel() * p.element_size() for p in chosen) >= settings.fusion_threshold_bytes:
                self.buckets.append(_Bucket(chosen, dtype))
                chosen = []
        if chosen:
            self.buckets.append(_Bucket(chosen, dtype))
        self.seen: dict[nn.Parameter, int] = {}
        self.next_bucket = 0
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda p, b=bucket: self._arrived(p, b))

    def _arrived(self, parameter: nn.Parameter, bucket: _Bucket) -> None:
        self.seen[parameter] = self.seen.get(parameter, 0) + 1
        if self.seen[parameter] == self.passes:
            bucket.missing -= 1
            self._launch_complete()

    def _launch_complete(self) -> None:
        """Launch buckets strictly in order: ranks that launch in different orders would exchange different tensors."""
        while self.next_bucket < len(self.buckets) and self.buckets[self.next_bucket].missing == 0:
            self.buckets[self.next_bucket].launch()
            self.next_bucket += 1

    def zero_grad(self) -> None:
        self.inner.zero_grad()

    def synchronize(self) -> None:
        for bucket in self.buckets[self.next_bucket :]:
            bucket.launch()  # some parameter took no part in this backward; it contributes zeros
        for bucket in self.buckets:
            bucket.finish(self.size)
        self.next_bucket = 0
        self.seen.clear()

    def step(self, scaler: torch.amp.GradScaler | None = None) -> None:
        if scaler is None:
            self.inner.step()
        else:
            scaler.step(self.inner)
