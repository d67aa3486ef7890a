"""`trainscale status`: what runs, what failed and why, what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("runs"))
@click.option("--json", "as_json", is_flag=True)
def command(folder: Path, as_json: bool) -> None:
    """Every run directory under FOLDER (default: runs) with its status, how far it came, and why it failed."""
    from results.yaml_file import ConfigurationError

    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder; name the folder of the runs")
    rows = [_row(path.parent) for path in sorted(folder.rglob("spec.json"))]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo(f"no runs under {folder}")
        return
    from tabulate import tabulate

    table = [[row["run"], row["status"], row["epochs"], row["minutes"], row["detail"]] for row in rows]
    click.echo(
        tabulate(table, headers=["run", "status", "epochs", "minutes", "detail"], floatfmt=".2f", maxcolwidths=[None] * 4 + [48])
    )


def _row(path: Path) -> dict[str, Any]:
    from filelock import FileLock, Timeout

    from launch.sweep import read_record
    from results import events
    from results.rundir import RunDirectory

    run_dir = RunDirectory(path)
    if run_dir.record.exists():
        record = read_record(run_dir)
        minutes = record.time_to_train_s / 60 if record.time_to_train_s is not None else None
        detail = record.failure.message if record.failure else ""
        return {"run": path.name, "status": record.status, "epochs": len(record.epochs), "minutes": minutes, "detail": detail}
    epochs = [event for event in events.read(path) if event["event"] == "epoch_stop"]
    try:
        with FileLock(path / ".lock", timeout=0):
            status, detail = "interrupted", "its processes are gone; trainscale resume goes on"
    except Timeout:
        status, detail = "running", f"loss {epochs[-1]['loss']:.4f}" if epochs else "starting"
    return {"run": path.name, "status": status, "epochs": len(epochs), "minutes": None, "detail": detail}
