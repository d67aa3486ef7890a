"""`trainscale resume`: go on with a run that was interrupted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launch.commands.options import make_placement, placement_options

if TYPE_CHECKING:
    from results.rundir import RunDirectory


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@placement_options
@click.option("--json", "as_json", is_flag=True)
def command(
    run_dir: Path, launcher: str | None, hosts: tuple[str, ...], hostfile: Path | None, site_file: Path | None, as_json: bool
) -> None:
    """Go on with the run in RUN_DIR from its latest checkpoint; what was lost counts in its restart time."""
    from launch.commands.run import EXIT_STATUS, summary
    from launch.runner import execute
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
    placement = make_placement(launcher or _earlier_launcher(directory), hosts, hostfile, site_file)
    display = make_display(quiet=as_json)
    display.begin(spec, note=" (resumed)" if directory.command.exists() else "")
    try:
        record = execute(spec, directory, placement, display)
    finally:
        display.end()
    click.echo(record.model_dump_json(indent=1) if as_json else summary(record, directory.path))
    sys.exit(EXIT_STATUS[record.status])


def _earlier_launcher(run_dir: RunDirectory) -> str | None:
    """What started the ranks before; None for a run that was never started."""
    return json.loads(run_dir.command.read_text()).get("launcher") if run_dir.command.exists() else None
