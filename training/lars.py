"""LARS, which torch does not have, in a few kernels for all tensors instead of a few for each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Lars(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling: You, Gitman, Ginsburg, arXiv 1708.03888, as MLPerf's closed division has it.

    For each tensor w with gradient g: local = eta * |w| / (|g| + weight_decay * |w| + epsilon); the momentum buffer takes
    lr * local * (g + weight_decay * w). Groups marked `undecayed` (biases, normalisation) take plain momentum, local = 1.
    """

    def __init__(
        self, params: list[dict[str, Any]], *, lr: float = 1e-3, momentum: float = 0.9, weight_decay: float = 0.0,
        eta: float = 0.001, epsilon: float = 0.0,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eta": eta, "epsilon": epsilon, "undecayed": False,
        }  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """One update; returns the closure's loss if there is a closure."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(group, parameters)
        return loss

    def _update(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        weights = [p.data for p in parameters]
        gradients = [p.grad for p in parameters if p.grad is not None]
        rates = None if group["undecayed"] else trust_ratios(group, weights, gradients)
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
        if rates is not None:
            gradients = list(torch._foreach_mul(gradients, list(rates.unbind())))
        buffers = [self._buffer(parameter) for parameter in parameters]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, gradients, alpha=group["lr"])
        torch._foreach_sub_(weights, buffers)

    def _buffer(self, parameter: nn.Parameter) -> torch.Tensor:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]


def trust_ratios(group: dict[str, Any], weights: list[torch.Tensor], gradients: list[torch.Tensor]) -> torch.Tensor:
    """Local rate of each tensor, [tensors], left on the device; 1 where the weights or the gradients are all zero."""
    weight_norms = torch.stack(torch._foreach_norm(weights))
    gradient_norms = torch.stack(torch._foreach_norm(gradients))
    denominator = gradient_norms + group["weight_decay"] * weight_norms + group["epsilon"]
    usable = (weight_norms > 0) & (gradient_norms > 0)
    return torch.where(usable, group["eta"] * weight_norms / denominator, torch.ones_like(weight_norms))
