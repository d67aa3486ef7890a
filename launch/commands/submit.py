"""`trainscale submit`: every run of an experiment through sbatch, a job for each."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launch.commands.options import site_option

if TYPE_CHECKING:
    from launch.slurm_submit import Submission


@click.command()
@click.argument("experiment_file", type=click.Path(path_type=Path), metavar="EXPERIMENT.yaml")
@click.option("--runs", type=click.Path(path_type=Path), help="Folder of run directories; default: runs/<experiment's name>.")
@site_option
@click.option("--parallel", is_flag=True, help="Let runs go side by side; by default each waits for the one before it.")
@click.option("--wait", is_flag=True, help="Wait until every run is over, and tell what becomes of each.")
@click.option("--report", "with_report", is_flag=True, help="With --wait: end with the report, and write report.html.")
@click.option("--dry-run", is_flag=True, help="Print every file and command, and write and submit nothing.")
@click.option("--test-only", is_flag=True, help="Ask Slurm whether, when and where each job would start; nothing is queued.")
@click.option("--json", "as_json", is_flag=True)
def command(
    experiment_file: Path,
    runs: Path | None,
    site_file: Path | None,
    parallel: bool,
    wait: bool,
    with_report: bool,
    dry_run: bool,
    test_only: bool,
    as_json: bool,
) -> None:
    """Submit what is missing of an experiment: finished runs stay, queued ones are left alone, failed ones are tried again."""
    from launch.embedded import ensure_embedded
    from launch.experiment import load_experiment, plan
    from launch.site import load_site
    from launch.slurm_submit import Submission
    from results.yaml_file import ConfigurationError

    if with_report and not wait:
        raise ConfigurationError("--report needs --wait: the runs are not there yet when their jobs have been submitted")
    experiment = load_experiment(experiment_file)
    folder = (runs or Path("runs") / experiment.name).absolute()
    submission = Submission(
        specs=plan(experiment, folder, keep_seeds=not (dry_run or test_only)),
        folder=folder,
        site=load_site(site_file),
        site_file=site_file.absolute() if site_file else None,
        parallel=parallel,
        fabric_check=experiment.fabric_check,
    )
    if dry_run:
        _show_files(submission, as_json=as_json)
    elif test_only:
        answers = submission.try_out()
        click.echo(json.dumps(answers, indent=1) if as_json else "\n".join(f"{run}: {said}" for run, said in answers.items()))
    else:
        ensure_embedded(submission.specs)
        submitted, skipped = submission.submit()
        if as_json:
            click.echo(json.dumps({"submitted": submitted, "skipped": skipped}, indent=1))
        else:
            _say(submitted, skipped, folder)
        if wait:
            _wait(submission, quiet=as_json, with_report=with_report)


def _say(submitted: dict[str, int], skipped: dict[str, str], folder: Path) -> None:
    for run_id, why in skipped.items():
        click.echo(f"{run_id}: {why}")
    for run_id, job_id in submitted.items():
        click.echo(f"{run_id}: job {job_id}")
    click.echo(f"{len(submitted)} jobs submitted; see: trainscale status {shlex.quote(str(folder))}")


def _wait(submission: Submission, *, quiet: bool, with_report: bool) -> None:
    from launch.commands.sweep import exit_status, show_report
    from launch.show import make_display
    from launch.slurm_watch import watch

    outcomes = watch([submission.folder / spec.run_id for spec in submission.specs], make_display(quiet=quiet))
    if with_report:
        show_report(submission.folder)
    sys.exit(exit_status(outcomes.values()))


def _show_files(submission: Submission, *, as_json: bool) -> None:
    files = submission.files()
    if not files and not as_json:
        click.echo(f"nothing is left to do in {submission.folder}")
    if as_json:
        click.echo(json.dumps([{"path": str(f.path), "text": f.text, "command": f.command} for f in files], indent=1))
        return
    for file in files:
        click.echo(f"==> {file.path}\n{file.text}\n$ {shlex.join(file.command)}\n")
