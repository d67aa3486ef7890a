"""How far a run is from an MLPerf submission: MLCommons' own compliance checker, and what a submission folder still lacks."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from results.archive import RECORD, Archive, load, load_record
from results.mlperf_log import BENCHMARKS, LogEvent, read_log
from results.rcp import SUBMISSION_RUNS
from results.record import RunRecord
from results.rundir import RunDirectory
from results.yaml_file import ConfigurationError

CHECKER_TIMEOUT_S = 300
PLACEHOLDERS = {
    "submission_org": ("trainscale", "the organisation that submits"),
    "submission_status": ("research", "onprem, cloud or preview"),
    "submission_poc_name": ("not named", "a point of contact"),
}  # fmt: skip
"""What our logs say by default, and what a submission says instead."""
DESCRIPTION_BY_HAND = (
    "host_processor_caches, host_processor_interconnect, host_storage_type, host_storage_capacity, host_networking_topology, "
    "host_memory_configuration, accelerator_interconnect and its topology, cooling, hw_notes, sw_notes"
)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What the checker said, and what is missing."""

    log: str
    mlperf_round: str
    compliant: bool
    checker_lines: list[str]
    """Why it is not compliant, or its warnings."""
    missing: list[str]
    """For a submission folder; each line says what to do."""


def check_run(path: Path, mlperf_round: str) -> Readiness:
    """Check the log of a run directory, or one log file, by the rules of a round such as `1.0.0`.

    Raises:
        ConfigurationError: no log there, no such round, or the checker (package mlperf-logging) is not installed.
    """
    log = _log_of(path, mlperf_round)
    known = _rounds()
    if mlperf_round not in known:
        raise ConfigurationError(f"no rules for round {mlperf_round}; there is: {', '.join(known)}")
    compliant, lines = run_checker(log, mlperf_round)
    record = load_record(path / RECORD) if (path / RECORD).is_file() else None
    missing = _missing(log, record)
    missing += _repeats(path, record) if record else ["repeats: five logs, result_0.txt to result_4.txt, in one folder"]
    return Readiness(str(log), mlperf_round, compliant, lines, missing + _folder(record))


def run_checker(log: Path, mlperf_round: str) -> tuple[bool, list[str]]:
    """Run `mlperf_logging.compliance_checker` on a log; what it says, without its framing.

    Raises:
        ConfigurationError: the checker is not installed, or did not end.
    """
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", mlperf_round]
        command += ["--log_output", str(Path(scratch) / "checker.log"), str(log.absolute())]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=CHECKER_TIMEOUT_S, cwd=scratch
            )
        except subprocess.TimeoutExpired:
            raise ConfigurationError(f"the compliance checker did not end within {CHECKER_TIMEOUT_S} s on {log}") from None
    text = done.stdout + done.stderr
    if done.returncode != 0 and "No module named" in text:
        raise ConfigurationError("the compliance checker is not installed; pip install mlperf-logging")
    return done.returncode == 0 and "SUCCESS" in text, _what_it_said(text)


def _what_it_said(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    starts = (
        "CHECK for",
        "failed test",
        "Required",
        "Failed",
        "Log lines had",
        "No log lines",
        "Could not find",
        "FileNotFoundError",
    )
    found = [
        line.removeprefix("WARNING -").strip() for line in lines if line.removeprefix("WARNING -").strip().startswith(starts)
    ]
    return list(dict.fromkeys(line[:300] for line in found))


def _rounds() -> list[str]:
    """Rounds whose rules the checker ships."""
    try:
        files = metadata.files("mlperf-logging") or []
    except metadata.PackageNotFoundError:
        raise ConfigurationError("the compliance checker is not installed; pip install mlperf-logging") from None
    folders = {
        part for file in files for part in file.parts if part.startswith("training_") and "compliance_checker" in file.parts
    }
    numbers = {folder.removeprefix("training_") for folder in folders}
    return sorted(
        (number for number in numbers if number.replace(".", "").isdigit()), key=lambda text: [int(n) for n in text.split(".")]
    )


def _log_of(path: Path, mlperf_round: str) -> Path:
    if path.is_file():
        return path
    run = RunDirectory(path)
    log = run.mlperf_log_v06 if mlperf_round == "0.6.0" else run.mlperf_log
    if log.is_file():
        return log
    raise ConfigurationError(f"{path}: no {log.name} there; expected a run directory or a log file")


def _missing(log: Path, record: RunRecord | None) -> list[str]:
    missing = []
    if record and record.status != "finished":
        missing.append(f"a finished run: this one is {record.status}")
    if record and record.spec.settings.embedded:
        missing.append(f"the benchmark's own data set: {record.spec.settings.dataset} is embedded here and cannot be submitted")
    if record and record.spec.emulated_nodes:
        missing.append("real nodes: these are emulated on one host")
    if record and record.rails.verdict == "rails-differ":
        missing.append(f"the rails asked for: {record.rails.reason}")
    events: dict[str, LogEvent] = {}
    for event in read_log(log, {"cache_clear", "seed", *PLACEHOLDERS, "submission_platform"}).events:
        events.setdefault(event.key, event)
    for key, (default, instead) in PLACEHOLDERS.items():
        if key in events and events[key].value == default:
            missing.append(f"{key}: the log says {default!r}; a submission names {instead}")
    if "cache_clear" not in events or events["cache_clear"].value is not True:
        missing.append("cleared caches: the log has no cache_clear with value true before init_start")
    return missing


def _repeats(path: Path, record: RunRecord) -> list[str]:
    """Finished repeats beside this run: the same in everything but seed and repeat."""
    archive: Archive = load([path.parent])
    settings = record.spec.settings
    same = [
        run
        for run in archive.runs
        if run.counts and run.status == "finished" and run.workload == record.spec.workload
        and (run.nodes, run.ranks, run.interconnect) == (record.spec.nodes, record.spec.ranks, record.spec.interconnect)
        and run.local_batch_size == settings.local_batch_size
    ]  # fmt: skip
    if len(same) >= SUBMISSION_RUNS:
        return []
    return [f"repeats: {len(same)} of {SUBMISSION_RUNS} finished runs of this configuration lie in {path.parent}"]


def _folder(record: RunRecord | None) -> list[str]:
    system = record.spec.system.replace(" ", "_") if record else "<system>"
    benchmark = BENCHMARKS.get(record.spec.workload, "<benchmark>") if record else "<benchmark>"
    return [
        f"logs as <org>/results/{system}/{benchmark}/result_0.txt to result_{SUBMISSION_RUNS - 1}.txt",
        f"<org>/systems/{system}.json: hosts, accelerators and versions are in the record; by hand: {DESCRIPTION_BY_HAND}",
        f"<org>/benchmarks/{benchmark}/implementations/<name>/: the code, a README.md and how to fetch the data",
    ]
