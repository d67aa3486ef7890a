"""`trainscale run`: one run, now."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from launch.commands.options import make_placement, placement_options

EXIT_STATUS = {"finished": 0, "target-missed": 3, "failed": 4, "interrupted": 5}


@click.command()
@click.argument("workload")
@click.option("--preset", metavar="NAME|FILE", help="Default: the embedded preset, which runs anywhere.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--ranks-per-node", type=click.IntRange(1), help="One rank drives one GPU or core; default: the site's, or 1.")
@click.option("--interconnect", default="loopback", show_default=True, metavar="NAME|FILE")
@placement_options
@click.option("--system", default="unnamed", show_default=True, help="Name of the machine in reports.")
@click.option("--seed", type=click.IntRange(0), help="Default: drawn from the operating system and recorded.")
@click.option("--backend", type=click.Choice(["horovod", "torch", "single"]), help="How gradients are exchanged.")
@click.option("--input", "input_source", type=click.Choice(["dali", "torch", "synthetic"]), help="Input pipeline.")
@click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16"]))
@click.option(
    "--backbone-weights",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Pretrained backbone of ssd or maskrcnn: torchvision's state dict, or .safetensors.",
)
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any other key of the preset, for example input.threads=4."
)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Default: data/<data set>.")
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of run directories."
)
@click.option("--run-id", help="Name of the run directory; default: made from the arguments.")
@click.option("--dry-run", is_flag=True, help="Print the exact command and files, and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, and nothing else.")
def command(
    workload: str,
    dry_run: bool,
    as_json: bool,
    runs: Path,
    launcher: str | None,
    hosts: tuple[str, ...],
    hostfile: Path | None,
    site_file: Path | None,
    **options: Any,
) -> None:
    """Train WORKLOAD (resnet50, ssd or maskrcnn) to its quality target and leave the record in a run directory."""
    from launch.embedded import ensure_embedded
    from launch.runner import execute
    from launch.show import make_display
    from results.rundir import RunDirectory

    placement = make_placement(launcher, hosts, hostfile, site_file)
    options["ranks_per_node"] = options["ranks_per_node"] or (placement.site.ranks_per_node if site_file else 1)
    spec = _spec(workload, runs, placement.hosts, **options)
    run_dir = RunDirectory((runs / spec.run_id).absolute())
    if dry_run:
        click.echo(describe(spec, run_dir, placement, as_json=as_json))
        return
    ensure_embedded([spec])
    display = make_display(quiet=as_json)
    display.begin(spec)
    try:
        record = execute(spec, run_dir, placement, display)
    finally:
        display.end()
    if as_json:
        click.echo(record.model_dump_json(indent=1))
    else:
        click.echo(summary(record, run_dir.path))
    sys.exit(EXIT_STATUS[record.status])


def _spec(workload: str, runs: Path, hosts: list[str], **options: Any) -> Any:
    from launch import catalog
    from launch.emulation import inside_emulated_node
    from launch.experiment import default_data_dir, draw_seed
    from launch.interconnect import load_interconnect
    from results.spec import RunSpec
    from results.yaml_file import ConfigurationError

    preset = options["preset"] or catalog.default_preset(workload)
    overrides = catalog.parse_overrides(options["assignments"])
    named = {
        "communication.backend": options["backend"], "input.source": options["input_source"], "precision": options["precision"],
    }  # fmt: skip
    nodes, interconnect = options["nodes"], load_interconnect(options["interconnect"])
    overrides |= {key: value for key, value in named.items() if value}
    if options["backbone_weights"]:
        overrides["model.backbone_weights"] = str(options["backbone_weights"].absolute())
    settings = catalog.settings(workload, preset, overrides, nodes * options["ranks_per_node"])
    alone = nodes > 1 and not hosts and "SLURM_JOB_ID" not in os.environ
    if alone and interconnect.kind != "loopback":
        raise ConfigurationError(
            f"{nodes} nodes over {interconnect.name}: name them with --host NAME:SLOTS, or run inside a Slurm allocation; "
            "--interconnect loopback emulates nodes on this host"
        )
    shape = f"n{nodes}x{options['ranks_per_node']}"
    name = options["run_id"] or _unused(runs, f"{workload}-{Path(preset).stem}-{shape}-{interconnect.name}")
    return RunSpec(
        run_id=name,
        workload=workload,
        preset=preset,
        nodes=nodes,
        ranks_per_node=options["ranks_per_node"],
        interconnect=options["interconnect"],
        system=options["system"],
        emulated_nodes=alone or inside_emulated_node(),
        seed=draw_seed() if options["seed"] is None else options["seed"],
        data_dir=(options["data_dir"] or default_data_dir(settings.dataset)).absolute(),
        settings=settings,
    )


def _unused(runs: Path, stem: str) -> str:
    number = 1
    while (runs / f"{stem}-r{number}").exists():
        number += 1
    return f"{stem}-r{number}"


def describe(spec: Any, run_dir: Any, placement: Any, *, as_json: bool) -> str:
    """The exact command, environment and files of a run, for `--dry-run`."""
    from launch.binding import binding_lines, bindings_here
    from launch.catalog import origin
    from launch.launchers import get_launcher
    from launch.runner import make_job

    launcher = get_launcher(placement.launcher, placement.site)
    job = make_job(spec, placement, run_dir.path)
    tokens, environment, bindings = launcher.command(job), launcher.environment(job), bindings_here(job)
    if as_json:
        document = {
            "spec": spec.model_dump(mode="json"),
            "run_dir": str(run_dir.path),
            "tokens": tokens,
            "environment": environment,
            "bindings": [asdict(binding) for binding in bindings],
        }
        return json.dumps(document, indent=1)
    lines = [
        f"run directory  {run_dir.path}",
        f"files          {run_dir.spec.name}, {run_dir.command.name}, then {run_dir.record.name}, {run_dir.mlperf_log.name}",
        f"batch          {spec.settings.local_batch_size} local, {spec.global_batch_size} global",
        f"learning rate  {spec.peak_learning_rate:.6g} at its peak",
        *(f"hyperparameters {told}" for told in [origin(spec.workload, spec.preset, spec.global_batch_size)] if told),
        f"seed           {spec.seed}",
        *binding_lines(job, bindings),
        "environment",
        *(f"  {shlex.quote(name)}={shlex.quote(value)}" for name, value in sorted(environment.items())),
        "command",
        f"  {shlex.join(tokens)}",
    ]
    return "\n".join(lines)


def summary(record: Any, path: Path) -> str:
    """One or two lines on how a run ended."""
    spec = record.spec
    if record.status == "finished":
        return (
            f"{spec.run_id}: target reached in {record.time_to_train_s / 60:.2f} minutes, {record.epochs_to_target} epochs, "
            f"{record.samples_per_s:.1f} images/s over {spec.ranks} ranks; {path}"
        )
    if record.status == "target-missed":
        last, wanted = record.evaluations[-1].metrics, spec.settings.quality_target
        return f"{spec.run_id}: target-missed: {last} after {len(record.epochs)} epochs, wanted {wanted}; {path}"
    failure = record.failure
    rank = f" (rank {failure.rank})" if failure.rank is not None else ""
    return f"{spec.run_id}: {record.status}{rank}: {failure.message}; {path}"
