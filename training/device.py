"""The GPU or CPU of one rank, and how torch's libraries compute on it."""

from __future__ import annotations

import socket

import torch

from results.record import ComputeFacts
from results.yaml_file import ConfigurationError
from training.communicator import Communicator
from training.optimizer import describe
from training.process import RankPlace


def rank_device(place: RankPlace) -> torch.device:
    """The GPU of this rank's local rank, made the current one; the CPU where torch sees no GPU.

    Raises:
        ConfigurationError: there are several GPUs, and fewer than ranks of this host.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        return torch.device("cpu")
    # A launcher may show each rank all GPUs of the node, or only its own.
    index = place.local_rank if count > 1 else 0
    if index >= count:
        raise ConfigurationError(
            f"rank {place.rank} is number {index} of its host {socket.gethostname()}, where torch sees {count} GPUs; start at "
            f"most {count} ranks per node, or show torch more GPUs (CUDA_VISIBLE_DEVICES)"
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def gpu_uuid(device: torch.device) -> str:
    """The driver's name for a GPU, which is the same to all libraries, whatever number each of them gives it."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def check_not_shared(communicator: Communicator, device: torch.device) -> None:
    """NCCL takes one rank per GPU, and says so in words that nobody understands; collective.

    Raises:
        ConfigurationError: two ranks have the same GPU.
    """
    if device.type != "cuda" or not communicator.exchanges_by_nccl:
        return
    owners: dict[tuple[str, str], int] = {}
    for rank, gpu in enumerate(communicator.gather_objects((socket.gethostname(), gpu_uuid(device)))):
        if gpu in owners:
            raise ConfigurationError(
                f"ranks {owners[gpu]} and {rank} share {gpu[1]} of host {gpu[0]}, and NCCL takes one rank per GPU; start as many "
                "ranks per node as it has GPUs, each of them shown all GPUs or one of its own"
            )
        owners[gpu] = rank


def device_name(device: torch.device) -> str:
    """What the record calls it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def compute_facts(device: torch.device, optimizer: torch.optim.Optimizer) -> ComputeFacts:
    """How this rank computes; call it once everything is set."""
    on_gpu = device.type == "cuda"
    return ComputeFacts(
        device=device_name(device),
        optimizer=describe(optimizer),
        cudnn_benchmark=on_gpu and torch.backends.cudnn.benchmark,
        tf32=on_gpu and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32),
    )


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """States of the generators that a rank draws from: the CPU's, and its GPU's where it has one."""
    state = {"cpu": torch.get_rng_state()}
    return state | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def set_random_state(device: torch.device, state: dict[str, torch.Tensor]) -> None:
    """Go on drawing where `state` was taken; a GPU's state is none of the CPU's business, nor the other way round."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def set_numerics(device: torch.device, *, fixed_sizes: bool) -> None:
    """Trade accuracy for speed nowhere but where the settings say so, and let cuDNN try its algorithms where that pays.

    TF32 has 10 bits of mantissa: torch lets convolutions use it unless told otherwise, and `fp32` would not be what it says.
    Trying algorithms takes a second for each new shape of a layer, which is lost where every batch has another shape.
    """
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.benchmark = fixed_sizes
