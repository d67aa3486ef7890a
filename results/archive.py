"""Find and load runs under folders: our run directories, and MLPerf result logs as submitters publish them.

What cannot be used is named with its reason, and the rest goes on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from results.mlperf_log import read_log
from results.mlperf_run import KEYS, SystemFile, UnusableLog, read_system_file, run_of_log
from results.record import SCHEMA_VERSION, RunRecord
from results.run import Run, SettingsTable, run_of_record
from results.yaml_file import ConfigurationError

RECORD, SPEC, FABRIC = "record.json", "spec.json", "fabric.json"
LOG_ENDINGS = (".txt", ".log", ".out", ".txt.gz", ".log.gz", ".out.gz")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was found and cannot be used."""

    source: Path
    reason: str


@dataclass(slots=True)
class Archive:
    """All that was found under some folders."""

    runs: list[Run] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    without_record: list[Path] = field(default_factory=list)
    """Run directories without a record: not started, or still running."""
    fabric_files: list[Path] = field(default_factory=list)
    """Fabric measurements."""


class UnusableRecord(Exception):
    """A record cannot be used; the message says why."""


def load(paths: Iterable[Path]) -> Archive:
    """Load every run under `paths` (folders or single files); one that is found twice counts once.

    Raises:
        ConfigurationError: a path does not exist, or nothing that is a run was found under any.
    """
    archive = Archive()
    table = SettingsTable()
    systems: dict[Path, SystemFile] = {}
    seen: set[Path] = set()
    paths = list(paths)
    for top in paths:
        if not top.exists():
            raise ConfigurationError(f"{top}: no such folder or file")
        for found in _walk(top):
            resolved = found.resolve()
            if resolved in seen:
                continue
            seen.add(resolved)
            _take(found, named=found == top, archive=archive, table=table, systems=systems)
    if not (archive.runs or archive.problems or archive.without_record or archive.fabric_files):
        shown = ", ".join(str(path) for path in paths)
        raise ConfigurationError(f"{shown}: no run found; expected run directories (with {RECORD}) or MLPerf logs (result_*.txt)")
    return archive


def load_record(path: Path) -> RunRecord:
    """Read one `record.json`, of this schema version or an older one.

    Raises:
        UnusableRecord: no JSON, not a record, or of a newer schema version.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    try:
        record = RunRecord.model_validate_json(data)
    except ValidationError as error:
        return _second_try(data, error)
    return record if record.schema_version == SCHEMA_VERSION else _second_try(data, None)


def migrate(document: dict[str, Any]) -> dict[str, Any]:
    """Bring the JSON of an older record up to the present schema version."""
    version = document.get("schema_version", 1)
    while version in MIGRATIONS:
        document = MIGRATIONS[version](document)
        version = document["schema_version"]
    return document


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Schema version of an older record: the step that makes it one of the next version."""


def _second_try(data: bytes, error: ValidationError | None) -> RunRecord:
    """Migrate what is older; name what is newer or broken."""
    try:
        document = from_json(data)
    except ValueError as problem:
        raise UnusableRecord(f"not valid JSON: {problem}") from None
    if not isinstance(document, dict):
        raise UnusableRecord("not a run record")
    version = document.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UnusableRecord(
            f"schema version {version} is newer than this trainscale reads ({SCHEMA_VERSION}); update trainscale"
        ) from None
    if version in MIGRATIONS:
        try:
            return RunRecord.model_validate(migrate(document))
        except ValidationError as later:
            error = later
    if error is None:
        raise UnusableRecord(f"schema version {version} is unknown")
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"])
    raise UnusableRecord(f"not a valid run record: {where}: {fault['msg']}") from None


def _take(path: Path, *, named: bool, archive: Archive, table: SettingsTable, systems: dict[Path, SystemFile]) -> None:
    try:
        if path.name == RECORD:
            record = load_record(path)
            _plausible(record)
            archive.runs.append(run_of_record(record, path.parent, table))
        elif path.name == SPEC:
            archive.without_record.append(path.parent)
        elif path.name == FABRIC:
            archive.fabric_files.append(path)
        else:
            log = read_log(path, KEYS)
            if log.events or log.broken or named or path.name.startswith("result_"):
                archive.runs.append(run_of_log(path, _system_file(path, systems), log))
    except (UnusableRecord, UnusableLog) as problem:
        archive.problems.append(Problem(path, str(problem)))
    except OSError as problem:
        archive.problems.append(Problem(path, f"cannot be read: {problem.strerror or problem}"))


def _plausible(record: RunRecord) -> None:
    """Refuse figures that no run can have, before they enter a score.

    Raises:
        UnusableRecord: naming the figure.
    """
    time_s = record.time_to_train_s
    if record.status == "finished" and (time_s is None or not 0 < time_s < math.inf):
        raise UnusableRecord(f"finished, with a time to train of {time_s} s")
    if record.status == "finished" and not record.epochs_to_target:
        raise UnusableRecord("finished, but no evaluation reached the target")
    if record.status == "finished" and any(math.isnan(value) for value in record.evaluations[-1].metrics.values()):
        raise UnusableRecord("finished, but the last accuracy is not a number")
    if record.stopped_at < record.started_at:
        raise UnusableRecord(f"the clock jumps: stopped {record.stopped_at}, before it started {record.started_at}")


def _system_file(log: Path, known: dict[Path, SystemFile]) -> SystemFile:
    """The description that lies beside: `<org>/results/<system>/<benchmark>/result_0.txt`, `<org>/systems/<system>.json`."""
    folder = log.parent.parent
    path = folder.parent.parent / "systems" / f"{folder.name}.json"
    if path not in known:
        known[path] = read_system_file(path)
    return known[path]


def _walk(top: Path) -> Iterator[Path]:
    """Records, specs without a record, fabric measurements and files that may be logs, in the order of their names."""
    if top.is_file():
        yield top
        return
    try:
        with os.scandir(top) as entries:
            found = sorted(entries, key=lambda entry: _natural(entry.name))
    except OSError:
        return
    names = {entry.name for entry in found}
    if RECORD in names or SPEC in names:  # a run directory; what lies deeper is its own business
        yield top / (RECORD if RECORD in names else SPEC)
        return
    for entry in found:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=True):
            yield from _walk(Path(entry.path))
        elif entry.name.endswith(LOG_ENDINGS) or entry.name == FABRIC:
            yield Path(entry.path)


def _natural(name: str) -> tuple[int, str]:
    return len(name), name
