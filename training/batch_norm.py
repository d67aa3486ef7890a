"""Batch norm over ranks: statistics of the batches of neighbouring ranks together, and running statistics of all."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from training.communicator import Communicator


def share_batch_norm(model: nn.Module, communicator: Communicator) -> None:
    """Let every batch norm of `model` take its statistics over the rank's group of neighbours.

    For small local batches: with 7 images on a rank, MLPerf v0.6's largest SSD runs normalised over 4 ranks (`model_bn_span`).
    """
    for name, layer in model.named_modules():
        if type(layer) is nn.BatchNorm2d:
            layer.__class__ = GroupBatchNorm2d
            layer.communicator, layer.name = communicator, name  # type: ignore[assignment]


class GroupBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose mean and variance are those of a group of ranks; the same as torch's in evaluation."""

    communicator: Communicator
    name: str

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(input)
        count, mean, variance = self._statistics(input.detach().float())
        if self.running_mean is not None and self.running_var is not None and self.momentum is not None:
            unbiased = variance * (count / (count - 1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        scale = (variance + self.eps).rsqrt()
        normal = _Normalise.apply(input, mean, scale, count, self.communicator, self.name)
        weighed = normal * self.weight[None, :, None, None] + self.bias[None, :, None, None]
        return weighed.to(input.dtype)

    def _statistics(self, input: torch.Tensor) -> tuple[float, torch.Tensor, torch.Tensor]:
        """Values per channel over the group, their mean and their (biased) variance; in double where sums may cancel."""
        own = input.numel() // input.shape[1]
        variance, mean = torch.var_mean(input, dim=(0, 2, 3), correction=0)
        mean, variance = mean.double(), variance.double()
        count = torch.full_like(mean[:1], own)
        total = self.communicator.sum_of_group(
            torch.cat([count, own * mean, own * (variance + mean.square())]), f"batch_norm.{self.name}.forward"
        )
        sums, squares = total[1:].chunk(2)
        mean = sums / total[0]
        variance = (squares / total[0] - mean.square()).clamp(min=0)
        return float(total[0]), mean.to(input.dtype), variance.to(input.dtype)


class _Normalise(torch.autograd.Function):
    """(x - mean) * scale, where mean and scale depend on the inputs of all ranks of the group."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        mean: torch.Tensor,
        scale: torch.Tensor,
        count: float,
        communicator: Communicator,
        name: str,
    ) -> torch.Tensor:
        normal = (input.float() - mean[None, :, None, None]) * scale[None, :, None, None]
        ctx.save_for_backward(normal, scale)
        ctx.count, ctx.communicator, ctx.name, ctx.dtype = count, communicator, name, input.dtype
        return normal

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        normal, scale = ctx.saved_tensors
        own = torch.cat([gradient.sum(dim=(0, 2, 3)), (gradient * normal).sum(dim=(0, 2, 3))])
        means = ctx.communicator.sum_of_group(own, f"batch_norm.{ctx.name}.backward") / ctx.count
        mean, mean_normal = (part[None, :, None, None] for part in means.chunk(2))
        returned = scale[None, :, None, None] * (gradient - mean - normal * mean_normal)
        return returned.to(ctx.dtype), None, None, None, None, None


def average_running_statistics(model: nn.Module, communicator: Communicator) -> None:
    """Give every rank the mean of all ranks' running means and variances; collective.

    Each rank normalises by its own batches in training. Before an evaluation the MLPerf SSD reference averages what they have
    gathered (single_stage_detector/ssd/train.py), so that all ranks evaluate one model.
    """
    if communicator.size == 1:
        return
    buffers = [
        buffer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm)
        for buffer in (layer.running_mean, layer.running_var)
        if buffer is not None
    ]
    if not buffers:
        return
    mean = communicator.sum(torch.cat([buffer.double().flatten() for buffer in buffers])) / communicator.size
    for buffer, part in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))
