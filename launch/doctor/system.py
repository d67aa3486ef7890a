"""Limits, shared memory, the clock, and the folders that training reads and writes."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from pathlib import Path

from launch.doctor.machine import Finding, Level, Machine

MIB = 2**20
SHM_WANTED_BYTES = 512 * MIB
FREE_WANTED_BYTES = 2048 * MIB
OPEN_FILES_WANTED = 1024


def shared_memory() -> Finding:
    """/dev/shm: MPI ranks, DALI's workers and NCCL meet in it."""
    try:
        free_bytes = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        remedy = "mount a tmpfs there; MPI ranks of one host meet in it"
        return Finding(part="/dev/shm", level="broken", found=str(error), remedy=remedy)
    level: Level = "ok" if free_bytes >= SHM_WANTED_BYTES else "warning"
    remedy = "" if level == "ok" else "mount -o remount,size=8G /dev/shm, or start the container with --shm-size=8g"
    return Finding(part="/dev/shm", level=level, found=f"{free_bytes // MIB} MiB free", remedy=remedy)


def limits(machine: Machine) -> Finding:
    """Locked memory and open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = locked == resource.RLIM_INFINITY
    memory = "unlimited" if unlimited else f"{locked // MIB} MiB"
    if machine.folders("/sys/class/infiniband") and not unlimited:
        remedy = "ulimit -l unlimited (limits.conf, and LimitMEMLOCK=infinity of slurmd's service): InfiniBand pins memory"
        return Finding(part="limits", level="broken", found=f"locked memory {memory}", remedy=remedy)
    if soft < OPEN_FILES_WANTED:
        return Finding(part="limits", level="warning", found=f"{soft} open files", remedy=f"ulimit -n {min(hard, 65536)}")
    return Finding(part="limits", level="ok", found=f"{soft} open files, locked memory {memory}")


def clock(machine: Machine) -> Finding | None:
    """Whether this machine's clock follows the network's time, where systemd can tell."""
    answer = machine.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"])
    if answer.status != 0:
        return None
    if answer.output.strip() == "yes":
        return Finding(part="clock", level="ok", found="follows network time")
    remedy = "systemctl enable --now chronyd (or timedatectl set-ntp true): logs of the nodes are put in order by their clocks"
    return Finding(part="clock", level="warning", found="does not follow network time", remedy=remedy)


def folders(runs: Path, scratch: Path | None, data: Path | None) -> list[Finding]:
    """Room for runs and in the site's scratch (or, without one, for temporary files), and whether the data are there."""
    found = [_room("runs", runs, "--runs"), _scratch(scratch) if scratch else _room("scratch", temporary(), "TMPDIR")]
    return [*found, *([_data(data)] if data else [])]


def temporary() -> Path:
    """Where libraries put temporary files."""
    return Path(os.environ.get("TMPDIR", tempfile.gettempdir()))


def _scratch(folder: Path) -> Finding:
    """A run makes no scratch folder: one that is missing is a disk that is not mounted."""
    chosen_by = "`scratch` in the site profile"
    if not folder.is_dir():
        remedy = f"mount or make it on every node, or choose another folder with {chosen_by}"
        return Finding(part="scratch", level="broken", found=f"{folder} is missing", remedy=remedy)
    return _room("scratch", folder, chosen_by)


def _room(part: str, folder: Path, chosen_by: str) -> Finding:
    """Can the folder, or the nearest one above it, be written, and how much is free there."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    remedy = f"free space, or choose another folder with {chosen_by}"
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(part=part, level="broken", found=f"{there} cannot be written", remedy=remedy)
    free_bytes = shutil.disk_usage(there).free
    level: Level = "ok" if free_bytes > FREE_WANTED_BYTES else "warning"
    found = f"{free_bytes // MIB} MiB free under {folder.absolute()}"
    return Finding(part=part, level=level, found=found, remedy="" if level == "ok" else remedy)


def _data(folder: Path) -> Finding:
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError as error:
        remedy = "mount it on this node too, or trainscale data prepare NAME --root DIR"
        return Finding(part="data", level="broken", found=f"{folder}: {error.strerror}", remedy=remedy)
    if not names:
        remedy = f"trainscale data prepare imagenet|coco|digits --root {folder}"
        return Finding(part="data", level="broken", found=f"{folder} is empty", remedy=remedy)
    return Finding(part="data", level="ok", found=f"{folder}: {', '.join(sorted(names)[:4])}{', …' if len(names) > 4 else ''}")
