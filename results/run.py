"""Run: what a report knows of one run, from our own record or from a submitter's MLPerf log.

Records and logs are large; reports read thousands. A Run keeps the figures and the path, nothing else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from results.record import RunRecord, Status

NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Parts of the training time, in seconds."""

    input_s: float
    exposed_communication_s: float
    """Stragglers included."""
    straggler_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run; None where the source does not tell."""

    source: Path
    """Run directory, or log file."""
    name: str
    origin: Literal["record", "mlperf-log"]
    mlperf_round: str = ""
    """`v0.6`, or `v0.7 or later`, of an MLPerf log; results of different rounds are never mixed."""
    workload: str
    system: str
    hardware: str = ""
    """CPU and accelerator models: tells apart different machines that bear one name."""
    interconnect: str = NOT_STATED
    nodes: int
    ranks: int | None
    local_batch_size: int | None
    global_batch_size: int | None
    accumulation: int = 1
    """Local batches summed before each exchange."""
    embedded: bool = False
    emulated: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that must be equal between repeats, flat: `communication.compression` -> `fp16`. Shared by equal runs."""
    settings_key: str = ""
    """Digest of `settings`."""
    status: Status
    reason: str = ""
    """Why the run did not finish, or what to know of it."""
    time_to_train_s: float | None
    epochs: float | None = None
    """Epochs to target."""
    samples_per_epoch: float | None = None
    timed_epochs: int = 0
    """Training epochs whose begin and end are known."""
    samples: float | None = None
    """Training samples of all epochs that were timed."""
    samples_time_s: float | None = None
    """Seconds that those samples took; evaluation is not in it."""
    initialization_s: float | None = None
    evaluation_s: float | None = None
    """On the clock outside training; evaluation that ran beside training is not in it."""
    checkpoint_s: float | None = None
    """Checkpoints and logging."""
    restart_s: float | None = None
    restarts: int = 0
    """How often it was interrupted and gone on with."""
    waits: Waits | None = None
    gpu_boards: int = 0
    """GPU boards whose energy was measured; 0 where it was not."""
    gpu_energy_j: float | None = None
    """Of all GPU boards from run_start to run_stop."""
    gpu_energy_time_s: float | None = None
    """Seconds in which they took it."""
    model_parameters: int = 0
    compression: str = "none"
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the last evaluation."""
    rails: Literal["as-asked", "rails-differ", "not-checked"] = "not-checked"
    rails_reason: str = ""
    rail_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes sent and received in the timed part by device, over all nodes."""
    page_cache_cleared: bool | None = None
    """Before the run, of the data that it read."""
    seed: int | None = None
    started_at: str = ""
    slowest_host: str = ""
    """Host of the rank that was slowest in most epochs."""
    imbalance: tuple[float, float] | None = None
    """Parts of the compute that ranks wait because images are unequal, with and without grouping, reckoned from their sizes."""

    @property
    def counts(self) -> bool:
        """True when the run enters scores: it finished or missed its target, on the rails asked for."""
        return self.status in ("finished", "target-missed") and self.rails != "rails-differ"


BATCH_SETTINGS = {
    "description", "local_batch_size", "communication.backward_passes_per_step", "evaluation.local_batch_size",
}  # fmt: skip
"""Settings in which the rows of one scaling curve may differ: they have columns of their own."""


class SettingsTable:
    """Flattened settings, one object for all runs that have the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, Any], str]] = {}

    def flat(self, record: RunRecord) -> tuple[dict[str, Any], str]:
        """Settings that repeats must share, and their digest."""
        spec = record.spec
        text = f"{spec.settings.model_dump_json()}{spec.preset} {spec.global_batch_size}"
        if text not in self._known:
            document = spec.settings.model_dump(mode="json", exclude={"by_global_batch_size"})
            flat = {"preset": spec.preset, **_flatten(document)}
            flat = {key: value for key, value in flat.items() if key not in BATCH_SETTINGS}
            for key, value in _flatten(spec.settings.by_global_batch_size.get(spec.global_batch_size, {})).items():
                if flat.get(key) == value:
                    flat[key] = "as published for the global batch size"
            self._known[text] = flat, hashlib.sha256(repr(sorted(flat.items())).encode()).hexdigest()[:12]
        return self._known[text]


def run_of_record(record: RunRecord, source: Path, table: SettingsTable) -> Run:
    """The figures of a record that reports need."""
    spec, accounts = record.spec, record.accounts
    settings, key = table.flat(record)
    reached = record.status == "finished" and record.time_to_train_s is not None
    samples_time_s = sum(epoch.seconds_s for epoch in record.epochs)
    devices: dict[str, int] = {}
    for rail in record.rails.rails:
        devices[rail.device] = devices.get(rail.device, 0) + rail.received_bytes + rail.transmitted_bytes
    return Run(
        source=source,
        name=spec.run_id,
        origin="record",
        workload=spec.workload,
        system=spec.system,
        hardware=_hardware(record),
        interconnect=spec.interconnect,
        nodes=spec.nodes,
        ranks=spec.ranks,
        local_batch_size=spec.settings.local_batch_size,
        global_batch_size=spec.global_batch_size,
        accumulation=spec.settings.communication.backward_passes_per_step,
        embedded=spec.settings.embedded,
        emulated=spec.emulated_nodes,
        settings=settings,
        settings_key=key,
        status=record.status,
        reason=record.failure.message if record.failure else _why(record),
        time_to_train_s=record.time_to_train_s if reached else None,
        epochs=record.epochs_to_target if reached else None,
        samples_per_epoch=record.train_samples_per_epoch or None,
        timed_epochs=len(record.epochs),
        samples=sum(epoch.samples for epoch in record.epochs) if samples_time_s > 0 else None,
        samples_time_s=samples_time_s if samples_time_s > 0 else None,
        initialization_s=accounts.initialization_s,
        evaluation_s=accounts.evaluation_s,
        checkpoint_s=accounts.checkpoint_and_logging_s,
        restart_s=accounts.restart_s,
        restarts=record.restarts,
        waits=Waits(
            input_s=accounts.input_wait_s,
            exposed_communication_s=accounts.exposed_communication_s,
            straggler_s=min(accounts.straggler_s, accounts.exposed_communication_s),
        ),
        gpu_boards=len(record.gpu_boards.boards) if record.gpu_boards else 0,
        gpu_energy_j=record.gpu_boards.energy_j if record.gpu_boards else None,
        gpu_energy_time_s=record.gpu_boards.seconds_s if record.gpu_boards else None,
        model_parameters=record.model_parameters,
        compression=spec.settings.communication.compression,
        metrics=record.evaluations[-1].metrics if record.evaluations else {},
        rails=record.rails.verdict,
        rails_reason=record.rails.reason,
        rail_bytes=devices,
        page_cache_cleared=record.page_cache_cleared,
        seed=spec.seed,
        started_at=record.started_at,
        slowest_host=_slowest_host(record),
        imbalance=_imbalance(record),
    )


def _why(record: RunRecord) -> str:
    if record.status == "target-missed":
        last = record.evaluations[-1].metrics if record.evaluations else {}
        found = ", ".join(f"{name} {value:.4g}" for name, value in last.items()) or "no evaluation"
        asked = ", ".join(f"{name} {value:.4g}" for name, value in record.spec.settings.quality_target.items())
        return f"{found} after {len(record.epochs)} epochs; the target is {asked}"
    return "no reason was recorded" if record.status != "finished" else ""


def _imbalance(record: RunRecord) -> tuple[float, float] | None:
    found = record.extra.get("imbalance")
    return (found["waiting_share"], found["waiting_share_ungrouped"]) if isinstance(found, dict) else None


def _hardware(record: RunRecord) -> str:
    models = {f"{host.cpu}; {_gpus(host.gpus)}" for host in record.hosts}
    return " + ".join(sorted(models))


def _gpus(lines: list[str]) -> str:
    names = [line.split(",")[0].strip() for line in lines]
    return ", ".join(f"{names.count(name)}x {name}" for name in sorted(set(names))) or "no GPU"


def _slowest_host(record: RunRecord) -> str:
    ranks = [epoch.slowest_rank for epoch in record.epochs]
    if not ranks or not record.hosts:
        return ""
    node = max(set(ranks), key=ranks.count) // record.spec.ranks_per_node
    return record.hosts[node].hostname if node < len(record.hosts) else ""


def _flatten(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = str(value) if isinstance(value, list) else value
    return flat
