"""Process 1 of an emulated node: `init.py STATE NAME`, started in fresh namespaces by `launch.emulation.node`.

It sets the hostname, gives the node its own /sys, /run, /dev/shm, /etc/hosts, ssh settings and scratch folder, says `ready`,
and from then on reaps orphans. It uses nothing but the standard library, so that it is there within milliseconds.

Until it reads the word `stay`, it lives only as long as the process that started it: when that one is killed, its end of the
pipe closes, this process ends, and the kernel ends all others on the node with it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

STAY = "stay"
READY = "ready"
NODE_MARK = "/run/trainscale-emulated-node"
"""A file that only an emulated node sees; it names the cluster's state folder."""


def main(state: Path, name: str) -> None:
    """Make this process's namespaces a node, then serve as its process 1 until killed."""
    waited_for = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    furnish(state, name)
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    print(READY, flush=True)
    while signal.sigwait(waited_for) == signal.SIGCHLD:
        reap()
    os._exit(0)  # at once: the thread may still wait in a read


def furnish(state: Path, name: str) -> None:
    """Hostname and mounts. They vanish with the namespaces."""
    socket.sethostname(name)
    mount("-t", "sysfs", "sysfs", "/sys")  # shows the interfaces of this node, not the host's
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")  # ranks on two nodes must not meet in shared memory
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for folder in ("/run/sshd", "/run/munge", "/run/slurm"):
        Path(folder).mkdir()
    Path("/run/tmp").mkdir(mode=0o1777)
    Path(NODE_MARK).write_text(f"{state}\n")
    mount("--bind", str(state / "etc" / "hosts"), "/etc/hosts")
    mount("--bind", str(state / "etc" / "ssh_config"), "/etc/ssh/ssh_config")
    mount("--bind", str(state / "nodes" / name), str(state / "scratch"))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def mount(*arguments: str) -> None:
    """Call mount(8); its message goes to this node's log."""
    subprocess.run(["mount", *arguments], check=True)


def end_with_the_parent() -> None:
    """Read from the parent until it lets this node stay; its death instead of that word ends the node."""
    if sys.stdin.readline().strip() != STAY:
        os._exit(1)


def reap() -> None:
    """Collect every child that has ended: orphans of the whole node come to process 1."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
