"""LAMB, which torch does not have, and NVIDIA's fused one behind the same face."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

BETAS = (0.9, 0.999)
EPSILON = 1e-6


class Lamb(torch.optim.Optimizer):
    """You et al., Large batch optimization for deep learning, arXiv 1904.00962, algorithm 2, with bias correction.

    update = m / (sqrt(v) + epsilon) + weight_decay * w; w takes lr * |w| / |update| of it. As in apex's FusedLAMB, groups without
    weight decay (biases, normalisation) take the update as it is, which then is Adam's.
    """

    def __init__(
        self, params: list[dict[str, Any]], *, lr: float = 1e-3, weight_decay: float = 0.0, betas: tuple[float, float] = BETAS,
        eps: float = EPSILON,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """One update; returns the closure's loss if there is a closure."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                group["step"] = group.get("step", 0) + 1
                self._update(group, parameters)
        return loss

    def _update(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
        weights = [p.data for p in parameters]
        gradients = [p.grad for p in parameters if p.grad is not None]
        first, second = (self._buffers(parameters, name) for name in ("exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        divisors = torch._foreach_sqrt(second)
        torch._foreach_div_(divisors, math.sqrt(1 - beta2 ** group["step"]))
        torch._foreach_add_(divisors, group["eps"])
        updates = torch._foreach_div(first, divisors)
        torch._foreach_div_(updates, 1 - beta1 ** group["step"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
            updates = torch._foreach_mul(updates, list(trust_ratios(weights, list(updates)).unbind()))
        torch._foreach_sub_(weights, updates, alpha=group["lr"])

    def _buffers(self, parameters: list[nn.Parameter], name: str) -> list[torch.Tensor]:
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = torch.zeros_like(parameter)
        return [self.state[parameter][name] for parameter in parameters]


def trust_ratios(weights: list[torch.Tensor], updates: list[torch.Tensor]) -> torch.Tensor:
    """|w| / |update| of each tensor, [tensors], left on the device; 1 where one of them is zero."""
    weight_norms, update_norms = torch.stack(torch._foreach_norm(weights)), torch.stack(torch._foreach_norm(updates))
    usable = (weight_norms > 0) & (update_norms > 0)
    return torch.where(usable, weight_norms / update_norms, torch.ones_like(weight_norms))
