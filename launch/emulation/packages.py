"""The Debian packages of the emulated cluster: the one list of them, and `python3 launch/emulation/packages.py [MORE…]`, which
installs those that are missing, and MORE, where root may. It needs the standard library alone, before anything is set up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "munged": "munge",
    "ip": "iproute2",
    "tc": "iproute2",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Each program and the Debian package that brings it."""
PMIX_LIBRARIES = ("usr/lib/*/pmix2/lib/libpmix.so", "usr/lib*/libpmix.so")
"""`srun --mpi=pmix` loads it while it runs; Debian's Slurm does not depend on it."""


def search_path() -> str:
    """PATH with the folders of system daemons, which the PATH of a login often lacks."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def missing_packages() -> list[str]:
    """The packages that this machine lacks."""
    path = search_path()
    packages = {package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None}
    if not any(next(Path("/").glob(pattern), None) for pattern in PMIX_LIBRARIES):
        packages.add("libpmix-dev")
    return sorted(packages)


def main(more: Sequence[str]) -> int:
    """Install what is missing; without root or apt-get do nothing, since the cluster and its tests say what they lack."""
    packages = [*missing_packages(), *(name for name in more if not _installed(name))]
    if not packages or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return 0
    print(f"Installing Debian packages: {' '.join(packages)}", flush=True)
    # RUNLEVEL=1: the packages' own daemons are not started; the emulated cluster starts its own.
    environment = os.environ | {"RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    for command in (["apt-get", "update", "--quiet"], install):
        done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL)
        if done.returncode:
            return done.returncode
    return 0


def _installed(package: str) -> bool:
    shown = subprocess.run(["dpkg-query", "--show", "--showformat=${Status}", package], capture_output=True, text=True)
    return shown.stdout.endswith(" installed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
