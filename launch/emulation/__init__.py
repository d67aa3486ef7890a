"""A real Slurm cluster of N emulated nodes with shaped rails, on one machine. Needs root; the host is left as it was.

A node is a set of namespaces (network, hostname, mounts, System V IPC, processes) with one process in it that is process 1 there.
Everything that runs on a node lives in its process namespace, so that the kernel ends all of it when process 1 ends.
"""

from __future__ import annotations

from pathlib import Path

from launch.emulation.init import NODE_MARK


def inside_emulated_node() -> bool:
    """True when this process runs on an emulated node, whatever its environment says."""
    return Path(NODE_MARK).exists()
