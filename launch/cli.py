"""The `trainscale` command. Commands are imported when called, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "run": "one run, now",
    "sweep": "every run of an experiment; asked again, it does what is left",
    "plan": "batches, rates, schedule, shards and memory on many ranks, without any of them",
    "fit": "the largest local batch for 16 and 32 GB: an estimate, or by trial on a GPU",
    "submit": "every run of an experiment through sbatch, a job for each",
    "status": "what runs, what failed and why, what is left",
    "resume": "go on with a run that was interrupted",
    "report": "the scale-out comparison of finished runs",
    "compare": "two systems, two interconnects or two dates, with a verdict",
    "check": "MLPerf's compliance checker on a run, and what a submission lacks",
    "import": "bring runs and MLPerf logs from elsewhere into a folder of runs",
    "data": "prepare data sets",
    "predict-images": "draw what a trained detector finds in validation images",
    "fabric": "bandwidth and latency of the path that training will use",
    "interconnects": "the interconnect configurations and what each sets",
    "cluster": "a real Slurm cluster of emulated nodes, on this machine",
    "doctor": "what is missing here and the command that brings it",
}
"""Name and one-line help. Each command is `command` in the module `launch.commands.<name>` (`import_`: Python keeps `import`)."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = "import_" if cmd_name == "import" else cmd_name.replace("-", "_")
        module = importlib.import_module(f"launch.commands.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from results.yaml_file import nearest

            raise click.UsageError(f"no command {args[0]}{nearest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trainscale")
def cli() -> None:
    """Measure how distributed training scales out: time to train per interconnect, from 1 node to many."""


def main() -> None:
    """Run the command line; a fault of the user's is one clear line and exit status 2."""
    try:
        cli(prog_name="trainscale")
    except Exception as error:
        from results.yaml_file import ConfigurationError

        if isinstance(error, ConfigurationError):
            print(f"trainscale: {error}", file=sys.stderr)
            sys.exit(2)
        raise


if __name__ == "__main__":
    main()
