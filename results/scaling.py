"""Scaling curves: runs grouped into rows (one configuration, repeated) and rows into curves with one base case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from results.run import Run
from results.score import Interval, Score, kept_of_sorted, ratio_interval, score

Scaling = Literal["weak scaling", "strong scaling", "neither weak nor strong scaling", "one size"]


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration and its repeated runs."""

    nodes: int
    ranks: int | None
    local_batch_size: int | None
    global_batch_size: int | None
    runs: tuple[Run, ...]
    """By time to train, missed targets last."""
    kept: tuple[Run, ...]
    """The runs that the score is taken over; the other figures of the row are theirs."""
    score: Score

    @property
    def epochs(self) -> float | None:
        """Mean epochs to target."""
        values = [run.epochs for run in self.kept if run.epochs is not None]
        return sum(values) / len(values) if values and len(values) == len(self.kept) else None

    @property
    def samples_per_s(self) -> float | None:
        """Total samples over total seconds of training."""
        samples, time_s = _total(self.kept, "samples"), _total(self.kept, "samples_time_s")
        return samples / time_s if samples and time_s else None

    @property
    def samples_per_epoch(self) -> float | None:
        """Samples that one epoch really trained on."""
        samples, epochs = _total(self.kept, "samples"), sum(run.timed_epochs for run in self.kept)
        return samples / epochs if samples and epochs else None

    @property
    def training_s(self) -> float | None:
        """Training time to the target at the row's own rate: epochs x samples per epoch / samples per second.

        No more than the time to train, which it would exceed where a log counts evaluations within its epochs.
        """
        if self.epochs is None or not self.samples_per_s or not self.samples_per_epoch:
            return None
        return min(self.epochs * self.samples_per_epoch / self.samples_per_s, self.score.value_s)

    def mean_s(self, name: str) -> float | None:
        """Mean over the kept runs of one account, such as `evaluation_s`; None where a run doesn't have it."""
        total = _total(self.kept, name)
        return None if total is None else total / len(self.kept)

    @property
    def evaluation_share(self) -> float | None:
        """Part of the time to train that evaluation takes."""
        evaluation_s = self.mean_s("evaluation_s")
        if evaluation_s is None or self.score.kind == "void":
            return None
        return evaluation_s / self.score.value_s

    @property
    def samples_per_j(self) -> float | None:
        """Total samples trained on over the total energy of the GPU boards, evaluation included: samples/s per watt."""
        samples, energy_j = _total(self.kept, "samples"), _total(self.kept, "gpu_energy_j")
        return samples / energy_j if samples and energy_j else None

    @property
    def power_per_gpu_w(self) -> float | None:
        """Mean power of one GPU board: total energy over total seconds, over the boards of a run."""
        energy_j, time_s = _total(self.kept, "gpu_energy_j"), _total(self.kept, "gpu_energy_time_s")
        boards = {run.gpu_boards for run in self.kept}
        return energy_j / time_s / boards.pop() if energy_j and time_s and len(boards) == 1 else None

    def wait_shares(self) -> tuple[float, float, float] | None:
        """Parts of the training time: input wait, exposed communication without stragglers, stragglers."""
        time_s = _total(self.kept, "samples_time_s")
        if not time_s or any(run.waits is None for run in self.kept):
            return None
        waits = [run.waits for run in self.kept if run.waits is not None]
        stragglers = sum(wait.straggler_s for wait in waits)
        exposed = sum(wait.exposed_communication_s for wait in waits)
        return sum(wait.input_s for wait in waits) / time_s, (exposed - stragglers) / time_s, stragglers / time_s


@dataclass(frozen=True, slots=True)
class Series:
    """What all rows of a curve share."""

    workload: str
    system: str
    hardware: str
    mlperf_round: str
    interconnect: str
    settings_key: str
    ranks_per_node: int | None
    emulated: bool
    embedded: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """The rows of one series, by nodes, and what they are measured against."""

    series: Series
    scaling: Scaling
    rows: tuple[Row, ...]

    @property
    def base(self) -> Row | None:
        """The row on one node, which speedups are ratios to; None where there is no such row."""
        return next((row for row in self.rows if row.nodes == 1), None)


def curves(runs: Iterable[Run]) -> list[Curve]:
    """Group the runs that count; see `Run.counts`. Runs that differ in anything but size are never in one row or curve."""
    groups: dict[Series, dict[tuple[int, int | None, int | None, int | None], list[Run]]] = {}
    for run in runs:
        size = (run.nodes, run.ranks, run.local_batch_size, run.global_batch_size)
        groups.setdefault(_series(run), {}).setdefault(size, []).append(run)
    found: list[Curve] = []
    for series, sizes in groups.items():
        rows = sorted((_row(size, repeats) for size, repeats in sizes.items()), key=_size)
        found.extend(Curve(series, scaling_of(part), tuple(part)) for part in _parts(rows))
    return sorted(found, key=lambda curve: (_sort_key(curve.series), curve.scaling))


def scaling_of(rows: Sequence[Row]) -> Scaling:
    """Weak: the same local batch size at every size. Strong: the same global one."""
    if len({row.nodes for row in rows}) < 2:
        return "one size"
    if len({row.local_batch_size for row in rows} - {None}) == 1 and all(row.local_batch_size for row in rows):
        return "weak scaling"
    if len({row.global_batch_size for row in rows} - {None}) == 1 and all(row.global_batch_size for row in rows):
        return "strong scaling"
    return "neither weak nor strong scaling"


def speedup(base: Row, row: Row) -> tuple[float, Interval | None] | None:
    """Ratio of two times to train and its interval; None when either score is void."""
    if "void" in (base.score.kind, row.score.kind):
        return None
    if base is row:
        return 1.0, None
    return base.score.value_s / row.score.value_s, ratio_interval(base.score, row.score)


def size_ratio(base: Row, row: Row) -> float:
    """How many times larger a row's job is, by ranks or, where they are not known, by nodes: the ideal speedup."""
    if base.ranks and row.ranks:
        return row.ranks / base.ranks
    return row.nodes / base.nodes


def _series(run: Run) -> Series:
    per_node = run.ranks // run.nodes if run.ranks else None
    return Series(
        run.workload,
        run.system,
        run.hardware,
        run.mlperf_round,
        run.interconnect,
        run.settings_key,
        per_node,
        run.emulated,
        run.embedded,
    )


def _sort_key(series: Series) -> tuple[str, ...]:
    order = {"resnet50": "0", "ssd": "1", "maskrcnn": "2"}
    parts = (
        series.system,
        series.mlperf_round,
        series.interconnect,
        str(series.ranks_per_node),
        series.settings_key,
        series.hardware,
    )
    return (order.get(series.workload, "3"), series.workload, *parts)


def _row(size: tuple[int, int | None, int | None, int | None], repeats: list[Run]) -> Row:
    ordered = sorted(repeats, key=lambda run: (_time_s(run), str(run.source)))
    scored = score([_time_s(run) for run in ordered])
    kept = kept_of_sorted(ordered) if scored.kind != "void" else ordered
    return Row(*size, runs=tuple(ordered), kept=tuple(kept), score=scored)


def _time_s(run: Run) -> float:
    return run.time_to_train_s if run.status == "finished" and run.time_to_train_s else math.inf


def _size(row: Row) -> tuple[int, int, int, int]:
    return row.nodes, row.ranks or 0, row.local_batch_size or 0, row.global_batch_size or 0


def _parts(rows: list[Row]) -> list[list[Row]]:
    """One curve, or a weak and a strong one that share a base, where a size was run with several batch sizes."""
    if len({row.nodes for row in rows}) == len(rows):
        return [rows]
    bases = [row for row in rows if row.nodes == rows[0].nodes]
    parts: list[list[Row]] = []
    placed: set[int] = set()
    for base in bases:
        larger = [row for row in rows if row.nodes > base.nodes]
        weak = [row for row in larger if row.local_batch_size == base.local_batch_size]
        strong = [row for row in larger if row.global_batch_size == base.global_batch_size and row not in weak]
        for part in (weak, strong):
            if part or (part is weak and not strong):
                parts.append([base, *part])
                placed |= {id(row) for row in (base, *part)}
    rest = [row for row in rows if id(row) not in placed]
    return [*parts, *([row] for row in rest)]


def _total(runs: Sequence[Run], name: str) -> float | None:
    values = [getattr(run, name) for run in runs]
    return None if not values or any(value is None for value in values) else float(sum(values))
