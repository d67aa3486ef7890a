"""When a batch does not fit into a GPU's memory: which one does."""

from __future__ import annotations

import torch

from results.yaml_file import ConfigurationError
from training.trainer import Trainer


def warm_up(trainer: Trainer) -> None:
    """`Trainer.warm_up`, with a clear word where the batch is too large.

    Raises:
        ConfigurationError: the local batch does not fit; the message names the largest power-of-two share of it that does.
    """
    try:
        trainer.warm_up()
    except torch.OutOfMemoryError:
        size = trainer.settings.local_batch_size
        fitting = _largest_fitting(trainer, size // 2)
        way_out = (
            f"a local batch of {fitting} fits: --set local_batch_size={fitting}, and communication.backward_passes_per_step="
            f"{-(-size // fitting)} to keep the global batch"
            if fitting
            else "not even one image fits: choose smaller images or lower precision"
        )
        raise ConfigurationError(
            f"a local batch of {size} does not fit into the memory of {_device(trainer)}; {way_out}"
        ) from None


def _largest_fitting(trainer: Trainer, size: int) -> int:
    """Halve the batch until a forward and backward pass goes through; 0 where none does."""
    workload, settings = trainer.workload, trainer.workload.settings
    try:
        while size:
            workload.settings = settings.model_copy(update={"local_batch_size": size})
            if _passes(trainer):
                return size
            size //= 2
    finally:
        workload.settings = settings
    return 0


def _passes(trainer: Trainer) -> bool:
    trainer.model.zero_grad(set_to_none=True)
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        batch = trainer.workload.dummy_batch()
        with trainer.precision.autocast():
            loss = trainer.workload.loss(trainer.model, batch)
        torch.autograd.grad(loss, [p for p in trainer.model.parameters() if p.requires_grad], allow_unused=True)
    except torch.OutOfMemoryError:
        return False
    return True


def _device(trainer: Trainer) -> str:
    if trainer.device.type != "cuda":
        return "this host"
    facts = torch.cuda.get_device_properties(trainer.device)
    return f"{facts.name} ({facts.total_memory / 2**30:.0f} GiB)"
