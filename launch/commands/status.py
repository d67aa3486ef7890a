"""`trainscale status`: what runs, what failed and why, what is left."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("runs"))
@click.option("--json", "as_json", is_flag=True)
def command(folder: Path, as_json: bool) -> None:
    """Every run directory under FOLDER (default: runs) with its status, how far it came, and why it failed."""
    from launch.run_status import jobs_to_ask_for, rows_of, with_jobs
    from launch.slurm_queue import QueueUnknownError, job_states
    from results.yaml_file import ConfigurationError

    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder; name the folder of the runs")
    rows = rows_of(path.parent for path in sorted(folder.rglob("spec.json")))
    asked = jobs_to_ask_for(rows)
    try:
        rows = with_jobs(rows, job_states(asked))
    except QueueUnknownError as error:
        rows = [row | {"detail": f"{row['detail']}; job unknown: {error}"} if row["job"] in asked else row for row in rows]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo(f"no runs under {folder}")
        return
    from tabulate import tabulate

    columns = ["run", "status", "epochs", "minutes", *(["job"] if any(row["job"] for row in rows) else []), "detail"]
    table = [[row[column] for column in columns] for row in rows]
    click.echo(tabulate(table, headers=columns, floatfmt=".2f", maxcolwidths=[None] * (len(columns) - 1) + [48]))
