"""The largest local batch that fits into a GPU's memory, by trial: for `trainscale fit`, and where the batch asked for does not.

`python -m training.memory` reads `{"workload", "preset", "settings"}` as JSON from standard input, finds it on this process's GPU
and prints it as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from results.footprint import OPTIMIZER_STATES
from results.settings import Settings
from results.yaml_file import ConfigurationError
from training.precision import Precision
from training.trainer import Trainer
from training.workload import Workload

LARGEST_TRIED = 65_536


def warm_up(trainer: Trainer) -> None:
    """`Trainer.warm_up`, with a clear word where the batch is too large.

    Raises:
        ConfigurationError: the local batch does not fit; the message names the largest that does.
    """
    try:
        trainer.warm_up()
    except torch.OutOfMemoryError:
        pass  # searched for below: until here the exception holds the tensors of the pass that failed
    else:
        return
    size = trainer.settings.local_batch_size
    fitting = largest_fitting(_trial(trainer.workload, trainer.model, trainer.precision), 0, size)
    way_out = (
        f"a local batch of {fitting} fits: --set local_batch_size={fitting}, and communication.backward_passes_per_step="
        f"{-(-size // fitting)} to keep the global batch"
        if fitting
        else "not even one image fits: choose smaller images or lower precision"
    )
    raise ConfigurationError(f"a local batch of {size} does not fit into the memory of {_name(trainer.device)}; {way_out}")


def largest_fitting(fits: Callable[[int], bool], fitting: int, too_large: int) -> int:
    """The largest size that fits, between one that does (0 always does) and one that does not, by bisection."""
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        if fits(middle):
            fitting = middle
        else:
            too_large = middle
    return fitting


def find_largest(fits: Callable[[int], bool], start: int) -> int:
    """The same without a size known to be too large: doubles from `start` until one is, then bisects."""
    fitting, size = 0, start
    while fits(size):
        if size >= LARGEST_TRIED:
            return size
        fitting, size = size, min(2 * size, LARGEST_TRIED)
    return largest_fitting(fits, fitting, size)


def _trial(workload: Workload, model: nn.Module, precision: Precision) -> Callable[[int], bool]:
    """Whether a forward and backward pass goes through while gradients and optimizer state are held, as in a training step."""
    settings = workload.settings
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def fits(size: int) -> bool:
        model.zero_grad(set_to_none=True)
        if workload.device.type == "cuda":
            torch.cuda.empty_cache()
        workload.settings = settings.model_copy(update={"local_batch_size": size})
        try:
            held = [torch.zeros_like(parameter) for parameter in trained * OPTIMIZER_STATES[settings.optimizer.name]]
            batch = workload.dummy_batch()
            with workload.worst_case(model):
                with precision.autocast():
                    loss = workload.loss(model, batch)
                # Not backward(): the exchange of gradients hangs on that, and other ranks do not take part here.
                held += [gradient for gradient in torch.autograd.grad(loss, trained, allow_unused=True) if gradient is not None]
        except torch.OutOfMemoryError:
            return False
        finally:
            workload.settings = settings
        return True

    return fits


def find_on_gpu(workload: Workload) -> dict[str, Any]:
    """The largest local batch of a workload on its device, how many trials it took, and the memory that torch held at most."""
    settings = workload.settings
    model = workload.random_model().to(workload.device).train()
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    tried: list[int] = []
    trial = _trial(workload, model, Precision(settings.precision, workload.device))

    def fits(size: int) -> bool:
        tried.append(size)
        return trial(size)

    largest = find_largest(fits, settings.local_batch_size)
    torch.cuda.reset_peak_memory_stats(workload.device)
    if largest:
        trial(largest)
    return {
        "device": _name(workload.device),
        "local_batch_size": largest,
        "trials": len(tried),
        "peak_bytes": torch.cuda.max_memory_reserved(workload.device),
    }


def _name(device: torch.device) -> str:
    if device.type != "cuda":
        return "this host"
    facts = torch.cuda.get_device_properties(device)
    return f"{facts.name} ({facts.total_memory / 2**30:.0f} GiB)"


def main() -> int:
    """Find what standard input asks for."""
    from training.footprint import load_for_measuring

    if not torch.cuda.is_available():
        print("torch sees no GPU here: leave --try out for the estimate", file=sys.stderr)
        return 2
    asked = json.load(sys.stdin)
    settings = Settings.model_validate(asked["settings"])
    try:
        workload = load_for_measuring(asked["workload"], asked["preset"], settings, torch.device("cuda", 0))
        print(json.dumps(find_on_gpu(workload)))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
