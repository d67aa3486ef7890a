"""Which GPU architectures the pinned wheels hold: `python -m launch.wheel_architectures requirements/volta.txt --need sm_70`.

Reads the libraries themselves, of this environment or of a folder that pip fills (`--into`), and so tells what a version number
does not. Exit status 1 when a library that holds GPU code has none for the architecture that is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Container, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import click

from launch import fatbin
from results.yaml_file import ConfigurationError

WITH_KERNELS = re.compile(r"(torch|torchvision|nvidia-(dali|nccl|cudnn|cublas|nvimgcodec|nvjpeg)(-cuda\d+|-cu\d+)?)$")
"""Packages whose kernels training runs."""
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What one library of a package holds."""

    package: str
    version: str
    library: str
    architectures: fatbin.Architectures


def pins(requirements: Path) -> dict[str, str]:
    """Versions by package, also of the files that this one names with `-r`.

    Raises:
        ConfigurationError: the file is missing, or a line is no pin.
    """
    try:
        lines = [line.partition("#")[0].strip() for line in requirements.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise ConfigurationError(f"requirements {requirements}: {error.strerror}") from error
    found: dict[str, str] = {}
    for line in filter(None, lines):
        pin = PIN.fullmatch(line)
        if line.startswith("-r "):
            found |= pins(requirements.parent / line.removeprefix("-r ").strip())
        elif pin is None:
            raise ConfigurationError(f"{requirements}: expected NAME==VERSION or -r FILE, found: {line}")
        else:
            found[pin[1].lower()] = pin[2]
    return found


def held(folder: Path, wanted: dict[str, str]) -> Iterator[Held]:
    """What the packages in a folder hold: those of the pins that have kernels, and what these require in turn.

    Raises:
        ConfigurationError: a package is not there in the pinned version.
    """
    installed = {str(one.metadata["Name"]).lower(): one for one in metadata.distributions(path=[str(folder)])}
    queue = [name for name in wanted if WITH_KERNELS.match(name)]
    for name in queue:
        distribution = installed.get(name)
        if distribution is None or distribution.version != wanted.get(name, distribution.version):
            there = distribution.version if distribution else "nothing"
            asked = wanted.get(name, "it")
            raise ConfigurationError(f"{folder} holds {there} of {name}, not {asked}; let pip fill a folder: --into DIR")
        queue += [required for required in requirements_of(distribution, installed) if required not in queue]
        for path in sorted(distribution.files or []):
            other_python = ".cpython-" in path.name and not path.name.endswith(str(sysconfig.get_config_var("EXT_SUFFIX")))
            if re.search(r"\.so(\.\d+)*$", path.name) and not other_python:
                found = fatbin.read(Path(str(distribution.locate_file(path))))
                if found:
                    yield Held(package=name, version=distribution.version, library=path.name, architectures=found)


def requirements_of(distribution: metadata.Distribution, installed: Container[str]) -> list[str]:
    """Packages with kernels that a package requires, and those that are there for an extra of it, such as nvJPEG for DALI.

    CUDA 13's meta package `cuda-toolkit[cublas]` means nvidia-cublas.
    """
    found = []
    for line in distribution.requires or []:
        match = re.match(r"[A-Za-z0-9._-]+", line)
        name = match[0].lower() if match else ""
        if name == "cuda-toolkit" and "cublas" in line:
            name = "nvidia-cublas"
        if WITH_KERNELS.match(name) and ("extra ==" not in line or name in installed):
            found.append(name)
    return list(dict.fromkeys(found))


def fill(folder: Path, wanted: dict[str, str]) -> None:
    """Let pip unpack the pinned wheels that have kernels, and all they require, into a folder."""
    names = [f"{name}=={version}" for name, version in wanted.items() if WITH_KERNELS.match(name)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary=:all:"]
    subprocess.run([*pip, "--target", str(folder), *names], check=True)


@click.command(help=__doc__)
@click.argument("requirements", type=click.Path(path_type=Path))
@click.option("--need", metavar="sm_NN", help="The architecture that every library with GPU code must run on.")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="Folder that pip fills first; several GB.")
def main(requirements: Path, need: str | None, into: Path | None) -> None:
    """Print a line for each library that holds GPU code."""
    number = re.fullmatch(r"(?:sm_)?(\d+)", need or "sm_0")
    if number is None:
        raise ConfigurationError(f"--need {need}: expected sm_NN, such as sm_70 for a V100")
    wanted = pins(requirements)
    if into is not None:
        fill(into, wanted)
    lacking = 0
    for one in held(into or Path(sysconfig.get_path("purelib")), wanted):
        fits = not need or one.architectures.run_on(int(number[1]))
        lacking += not fits
        verdict = "" if fits else f"  <- nothing for {need}"
        click.echo(f"{one.package}=={one.version}  {one.library}: {one.architectures}{verdict}")
    if lacking:
        click.echo(f"{lacking} libraries hold nothing for {need}", err=True)
    sys.exit(1 if lacking else 0)


if __name__ == "__main__":
    try:
        main()
    except ConfigurationError as error:
        sys.exit(f"launch.wheel_architectures: {error}")
