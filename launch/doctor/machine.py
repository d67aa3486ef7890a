"""What the doctor's checks look at: files, commands and Python in processes of its own. Tests give recorded ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PROBE_TIMEOUT_S = 120
COMMAND_TIMEOUT_S = 30
LAUNCHERS_VARIABLES = ("OMPI_", "PMIX_", "PMI_", "SLURM_")

Level = Literal["ok", "warning", "broken"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the doctor's."""

    part: str
    level: Level
    found: str
    remedy: str = ""
    """The command or step that mends it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a command said."""

    status: int | None
    """Exit status; None: it is not installed, or gave no answer in time."""
    output: str = ""
    complaint: str = ""
    """The last line of its standard error, or why there is no answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """What a piece of Python found."""

    facts: dict[str, Any] | None
    """None: it failed."""
    complaint: str = ""
    """The last line of its complaint."""


def run(tokens: Sequence[str]) -> Answer:
    """Run a command to its end."""
    try:
        done = subprocess.run(
            list(tokens), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return Answer(status=None, complaint=f"{tokens[0]} is not installed")
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"no answer within {COMMAND_TIMEOUT_S} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        return Answer(status=None, complaint=why)
    return Answer(status=done.returncode, output=done.stdout, complaint=_last_line(done.stderr))


def probe(code: str) -> Probed:
    """What a piece of Python prints as JSON in a process of its own: a broken library must not take the doctor down with it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS_VARIABLES)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return Probed(facts=None, complaint=f"no answer within {PROBE_TIMEOUT_S} s")
    try:
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return Probed(facts=None, complaint=_last_line(done.stderr) or f"exit status {done.returncode}")
    return Probed(facts=facts)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine to look at."""

    root: Path = Path("/")
    """Above /sys, /proc and /dev."""
    run: Callable[[Sequence[str]], Answer] = run
    probe: Callable[[str], Probed] = probe
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def text(self, path: str) -> str | None:
        """A small file's text without the line end; None when it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def folders(self, path: str) -> list[Path]:
        """What a folder holds, in order of names; nothing when it is not there."""
        folder = self.root / path.lstrip("/")
        return sorted(folder.iterdir()) if folder.is_dir() else []


PYTHON = sys.executable
"""As remedies name it."""
