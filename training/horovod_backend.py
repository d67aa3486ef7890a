"""Horovod behind the `Communicator` interface."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from results.settings import CommunicationSettings
from results.yaml_file import ConfigurationError
from training.communicator import Communicator, DistributedOptimizer, dense_view, rank_groups
from training.process import RankPlace


class HorovodCommunicator(Communicator):
    """Horovod over MPI (or Gloo under `horovodrun --gloo`); NCCL carries tensors on GPUs when Horovod was built with it."""

    name = "horovod"

    def __init__(self, place: RankPlace, settings: CommunicationSettings) -> None:
        # Horovod reads these once, in init().
        os.environ.setdefault("HOROVOD_FUSION_THRESHOLD", str(settings.fusion_threshold_bytes))
        os.environ.setdefault("HOROVOD_CYCLE_TIME", str(settings.cycle_time_ms))
        try:
            import horovod.torch as hvd

            # Process sets must be told at init; the set of all ranks is there without.
            apart = 1 < settings.batch_norm_ranks < place.size
            groups = rank_groups(place.size, settings.batch_norm_ranks) if apart else []
            sets = [hvd.ProcessSet(ranks) for ranks in groups]
            hvd.init(process_sets=sets or None)
        except (ImportError, OSError) as error:
            raise ConfigurationError(
                f"Horovod does not load with torch {torch.__version__}: {str(error).splitlines()[0]}; "
                "build it for this torch: python -m launch.horovod_build"
            ) from error
        self.hvd = hvd
        self._alone = settings.batch_norm_ranks == 1
        self._group = next((own for own in sets if hvd.rank() in own.ranks), hvd.global_process_set)
        if hvd.size() != place.size:
            raise ConfigurationError(
                f"the launcher started {place.size} ranks but Horovod sees {hvd.size()}: it was built for another MPI; "
                "run trainscale doctor"
            )
        super().__init__(RankPlace(rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank()))
        self.exchanges_by_nccl = bool(hvd.nccl_built())

    def check_device(self, device: torch.device) -> None:
        if device.type == "cuda" and not self.hvd.cuda_built():
            raise ConfigurationError(
                "this Horovod was built without CUDA and cannot exchange what lies on GPUs; build it for GPUs "
                "(python -m launch.horovod_build --gpu), train with --backend torch, or hide the GPUs (CUDA_VISIBLE_DEVICES=)"
            )

    def broadcast_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        state = {name: dense_view(tensor) for name, tensor in model.state_dict().items()}
        self.hvd.broadcast_parameters(state, root_rank=0)
        # Not hvd.broadcast_optimizer_state: it makes an update with zero gradients where the state is still empty, which
        # leaves weight decay in the momentum, so that N ranks would no longer do what one rank does.
        if self.hvd.broadcast_object(bool(optimizer.state), root_rank=0):
            optimizer.load_state_dict(self.hvd.broadcast_object(optimizer.state_dict() if self.rank == 0 else None, root_rank=0))

    def distribute(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, settings: CommunicationSettings
    ) -> DistributedOptimizer:
        wrapped = self.hvd.DistributedOptimizer(
            optimizer,
            named_parameters=[(name, p) for name, p in model.named_parameters() if p.requires_grad],
            compression=_Fp16 if settings.compression == "fp16" else _Dense,
            backward_passes_per_step=settings.backward_passes_per_step,
            op=self.hvd.Average,
        )
        return _HorovodOptimizer(wrapped, optimizer)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        summed: torch.Tensor = self.hvd.allreduce(tensor, op=self.hvd.Sum)
        return summed

    def gather_objects(self, value: Any) -> list[Any]:
        # Horovod resizes its output, which it cannot where evaluation has made it an inference tensor.
        with torch.inference_mode(False):
            # Named, since Horovod's own name for it holds the type, which may differ between ranks.
            return list(self.hvd.allgather_object(value, name="objects"))

    def gather_objects_to_first(self, value: Any) -> list[Any]:
        if not self.hvd.mpi_enabled():  # Gloo knows no sending from rank to rank in Horovod
            gathered = self.gather_objects(value)
            return gathered if self.rank == 0 else []
        from training.mpi_gather import gather_to_first

        return gather_to_first(value)

    def largest(self, values: list[float]) -> list[float]:
        found: list[float] = self.hvd.allreduce(
            torch.tensor(values, dtype=torch.float64), op=self.hvd.Max, name="largest"
        ).tolist()
        return found

    def sum_of_group(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        if self._alone:
            return tensor
        summed: torch.Tensor = self.hvd.allreduce(tensor, op=self.hvd.Sum, name=name, process_set=self._group)
        return summed

    def mpi_version(self) -> str:
        if not self.hvd.mpi_enabled():
            return "Gloo controller, no MPI"
        from mpi4py import MPI

        return MPI.Get_library_version().split(",")[0].strip("\x00 ")

    def close(self) -> None:
        self.hvd.shutdown()


class _Dense:
    """What Horovod calls compression, used to hand it channels_last gradients without a copy."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[bool, torch.dtype]]:
        """The tensor to exchange, and what `decompress` must know."""
        dense = dense_view(tensor)
        return dense, (dense is not tensor, tensor.dtype)

    @staticmethod
    def decompress(tensor: torch.Tensor, context: tuple[bool, torch.dtype]) -> torch.Tensor:
        """The gradient in its own layout and type."""
        permuted, dtype = context
        return (tensor.permute(0, 3, 1, 2) if permuted else tensor).to(dtype)


class _Fp16(_Dense):
    """Half-precision exchange: half the bytes, at the price of rounding each gradient."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[bool, torch.dtype]]:
        """The tensor to exchange, and what `decompress` must know."""
        dense, context = _Dense.compress(tensor)
        return dense.half(), context


class _HorovodOptimizer(DistributedOptimizer):
    inner: Any

    def __init__(self, wrapped: Any, inner: torch.optim.Optimizer) -> None:
        self.inner = wrapped
        # Horovod's wrapper is made from the groups alone and forgets that a fused optimizer reads the scaler's verdict on the
        # device; without, the host would wait for it in every step.
        if getattr(inner, "_step_supports_amp_scaling", False):
            self.inner._step_supports_amp_scaling = True

    def zero_grad(self) -> None:
        self.inner.zero_grad()

    def synchronize(self) -> None:
        for parameter in self.inner._requires_update:
            if parameter.grad is None:
                # Horovod would make these zeros in another memory layout than the parameter's, which fused kernels refuse.
                parameter.grad = torch.zeros_like(parameter)
        self.inner.synchronize()

    def step(self, scaler: torch.amp.GradScaler | None = None) -> None:
        with self.inner.skip_synchronize():
            if scaler is None:
                self.inner.step()
            else:
                scaler.step(self.inner)
