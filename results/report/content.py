"""Report: everything that a report says, as plain figures with units in their names. Formats render it and add nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

WORKLOAD_TITLES = {"resnet50": "ResNet-50", "ssd": "SSD", "maskrcnn": "Mask R-CNN"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowContent:
    """One row of a scaling table; None where it is not known."""

    nodes: int
    ranks: int | None
    local_batch_size: int | None
    global_batch_size: int | None
    runs: int
    missed_runs: int
    score_kind: str
    """`olympic mean`, `plain mean` (fewer than three runs) or `void`."""
    time_to_train_s: float | None
    """None when void."""
    time_low_s: float | None
    time_high_s: float | None
    fastest_s: float | None
    slowest_s: float | None
    """None when the slowest run missed its target."""
    training_only_s: float | None
    """Training alone, as AlgoPerf counts."""
    run_times_s: list[float | None]
    """Every run, fastest first; None for a missed target."""
    epochs: float | None
    epochs_least: float | None
    epochs_most: float | None
    images_per_s: float | None
    evaluation_share: float | None
    gpu_energy_j: float | None
    """Mean over runs of what all GPU boards took from run_start to run_stop."""
    power_per_gpu_w: float | None
    """Mean power of one GPU board."""
    images_per_j: float | None
    """Images/s per watt of the GPU boards."""
    is_base: bool
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    throughput_speedup: float | None
    epochs_ratio: float | None
    overhead_ratio: float | None
    efficiency: float | None
    ideal_speedup: float | None
    amdahl_bound: float | None
    communication_bound: float | None
    points: dict[str, float]
    """Points of efficiency lost by cause; gains are negative."""
    sentence: str
    rcp_epochs: float | None
    rcp_least_epochs: float | None
    rcp_note: str
    rcp_suspicious: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveContent:
    """One scaling table."""

    anchor: str
    workload: str
    system: str
    interconnect: str
    scaling: str
    scaling_detail: str
    """For example `208 images per rank`."""
    variant: str
    """Settings that tell this curve from others of the same name; empty where it is alone."""
    mlperf_round: str
    emulated: bool
    embedded: bool
    base_sentence: str
    has_base: bool
    rows: list[RowContent]

    @property
    def title(self) -> str:
        """One line that says what was measured, weak or strong, and whether emulated or embedded."""
        parts = [workload_title(self.workload), self.system]
        parts += [self.interconnect] if self.interconnect != "not stated" else []
        parts += [self.variant] if self.variant else []
        parts += [f"MLPerf {self.mlperf_round} logs"] if self.mlperf_round else []
        parts += [f"{self.scaling} ({self.scaling_detail})" if self.scaling_detail else self.scaling]
        return " · ".join(parts + self.labels)

    @property
    def labels(self) -> list[str]:
        """What keeps these figures from being cluster or MLPerf results."""
        return ["EMULATED on one host"] * self.emulated + ["EMBEDDED data"] * self.embedded


@dataclass(frozen=True, slots=True, kw_only=True)
class RailRow:
    """The same size on two interconnects."""

    nodes: int
    first_speedup: float
    first_low: float | None
    first_high: float | None
    second_speedup: float
    second_low: float | None
    second_high: float | None
    difference: float
    """Second less first."""
    difference_low: float | None
    difference_high: float | None
    verdict: str
    """Which is faster, or `no difference shown` and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RailContent:
    """Two interconnects of one workload and system."""

    title: str
    first: str
    second: str
    rows: list[RailRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpRow:
    """A published single system beside a row with as many accelerators."""

    workload: str
    accelerators: int
    system: str
    kind: str
    published_time_s: float
    nodes: int
    interconnect: str
    curve: str
    """Anchor of the curve."""
    time_to_train_s: float | None
    time_ratio: float | None
    """Ours over the published one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpContent:
    """Published numbers that the report was asked to set beside."""

    name: str
    title: str
    kind: str
    source: str
    url: str
    rows: list[ScaleUpRow]
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricContent:
    """One measurement of a fabric, by `trainscale fabric`."""

    interconnect: str
    nodes: int
    ranks: int
    emulated: bool
    best_busbw_bits_per_s: float
    """Best bus bandwidth of an allreduce among large messages."""
    best_size_bytes: int
    latency_s: float | None
    """Of the fit over all message sizes."""
    rails: str
    outcome: str
    """Of an acceptance check; empty where none was asked for."""
    measured_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContent:
    """One run."""

    anchor: str
    name: str
    source: str
    curve: str
    """Anchor of the curve that it counts in; empty where it doesn't."""
    workload: str
    system: str
    interconnect: str
    nodes: int
    ranks: int | None
    status: str
    counted: bool
    reason: str
    """Why it failed, missed or does not count."""
    time_to_train_s: float | None
    epochs: float | None
    images_per_s: float | None
    restart_s: float | None
    page_cache_cleared: bool | None
    """None where the source does not tell."""
    seed: int | None
    started_at: str
    rails: str
    rails_reason: str
    rail_bytes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a report says."""

    made_at: str
    """ISO 8601, UTC."""
    sources: list[str]
    remarks: list[str]
    """What a reader must know before the tables."""
    curves: list[CurveContent]
    rails: list[RailContent]
    scale_up: list[ScaleUpContent]
    fabrics: list[FabricContent]
    runs: list[RunContent]
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Path and reason of what could not be used."""

    @property
    def not_counted(self) -> list[RunContent]:
        """Runs that are shown and enter no score."""
        return [run for run in self.runs if not run.counted]

    @property
    def title(self) -> str:
        """Title of the whole report."""
        names = list(dict.fromkeys(workload_title(curve.workload) for curve in self.curves))
        labels = list(dict.fromkeys(label for curve in self.curves for label in curve.labels))
        return f"Scale-out of {', '.join(names) or 'nothing yet'}" + "".join(f" · {label}" for label in labels)


def workload_title(workload: str) -> str:
    """Name of a workload for readers."""
    return WORKLOAD_TITLES.get(workload, workload)


BYTES_TITLE = "Bytes by rail in the timed part of a run: sent and received, over all nodes"
FOOTNOTES = [
    "Minutes: time to train by MLPerf's rules, from run_start to the evaluation that reached the target; the olympic mean "
    "(without the fastest and the slowest run) of three runs or more, the plain mean (marked p) of fewer.",
    "Intervals are 95%: of the mean by Yuen's trimmed mean (four runs or more), of a speedup by bootstrap over the runs of both "
    "ends (three or more). With fewer than six runs they are rough, the bootstrap's tends to be too narrow.",
    "A speedup is a ratio of two scores. Images/s are total samples over total seconds of training. Efficiency (eff.) is the "
    "throughput speedup over the ideal one; eval is evaluation's share of the time to train.",
    "Local and global: batch size of one rank and of all.",
]
