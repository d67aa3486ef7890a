"""Read a YAML file into a validated document; every fault is named with file, line and, where one is near, the right key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

T = TypeVar("T", bound=BaseModel)


class ConfigurationError(Exception):
    """A file or option of the user's is wrong; the message is one line (or one per fault) fit to be shown as it is."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the known name nearest to `name`, else the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there is: {', '.join(names)}" if names else ""


def load_mapping(path: Path) -> dict[str, Any]:
    """The mapping at the top of a YAML file.

    Raises:
        ConfigurationError: the file is missing, unreadable, no YAML, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.safe_load(text)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{path}:{line}: not valid YAML: {error.problem}") from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path}:1: expected keys and values, found {type(data).__name__}")
    return data


def load_document(path: Path, model: type[T]) -> T:
    """Read `path` as a `model`.

    Raises:
        ConfigurationError: as `load_mapping`, and for each key that is unknown, missing or of a wrong value.
    """
    return validate(load_mapping(path), model, source=path)


def validate(data: dict[str, Any], model: type[T], *, source: Path | str) -> T:
    """Validate a mapping that was read from `source`; a `Path` source gives line numbers."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = _key_lines(source) if isinstance(source, Path) else {}
        faults = [_describe(fault, model, source, lines) for fault in error.errors()]
        raise ConfigurationError("\n".join(faults)) from None


def _describe(fault: Any, model: type[BaseModel], source: Path | str, lines: dict[tuple[str, ...], int]) -> str:
    location = tuple(str(part) for part in fault["loc"])
    line = next((lines[location[:n]] for n in range(len(location), 0, -1) if location[:n] in lines), None)
    place = f"{source}:{line}" if line else str(source)
    key = ".".join(location)
    if fault["type"] == "extra_forbidden":
        return f"{place}: unknown key {key}{nearest(location[-1], _fields(model, location[:-1]))}"
    if fault["type"] == "missing":
        return f"{place}: key {key} is missing"
    return f"{place}: {key or 'document'}: {fault['msg']}"


def _fields(model: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    """Keys that `model` knows at `path`, walked through its JSON schema; empty where the path leaves the schema."""
    schema = TypeAdapter(model).json_schema()
    definitions = schema.get("$defs", {})
    node: dict[str, Any] = schema
    for part in path:
        options = [node, *node.get("anyOf", []), *node.get("oneOf", [])]
        options = [definitions[o["$ref"].split("/")[-1]] if "$ref" in o else o for o in options]
        following = [o["properties"][part] for o in options if part in o.get("properties", {})]
        following += [o["items"] for o in options if part.isdigit() and "items" in o]
        if not following:
            return []
        node = following[0]
        while "$ref" in node:
            node = definitions[node["$ref"].split("/")[-1]]
    return list(node.get("properties", {}))


def _key_lines(path: Path) -> dict[tuple[str, ...], int]:
    """Line (from 1) of each key and list item, by its path from the top of the document."""
    found: dict[tuple[str, ...], int] = {}

    def walk(node: yaml.Node, at: tuple[str, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                found[(*at, str(key.value))] = key.start_mark.line + 1
                walk(value, (*at, str(key.value)))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                found[(*at, str(index))] = value.start_mark.line + 1
                walk(value, (*at, str(index)))

    root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    if root is not None:
        walk(root, ())
    return found
