"""A sign of life from every rank, in the run directory: it still comes when the network between the ranks is gone.

An exchange with a dead peer waits for ever, and MPI over a cut rail says nothing. So a thread of each rank touches a file of
its own, and whoever follows the run sees which rank does not any more.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results.rundir import RunDirectory

BEAT_S = 10.0
SILENT_S = 45.0
"""Silence behind the others that says that a rank is gone, once it is known that the run stands still."""


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """The last sign of life of one rank."""

    rank: int
    host: str
    behind_s: float
    """Older than the newest sign of any rank, by the clock of the file system that holds the run directory."""


def beat(run_dir: RunDirectory, rank: int) -> None:
    """Give signs of life from now until this process ends or is stopped."""
    path = run_dir.heartbeat(rank)
    path.write_text(socket.gethostname())
    threading.Thread(target=_beat, args=(path, threading.Event()), name="heartbeat", daemon=True).start()


def _beat(path: Path, never: threading.Event) -> None:
    while not never.wait(BEAT_S):
        with contextlib.suppress(OSError):  # a file server that is away for a while
            os.utime(path)


def signs_of_life(run_dir: RunDirectory) -> list[SignOfLife]:
    """Of all ranks that ever began in this start of the run, in order."""
    seen: list[tuple[int, str, float]] = []
    for path in sorted(run_dir.heartbeat(0).parent.glob("alive-*")):
        # Opened, since NFS then asks the server for the present attributes.
        with contextlib.suppress(OSError), path.open() as stream:
            seen.append((int(path.name.rpartition("-")[2]), stream.read(), os.fstat(stream.fileno()).st_mtime))
    newest_s = max((touched_s for _, _, touched_s in seen), default=0.0)
    return [SignOfLife(rank, host, newest_s - touched_s) for rank, host, touched_s in seen]


def forget(run_dir: RunDirectory) -> None:
    """Remove the signs of an earlier start, whose ranks may have been others."""
    for path in run_dir.heartbeat(0).parent.glob("alive-*"):
        path.unlink(missing_ok=True)


def by_host(ranks: Sequence[SignOfLife]) -> str:
    """Ranks with their hosts: "rank 1 on node01 and ranks 2, 3 on node02"."""
    hosts = list(dict.fromkeys(sign.host for sign in ranks))
    parts = []
    for host in hosts:
        numbers = [str(sign.rank) for sign in ranks if sign.host == host]
        parts.append(f"rank{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} on {host}")
    return " and ".join(parts)
