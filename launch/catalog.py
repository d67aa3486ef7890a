"""The workloads and presets that there are, found as files, since planning must not import torch."""

from __future__ import annotations

import copy
import importlib.util
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from results.settings import Settings
from results.yaml_file import ConfigurationError, load_mapping, nearest, validate

EMBEDDED_DATA = ("digits", "digits-coco")
"""Data sets that come with this project and are written where they are missing."""
RATE_RULE = {"learning_rate.rule", "learning_rate.value", "learning_rate.batch_size"}


def training_folder() -> Path:
    """Folder of the `training` package, which is located but not imported."""
    found = importlib.util.find_spec("training")
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError("the package training is not installed; pip install trainscale again")
    return Path(next(iter(found.submodule_search_locations)))


def workloads() -> list[str]:
    """Names of the workloads: the folders of `training` that have presets."""
    return sorted(path.parent.name for path in training_folder().glob("*/presets") if any(path.glob("*.yaml")))


def presets(workload: str) -> dict[str, Path]:
    """Preset files of a workload by name.

    Raises:
        ConfigurationError: there is no such workload.
    """
    if workload not in workloads():
        raise ConfigurationError(f"unknown workload {workload}{nearest(workload, workloads())}")
    return {path.stem: path for path in sorted((training_folder() / workload / "presets").glob("*.yaml"))}


def preset_path(workload: str, preset: str) -> Path:
    """The file of a preset: a name, or the path of the user's own file.

    Raises:
        ConfigurationError: there is neither.
    """
    known = presets(workload)
    if preset in known:
        return known[preset]
    if preset.endswith((".yaml", ".yml")):
        if not Path(preset).is_file():
            raise ConfigurationError(f"preset file {preset} does not exist")
        return Path(preset)
    raise ConfigurationError(f"unknown preset {preset} of {workload}{nearest(preset, known)}")


def default_preset(workload: str) -> str:
    """The embedded preset, which runs anywhere."""
    known = presets(workload)
    return next((name for name in known if name.startswith("digits")), next(iter(known)))


def settings(workload: str, preset: str, overrides: dict[str, Any], ranks: int = 1) -> Settings:
    """The preset's settings for a number of ranks, with overrides by dotted key, validated.

    Values that the preset has for the global batch size of so many ranks take the place of its general ones; overrides win.

    Raises:
        ConfigurationError: an unknown key or a wrong value, with file and line, or with the override's name.
    """
    path = preset_path(workload, preset)
    data = load_mapping(path)
    base = validate(data, Settings, source=path)
    source = f"override {', '.join(overrides)}"
    if RATE_RULE & overrides.keys():  # a rate of the user's own wins over the preset's table too
        overrides = {"learning_rate.by_batch_size": {}, **overrides}
    asked = _changed(base, overrides, source=source)
    batch_size = asked.global_batch_size(ranks)
    table = asked.by_global_batch_size
    if not table:
        return asked
    published = _changed(base, table.get(batch_size, {}), source=f"{path}: by_global_batch_size {batch_size}")
    # All keys of the table, general values included: by this, reports tell an override from what the preset says.
    entry = {key: _get(published, key) for key in dict.fromkeys(key for entry in table.values() for key in entry)}
    found = _changed(published, overrides, source=f"override {', '.join(overrides)}")
    return found.model_copy(update={"by_global_batch_size": {**table, batch_size: entry}})


def origin(workload: str, preset: str, global_batch_size: int) -> str:
    """Whether the hyperparameters are the preset's own for a global batch size; empty where it has none of the kind.

    Raises:
        ConfigurationError: there is no such preset.
    """
    path = preset_path(workload, preset)
    known = sorted(validate(load_mapping(path), Settings, source=path).by_global_batch_size)
    if not known:
        return ""
    if global_batch_size in known:
        return f"the preset's values for a global batch of {global_batch_size}"
    closest = min(known, key=lambda size: abs(math.log(size / global_batch_size)))
    return f"by the preset's rules: it has values for {', '.join(map(str, known))}; the nearest is {closest}"


def _get(settings: Settings, key: str) -> Any:
    """Value of a dotted key as JSON has it; None where there is none."""
    value: Any = settings.model_dump(mode="json")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _changed(base: Settings, overrides: dict[str, Any], source: str) -> Settings:
    changed = copy.deepcopy(base.model_dump(mode="json"))
    for key, value in overrides.items():
        _set(changed, key, value)
    return validate(changed, Settings, source=source)


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    node = data
    *path, last = key.split(".")
    for part in path:
        if not isinstance(node.get(part), dict):
            raise ConfigurationError(f"override {key}: unknown key {part}{nearest(part, node)}")
        node = node[part]
    free = path[:1] == ["model"]  # options of one workload's model: the workload checks them
    if last not in node and not free:
        raise ConfigurationError(f"override {key}: unknown key {last}{nearest(last, node)}")
    node[last] = value


def parse_overrides(assignments: Iterable[str]) -> dict[str, Any]:
    """`key=value` words as the user gives them with `--set`; values are read as YAML.

    Raises:
        ConfigurationError: a word without `=`, or a value that is no YAML.
    """
    found = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {assignment}: expected KEY=VALUE")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigurationError(f"--set {assignment}: the value is not valid YAML") from error
    return found
