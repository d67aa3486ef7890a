"""`python -m training.footprint`: how much memory a model's passes keep alive, measured on the CPU with small batches.

Reads `{"workload", "preset", "settings"}` as JSON from standard input and prints a `Footprint`. It counts the bytes of every
tensor's storage from its making to its end, so that what is counted is what a caching allocator must hold; workspaces inside
kernels are not seen. Half precision is bfloat16 here, which is as large as a GPU's float16.
"""

from __future__ import annotations

import json
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from results.footprint import Footprint
from results.settings import Settings
from results.spec import RunSpec
from results.yaml_file import ConfigurationError
from training.workload import Batch, Shard, Workload, load_workload

BATCHES = (2, 3)
"""Local batches whose difference is that of one image; batch norm over maps of one pixel wants two."""


class LiveBytes(TorchDispatchMode):
    """Bytes of all storages that operations make while it is entered, now and at most, but for those of `kept` tensors."""

    def __init__(self, kept: list[torch.Tensor]) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._live_bytes = 0
        self._known = {tensor.untyped_storage()._cdata: 0 for tensor in kept}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._known:
            self._known[key] = storage.nbytes()
            self._live_bytes += storage.nbytes()
            self.peak_bytes = max(self.peak_bytes, self._live_bytes)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self._live_bytes -= self._known.pop(key, 0)


def measure(workload: str, preset: str, settings: Settings) -> Footprint:
    """The footprint of a workload with these settings."""
    benchmark = load_for_measuring(workload, preset, settings, torch.device("cpu"))
    model = benchmark.random_model().train()
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for parameter in model.parameters():
        # Gradients are counted apart: in a pass over a large batch they are alive when most activations are gone.
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_drop_gradient)
    smaller, larger = (_peak_bytes(benchmark, model, size) for size in BATCHES)
    per_image = (larger - smaller) / (BATCHES[1] - BATCHES[0])
    return Footprint(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained_parameters=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        fixed_bytes=max(round(smaller - per_image * BATCHES[0]), 0),
        bytes_per_image=round(per_image),
    )


def load_for_measuring(workload: str, preset: str, settings: Settings, device: torch.device) -> Workload:
    """A workload that only measures: one rank, no data."""
    # Statistics over groups of ranks take no more memory than those of one.
    settings = settings.model_copy(update={"communication": settings.communication.model_copy(update={"batch_norm_ranks": 1})})
    spec = RunSpec(
        run_id="footprint", workload=workload, preset=preset, nodes=1, ranks_per_node=1, interconnect="loopback",
        emulated_nodes=False, seed=1, data_dir=Path("unused"), settings=settings,
    )  # fmt: skip
    return load_workload(spec=spec, shard=Shard(index=0, count=1), device=device)


def _drop_gradient(parameter: torch.Tensor) -> None:
    parameter.grad = None


def _peak_bytes(benchmark: Workload, model: nn.Module, size: int) -> int:
    torch.manual_seed(1)
    benchmark.settings = benchmark.settings.model_copy(update={"local_batch_size": size})
    batch: Batch = benchmark.dummy_batch()
    half = benchmark.settings.precision != "fp32"
    autocast = torch.autocast("cpu", dtype=torch.bfloat16) if half else nullcontext()
    live = LiveBytes([*model.parameters(), *model.buffers(), *_tensors(batch)])
    with benchmark.worst_case(model), live:
        with autocast:
            loss = benchmark.loss(model, batch)
        loss.backward()
    return live.peak_bytes


def _tensors(batch: Batch) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves((batch.inputs, batch.targets)) if isinstance(leaf, torch.Tensor)]


def main() -> int:
    """Measure what standard input asks for."""
    asked = json.load(sys.stdin)
    try:
        footprint = measure(asked["workload"], asked["preset"], Settings.model_validate(asked["settings"]))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    print(footprint.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
