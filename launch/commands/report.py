"""`trainscale report`: the scale-out comparison of runs and MLPerf logs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

FORMATS = ("terminal", "markdown", "csv", "json")


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="terminal", help="What to print.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--html", "html_path", type=click.Path(path_type=Path), metavar="FILE", help="Also write one HTML page that stands alone."
)
@click.option(
    "--figures", "figures_dir", type=click.Path(path_type=Path), metavar="DIR", help="Also write each figure as SVG and PNG."
)
@click.option("--against", multiple=True, metavar="NAME", help="Set published numbers beside, for example mlperf-v0.6.")
@click.option(
    "--output", "output_path", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file instead of printing."
)
def command(
    folders: tuple[Path, ...],
    format_name: str,
    as_json: bool,
    html_path: Path | None,
    figures_dir: Path | None,
    against: tuple[str, ...],
    output_path: Path | None,
) -> None:
    """Compare the runs found under each DIR: run directories, or MLPerf result logs as submitters publish them.

    Failed runs are shown and not counted; what can't be used is named with the reason.
    """
    from results.archive import load
    from results.report.build import build_report

    archive = load(folders)
    report = build_report(archive, folders, against)
    format_name = "json" if as_json else format_name
    if format_name == "terminal":
        from results.report import terminal

        text = terminal.render(report, color=output_path is None and sys.stdout.isatty())
    else:
        text = str(importlib.import_module(f"results.report.{format_name}").render(report))
    _put(text, output_path)
    if html_path:
        from results.report import html

        _put(html.render(report), html_path)
        click.echo(f"HTML: {html_path}", err=True)
    if figures_dir:
        from results.report import figures

        for path in figures.write_all(report, figures_dir):
            click.echo(f"Figure: {path}", err=True)


def _put(text: str, path: Path | None) -> None:
    from results.model import write_atomically
    from results.yaml_file import ConfigurationError

    if path is None:
        click.echo(text, nl=False)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror or error}") from error
