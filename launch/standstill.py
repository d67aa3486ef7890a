"""Runs that would never end by themselves: no step for long, a rank without a sign of life, a launcher over its dead rank."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil

from results import heartbeat
from results.rundir import RunDirectory

GRACE_S = 6.0
"""Between the failure of a rank and the end of all others: they are gone within 10 s."""
STALL_S = 110.0
"""Longest silence while steps are done: a dead peer or a cut rail ends the job within 2 minutes."""
QUIET_S = {
    **dict.fromkeys(("start", "process_start", "init_stop", "run_start", "data_open"), 600.0),
    "epoch_stop": 3600.0,
    "staging_start": 4 * 3600.0,
}
"""Longest silence after these events: ranks start, open their data, evaluate, or copy a data set, and say nothing meanwhile."""
LOST_S = 90.0
"""Longest silence of one rank behind the others; sooner than `STALL_S`, since it is told by up to two beats late."""
LOOK_S = 2.0
LIFE_LOOK_S = heartbeat.BEAT_S
"""A look opens a file for each rank, on a file server that the ranks may read their data from."""


class Standstill:
    """All that says that a run will not go on; `reason` is for its record."""

    def __init__(self, run_dir: RunDirectory) -> None:
        self._steps, self._lives, self._corpses = StallWatch(), LifeWatch(run_dir), CorpseWatch()
        self._next_look_s = 0.0

    @property
    def reason(self) -> str | None:
        """Why the run was ended, unless its launcher was the one that hung."""
        return self._lives.reason or self._steps.reason

    def seen(self, event: dict[str, Any]) -> None:
        """The run did something."""
        self._steps.seen(event)

    def hopeless(self, launcher: int) -> bool:
        """True when the launcher of that process id must be ended."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + LOOK_S
        return self._lives.lost() or self._steps.stalled() or self._corpses.unburied(launcher)


class LifeWatch:
    """Knows when a rank is gone while the others wait for it, be it in a step, at the start or in an evaluation."""

    def __init__(self, run_dir: RunDirectory) -> None:
        self.reason: str | None = None
        self._run_dir = run_dir
        self._next_look_s = 0.0

    def lost(self) -> bool:
        now_s = time.monotonic()
        if self.reason is not None or now_s < self._next_look_s:
            return self.reason is not None
        self._next_look_s = now_s + LIFE_LOOK_S
        if any(sign.behind_s > LOST_S for sign in heartbeat.signs_of_life(self._run_dir)):
            self.reason = f"a rank gave no sign of life for {LOST_S:.0f} s"
        return self.reason is not None


class StallWatch:
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
        limit_s = QUIET_S.get(self._last["event"], max(STALL_S, 5 * self._longest_step_s))
        if self.reason is None and time.monotonic() - self._last_s > limit_s:
            place = ", ".join(f"{key} {self._last[key]}" for key in ("epoch", "step") if key in self._last)
            self.reason = f"nothing was done for {limit_s:.0f} s after {self._last['event']} {place}".rstrip()
        return self.reason is not None


class CorpseWatch:
    """Knows when the launcher itself hangs: it buries a rank that ended at once, or never (seen with Open MPI 5.0.11, when
    ranks fail in MPI_Init: PMIX_ERR_UNREACH, then silence)."""

    def __init__(self) -> None:
        self._since_s: dict[int, float] = {}

    def unburied(self, launcher: int) -> bool:
        """True when a child of the launcher has been dead for longer than the grace period and still is its child."""
        now_s = time.monotonic()
        dead = set()
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(launcher).children():
                if child.status() == psutil.STATUS_ZOMBIE:
                    dead.add(child.pid)
        self._since_s = {pid: self._since_s.get(pid, now_s) for pid in dead}
        return any(now_s - since_s > GRACE_S for since_s in self._since_s.values())
