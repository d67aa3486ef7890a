"""Start a launcher, follow what its ranks do, and end all of it: nothing of a run outlives its supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
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
from launch.standstill import GRACE_S, Standstill
from results import events
from results.rundir import RunDirectory

POLL_S = 0.1
STOP_S = 90.0
"""Between the request to stop and the kill: the ranks agree on a step and write a checkpoint. Slurm's advance signal comes 120 s
before the time limit; after scancel it kills by itself (KillWait, 30 s by default)."""
LAUNCHER_ENDS_S = 3.0
"""For a launcher that is told to end all, before it is killed itself."""
ASK_AGAIN_S = 2.0
"""A launcher that is still starting its ranks hands nothing on, so the request is repeated."""
IMPATIENT_S = 2.0
"""A second request after this time means now. Before, it may be the first one that came on two ways, as from Slurm."""
FORWARDING = {"mpirun", "mpiexec", "orterun", "prterun", "srun"}
"""Launchers that hand SIGUSR1 on to all ranks and live on. On SIGTERM mpirun kills its ranks within half a second."""
NOBODY_TO_ASK = {"SSH_ASKPASS_REQUIRE": "never"}
"""ssh has no terminal here; it must not open a window for a password either, and wait."""
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
    tail, watch = _EventTail(run_dir.path), Standstill(run_dir)
    with _Requests() as requests, run_dir.launcher_log.open("ab") as log:
        log_start_bytes = log.tell()
        process = subprocess.Popen(
            command, env=os.environ | NOBODY_TO_ASK | environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=_die_with_parent,
        )  # fmt: skip
        deadline_s = math.inf
        try:
            while process.poll() is None:
                for event in tail:
                    display.event(event)
                    watch.seen(event)
                    if event["event"] == "failure":
                        deadline_s = min(deadline_s, time.monotonic() + GRACE_S)  # the launcher ends the other ranks, or we do
                if requests.due():
                    if deadline_s == math.inf:
                        deadline_s = time.monotonic() + STOP_S
                        display.say("  stopping at the next step, with a checkpoint; ask again to end it at once")
                    _ask_to_stop(process, run_dir)
                hopeless = requests.impatient or watch.hopeless(process.pid)
                if hopeless or time.monotonic() > deadline_s:
                    _kill_tree(process)
                time.sleep(POLL_S)
            for event in tail:
                display.event(event)
        finally:
            _kill_tree(process)
            process.wait()
    return Outcome(
        exit_status=process.returncode,
        interrupted_by=requests.received,
        log_start_bytes=log_start_bytes,
        stalled=watch.reason,
    )


def _die_with_parent() -> None:
    """In the child, before exec: the kernel ends the launcher when this supervisor is gone, even by kill -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _ask_to_stop(process: subprocess.Popen[bytes], run_dir: RunDirectory) -> None:
    """Ask the ranks for a checkpoint: through launchers that reach all hosts, and the ranks of this host themselves.

    One rank that hears it is enough, since all agree; and horovodrun hands nothing on.
    """
    with contextlib.suppress(psutil.Error):
        launcher = psutil.Process(process.pid)
        for member in (launcher, *launcher.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                words = member.cmdline()
                if words and (Path(words[0]).name in FORWARDING or _is_rank(words, run_dir)):
                    member.send_signal(signal.SIGUSR1)


def _is_rank(words: list[str], run_dir: RunDirectory) -> bool:
    return len(words) == 4 and words[1:] == ["-m", "training", str(run_dir.path)]


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End the launcher, which then kills the ranks of all hosts, and kill whatever descends from it or shares its session.

    Killed at once, srun would leave its ranks to Slurm, which asks them to stop first: they would write a record of their own.
    """
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LAUNCHER_ENDS_S)
    members = []
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(candidate.pid) == process.pid:
                members.append(candidate)
    with contextlib.suppress(psutil.Error):
        members += psutil.Process(process.pid).children(recursive=True)
    for member in members:
        with contextlib.suppress(psutil.Error):
            member.kill()


class _Requests:
    """Requests to stop (SIGINT, SIGTERM) while it is entered."""

    def __init__(self) -> None:
        self.received: str | None = None
        """Name of the first signal."""
        self.impatient = False
        """Another one came later: end now."""
        self._first_s = self._asked_s = -math.inf
        self._previous: dict[signal.Signals, Any] = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.received is None:
            self.received, self._first_s = signal.Signals(number).name, now_s
        elif now_s - self._first_s > IMPATIENT_S:
            self.impatient = True

    def due(self) -> bool:
        """True when the ranks must be asked, or asked again."""
        now_s = time.monotonic()
        if self.received is None or now_s - self._asked_s < ASK_AGAIN_S:
            return False
        self._asked_s = now_s
        return True

    def __enter__(self) -> _Requests:
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
