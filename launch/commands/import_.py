"""`trainscale import`: bring runs and MLPerf logs from elsewhere into a folder of runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click


@click.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--into", type=click.Path(path_type=Path), default="runs", show_default=True, metavar="RUNS", help="Folder of runs."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(source: Path, into: Path, as_json: bool) -> None:
    """Copy every usable run under DIR into RUNS: run directories without checkpoints, MLPerf logs cut down to their MLPerf lines.

    What can't be used is named with the reason; exit status 1 if nothing could be used. Asked again, it adds what is new.
    """
    from results.importing import import_runs
    from results.yaml_file import ConfigurationError

    try:
        done = import_runs(source, into)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or into}: cannot be written: {error.strerror or error}") from error
    if as_json:
        problems = [{"source": str(problem.source), "reason": problem.reason} for problem in done.problems]
        document = {
            "added": [str(path) for path in done.added],
            "present": [str(path) for path in done.present],
            "problems": problems,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        click.echo(f"{len(done.added)} added to {into}, {len(done.present)} there already, {len(done.problems)} not used")
        for problem in done.problems:
            click.echo(f"  {problem.source}: {problem.reason}")
    if not done.added and not done.present:
        sys.exit(1)
