"""`trainscale data prepare`: data sets, checked and indexed."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group()
def command() -> None:
    """Prepare data sets for training."""


@command.command()
@click.argument("name")
@click.option("--root", type=click.Path(path_type=Path), help="Folder of the data set; default: data/NAME.")
@click.option("--json", "as_json", is_flag=True)
def prepare(name: str, root: Path | None, as_json: bool) -> None:
    """Write an embedded data set (digits, digits-coco), or check and index one that you have (imagenet, coco)."""
    from launch.embedded import prepare_data
    from launch.experiment import default_data_dir
    from results.yaml_file import ConfigurationError, nearest

    known = ("digits", "digits-coco", "imagenet", "coco")
    if name not in known:
        raise ConfigurationError(f"unknown data set {name}{nearest(name, known)}")
    folder = (root or default_data_dir(name)).absolute()
    said = prepare_data(name, folder)
    click.echo(json.dumps({"name": name, "root": str(folder)}) if as_json else said)
