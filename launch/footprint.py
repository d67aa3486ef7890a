"""Where the footprint of a model comes from: a table for the presets as they are, a measurement in a child process otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from launch import catalog
from results.footprint import Footprint
from results.settings import Settings
from results.yaml_file import ConfigurationError, load_mapping, validate

TABLE = Path(__file__).with_name("footprints.yaml")


def known_footprint(workload: str, preset: str, settings: Settings) -> Footprint | None:
    """The footprint of a preset whose model, images and precision are as the preset has them; None where they are not."""
    entry = load_mapping(TABLE).get(f"{workload}/{preset}")
    if entry is None or _decisive(settings) != _decisive(catalog.settings(workload, preset, {})):
        return None
    return validate(entry, Footprint, source=f"{TABLE.name}: {workload}/{preset}")


def measure_footprint(workload: str, preset: str, settings: Settings) -> Footprint:
    """Measure in a process of its own, since planning must not import torch; takes up to a minute or two.

    Raises:
        ConfigurationError: torch is not installed, or the settings make no model.
    """
    return Footprint.model_validate(_ask("training.footprint", workload, preset, settings))


def find_by_trial(workload: str, preset: str, settings: Settings) -> dict[str, Any]:
    """The largest local batch on this machine's GPU, by trial in a process of its own.

    Raises:
        ConfigurationError: there is no GPU, or torch is not installed.
    """
    return _ask("training.memory", workload, preset, settings)


def _ask(module: str, workload: str, preset: str, settings: Settings) -> dict[str, Any]:
    """What `python -m MODULE` prints as JSON on these settings.

    Raises:
        ConfigurationError: it failed; the message is its last line.
    """
    asked = json.dumps({"workload": workload, "preset": preset, "settings": settings.model_dump(mode="json")})
    done = subprocess.run([sys.executable, "-m", module], input=asked, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        way_out = "; pip install 'trainscale[train]' brings torch" if "No module named 'torch" in lines[-1] else ""
        raise ConfigurationError(f"{lines[-1]}{way_out}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _decisive(settings: Settings) -> dict[str, Any]:
    """What decides the footprint."""
    model = {key: value for key, value in settings.model.items() if key != "backbone_weights"}
    chosen = settings.model_dump(include={"classes", "image_size", "max_image_size", "precision", "channels_last"})
    return {**chosen, "model": model}
