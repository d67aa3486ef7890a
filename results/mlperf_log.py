"""MLPerf Training logs, both ways: `:::MLLOG {json}` (v0.7 and later) and `:::MLL seconds key: {json}` (v0.6).

The formats are those of https://github.com/mlcommons/logging; its compliance checker reads what is written here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

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
    writer.event("submission_benchmark", BENCHMARKS[workload])
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
