"""MLPerf Training logs, both ways: `:::MLLOG {json}` (v0.7 and later) and `:::MLL seconds key: {json}` (v0.6).

The formats are those of https://github.com/mlcommons/logging; its compliance checker reads what is written here.
"""

from __future__ import annotations

import json
import re
import sys
import time
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TextIO

from pydantic_core import from_json

BENCHMARKS = {"resnet50": "resnet", "ssd": "ssd", "maskrcnn": "maskrcnn"}
"""MLPerf's name of each of our workloads."""

V06_NAMES = {
    "lars_opt_base_learning_rate": "opt_base_learning_rate",
    "lars_opt_learning_rate_warmup_epochs": "opt_learning_rate_warmup_epochs",
    "sgd_opt_base_learning_rate": "opt_base_learning_rate",
}
"""Keys that v0.6 called otherwise. All other keys are the same, or unknown to v0.6, whose checker passes unknown keys."""

V06_ONLY = {"submission_poc_name", "submission_entry"}
"""Keys that v0.6 requires and later rounds have dropped."""


MARK, NEW_MARK = b":::MLL", b":::MLLOG"
OLD_LINE = re.compile(rb":::MLL[ \t]+([\d.]+)[ \t]+(\w+)[ \t]*:[ \t]*(.*)", re.DOTALL)
NEW_KEY = b'"key": "'
"""As every writer of the format puts it; a line that has it otherwise is read in full."""

LARGEST_LOG_BYTES = 2**30
"""More is never unpacked from a gzip file: a small one can hold terabytes."""


class LogEvent(NamedTuple):
    """One MLPerf event, whichever format it was written in."""

    time_s: float
    """Seconds since 1970."""
    key: str
    value: Any
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParsedLog:
    """What a log file holds."""

    events: list[LogEvent]
    """In the order of the file."""
    formats: set[str]
    """`MLL` (v0.6), `MLLOG` (v0.7 and later), or both."""
    broken: int = 0
    """Event lines that are cut or are no JSON; left out."""


def read_log(path: Path, keys: Collection[str] = ()) -> ParsedLog:
    """Parse a log file, gzip or not; see `parse_log`.

    Raises:
        OSError: the file cannot be read.
    """
    return parse_log(read_bytes(path), keys)


def read_bytes(path: Path) -> bytes:
    """Bytes of a log file, unpacked if it is gzip.

    Raises:
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    return _gunzip(data) if data[:2] == b"\x1f\x8b" else data


def parse_log(data: bytes, keys: Collection[str] = ()) -> ParsedLog:
    """All events among any other output, or only those of `keys`.

    Takes what real logs hold: prefixes of a launcher, lines of several ranks run together, a last line that was cut,
    Windows line ends, bytes that are no text. Nothing raises; what cannot be read is counted in `broken`.
    Takes time in proportion to the size, whatever the bytes are.
    """
    wanted = {key.encode() for key in keys}
    events: list[LogEvent] = []
    formats: set[str] = set()
    broken = 0
    position = data.find(MARK)
    while position >= 0:
        following = data.find(MARK, position + len(MARK))  # on the same line where two ranks wrote at once
        limit = following if following >= 0 else len(data)
        end = data.find(b"\n", position, limit)
        line = data[position : end if end >= 0 else limit]
        position = following
        try:
            if line.startswith(NEW_MARK):
                formats.add("MLLOG")
                event = _new_event(line, wanted)
            else:
                formats.add("MLL")
                event = _old_event(line, wanted)
        except (KeyError, TypeError, ValueError, OverflowError):
            broken += 1
        else:
            if event:
                events.append(event)
    return ParsedLog(events, formats, broken)


def _new_event(line: bytes, wanted: set[bytes]) -> LogEvent | None:
    """The event of a `:::MLLOG` line; None where its key is not wanted."""
    if wanted:
        start = line.find(NEW_KEY) + len(NEW_KEY)
        if start > len(NEW_KEY) and line[start : line.find(b'"', start)] not in wanted:
            return None
    document = _object(line[len(NEW_MARK) :])
    metadata = document.get("metadata")
    if type(metadata) is not dict:
        metadata = {}
    return LogEvent(float(document["time_ms"]) / 1000, str(document["key"]), document.get("value"), metadata)


def _old_event(line: bytes, wanted: set[bytes]) -> LogEvent | None:
    """The event of a `:::MLL` line; None where its key is not wanted."""
    found = OLD_LINE.match(line)
    if not found:
        raise ValueError("not a :::MLL line")
    if wanted and found[2] not in wanted:
        return None
    document = _object(found[3])
    metadata = document.get("metadata")
    return LogEvent(float(found[1]), found[2].decode(), document["value"], metadata if type(metadata) is dict else {})


def _object(payload: bytes) -> dict[str, Any]:
    """The JSON object at the start of `payload`, whatever follows it; empty where there is none."""
    try:
        document = from_json(payload)
    except ValueError:
        try:
            document, _ = json.JSONDecoder().raw_decode(payload.decode("utf-8", errors="replace").strip())
        except (ValueError, RecursionError):
            return {}
    return document if isinstance(document, dict) else {}


def _gunzip(data: bytes) -> bytes:
    """Decompressed bytes: as many as a cut or damaged file yields, and no more than a log can have."""
    decompressor = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(data), 1 << 16):
            parts.append(decompressor.decompress(data[start : start + (1 << 16)], LARGEST_LOG_BYTES - size))
            size += len(parts[-1])
            if size >= LARGEST_LOG_BYTES:
                break
    except zlib.error:
        pass
    return b"".join(parts)


class MlperfLogWriter:
    """Writes each event of one run into two files, one line each, flushed at once.

    Files are appended to, so that a resumed run goes on with its log. What the 1.0.0 and 0.6.0 rules ask of a log is the
    caller's to log, under the 1.0.0 names; for ResNet-50 with SGD that is also `opt_learning_rate_decay_boundary_epochs`,
    which 0.6.0 requires. The v0.6 rules want `cache_clear` true and before init_start, epochs counted from 1 without gaps,
    every evaluation inside a block, and `status="success"` at run_stop.

    Raises:
        OSError: a file cannot be written.
    """

    def __init__(self, mllog_path: Path, mll_path: Path) -> None:
        self._mllog: TextIO = mllog_path.open("a", encoding="utf-8", buffering=1)
        self._mll: TextIO = mll_path.open("a", encoding="utf-8", buffering=1)
        self._renamed: set[str] = set()

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """A point in time, such as a setting or an accuracy."""
        self._write("POINT_IN_TIME", key, value, metadata)

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        """The start of an interval; `key` in full, for example `epoch_start`."""
        self._write("INTERVAL_START", key, value, metadata)

    def end(self, key: str, value: Any = None, **metadata: Any) -> None:
        """The end of an interval; `key` in full, for example `epoch_stop`."""
        self._write("INTERVAL_END", key, value, metadata)

    def close(self) -> None:
        """Close both files."""
        self._mllog.close()
        self._mll.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _write(self, event_type: str, key: str, value: Any, metadata: dict[str, Any]) -> None:
        caller = sys._getframe(2)
        metadata = {"file": Path(caller.f_code.co_filename).name, "lineno": caller.f_lineno, **metadata}
        time_ms = round(time.time() * 1000)
        if key not in V06_ONLY:
            fields = {"namespace": "", "time_ms": time_ms, "event_type": event_type, "key": key, "value": value}
            self._mllog.write(f":::MLLOG {_json({**fields, 'metadata': metadata})}\n")
        old_key = V06_NAMES.get(key, key)
        if old_key in V06_NAMES.values():
            if old_key in self._renamed:
                return  # v0.6 wants it once, whichever of its later names came first
            self._renamed.add(old_key)
        self._mll.write(f":::MLL {time_ms / 1000:.3f} {old_key}: {_json({'value': value, 'metadata': metadata})}\n")


def write_submission_header(
    writer: MlperfLogWriter,
    *,
    workload: str,
    platform: str,
    org: str = "trainscale",
    division: str = "closed",
    status: str = "research",
    poc_name: str = "not named",
    entry: str = "not submitted",
) -> None:
    """The `submission_*` lines that both rounds require at the top of a log; `workload` by our name."""
    writer.event("submission_benchmark", BENCHMARKS.get(workload, workload))
    writer.event("submission_org", org)
    writer.event("submission_division", division)
    writer.event("submission_status", status)
    writer.event("submission_platform", platform)
    writer.event("submission_poc_name", poc_name)
    writer.event("submission_entry", entry)


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, default=_plain)


def _plain(value: Any) -> Any:
    """NumPy and torch scalars and arrays as plain Python."""
    return value.tolist()
