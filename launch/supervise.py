"""Start a launcher, follow what its ranks do, and end all of it: nothing of a run outlives its supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from launch.show import Display
from results import events
from results.rundir import RunDirectory

POLL_S = 0.1
GRACE_S = 6.0
"""Between the request to stop and the kill: all ranks are gone within 10 s."""
STALL_S = 110.0
"""Longest silence while steps are done: a dead peer or a cut rail ends the job within 2 minutes."""
QUIET_S = {"start": 600.0, "process_start": 600.0, "init_stop": 600.0, "run_start": 600.0, "epoch_stop": 3600.0}
"""Longest silence after these events: ranks start, open their data, or evaluate, and say nothing meanwhile."""
CORPSE_LOOK_S = 2.0
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How the launcher's process ended."""

    exit_status: int
    interrupted_by: str | None
    """Name of the signal that this supervisor received, if any."""
    log_start_bytes: int
    """Where the output of this start begins in the launcher's log."""
    stalled: str | None = None
    """Why this supervisor ended a run that stood still, if it did."""


def supervise(command: list[str], environment: dict[str, str], run_dir: RunDirectory, display: Display) -> Outcome:
    """Run `command` to its end and show the events of its ranks.

    Raises:
        OSError: the command cannot be started or its log cannot be written.
    """
    tail, watch, corpses = _EventTail(run_dir.path), _StallWatch(), _CorpseWatch()
    with _Signals() as signals, run_dir.launcher_log.open("ab") as log:
        log_start_bytes = log.tell()
        process = subprocess.Popen(
            command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=_die_with_parent,
        )  # fmt: skip
        deadline_s: float | None = None
        try:
            while process.poll() is None:
                for event in tail:
                    display.event(event)
                    watch.seen(event)
                    if event["event"] == "failure" and deadline_s is None:
                        deadline_s = time.monotonic() + GRACE_S  # the launcher ends the other ranks, or we do
                if signals.received and deadline_s is None:
                    deadline_s = time.monotonic() + GRACE_S
                    _signal_tree(process, signal.SIGTERM)
                if deadline_s is None and (watch.stalled() or corpses.unburied(process.pid)):
                    deadline_s = time.monotonic()
                if deadline_s is not None and time.monotonic() > deadline_s:
                    _signal_tree(process, signal.SIGKILL)
                time.sleep(POLL_S)
            for event in tail:
                display.event(event)
        finally:
            _signal_tree(process, signal.SIGKILL)
            process.wait()
    return Outcome(
        exit_status=process.returncode,
        interrupted_by=signals.received,
        log_start_bytes=log_start_bytes,
        stalled=watch.reason,
    )


def _die_with_parent() -> None:
    """In the child, before exec: the kernel ends the launcher when this supervisor is gone, even by kill -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_tree(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the launcher and all that descends from it or shares its session.

    SIGTERM goes to the launcher alone, which hands it on to ranks on all hosts; a second one from here would kill them early.
    """
    if number is signal.SIGTERM:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        return
    members = []
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(candidate.pid) == process.pid:
                members.append(candidate)
    with contextlib.suppress(psutil.Error):
        members += psutil.Process(process.pid).children(recursive=True)
    for member in members:
        with contextlib.suppress(psutil.Error):
            member.send_signal(number)


class _StallWatch:
    """Knows when a run stands still. Between two steps hardly any time passes, but an evaluation says nothing until its end."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._last: dict[str, Any] = {"event": "start"}
        self._last_s = time.monotonic()
        self._longest_step_s = 0.0

    def seen(self, event: dict[str, Any]) -> None:
        now_s = time.monotonic()
        if event["event"] == self._last["event"] == "progress":
            self._longest_step_s = max(self._longest_step_s, now_s - self._last_s)
        self._last, self._last_s = event, now_s

    def stalled(self) -> bool:
        limit_s = QUIET_S.get(self._last["event"], max(STALL_S, 10 * self._longest_step_s))
        if self.reason is None and time.monotonic() - self._last_s > limit_s:
            place = ", ".join(f"{key} {self._last[key]}" for key in ("epoch", "step") if key in self._last)
            self.reason = f"no sign of life for {limit_s:.0f} s after {self._last['event']} {place}".rstrip()
        return self.reason is not None


class _CorpseWatch:
    """Knows when the launcher itself hangs: it buries a rank that ended at once, or never (seen with Open MPI 5.0.11, when
    ranks fail in MPI_Init: PMIX_ERR_UNREACH, then silence)."""

    def __init__(self) -> None:
        self._next_look_s = 0.0
        self._since_s: dict[int, float] = {}

    def unburied(self, launcher: int) -> bool:
        """True when a child of the launcher has been dead for longer than the grace period and still is its child."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + CORPSE_LOOK_S
        dead = set()
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(launcher).children():
                if child.status() == psutil.STATUS_ZOMBIE:
                    dead.add(child.pid)
        self._since_s = {pid: self._since_s.get(pid, now_s) for pid in dead}
        return any(now_s - since_s > GRACE_S for since_s in self._since_s.values())


class _Signals:
    """Remembers SIGINT and SIGTERM while it is entered, and lets the caller act on them."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


class _EventTail:
    """New whole lines of `events.jsonl` since the last look."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / events.FILE_NAME
        self.offset_bytes = self.path.stat().st_size if self.path.exists() else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        with self.path.open("rb") as stream:
            stream.seek(self.offset_bytes)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self.offset_bytes += len(line)
                with contextlib.suppress(ValueError):
                    yield json.loads(line)
