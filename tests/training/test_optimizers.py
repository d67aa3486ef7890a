"""Optimizers against the papers' rules by hand, and fused ones against plain loops; apex by a package of its shape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from results.settings import OptimizerSettings
from training.apex_optimizers import apex_optimizers
from training.lamb import Lamb
from training.lars import Lars
from training.optimizer import build_optimizer, describe

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_lars_follows_the_published_rule() -> None:
    """You et al., arXiv 1708.03888, algorithm 1, by hand in NumPy."""
    rng = np.random.default_rng(0)
    w, g1, g2 = (rng.normal(size=(4, 3)) for _ in range(3))
    lr, momentum, decay, eta = 2.0, 0.9, 0.01, 0.001
    parameter = torch.nn.Parameter(torch.tensor(w))
    optimizer = Lars([{"params": [parameter], "weight_decay": decay}], lr=lr, momentum=momentum, eta=eta)
    velocity, expected = np.zeros_like(w), w.copy()
    for gradient in (g1, g2):
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        local = eta * np.linalg.norm(expected) / (np.linalg.norm(gradient) + decay * np.linalg.norm(expected))
        velocity = momentum * velocity + lr * local * (gradient + decay * expected)
        expected = expected - velocity
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12)


def test_lars_leaves_undecayed_groups_to_plain_momentum() -> None:
    parameter, twin = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    lars = Lars([{"params": [parameter], "weight_decay": 0.0, "undecayed": True}], lr=0.1)
    sgd = torch.optim.SGD([twin], lr=0.1, momentum=0.9)
    for _ in range(3):
        for one, optimizer in ((parameter, lars), (twin, sgd)):
            one.grad = torch.tensor([1.0, 2.0, 3.0])
            optimizer.step()
    torch.testing.assert_close(parameter, twin)


def test_lamb_follows_the_published_rule() -> None:
    """You et al., arXiv 1904.00962, algorithm 2, by hand in NumPy; without weight decay the ratio is left out, as in apex."""
    rng = np.random.default_rng(0)
    w, *gradients = (rng.normal(size=(4, 3)) for _ in range(4))
    for decay in (0.01, 0.0):
        parameter = torch.nn.Parameter(torch.tensor(w))
        optimizer = Lamb([{"params": [parameter], "weight_decay": decay}], lr=0.1)
        m, v, expected = np.zeros_like(w), np.zeros_like(w), w.copy()
        for step, gradient in enumerate(gradients, start=1):
            parameter.grad = torch.tensor(gradient)
            optimizer.step()
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            update = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + decay * expected
            ratio = np.linalg.norm(expected) / np.linalg.norm(update) if decay else 1.0
            expected = expected - 0.1 * ratio * update
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-9)


def trained(make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer], steps: int = 5) -> list[torch.Tensor]:
    """Weights of a convolution in channels_last and a bias after steps with the same gradients."""
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn(8, 4, 3, 3, generator=generator).contiguous(memory_format=torch.channels_last)
    parameters = [torch.nn.Parameter(weight), torch.nn.Parameter(torch.randn(8, generator=generator))]
    groups = [
        {"params": parameters[:1], "weight_decay": 1e-2},
        {"params": parameters[1:], "weight_decay": 0.0, "undecayed": True},
    ]
    optimizer = make(groups)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter).copy_(torch.randn(parameter.shape, generator=generator))
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


def plain(name: str) -> Callable[[list[dict[str, Any]]], torch.optim.Optimizer]:
    """torch's own, tensor by tensor."""

    def make(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        groups = [{key: value for key, value in group.items() if key != "undecayed"} for group in groups]
        if name == "adamw":
            return torch.optim.AdamW(groups, lr=0.1, foreach=False, fused=False)
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9, foreach=False, fused=False)

    return make


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_fused_optimizers_do_what_the_loops_do(name: Literal["sgd", "adamw"]) -> None:
    settings = OptimizerSettings(name=name, weight_decay=1e-2)
    made: list[torch.optim.Optimizer] = []

    def fused(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        made.append(build_optimizer(settings, groups, 0.1, CPU))
        assert all(group["fused"] for group in made[0].param_groups)
        return made[0]

    for found, expected in zip(trained(fused), trained(plain(name)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert describe(made[0]) == {"sgd": "torch SGD (fused)", "adamw": "torch AdamW (fused)"}[name]


def test_sgd_without_momentum_keeps_none() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    settings = OptimizerSettings(name="sgd", momentum=0.0, weight_decay=0.0)
    optimizer = build_optimizer(settings, [{"params": [parameter], "weight_decay": 0.0}], 0.5, CPU)
    parameter.grad = torch.ones(2)
    optimizer.step()
    assert parameter.tolist() == [0.5, 0.5]


APEX = """
import torch

class FusedSGD(torch.optim.SGD):
    def __init__(self, params, lr=None, momentum=0, dampening=0, weight_decay=0, nesterov=False, wd_after_momentum=False,
                 materialize_master_grads=True, set_grad_none=False):
        super().__init__(params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)

class FusedLAMB(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, amsgrad=False,
                 adam_w_mode=True, grad_averaging=True, set_grad_none=True, max_grad_norm=1.0, use_nvlamb=False):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm))
"""
"""The signatures of NVIDIA's, over torch's loops."""


@pytest.fixture
def install_apex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a package named apex on the path."""

    def install(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / "apex" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.syspath_prepend(tmp_path)
    apex_optimizers.cache_clear()
    yield install
    apex_optimizers.cache_clear()
    for name in [name for name in sys.modules if name == "apex" or name.startswith("apex.")]:
        del sys.modules[name]


def nvidia(available: bool = True) -> dict[str, str]:
    return {
        "__init__.py": "",
        "optimizers/__init__.py": "from .fused_sgd import FusedSGD, FusedLAMB",
        "optimizers/fused_sgd.py": APEX,
        "multi_tensor_apply/__init__.py": f"class multi_tensor_applier: available = {available}",
    }


def test_apex_is_taken_on_gpus_where_it_is_nvidias(install_apex: Callable[..., None]) -> None:
    install_apex(nvidia())
    settings = OptimizerSettings(name="sgd", weight_decay=1e-2)
    made: list[torch.optim.Optimizer] = []

    def apex(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        made.append(build_optimizer(settings, groups, 0.1, GPU))
        return made[0]

    for found, expected in zip(trained(apex), trained(plain("sgd")), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    assert describe(made[0]) == "apex FusedSGD"
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "weight_decay": 0.0}]
    assert describe(build_optimizer(settings, groups, 0.1, CPU)) == "torch SGD (fused)"  # apex has no kernels for CPUs


def test_apex_lamb_clips_nothing_of_its_own_accord(install_apex: Callable[..., None]) -> None:
    """FusedLAMB reads its bound from `defaults`, which Horovod's wrapper makes anew from the groups alone."""
    install_apex(nvidia())
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "weight_decay": 0.1}]
    optimizer = build_optimizer(OptimizerSettings(name="lamb", weight_decay=0.1), groups, 0.5, GPU)
    wrapped = type(optimizer)(optimizer.param_groups)
    assert wrapped.defaults["max_grad_norm"] == float("inf")
    assert (wrapped.param_groups[0]["lr"], wrapped.param_groups[0]["weight_decay"]) == (0.5, 0.1)
    assert describe(wrapped) == "apex FusedLAMB"


@pytest.mark.parametrize(
    "files",
    [
        {"__init__.py": "raise SystemExit('the other project of this name was run')"},
        nvidia(available=False),
        nvidia() | {"optimizers/__init__.py": "import no_such_extension"},
    ],
)
def test_any_other_apex_is_left_alone(install_apex: Callable[..., None], files: dict[str, str]) -> None:
    install_apex(files)
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "weight_decay": 0.0}]
    assert describe(build_optimizer(OptimizerSettings(name="sgd", weight_decay=0.0), groups, 0.1, GPU)) == "torch SGD (fused)"
