"""Optimizers: torch's own, and LARS, which torch does not have."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from results.settings import OptimizerSettings


def build_optimizer(settings: OptimizerSettings, groups: list[dict[str, Any]], peak_rate: float) -> torch.optim.Optimizer:
    """The optimizer that the settings name, over parameter groups as `Workload.parameter_groups` makes them."""
    if settings.name == "lars":
        return Lars(groups, lr=peak_rate, momentum=settings.momentum, eta=settings.lars_eta, epsilon=settings.lars_epsilon)
    groups = [{key: value for key, value in group.items() if key != "undecayed"} for group in groups]
    if settings.name == "adamw":
        return torch.optim.AdamW(groups, lr=peak_rate, fused=True)
    return torch.optim.SGD(groups, lr=peak_rate, momentum=settings.momentum, fused=True)


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
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
        rates: list[Any] = [group["lr"]] * len(parameters)
        if not group["undecayed"]:
            rates = [group["lr"] * r for r in self._trust_ratios(group, parameters)]
        buffers = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            buffers.append(state["momentum_buffer"])
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, [g * r for g, r in zip(gradients, rates, strict=True)])
        torch._foreach_sub_(weights, buffers)

    @staticmethod
    def _trust_ratios(group: dict[str, Any], parameters: list[nn.Parameter]) -> list[torch.Tensor]:
        """Local rate of each tensor; 1 where the weights or the gradients are all zero."""
        weight_norms = torch.stack(torch._foreach_norm([p.data for p in parameters]))
        gradient_norms = torch.stack(torch._foreach_norm([p.grad for p in parameters if p.grad is not None]))
        denominator = gradient_norms + group["weight_decay"] * weight_norms + group["epsilon"]
        usable = (weight_norms > 0) & (gradient_norms > 0)
        ratio = torch.where(usable, group["eta"] * weight_norms / denominator.clamp_min(1e-38), torch.ones_like(weight_norms))
        return list(ratio.unbind())
