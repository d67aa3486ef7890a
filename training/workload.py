"""What a benchmark is: a model, its data, its loss, its evaluation and its quality target.

The trainer knows workloads only through this page. To add one: subclass `Workload`, add it to `load_workload`, and give it a
`presets/` folder (docs/adding-a-workload.md).
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from results.settings import Settings
from results.spec import RunSpec
from results.yaml_file import ConfigurationError, nearest

if TYPE_CHECKING:
    from training.communicator import Communicator

WORKLOADS = {
    "resnet50": "training.resnet50.workload:ResNet50",
    "ssd": "training.ssd.workload:SsdWorkload",
    "maskrcnn": "training.maskrcnn.workload:MaskRcnnWorkload",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The part of the data that this rank takes."""

    index: int
    count: int

    def size(self, samples: int) -> int:
        """Samples in this shard when `samples` are dealt to all: sizes differ by one at most."""
        return self.end(samples) - self.start(samples)

    def batch_sizes(self, samples: int, batch_size: int) -> list[tuple[int, int]]:
        """(this rank's, all ranks') samples of each batch; as many batches on every rank, the last ones partial or empty."""
        sizes = [Shard(index=index, count=self.count).size(samples) for index in range(self.count)]
        batches = -(-max(sizes) // batch_size)

        def cut(size: int, number: int) -> int:
            return min(max(size - number * batch_size, 0), batch_size)

        own = self.size(samples)
        return [(cut(own, number), sum(cut(size, number) for size in sizes)) for number in range(batches)]

    def start(self, samples: int) -> int:
        """First sample of this shard in the (shuffled) order; DALI cuts its shards at the same places."""
        return samples * self.index // self.count

    def end(self, samples: int) -> int:
        """One past the last sample of this shard."""
        return samples * (self.index + 1) // self.count


@dataclass(kw_only=True, slots=True)
class Batch:
    """What one rank trains on in one forward pass."""

    inputs: Any
    """Images on the rank's device: a tensor [N, C, H, W], or a list of [C, H, W] where sizes differ."""
    targets: Any
    samples: int
    """Images in this rank's batch; 0 when the others have one more (the loss then counts nothing)."""
    global_samples: int
    """Images in the batches of all ranks of this pass."""


class TrainSource(ABC):
    """The input pipeline of one rank: yields the same number of batches on every rank."""

    samples_per_epoch: int
    """Over all ranks."""
    batches_per_epoch: int
    """Forward passes per epoch on each rank."""

    @abstractmethod
    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        """Batches of epoch number `epoch` (from 1); its order and augmentation depend on the seed, epoch and rank alone.

        The first `done` of them are left out, and cost nothing: an earlier process of this run has trained on them.
        """

    def state(self) -> bytes:
        """What a checkpoint must keep of this rank's pipeline to go on after the last batch that `epoch` gave, or after its end;
        empty where the numbers of epoch and batch say all."""
        return b""

    def restore(self, state: bytes) -> None:  # noqa: B027 - most sources have no state
        """Go on where `state` was taken; called before the first `epoch`."""

    def close(self) -> None:  # noqa: B027 - most sources hold nothing that needs it
        """Release threads, workers and device memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Result of one evaluation over all ranks; the same on each of them."""

    metrics: dict[str, float]
    samples: int
    """Images evaluated, each counted once."""


class PendingEvaluation(ABC):
    """An evaluation over all ranks whose metrics are reckoned beside training."""

    samples: int
    """Images evaluated, each counted once."""

    @abstractmethod
    def ready(self) -> bool:
        """The metrics are there; false on all ranks but the one that reckons."""

    @abstractmethod
    def metrics(self, communicator: Communicator) -> dict[str, float]:
        """Wait for the metrics; collective, the same on every rank."""


class EvaluatesBeside(ABC):
    """A workload whose metrics can be reckoned beside training."""

    @abstractmethod
    def evaluate_beside(self, model: nn.Module, communicator: Communicator) -> PendingEvaluation:
        """As `Workload.evaluate`, and the model may be trained on before the metrics are there."""


class Workload(ABC):
    """One benchmark on one rank."""

    name: ClassVar[str]
    fixed_sizes: ClassVar[bool] = True
    """All training batches have one shape, but for the last of an epoch."""
    evaluation_samples: int
    """Validation images over all ranks; known once the data are open."""

    def __init__(self, *, spec: RunSpec, shard: Shard, device: torch.device) -> None:
        self.spec = spec
        self.settings: Settings = spec.settings
        self.shard = shard
        self.device = device
        if self.settings.evaluation.beside_training and not isinstance(self, EvaluatesBeside):
            raise ConfigurationError(f"{self.name} leaves nothing to reckon beside training: evaluation.beside_training=false")

    @abstractmethod
    def build_model(self) -> nn.Module:
        """The model with its initial weights, on the CPU; every rank is seeded alike before the call."""

    @abstractmethod
    def open_data(self) -> TrainSource:
        """Open the training and evaluation data: the first touch of data, called after run_start.

        Raises:
            ConfigurationError: the folder is missing or does not hold what the preset says.
        """

    @abstractmethod
    def dummy_batch(self) -> Batch:
        """A random batch of the training shape, for warming up before run_start without touching data."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Mean loss over this rank's samples (a scalar); the trainer weighs it by the sample counts of the ranks."""

    @abstractmethod
    def evaluate(self, model: nn.Module, communicator: Communicator) -> Evaluation:
        """Evaluate on the whole validation set, each image once over all ranks; collective: every rank calls it.

        `model` is in evaluation mode and under `torch.inference_mode`.
        """

    @abstractmethod
    def mlperf_accuracy(self, metrics: dict[str, float]) -> Any:
        """The value that MLPerf logs as `eval_accuracy`."""

    @abstractmethod
    def mlperf_hyperparameters(self, steps_per_epoch: int) -> dict[str, Any]:
        """Keys and values that MLPerf asks for this benchmark between init_start and run_start."""

    def random_model(self) -> nn.Module:
        """The model with random weights even where training needs others: for measuring its memory."""
        return self.build_model()

    def worst_case(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Context in which `loss` of `dummy_batch` takes as much memory as training ever does."""
        return nullcontext()

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Parameters with weight decay, and those without: biases and normalisation (Goyal et al., arXiv 1706.02677, 5.3)."""
        decayed: list[nn.Parameter] = []
        undecayed: list[nn.Parameter] = []
        for parameter in model.parameters():
            if parameter.requires_grad:
                (undecayed if parameter.ndim <= 1 else decayed).append(parameter)
        weight_decay = self.settings.optimizer.weight_decay
        groups = [
            {"params": decayed, "weight_decay": weight_decay},
            {"params": undecayed, "weight_decay": 0.0, "undecayed": True},
        ]
        return [group for group in groups if group["params"]]

    def record_extra(self) -> dict[str, Any]:
        """Figures of this workload alone for the run record (`RunRecord.extra`), on rank 0 at the end."""
        return {}

    def show_predictions(self, model: nn.Module) -> torch.Tensor | None:
        """A few validation images with predictions drawn on, [3, H, W] uint8, for TensorBoard; None: nothing to show."""
        return None

    def reached(self, metrics: dict[str, float]) -> bool:
        """True when every threshold of the quality target is met; NaN meets none."""
        return all(metrics[name] >= threshold for name, threshold in self.settings.quality_target.items())


def load_workload(*, spec: RunSpec, shard: Shard, device: torch.device) -> Workload:
    """The workload that a spec names.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if spec.workload not in WORKLOADS:
        raise ConfigurationError(f"unknown workload {spec.workload}{nearest(spec.workload, WORKLOADS)}")
    module, _, name = WORKLOADS[spec.workload].partition(":")
    workload: Workload = getattr(importlib.import_module(module), name)(spec=spec, shard=shard, device=device)
    return workload
