"""sbatch files: rendered, submitted, and found again. The files under `slurm/` are rendered by the same template."""

from __future__ import annotations

import datetime
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.experiment import FabricCheck
from launch.site import SiteProfile
from results.model import Document, write_atomically
from results.rundir import RunDirectory
from results.spec import RunSpec
from results.yaml_file import ConfigurationError, nearest

SBATCH_TIMEOUT_S = 60


class SlurmTimes(Document):
    """Slurm's own stamps of a job's present start, in seconds since 1970; it rounds them to whole seconds."""

    submitted_s: float
    eligible_s: float
    """When nothing but free nodes was missing: the job that it waits for was over."""
    started_s: float


class JobTicket(Document):
    """`job.json` in a run directory: which job does this run."""

    job_id: int
    submitted_at: str
    """ISO 8601, UTC."""
    depends_on: int | None = None
    """The job after which this one may start."""
    fabric_check: Path | None = None
    """Folder of the measurement that must have passed before this job may start."""
    slurm: SlurmTimes | None = None
    """Left by the job itself."""

    def write(self, run_dir: RunDirectory) -> None:
        """Leave the ticket in a run directory."""
        write_atomically(self.path(run_dir), self.model_dump_json(indent=1) + "\n")

    @staticmethod
    def now(job_id: int) -> JobTicket:
        """The ticket of a job that was submitted at this moment, as far as anybody knows."""
        return JobTicket(job_id=job_id, submitted_at=_now())

    @staticmethod
    def path(run_dir: RunDirectory) -> Path:
        return run_dir.path / "job.json"

    @staticmethod
    def read(run_dir: RunDirectory) -> JobTicket | None:
        """The ticket of a run directory, if its run was submitted."""
        path = JobTicket.path(run_dir)
        return JobTicket.model_validate_json(path.read_text()) if path.exists() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobScript:
    """One sbatch file."""

    comment: list[str]
    choice: str
    """Shell lines that leave the arguments of `trainscale` in `"$@"`."""
    job_name: str
    nodes: int
    ranks_per_node: int
    output: str
    site: SiteProfile = field(default_factory=SiteProfile)
    site_file: Path | None = None
    program: list[str] = field(default_factory=lambda: ["trainscale"])
    cpus_per_rank: int | None = None

    def options(self) -> list[str]:
        """The options of the #SBATCH lines."""
        site = self.site
        found = [f"--job-name={self.job_name}", f"--nodes={self.nodes}", f"--ntasks-per-node={self.ranks_per_node}"]
        cpus = site.cpus_per_rank or self.cpus_per_rank
        if cpus:
            found.append(f"--cpus-per-task={cpus}")
        if site.gpus_per_node:
            found.append(f"--gpus-per-node={site.gpus_per_node}")
        named = {"partition": site.partition, "account": site.account, "time": site.time_limit}
        found += [f"--{name}={value}" for name, value in named.items() if value]
        if site.exclusive:
            found.append("--exclusive")
        return [*found, *site.sbatch_options, f"--output={self.output}"]

    def render(self) -> str:
        """The file's text."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        loader = PackageLoader("launch")
        environment = Environment(
            loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        return environment.get_template("job.sbatch.j2").render(
            comment=self.comment,
            options=[shlex.quote(option) for option in self.options()],  # sbatch takes quotes off as a shell does
            modules=[shlex.quote(module) for module in self.site.modules],
            site=shlex.quote(str(self.site_file)) if self.site_file else "",
            choice=self.choice,
            program=shlex.join(self.program),
        )


def run_script(spec: RunSpec, run_dir: Path, site: SiteProfile, site_file: Path | None) -> JobScript:
    """The job of one run of an experiment, whose spec lies in `run_dir`. A requeued job does the same and so goes on."""
    words = ["resume", str(run_dir), "--launcher", site.launcher]
    return _script_of(spec, run_dir, site, site_file, words=words, name=spec.run_id, what=spec.run_id)


def fabric_script(
    spec: RunSpec, check: FabricCheck, sizes_bytes: tuple[int, int], folder: Path, site: SiteProfile, site_file: Path | None
) -> JobScript:
    """The job that measures the interconnect of a run over as many nodes and ranks as the run takes, into `folder`."""
    words = ["fabric", "--interconnect", spec.interconnect, "--launcher", site.launcher, "--expect", check.expect]
    words += ["--line-rate", check.line_rate] if check.line_rate else []
    words += ["--ranks-per-node", str(spec.ranks_per_node), "--folder", str(folder)]
    words += ["--smallest", str(sizes_bytes[0]), "--largest", str(sizes_bytes[1])]
    name, what = f"fabric-{Path(spec.interconnect).stem}", f"The fabric before the runs over {spec.interconnect}"
    return _script_of(spec, folder, site, site_file, words=words, name=name, what=what)


def _script_of(
    spec: RunSpec, folder: Path, site: SiteProfile, site_file: Path | None, *, words: list[str], name: str, what: str
) -> JobScript:
    """A job of the size of a run that executes `trainscale WORDS` and logs into a folder."""
    return JobScript(
        comment=[f"{what}, written by trainscale submit."],
        choice=f"set -- {shlex.join(words)}",
        job_name=name,
        nodes=spec.nodes,
        ranks_per_node=spec.ranks_per_node,
        cpus_per_rank=spec.settings.threads_per_rank,
        output=str(folder / "logs" / "slurm-%j.log"),
        site=site,
        site_file=site_file,
        program=[sys.executable, "-m", "launch.cli"],
    )


def train_script() -> JobScript:
    """`slurm/train.sbatch`: one run on all nodes of the job."""
    return JobScript(
        comment=[
            "One run on all nodes of the job, to its quality target:",
            "    sbatch -N 8 slurm/train.sbatch resnet50 --interconnect edr-2",
            "The environment that has `trainscale` must be active when you submit. Counts are read from Slurm: they stand",
            "below or on sbatch's command line, and nowhere else. A site profile: export TRAINSCALE_SITE=slurm/sites/mine.yaml",
        ],
        choice=TRAIN_CHOICE,
        job_name="trainscale",
        nodes=1,
        ranks_per_node=SiteProfile().ranks_per_node,
        output="slurm-%j.log",
    )


def experiment_script() -> JobScript:
    """`slurm/experiment.sbatch`: a whole experiment, one run after the other, within one job."""
    return JobScript(
        comment=[
            "A whole experiment within one job: every run on as many of the job's nodes as it asks for, one after the other:",
            "    sbatch -N 8 slurm/experiment.sbatch experiments/scaleout.yaml --runs runs/scaleout --report",
            "The environment that has `trainscale` must be active when you submit. Called again, or queued again, it does",
            "what is left. To give every run a job of its own: trainscale submit experiments/scaleout.yaml",
        ],
        choice='set -- sweep "$@"',
        job_name="trainscale-experiment",
        nodes=1,
        ranks_per_node=SiteProfile().ranks_per_node,
        output="slurm-%j.log",
    )


TRAIN_CHOICE = """\
run_id="slurm-$SLURM_JOB_ID"
if [ -e "runs/$run_id/spec.json" ]; then  # this job was queued again: go on from the last checkpoint
    set -- resume "runs/$run_id"
else
    set -- run "$@" --run-id "$run_id" --nodes "$SLURM_JOB_NUM_NODES" --ranks-per-node "$SLURM_NTASKS_PER_NODE"
fi"""


def write_script(script: JobScript, run_dir: RunDirectory) -> Path:
    """Write `job.sbatch` into a run directory."""
    path = run_dir.path / "job.sbatch"
    write_atomically(path, script.render())
    return path


def submit_command(script: Path, *, after: int | str | None, passed: int | str | None = None) -> list[str]:
    """Tokens that submit a file, to start when job `after` has ended in whatever way, and job `passed` well (a dry run knows no
    numbers yet). Where `passed` fails, Slurm takes the job out of the queue."""
    wanted = [f"afterok:{passed}"] if passed is not None else []
    wanted += [f"afterany:{after}"] if after is not None and after != passed else []
    dependency = [f"--dependency={','.join(wanted)}"] if wanted else []
    withdrawn = ["--kill-on-invalid-dep=yes"] if passed is not None else []
    return ["sbatch", "--parsable", *dependency, *withdrawn, str(script)]


def submit(
    script: Path, run_dir: RunDirectory, *, after: int | None, passed: int | None = None, fabric_check: Path | None = None
) -> JobTicket:
    """Submit a file and leave its ticket in the run directory.

    Raises:
        ConfigurationError: no sbatch, or Slurm refused; the message is Slurm's own.
    """
    answer = _sbatch(submit_command(script, after=after, passed=passed))
    # `--parsable` prints JOBID, or JOBID;CLUSTER on a federation.
    job_id = int(answer.stdout.split(";")[0])
    ticket = JobTicket(job_id=job_id, submitted_at=_now(), depends_on=after, fabric_check=fabric_check)
    ticket.write(run_dir)
    return ticket


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def try_out(script: Path) -> str:
    """What Slurm says of a file without running it: when and where it would start.

    Raises:
        ConfigurationError: as `submit`.
    """
    answer = _sbatch(["sbatch", "--test-only", str(script)])
    return (answer.stderr or answer.stdout).strip().removeprefix("sbatch: ")


def _sbatch(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    if shutil.which("sbatch") is None:
        raise ConfigurationError("there is no sbatch here; submit from a login node, or run now: trainscale sweep")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SBATCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"sbatch gave no answer within {SBATCH_TIMEOUT_S} s; is slurmctld up? scontrol ping") from None
    if done.returncode:
        raise ConfigurationError(f"sbatch refused {command[-1]}: {_reason(done.stderr)}")
    return done


def _reason(stderr: str) -> str:
    """Slurm's complaint in one line; an unknown partition is answered with those that there are."""
    lines = [line.removeprefix("sbatch: error: ").strip() for line in stderr.splitlines() if line.strip()]
    unknown = next((line.rpartition(":")[2].strip() for line in lines if line.startswith("invalid partition specified")), None)
    if unknown is not None:
        return f"there is no partition {unknown}{nearest(unknown, partitions())}"
    return "; ".join(lines) or "it gave no reason"


def partitions() -> list[str]:
    """Names of Slurm's partitions; empty when Slurm does not tell."""
    try:
        done = subprocess.run(["sinfo", "--noheader", "--format=%R"], capture_output=True, text=True, timeout=SBATCH_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return sorted(set(done.stdout.split()))
