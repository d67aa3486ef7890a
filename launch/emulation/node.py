"""Start, find, enter and end the sets of namespaces that emulated nodes are.

No PID file is kept: a node's process 1 carries the state folder and the node's name on its command line, and is found by them.
So what a killed command left behind is found as well, and a recycled PID is never taken for a node.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.emulation import init
from launch.emulation.packages import search_path
from launch.emulation.plan import StateFolder

PROGRAM = Path(init.__file__).resolve()
END_TIMEOUT_S = 30.0


class EmulationError(Exception):
    """A step of making or changing the emulated cluster failed; the message says which, and why in the words of the program."""


@dataclass(frozen=True, slots=True)
class Node:
    """A running node (or the head, or the namespace of the switches)."""

    name: str
    pid: int
    """Process 1 of the node, as the host numbers it."""

    def inside(self, command: Sequence[str], *, working_directory: Path | None = None) -> list[str]:
        """Tokens that run `command` on the node, in every namespace of it."""
        where = working_directory or Path.cwd()
        return ["nsenter", f"--target={self.pid}", "-m", "-u", "-i", "-n", "-p", f"--wd={where}", "--", *command]

    def inside_network(self, command: Sequence[str]) -> list[str]:
        """Tokens that run `command` of the host with the node's network."""
        return ["nsenter", f"--target={self.pid}", "-n", "--", *command]


class NodeBirth:
    """A node on its way up: it dies with this process until `let_stay` is called."""

    def __init__(self, state: StateFolder, name: str) -> None:
        self.name = name
        self.state = state
        self._log = state.log / f"init-{name}.log"
        namespaces = ["--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [
            "unshare",
            *namespaces,
            "--propagation",
            "private",
            "--",
            sys.executable,
            "-I",
            "-S",
            str(PROGRAM),
            str(state.path),
            name,
        ]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=os.environ | {"PATH": search_path()},
            )

    def wait_ready(self) -> Node:
        """The node, once its process 1 has furnished it.

        Raises:
            EmulationError: the namespaces could not be made, or process 1 ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        node = find_nodes(self.state).get(self.name)
        if line != init.READY or node is None:
            why = self._log.read_text().strip().splitlines()[-1:] or ["no message"]
            raise EmulationError(f"{self.name} did not start: {why[0]} (log: {self._log})")
        return node

    def let_stay(self) -> None:
        """Let the node outlive this process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{init.STAY}\n")
        self._process.stdin.close()

    def collect(self) -> None:
        """Take note of the end of a node that was ended, so that no zombie is left."""
        self._process.wait()


def find_nodes(state: StateFolder) -> dict[str, Node]:
    """Every running node of the cluster whose state lies in `state`, by name."""
    found = {}
    for pid, name in _processes(state):
        if _is_process_one(pid):
            found[name] = Node(name, pid)
    return found


def end_nodes(state: StateFolder, names: Sequence[str] | None = None) -> int:
    """Kill the named nodes (all when None) with everything that runs on them, wait until they are gone, and count them.

    Raises:
        EmulationError: a process outlives SIGKILL for long (it hangs in the kernel).
    """
    processes = [(pid, name) for pid, name in _processes(state) if names is None or name in names]
    handles = {}
    for pid, _ in processes:
        with contextlib.suppress(ProcessLookupError):
            handles[os.pidfd_open(pid)] = pid
    try:
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle, pid in handles.items():
            if not select.select([handle], [], [], END_TIMEOUT_S)[0]:
                raise EmulationError(f"process {pid} of the cluster does not end")
    finally:
        for handle in handles:
            os.close(handle)
    return len({name for _, name in processes})


def _processes(state: StateFolder) -> list[tuple[int, str]]:
    """Host PID and node name of every process 1 of this cluster, and of the `unshare` that holds each."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if len(arguments) > 3 and arguments[-3].endswith("/emulation/init.py") and arguments[-2] == str(state.path):
            found.append((int(entry.name), arguments[-1]))
    return found


def _is_process_one(pid: int) -> bool:
    """True when a process is number 1 in a process namespace below this one."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    line = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    return len(line.split()) > 2 and line.split()[-1] == "1"
