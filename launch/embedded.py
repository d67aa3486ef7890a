"""The data sets that come with this project are written where they are missing, before any clock runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from launch.catalog import EMBEDDED_DATA
from launch.experiment import default_data_dir
from results.spec import RunSpec
from results.yaml_file import ConfigurationError


def prepare_data(name: str, root: Path) -> str:
    """Run `python -m training.data.prepare`; returns what it says.

    Raises:
        ConfigurationError: it failed; the message is its own.
    """
    command = [sys.executable, "-m", "training.data.prepare", name, "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr, end="")  # the summary of what was found
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        hint = "; pip install 'trainscale[train]'" if "ModuleNotFoundError" in lines[-1] else ""
        raise ConfigurationError(f"data set {name} could not be prepared: {lines[-1]}{hint}")
    return done.stdout.strip()


def ensure_embedded(specs: Iterable[RunSpec]) -> None:
    """Write the embedded data sets that these runs need and that are not in their usual place. A folder that the user names is
    taken as it is: writing digits where somebody expects other data would hide the mistake."""
    wanted = {(spec.settings.dataset, spec.data_dir) for spec in specs if spec.settings.input.source != "synthetic"}
    for dataset, root in sorted(wanted):
        if dataset in EMBEDDED_DATA and root == default_data_dir(dataset).absolute() and not root.exists():
            prepare_data(dataset, root)
