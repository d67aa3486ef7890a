"""What the emulated cluster needs of the machine, and the one line that says what is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from results.yaml_file import ConfigurationError

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
PMIX_LIBRARIES = ("/usr/lib/*/pmix2/lib/libpmix.so", "/usr/lib*/libpmix.so")
"""`srun --mpi=pmix` loads it while it runs; Debian's Slurm does not depend on it."""


def missing() -> str | None:
    """Why there can be no emulated cluster here, with the way out, in one line; None when nothing is missing."""
    if os.geteuid() != 0:
        return "the emulated cluster makes network namespaces and needs root; run it with sudo, or as root in a container"
    path = search_path()
    packages = {package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None}
    root = Path("/")
    if not any(next(root.glob(pattern.lstrip("/")), None) for pattern in PMIX_LIBRARIES):
        packages.add("libpmix-dev")
    if packages:
        install = " ".join(["apt-get", "install", "--no-install-recommends", *sorted(packages)])
        return f"the emulated cluster needs Debian packages; run: {install}"
    return None


def check() -> None:
    """Raise ConfigurationError with the line of `missing`, if any."""
    if (why := missing()) is not None:
        raise ConfigurationError(why)


def search_path() -> str:
    """PATH with the folders of system daemons, which the PATH of a login often lacks."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
