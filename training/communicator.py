"""Horovod, torch.distributed or a single process behind one small interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import torch
from torch import nn

from results.settings import CommunicationSettings
from training.process import RankPlace

T = TypeVar("T")


def dense_view(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous view of the same memory: channels_last tensors [N, C, H, W] as [N, H, W, C].

    Horovod, gloo and NCCL want contiguous tensors, and copying each gradient would cost what channels_last gains.
    """
    if tensor.ndim == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.permute(0, 2, 3, 1)
    return tensor


def rank_groups(ranks: int, group_size: int) -> list[list[int]]:
    """All ranks in groups of `group_size` neighbours."""
    return [list(range(first, first + group_size)) for first in range(0, ranks, group_size)]


class DistributedOptimizer(ABC):
    """An optimizer whose gradients are averaged over ranks, with the exchange and the update apart so that each can be timed."""

    inner: torch.optim.Optimizer
    """The optimizer that holds the parameter groups and the state."""

    @abstractmethod
    def zero_grad(self) -> None:
        """Clear the gradients before the first forward pass of a step."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until every gradient holds the average over ranks."""

    @abstractmethod
    def step(self, scaler: torch.amp.GradScaler | None = None) -> None:
        """Update the parameters with the exchanged gradients; `synchronize` must have been called."""


class Communicator(ABC):
    """The ranks of one run. All methods but `close` are collective: every rank must call them in the same order."""

    name: str
    exchanges_by_nccl = False
    """NCCL carries what lies on GPUs."""

    def __init__(self, place: RankPlace) -> None:
        self.rank = place.rank
        self.size = place.size
        self.local_rank = place.local_rank

    def check_device(self, device: torch.device) -> None:  # noqa: B027 - most exchange everything
        """See whether tensors of `device` can be exchanged.

        Raises:
            ConfigurationError: they cannot.
        """

    @abstractmethod
    def broadcast_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Give every rank the parameters, buffers and optimizer state of rank 0."""

    @abstractmethod
    def distribute(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, settings: CommunicationSettings
    ) -> DistributedOptimizer:
        """Wrap `optimizer` so that gradients are averaged over ranks, starting while backward still runs."""

    @abstractmethod
    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Element-wise sum over ranks of a tensor, exact in its own dtype (use float64 or int64 for counts)."""

    @abstractmethod
    def gather_objects(self, value: T) -> list[T]:
        """Picklable values of all ranks in rank order, on every rank; for small ones (facts, statistics)."""

    @abstractmethod
    def gather_objects_to_first(self, value: T) -> list[T]:
        """The same on rank 0 alone, and an empty list elsewhere; for large ones: no other rank holds more than its own."""

    @abstractmethod
    def largest(self, values: list[float]) -> list[float]:
        """The maximum over ranks of each value, as ranks agree on a time stamp: a small exchange between the hosts, which waits
        for no device."""

    @abstractmethod
    def sum_of_group(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Sum over this rank's group of neighbours (`CommunicationSettings.batch_norm_ranks` of them); only they need call it.

        `name` tells apart sums that may be under way at once; it is the same on all ranks of the group.
        """

    def barrier(self) -> None:
        """Return when every rank has come here."""
        self.sum(torch.zeros(1, dtype=torch.int64))

    def mpi_version(self) -> str:
        """What the MPI library says of itself, empty without MPI."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""


class _LocalOptimizer(DistributedOptimizer):
    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    def zero_grad(self) -> None:
        self.inner.zero_grad()

    def synchronize(self) -> None:
        return

    def step(self, scaler: torch.amp.GradScaler | None = None) -> None:
        if scaler is None:
            self.inner.step()
        else:
            scaler.step(self.inner)


class SingleProcess(Communicator):
    """One rank, no exchange: what N ranks are compared with."""

    name = "single"

    def broadcast_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        return

    def distribute(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, settings: CommunicationSettings
    ) -> DistributedOptimizer:
        return _LocalOptimizer(optimizer)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather_objects(self, value: Any) -> list[Any]:
        return [value]

    def gather_objects_to_first(self, value: Any) -> list[Any]:
        return [value]

    def largest(self, values: list[float]) -> list[float]:
        return values

    def sum_of_group(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return tensor

    def close(self) -> None:
        return


def connect(backend: str, place: RankPlace, settings: CommunicationSettings) -> Communicator:
    """Join the other ranks.

    Raises:
        ConfigurationError: the backend is not usable here, or `single` was asked for with several ranks.
    """
    from results.yaml_file import ConfigurationError

    if place.size % settings.batch_norm_ranks:
        raise ConfigurationError(
            f"{place.size} ranks do not divide into groups of communication.batch_norm_ranks={settings.batch_norm_ranks}"
        )
    if backend == "single":
        if place.size > 1:
            raise ConfigurationError(f"backend single has no way to join {place.size} ranks; use --backend horovod or torch")
        return SingleProcess(place)
    if backend == "horovod":
        from training.horovod_backend import HorovodCommunicator

        return HorovodCommunicator(place, settings)
    from training.torch_backend import TorchCommunicator

    return TorchCommunicator(place, settings)
