"""`events.jsonl`: what a run did, line by line, flushed at once, so that a killed run still tells how far it came.

Names in use: process_start, init_stop, run_start, data_open, progress, epoch_stop, evaluation, checkpoint, resumed, interrupted,
run_stop, failure. In `checkpoint`, `resumed` and `interrupted`, `epoch` counts the epochs completed, and `step` the steps
done since.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE_NAME = "events.jsonl"


def append(run_dir: Path, event: str, **fields: Any) -> None:
    """Append one event with the present time; one write, so that lines of several processes don't mix."""
    line = json.dumps({"time_s": round(time.time(), 6), "event": event, **fields}) + "\n"
    handle = os.open(run_dir / FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read(run_dir: Path) -> Iterator[dict[str, Any]]:
    """Events in order; a last line that was cut is left out."""
    try:
        text = (run_dir / FILE_NAME).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
