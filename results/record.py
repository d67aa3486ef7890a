"""RunRecord: what happened in one run. Written once, as `record.json`; reports read nothing else of ours.

A record says everything that rule 9 of Hoefler and Belli (SC'15, doi 10.1145/2807591.2807644) asks a reader to be told.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from results.facts import GitFacts, HostFacts, SoftwareFacts
from results.model import Document
from results.spec import RunSpec
from results.staging import StagedData

SCHEMA_VERSION = 1
"""Raised with every change that an older reader would misread; `results.archive` migrates older records."""

Status = Literal["finished", "target-missed", "failed", "interrupted"]


class Accounts(Document):
    """Where the time of a run went, in seconds; each is the maximum over ranks."""

    initialization_s: NonNegativeFloat
    """Before run_start: imports, MPI, model, first allreduce. Not part of the time to train."""
    training_s: NonNegativeFloat
    evaluation_s: NonNegativeFloat
    checkpoint_and_logging_s: NonNegativeFloat
    restart_s: NonNegativeFloat = 0.0
    """Lost to interruptions: work done again, and starting again."""
    input_wait_s: NonNegativeFloat = 0.0
    """Part of `training_s`: waiting for the input pipeline (mean over ranks)."""
    exposed_communication_s: NonNegativeFloat = 0.0
    """Part of `training_s`: waiting for gradients to be exchanged, not hidden behind computation (mean over ranks)."""
    straggler_s: NonNegativeFloat = 0.0
    """Part of `exposed_communication_s`: sum over steps of slowest rank less mean rank, in time not spent on the exchange."""

    @property
    def on_the_clock_s(self) -> float:
        """Time to train if the target was reached: from run_start to the last evaluation, restarts included."""
        return self.training_s + self.evaluation_s + self.checkpoint_and_logging_s + self.restart_s


class LaunchTimes(Document):
    """What came before the first step, in seconds; None where nobody could tell. Stamps are Slurm's own (whole seconds), the
    kernel's (when rank 0's process was created) and those of the run's events."""

    held_s: NonNegativeFloat | None = None
    """From sbatch until nothing but free nodes was missing: it waited for the run before it."""
    queue_s: NonNegativeFloat | None = None
    """Then, until Slurm started the job."""
    start_of_ranks_s: NonNegativeFloat | None = None
    """From the job's start (outside Slurm: the launcher's) until rank 0's process was created."""
    imports_s: NonNegativeFloat | None = None
    """Until that process had imported torch and the rest of this project."""
    initialization_s: NonNegativeFloat | None = None
    """Until run_start: MPI, Horovod, model, first exchange. The account of the same name also holds imports."""
    opening_data_s: NonNegativeFloat | None = None
    """From run_start, and so on the clock, until the first step could begin."""


class Spread(Document):
    """Minimum, median and maximum over ranks."""

    minimum: float
    median: float
    maximum: float


class EpochFigures(Document):
    """One training epoch over all ranks."""

    epoch: PositiveInt
    samples: PositiveInt
    steps: PositiveInt
    seconds_s: NonNegativeFloat
    """Training time of this epoch; evaluation and checkpoint are not in it."""
    loss: float
    learning_rate: float
    step_time_s: Spread
    """Mean step time of each rank."""
    input_wait_s: Spread
    """Sum over the epoch of each rank."""
    exposed_communication_s: Spread
    """Sum over the epoch of each rank."""
    slowest_rank: NonNegativeInt
    """The rank with the most compute time (step time less both waits)."""


class EvaluationFigures(Document):
    """One evaluation over all ranks."""

    epoch: PositiveInt
    samples: PositiveInt
    """Images evaluated; each image counts once on any number of ranks."""
    seconds_s: NonNegativeFloat
    elapsed_s: NonNegativeFloat
    """Time on the clock since run_start when it ended."""
    metrics: dict[str, float]
    reached: bool
    """All thresholds of the quality target were met."""


class ComputeFacts(Document):
    """How each rank computed; as rank 0 did it."""

    device: str
    """The GPU's name, or `cpu`."""
    optimizer: str
    """Whose implementation: apex, torch (fused) or this project's."""
    cudnn_benchmark: bool
    """cuDNN tried its algorithms for each shape of a layer."""
    tf32: bool
    """Matrix products and convolutions in fp32 were allowed to round their inputs to 10 bits of mantissa."""


class RankBinding(Document):
    """Where one rank was to run and where it ran."""

    rank: NonNegativeInt
    host: str
    asked_cpus: str
    """Hardware threads as the kernel lists them, `0-4,40-44`; empty where the rank was not bound."""
    found_cpus: str
    """The same after initialization, told by the kernel."""
    near_gpu: str | None = None
    """PCI address of the GPU that the cores were chosen for."""
    gpu: str | None = None
    """PCI address of the GPU that the rank drives; None on CPUs, and where torch does not tell."""
    hca: str | None = None
    """The InfiniBand device nearest to it."""


class GpuEnergy(Document):
    """What one GPU board took."""

    host: str
    gpu: str
    """The driver's UUID."""
    energy_j: NonNegativeFloat


class EnergyFigures(Document):
    """Energy of all GPU boards of the run from run_start to run_stop, by the driver's counters.

    Boards alone: no processors, network or cooling of the nodes.
    """

    seconds_s: PositiveFloat
    """Between the two readings of the counters."""
    boards: Annotated[list[GpuEnergy], Field(min_length=1)]

    @property
    def energy_j(self) -> float:
        """Of all boards together."""
        return sum(board.energy_j for board in self.boards)

    @property
    def mean_power_w(self) -> float:
        """Of all boards together."""
        return self.energy_j / self.seconds_s


class Failure(Document):
    """Why a run did not finish."""

    message: str
    """One line for a person."""
    rank: int | None = None
    step: int | None = None
    learning_rate: float | None = None
    last_lines: list[str] = []
    """The end of that rank's log."""


class RailBytes(Document):
    """What one network device of one node carried during the timed part of a run."""

    host: str
    device: str
    received_bytes: NonNegativeInt
    transmitted_bytes: NonNegativeInt
    source: Literal["infiniband-port-counters", "interface-counters"]


class RailEvidence(Document):
    """Which rails were asked for and which carried the bytes."""

    verdict: Literal["as-asked", "rails-differ", "not-checked"]
    reason: str
    """One line: why the verdict."""
    rails: list[RailBytes] = []
    nccl_lines: list[str] = []
    """The lines of NCCL's own log that name the network in use."""


class RunRecord(Document):
    """One run, whole: what was asked, what was found on the machine, what happened."""

    schema_version: int = SCHEMA_VERSION
    spec: RunSpec
    status: Status
    failure: Failure | None = None
    started_at: str
    """ISO 8601, UTC."""
    stopped_at: str
    time_to_train_s: NonNegativeFloat | None
    """From run_start to the evaluation that reached the target; None when it was not reached."""
    accounts: Accounts
    epochs: list[EpochFigures] = []
    evaluations: list[EvaluationFigures] = []
    restarts: NonNegativeInt = 0
    model_parameters: NonNegativeInt = 0
    train_samples_per_epoch: NonNegativeInt = 0
    hosts: list[HostFacts] = []
    software: SoftwareFacts
    gpu_boards: EnergyFigures | None = None
    """None without GPUs, or where a board's counter could not be read."""
    compute: ComputeFacts | None = None
    """None in records of before it was kept."""
    bindings: list[RankBinding] = []
    """Of every rank, in rank order."""
    git: GitFacts
    command: list[str] = []
    """The exact launch command, as tokens."""
    environment: dict[str, str] = {}
    """Environment variables that matter to the result (NCCL, UCX, Open MPI, Horovod, OpenMP, Slurm, DALI)."""
    data_digest: str = ""
    """SHA-256 over the names and sizes of the data set's files, or of its manifest."""
    staging: list[StagedData] = []
    """By host, where the data set was copied to the nodes' own scratch first; empty: it was read from `spec.data_dir`."""
    page_cache_cleared: bool | None = None
    """Of the data that were read, on every host; None in records of before it was kept."""
    rails: RailEvidence = RailEvidence(verdict="not-checked", reason="no evidence was collected")
    launch: LaunchTimes | None = None
    """None for a run that was started more than once."""
    notes: list[str] = []
    """What a reader must know, for example that the page cache was not dropped."""
    extra: dict[str, Any] = {}
    """Figures of one workload alone, for example the share lost to unequal images."""

    @property
    def epochs_to_target(self) -> int | None:
        """Epoch of the evaluation that reached the target."""
        return next((e.epoch for e in self.evaluations if e.reached), None)

    @property
    def samples_per_s(self) -> float | None:
        """Training throughput of the whole job: total samples over total training seconds, never a mean of rates."""
        seconds_s = sum(e.seconds_s for e in self.epochs)
        return sum(e.samples for e in self.epochs) / seconds_s if seconds_s > 0 else None
