"""`trainscale resume`: go on with a run that was interrupted."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option("--launcher", default="mpirun", show_default=True, metavar="NAME")
@click.option("--host", "hosts", multiple=True, metavar="NAME[:SLOTS]")
@click.option("--json", "as_json", is_flag=True)
def command(run_dir: Path, launcher: str, hosts: tuple[str, ...], as_json: bool) -> None:
    """Go on with the run in RUN_DIR from its latest checkpoint; what was lost counts in its restart time."""
    from launch.commands.run import EXIT_STATUS, summary
    from launch.runner import Placement, execute
    from launch.show import make_display
    from launch.sweep import read_status
    from results.rundir import RunDirectory
    from results.spec import RunSpec
    from results.yaml_file import ConfigurationError

    directory = RunDirectory(run_dir.absolute())
    if not directory.spec.exists():
        raise ConfigurationError(f"{run_dir} holds no run (no spec.json)")
    status = read_status(directory.path)
    if status not in ("interrupted", "started"):
        raise ConfigurationError(f"{run_dir} is {status}: there is nothing to resume; trainscale run starts a new one")
    spec = RunSpec.model_validate_json(directory.spec.read_text())
    display = make_display(quiet=as_json)
    display.begin(spec, note=" (resumed)")
    try:
        record = execute(spec, directory, Placement(launcher=launcher, hosts=list(hosts)), display)
    finally:
        display.end()
    click.echo(record.model_dump_json(indent=1) if as_json else summary(record, directory.path))
    sys.exit(EXIT_STATUS[record.status])
