"""fp32, bf16 and fp16 autocast; fp16 with dynamic loss scaling."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from training.communicator import DistributedOptimizer


class Precision:
    """How the forward pass computes and how an update is made from scaled gradients."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.device = device
        self.dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        self.scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None

    def autocast(self) -> AbstractContextManager[Any]:
        """Context of the forward pass and the loss."""
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """Backward pass of the loss, scaled where fp16 needs it."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def update(self, optimizer: DistributedOptimizer, clip_norm: float | None) -> None:
        """Unscale, clip and step. The gradients must have been exchanged: a rank whose own gradients overflowed spreads the
        infinity to all by the exchange, so that every rank skips the same update and lowers its scale alike."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer.inner)
        if clip_norm is not None:
            parameters = [p for group in optimizer.inner.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
        optimizer.step(self.scaler)
        if self.scaler is not None:
            self.scaler.update()
