"""What is to be launched: the ranks, where, and with which environment. Launchers turn it into tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launch.emulation import inside_emulated_node
from results.binding import VARIABLE
from results.yaml_file import ConfigurationError


@dataclass(frozen=True, slots=True)
class Host:
    """One host and how many ranks it takes."""

    name: str
    slots: int

    @staticmethod
    def parse(text: str, default_slots: int) -> Host:
        """`name` or `name:slots`.

        Raises:
            ConfigurationError: the slots are no positive number.
        """
        name, colon, slots = text.partition(":")
        if not colon:
            return Host(name, default_slots)
        if not slots.isdigit() or int(slots) < 1 or not name:
            raise ConfigurationError(f"host {text}: expected NAME or NAME:SLOTS")
        return Host(name, int(slots))


def read_hostfile(path: Path) -> list[str]:
    """The hosts of an Open MPI hostfile as `name` or `name:slots`; a comment starts with `#`.

    Raises:
        ConfigurationError: the file is missing or a line is not `NAME [slots=N]`; file and line are named.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"host file {path}: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, *options = words
        slots = [option.removeprefix("slots=") for option in options if option.startswith("slots=")]
        if len(slots) != len(options) or not all(text.isdigit() and int(text) for text in slots):
            raise ConfigurationError(f"{path}:{number}: expected NAME or NAME slots=N, found: {line.strip()}")
        found.append(f"{name}:{slots[0]}" if slots else name)
    if not found:
        raise ConfigurationError(f"host file {path} names no host")
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One launch."""

    tokens: list[str]
    """What each rank executes."""
    ranks: int
    ranks_per_node: int
    hosts: list[Host] = field(default_factory=list)
    """Empty: this host alone, or those of the surrounding allocation."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that every rank must have, beside those that the launcher sets."""
    one_host: bool = False
    """All nodes are emulated on this host."""
    cores_per_rank: int = 1
    bind: bool = field(default_factory=lambda: not inside_emulated_node())
    """Ranks bind themselves (`results.binding`); emulated nodes share the cores of one machine, where they would pile up."""
    available_cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def check(self) -> None:
        """See that the ranks have room.

        Raises:
            ConfigurationError: more ranks than slots.
        """
        if self.hosts:
            slots = sum(host.slots for host in self.hosts)
            if self.ranks > slots:
                raise ConfigurationError(
                    f"{self.ranks} ranks do not fit into {slots} slots on {len(self.hosts)} hosts; "
                    "add hosts or slots (NAME:SLOTS), or ask for fewer nodes or ranks per node"
                )
        elif self.one_host and self.ranks > 4 * self.available_cores:
            raise ConfigurationError(
                f"{self.ranks} ranks on this host's {self.available_cores} cores: more than 4 on a core measure nothing; "
                "ask for fewer nodes or ranks per node"
            )


def binding_variables(ranks_per_node: int) -> dict[str, str]:
    """What ranks must be told to bind themselves; CUDA then numbers GPUs as the kernel does, by their place on the bus."""
    return {VARIABLE: str(ranks_per_node), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def passed_on(environ: Mapping[str, str], names: tuple[str, ...] = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")) -> dict[str, str]:
    """The variables of this process that ranks on other hosts need to find the same programs."""
    return {name: environ[name] for name in names if environ.get(name)}
