"""Optimizers: apex's fused ones on GPUs where NVIDIA's apex is installed, else torch's fused ones, and our LARS and LAMB."""

from __future__ import annotations

from typing import Any

import torch

from results.settings import OptimizerSettings
from training.apex_optimizers import apex_optimizers, fused_lamb, fused_sgd
from training.lamb import Lamb
from training.lars import Lars


def build_optimizer(
    settings: OptimizerSettings, groups: list[dict[str, Any]], peak_rate: float, device: torch.device
) -> torch.optim.Optimizer:
    """The optimizer that the settings name, over parameter groups as `Workload.parameter_groups` makes them."""
    if settings.name == "lars":
        return Lars(groups, lr=peak_rate, momentum=settings.momentum, eta=settings.lars_eta, epsilon=settings.lars_epsilon)
    groups = [{key: value for key, value in group.items() if key != "undecayed"} for group in groups]
    apex = device.type == "cuda" and apex_optimizers() is not None
    if settings.name == "lamb":
        return fused_lamb(groups, lr=peak_rate) if apex else Lamb(groups, lr=peak_rate)
    if settings.name == "adamw":
        return torch.optim.AdamW(groups, lr=peak_rate, fused=True)
    if apex:
        return fused_sgd(groups, lr=peak_rate, momentum=settings.momentum)
    return Sgd(groups, lr=peak_rate, momentum=settings.momentum, fused=True)


class Sgd(torch.optim.SGD):
    """torch's SGD whose momentum begins with zeros.

    torch's fused SGD begins with uninitialised memory and lets the first update fill it. With fp16 that update is skipped when
    the scaled gradients overflow, as they mostly do at the initial scale, and the garbage goes into the weights with the next.
    """

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"] if group["momentum"] else ():
                if parameter.grad is not None and self.state[parameter].get("momentum_buffer") is None:
                    self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return super().step(closure)


def describe(optimizer: torch.optim.Optimizer) -> str:
    """Whose implementation it is, for the record."""
    origins = {
        Lars: "trainscale LARS (foreach)", Lamb: "trainscale LAMB (foreach)", Sgd: "torch SGD (fused)",
        torch.optim.AdamW: "torch AdamW (fused)",
    }  # fmt: skip
    # Horovod's wrapper is a subclass that bears the name of what it wraps.
    known = next((text for kind, text in origins.items() if isinstance(optimizer, kind)), None)
    return known or f"apex {type(optimizer).__name__}"
