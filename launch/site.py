"""A site profile: what one cluster needs beside the experiment, so that experiment files name no machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, NonNegativeInt, PositiveInt

from launch.interconnect import Interconnect
from results.model import Document
from results.yaml_file import ConfigurationError, load_document


def _one_line(text: str) -> str:
    """A header line of an sbatch file must stay one line, or it could smuggle in commands."""
    if re.search(r"[\r\n\0]", text):
        raise ValueError("must be one line")
    return text


def _option(text: str) -> str:
    if not text.startswith("--"):
        raise ValueError("must be an option of the form --name or --name=value")
    return _one_line(text)


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path, the same on every node")
    return path


Line = Annotated[str, AfterValidator(_one_line)]
Option = Annotated[str, AfterValidator(_option)]


class SiteProfile(Document):
    """One cluster, as a YAML file; every key may be left out. `slurm/sites/` holds examples."""

    name: Line = "unnamed"
    description: str = ""
    launcher: Literal["srun", "mpirun"] = "srun"
    """What starts the ranks inside an allocation."""
    mpi_plugin: Line = "pmix"
    """Slurm's MPI plug-in, as `srun --mpi=list` names it."""
    partition: Line | None = None
    account: Line | None = None
    time_limit: Line | None = None
    """Of one job, in Slurm's notation, for example `04:00:00`."""
    ranks_per_node: PositiveInt = 4
    """Taken where a command or sbatch file does not say; one rank drives one GPU or core."""
    cpus_per_rank: PositiveInt | None = None
    """Cores of each rank; None: the preset's `threads_per_rank`."""
    gpus_per_node: NonNegativeInt = 0
    """Asked of Slurm with `--gpus-per-node`."""
    bind_ranks: bool = True
    """Bind each rank to cores of its own."""
    exclusive: bool = True
    """Jobs share no node with other jobs."""
    sbatch_options: list[Option] = []
    """Further options of sbatch, such as `--constraint=edr`."""
    srun_options: list[Option] = []
    """Further options of srun, such as enroot's `--container-image=…`."""
    modules: list[Line] = []
    """Environment modules that the job loads."""
    container: list[Line] = []
    """Tokens before the ranks' Python, for example `[apptainer, exec, --nv, /images/trainscale.sif]`."""
    python: Line | None = None
    """Python of the ranks, for a container that has its own; None: the one that runs `trainscale`."""
    devices: dict[Literal["infiniband", "roce", "ethernet"], list[Line]] = {}
    """Names of the rails of every node in order; an interconnect configuration takes as many as it has rails."""
    management_interfaces: list[Line] = []
    """Interfaces for start-up and control traffic."""
    scratch: Annotated[Path, AfterValidator(_absolute)] | None = None
    """A folder on each node's own storage, the same path on every node; the data set is copied there before the clock starts."""
    environment: dict[str, Line] = {}
    """Further variables of every rank; they win over those of the interconnect configuration."""

    def fit(self, interconnect: Interconnect) -> Interconnect:
        """The interconnect configuration with this site's device names.

        Raises:
            ConfigurationError: the site has fewer rails of that kind.
        """
        update: dict[str, list[str]] = {}
        if self.management_interfaces:
            update["management_interfaces"] = self.management_interfaces
        own = self.devices.get(interconnect.kind, []) if interconnect.kind != "loopback" else []
        if own:
            if len(own) < interconnect.rails:
                raise ConfigurationError(
                    f"{interconnect.name} has {interconnect.rails} rails, but site {self.name} names {len(own)} "
                    f"{interconnect.kind} devices: {', '.join(own)}"
                )
            update["devices"] = own[: interconnect.rails]
        return interconnect.model_copy(update=update)


def load_site(path: Path | None) -> SiteProfile:
    """The profile in a YAML file; without one, a profile that asks for nothing.

    Raises:
        ConfigurationError: with file, line and the nearest key.
    """
    return load_document(path, SiteProfile) if path else SiteProfile()
