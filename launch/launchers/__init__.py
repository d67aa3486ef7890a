"""Launchers: each turns a `Job` into a list of tokens, a pure function."""

from __future__ import annotations

import shutil
from typing import Protocol

from launch.job import Job
from launch.site import SiteProfile
from results.yaml_file import ConfigurationError, nearest

NAMES = ("mpirun", "local", "srun", "horovodrun")


class Launcher(Protocol):
    """One way to start ranks."""

    @property
    def name(self) -> str:
        """As the user calls it."""

    def command(self, job: Job) -> list[str]:
        """The tokens to execute; nothing is started or looked up."""

    def environment(self, job: Job) -> dict[str, str]:
        """Variables to set for the launcher's own process."""


def get_launcher(name: str, site: SiteProfile | None = None) -> Launcher:
    """A launcher by name, as the site needs it; what it needs is looked up here.

    Raises:
        ConfigurationError: unknown name, or its program is not to be found.
    """
    if name == "mpirun":
        from launch.launchers.mpirun import Mpirun
        from launch.mpi import MpiNotFoundError, find_mpi

        try:
            return Mpirun(find_mpi())
        except MpiNotFoundError as error:
            raise ConfigurationError(str(error)) from error
    if name == "local":
        from launch.launchers.local import Local

        return Local()
    if name == "srun":
        from launch.launchers.srun import Srun

        if shutil.which("srun") is None:
            raise ConfigurationError("there is no srun here; run inside a Slurm allocation, or choose --launcher mpirun")
        site = site or SiteProfile()
        return Srun(mpi_plugin=site.mpi_plugin, options=site.srun_options)
    if name == "horovodrun":
        from launch.launchers.horovodrun import Horovodrun

        return Horovodrun()
    raise ConfigurationError(f"unknown launcher {name}{nearest(name, NAMES)}")
