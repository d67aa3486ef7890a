"""One timed run at a time on a host: two would share its cores, and both times would be wrong."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from launch.show import Display


@contextlib.contextmanager
def hosts_to_itself(hosts: list[str], display: Display) -> Iterator[None]:
    """Hold the named hosts (none: this one) against this user's other runs; wait while another run has one of them.

    The kernel lets go of the locks when their holder dies. Within a Slurm job the scheduler has given the nodes out.
    """
    if "SLURM_JOB_ID" in os.environ:
        yield
        return
    own = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    folder = (own if own.is_absolute() and own.is_dir() else Path(tempfile.gettempdir())) / f"trainscale-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.ExitStack() as held:
        for host in sorted(set(hosts)) or [platform.node()]:  # always in this order, so that two runs cannot wait for each other
            lock = FileLock(folder / f"{host}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                display.say(f"  waiting: another run is timed on {host}")
                lock.acquire()
            held.callback(lock.release)
        yield
