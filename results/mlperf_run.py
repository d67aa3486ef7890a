"""From a submitter's MLPerf log to a Run. Figures are derived from the log's own events and left empty where it has none."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.mlperf_log import BENCHMARKS, LogEvent, ParsedLog, read_log
from results.record import Status
from results.run import Run

WORKLOADS = {name: workload for workload, name in BENCHMARKS.items()}
KEYS = {
    "submission_benchmark", "submission_platform", "submission_entry", "init_start", "init_stop", "run_start", "run_stop",
    "epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy", "train_samples", "global_batch_size",
}  # fmt: skip
TARGETS: dict[str, dict[str, float]] = {
    "resnet50": {"accuracy": 0.759}, "ssd": {"map": 0.23}, "maskrcnn": {"box_ap": 0.377, "mask_ap": 0.339},
}  # fmt: skip
"""Quality targets of v0.6 to v1.1 (mlcommons/training_policies; for SSD with the correction of its issue 173)."""
TRAIN_SAMPLES = {"resnet50": 1_281_167, "ssd": 117_266, "maskrcnn": 117_266}
"""Training images by the rules, where the log does not count them (v0.6): ImageNet-2012; COCO 2017 images with boxes."""
LARGEST_CLOCK_STEP_BACK_S = 60.0


class UnusableLog(Exception):
    """A log cannot be scored; the message says why."""


@dataclass(frozen=True, slots=True)
class SystemFile:
    """What a submission's system description says; None where it does not."""

    nodes: int | None = None
    accelerators_per_node: int | None = None
    accelerator: str = ""


def run_of_log(path: Path, system_file: SystemFile | None = None, parsed: ParsedLog | None = None) -> Run:
    """Read one result log.

    Time to train is from the first run_start to the last run_stop, as MLPerf takes it.

    Raises:
        UnusableLog: no MLPerf events, no start or stop, a clock that jumps, a time that is not positive.
        OSError: the file cannot be read.
    """
    parsed = parsed or read_log(path, KEYS)
    if not parsed.events:
        raise UnusableLog("it holds no MLPerf line (:::MLL or :::MLLOG)")
    if len(parsed.formats) > 1:
        raise UnusableLog("it mixes lines of v0.6 (:::MLL) and of later rounds (:::MLLOG)")
    events: dict[str, list[LogEvent]] = {}
    for event in parsed.events:
        events.setdefault(event.key, []).append(event)
    workload = _workload(events, path)
    start_s, stop_s = _clock(parsed.events, events)
    status, reason, epoch, metrics = _outcome(workload, events)
    epochs = _intervals(events, "epoch_start", "epoch_stop", "epoch_num")
    evaluations = _intervals(events, "eval_start", "eval_stop", "epoch_num")
    samples_per_epoch = _number(events, "train_samples") or TRAIN_SAMPLES.get(workload)
    training_s = sum(stop - begin for begin, stop in epochs)
    nodes, ranks = _size(events, path, system_file)
    batch = _number(events, "global_batch_size")
    init = events.get("init_start"), events.get("init_stop")
    return Run(
        source=path,
        name="/".join(path.parts[-3:]),
        origin="mlperf-log",
        mlperf_round=_round(path, parsed.formats),
        workload=workload,
        system=_system(path),
        hardware=system_file.accelerator if system_file else "",
        nodes=nodes,
        ranks=ranks,
        local_batch_size=int(batch) // ranks if batch and ranks and batch % ranks == 0 else None,
        global_batch_size=int(batch) if batch else None,
        status=status,
        reason=reason + (f"; {parsed.broken} cut or broken MLPerf lines left out" if parsed.broken else ""),
        time_to_train_s=stop_s - start_s if status == "finished" else None,
        epochs=epoch if status == "finished" else None,
        samples_per_epoch=samples_per_epoch,
        timed_epochs=len(epochs),
        samples=len(epochs) * samples_per_epoch if epochs and samples_per_epoch else None,
        samples_time_s=training_s if epochs and samples_per_epoch else None,
        initialization_s=init[1][-1].time_s - init[0][0].time_s if init[0] and init[1] else None,
        evaluation_s=_outside(evaluations, epochs) if evaluations else None,
        metrics=metrics,
    )


def read_system_file(path: Path) -> SystemFile:
    """Nodes and accelerators of a system description: JSON with any spelling of its keys, or the `key: {...}` lines of v0.6."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return SystemFile()
    fields: dict[str, Any] = {}
    try:
        document = json.loads(text)
        fields = document if isinstance(document, dict) else {}
    except ValueError:
        if entry := re.search(r"^entry: (\{.*\})$", text, re.MULTILINE):
            fields = _entry_nodes(entry.group(1))
    named = {re.sub(r"[^a-z]+", "_", key.lower()): value for key, value in fields.items() if isinstance(key, str)}
    return SystemFile(
        nodes=_whole(named.get("number_of_nodes", named.get("num_nodes"))),
        accelerators_per_node=_whole(named.get("accelerators_per_node", named.get("num_accelerators"))),
        accelerator=str(named.get("accelerator_model_name", named.get("accelerator", ""))),
    )


def _entry_nodes(line: str) -> dict[str, Any]:
    """v0.6: JSON around a Python literal around another one."""
    try:
        entry = ast.literal_eval(json.loads(line)["value"])
        nodes = ast.literal_eval(entry["nodes"])
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        return {}
    return nodes if isinstance(nodes, dict) else {}


def _workload(events: dict[str, list[LogEvent]], path: Path) -> str:
    named = [event.value for event in events.get("submission_benchmark", []) if isinstance(event.value, str)]
    name = named[0] if named else path.parent.name
    return WORKLOADS.get(name, name)


def _system(path: Path) -> str:
    """Folder `results/<system>/<benchmark>/result_0.txt`, without a leading count of nodes (`4xC4140` -> `C4140`)."""
    folder = path.parent.parent.name if WORKLOADS.get(path.parent.name) else path.parent.name
    return re.sub(r"^\d+x_?", "", re.sub(r"_n\d+(?=_|$)", "", folder)) or folder or "unnamed"


def _round(path: Path, formats: set[str]) -> str:
    """v0.6 has a format of its own; later rounds are told by a folder such as `training_results_v1.0`."""
    if formats == {"MLL"}:
        return "v0.6"
    named = [match.group(1) for part in path.absolute().parts if (match := re.search(r"(?:^|_)(v\d\.\d)$", part))]
    return named[-1] if named else "v0.7 or later"


def _size(events: dict[str, list[LogEvent]], path: Path, system_file: SystemFile | None) -> tuple[int, int | None]:
    """Nodes, and accelerators over all nodes: one init_start for each rank, or else what the system file says."""
    folder = path.parent.parent.name
    platform = next((event.value for event in events.get("submission_platform", []) if isinstance(event.value, str)), "")
    counted = re.match(r"(\d+)x", platform) or re.match(r"(\d+)x", folder) or re.search(r"_n(\d+)(?=_|$)", folder)
    nodes = (system_file.nodes if system_file else None) or (int(counted.group(1)) if counted else 1) or 1
    per_node = system_file.accelerators_per_node if system_file else None
    starts = len(events.get("init_start", []))
    if per_node:
        return nodes, nodes * per_node
    return nodes, starts if starts > 1 and starts % nodes == 0 else None


def _clock(ordered: list[LogEvent], events: dict[str, list[LogEvent]]) -> tuple[float, float]:
    if "run_start" not in events:
        raise UnusableLog("run_start is missing")
    if "run_stop" not in events:
        last = ordered[-1]
        raise UnusableLog(f"run_stop is missing: the log ends with {last.key}")
    latest = 0.0
    for event in ordered:
        if not math.isfinite(event.time_s):
            raise UnusableLog(f"{event.key} has the time {event.time_s}")
        if event.time_s < latest - LARGEST_CLOCK_STEP_BACK_S:
            raise UnusableLog(f"the clock jumps back by {latest - event.time_s:.0f} s at {event.key}")
        latest = max(latest, event.time_s)
    start_s, stop_s = events["run_start"][0].time_s, events["run_stop"][-1].time_s
    if stop_s <= start_s:
        raise UnusableLog(f"run_stop is {start_s - stop_s:.3f} s before run_start")
    return start_s, stop_s


def _outcome(workload: str, events: dict[str, list[LogEvent]]) -> tuple[Status, str, float | None, dict[str, float]]:
    """Status, reason, epoch of the evaluation that reached the target, and its metrics."""
    said = events["run_stop"][-1].metadata.get("status")
    evaluations = [(_epoch(event), _metrics(workload, event.value)) for event in events.get("eval_accuracy", [])]
    target = TARGETS.get(workload)
    if said != "success":
        metrics = evaluations[-1][1] if evaluations else {}
        return "target-missed", f"run_stop says {said!r}", None, metrics
    if not target:
        return "finished", "", evaluations[-1][0] if evaluations else None, evaluations[-1][1] if evaluations else {}
    if not evaluations:
        return "target-missed", "run_stop says success, but the log has no eval_accuracy", None, {}
    for epoch, metrics in evaluations:
        if all(metrics.get(name, math.nan) >= threshold for name, threshold in target.items()):
            return "finished", "", epoch, metrics
    best = max((metrics for _, metrics in evaluations), key=lambda m: tuple(_or_zero(value) for value in m.values()), default={})
    found = ", ".join(f"{name} {value:.4g}" for name, value in best.items()) or "none"
    asked = ", ".join(f"{name} {value}" for name, value in target.items())
    return "target-missed", f"run_stop says success, but the best accuracy is {found}; the target is {asked}", None, best


def _metrics(workload: str, value: Any) -> dict[str, float]:
    """An accuracy as a number, as {"BBOX", "SEGM"}, or as that within {"accuracy": …}."""
    if isinstance(value, dict) and isinstance(value.get("accuracy"), (dict, int, float)):
        value = value["accuracy"]
    if isinstance(value, dict):
        pairs: tuple[tuple[str, Any], ...] = (("box_ap", value.get("BBOX")), ("mask_ap", value.get("SEGM")))
    else:
        pairs = ((next(iter(TARGETS.get(workload, {"accuracy": 0.0}))), value),)
    return {name: number for name, value in pairs if (number := _accuracy(value)) is not None}


def _accuracy(value: Any) -> float | None:
    """An accuracy as logged; NaN stays NaN, so that it can be named."""
    return math.nan if isinstance(value, float) and math.isnan(value) else _float(value)


def _intervals(events: dict[str, list[LogEvent]], start: str, stop: str, number: str) -> list[tuple[float, float]]:
    """Begin and end of each interval that has both, once for each number, sorted."""
    begins: dict[Any, float] = {}
    for event in events.get(start, []):
        begins.setdefault(_key(event, number), event.time_s)
    ends: dict[Any, float] = {}
    for event in events.get(stop, []):
        ends[_key(event, number)] = event.time_s
    return sorted((begin, ends[key]) for key, begin in begins.items() if key in ends and ends[key] > begin)


def _outside(intervals: Iterable[tuple[float, float]], covers: list[tuple[float, float]]) -> float:
    """Seconds of `intervals` that no cover lies over; intervals and covers are sorted."""
    total = 0.0
    for begin, end in intervals:
        total += (end - begin) - sum(max(0.0, min(end, stop) - max(begin, start)) for start, stop in covers)
    return max(0.0, total)


def _key(event: LogEvent, number: str) -> float | str:
    value = event.metadata.get(number)
    return value if isinstance(value, str) else _float(value) or 0.0


def _epoch(event: LogEvent) -> float | None:
    return _float(event.metadata.get("epoch_num"))


def _number(events: dict[str, list[LogEvent]], key: str) -> float | None:
    values = [value for event in events.get(key, []) if (value := _float(event.value)) is not None and value > 0]
    return values[0] if values else None


def _float(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    found = re.search(r"\d+", str(value)) if value is not None else None
    return int(found.group()) or None if found else None


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
