"""All runs of an experiment as jobs: what is left, in which order, and each job's file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from launch.experiment import FabricCheck
from launch.fabric import new_folder
from launch.fabric_check import SETTINGS, checked_interconnects, expectation
from launch.interconnect import load_interconnect
from launch.runner import prepare_folder, put_failed_attempt_aside
from launch.site import SiteProfile
from launch.slurm import JobScript, JobTicket, fabric_script, run_script, submit, submit_command, try_out, write_script
from launch.slurm_queue import QueueUnknownError, job_states
from launch.sweep import DONE, read_status
from results.model import write_atomically
from results.rundir import RunDirectory
from results.spec import RunSpec
from results.yaml_file import ConfigurationError


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One sbatch file that would be written and submitted."""

    path: Path
    text: str
    command: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """The runs of one experiment on their way to Slurm."""

    specs: list[RunSpec]
    folder: Path
    site: SiteProfile
    site_file: Path | None
    parallel: bool
    """False: each job waits for the one before it, so that two runs never share the fabric."""
    fabric_check: FabricCheck | None = None
    """Measured by a job for each interconnect, without whose success no run over it starts."""

    def files(self) -> list[PlannedFile]:
        """The files and commands of what is left; nothing is written or asked of Slurm."""
        found: list[PlannedFile] = []
        left = self._left({})[0]
        before: str | None = None
        checks: dict[str, str] = {}
        for name, folder, script in self._checks(left):
            command = submit_command(folder / "job.sbatch", after=before)
            found.append(PlannedFile(folder / "job.sbatch", script.render(), command))
            before = checks[name] = f"<job of fabric {Path(name).stem}>"
        for spec in left:
            path = self.folder / spec.run_id / "job.sbatch"
            command = submit_command(path, after=None if self.parallel else before, passed=checks.get(spec.interconnect))
            found.append(PlannedFile(path, self._script(spec).render(), command))
            before = f"<job of {spec.run_id}>"
        return found

    def try_out(self) -> dict[str, str]:
        """What Slurm says of each job that is left, by run id.

        Raises:
            ConfigurationError: no sbatch, or Slurm refuses one.
        """
        answers = {}
        for spec in self._left({})[0]:
            with tempfile.NamedTemporaryFile("w", prefix=f"{spec.run_id}.", suffix=".sbatch") as file:
                file.write(self._script(spec).render())
                file.flush()
                answers[spec.run_id] = try_out(Path(file.name))
        return answers

    def submit(self) -> tuple[dict[str, int], dict[str, str]]:
        """Submit what is left; returns job ids by run id, and why each other run was left alone.

        Raises:
            ConfigurationError: the folder cannot be written, another submission works on it, or Slurm refuses a job.
        """
        prepare_folder(RunDirectory(self.folder / self.specs[0].run_id))
        try:
            with FileLock(self.folder / ".submit.lock", timeout=0):
                return self._submit()
        except Timeout:
            raise ConfigurationError(f"another submission works on {self.folder}; wait for it") from None

    def _submit(self) -> tuple[dict[str, int], dict[str, str]]:
        active = self._active()
        left, skipped = self._left(active)
        submitted: dict[str, int] = {}
        last = max(active.values(), default=None)
        checks: dict[str, tuple[int, Path]] = {}
        for name, folder, script in self._checks(left):
            own = RunDirectory(folder)
            prepare_folder(own)
            ticket = submit(write_script(script, own), own, after=last)
            submitted[f"fabric of {name}"] = last = ticket.job_id
            checks[name] = ticket.job_id, folder
        for spec in left:
            run_dir = RunDirectory(self.folder / spec.run_id)
            prepare_folder(run_dir)
            put_failed_attempt_aside(run_dir)
            if not run_dir.spec.exists():
                write_atomically(run_dir.spec, spec.model_dump_json(indent=1) + "\n")
            passed, folder_of_check = checks.get(spec.interconnect, (None, None))
            ticket = submit(
                write_script(self._script(spec), run_dir), run_dir,
                after=None if self.parallel else last, passed=passed, fabric_check=folder_of_check,
            )  # fmt: skip
            submitted[spec.run_id] = last = ticket.job_id
        return submitted, skipped

    def _checks(self, left: list[RunSpec]) -> list[tuple[str, Path, JobScript]]:
        """Interconnect, folder and job of each measurement that comes first.

        Raises:
            ConfigurationError: the check asks for no percentage, or of a line rate that is not stated.
        """
        if self.fabric_check is None:
            return []
        found = []
        for name, spec in checked_interconnects(left).items():
            expectation(self.fabric_check, self.site.fit(load_interconnect(name)))
            folder = new_folder(self.folder, name)
            sizes = SETTINGS.smallest_bytes, SETTINGS.largest_bytes
            found.append((name, folder, fabric_script(spec, self.fabric_check, sizes, folder, self.site, self.site_file)))
        return found

    def _script(self, spec: RunSpec) -> JobScript:
        return run_script(spec, self.folder / spec.run_id, self.site, self.site_file)

    def _left(self, active: dict[str, int]) -> tuple[list[RunSpec], dict[str, str]]:
        """Runs that have to be submitted, and why each other one has not; `active` are the jobs in the queue by run id."""
        left, skipped = [], {}
        for spec in self.specs:
            status = read_status(self.folder / spec.run_id)
            if status in DONE:
                skipped[spec.run_id] = status
            elif spec.run_id in active:
                skipped[spec.run_id] = f"is in the queue as job {active[spec.run_id]}"
            else:
                left.append(spec)
        return left, skipped

    def _active(self) -> dict[str, int]:
        """Jobs of this experiment that Slurm still works on, by run id."""
        tickets = {spec.run_id: JobTicket.read(RunDirectory(self.folder / spec.run_id)) for spec in self.specs}
        ids = {run_id: ticket.job_id for run_id, ticket in tickets.items() if ticket}
        try:
            states = job_states(ids.values())
        except QueueUnknownError as error:
            raise ConfigurationError(f"{error}: cannot tell which runs are queued already") from error
        return {run_id: job_id for run_id, job_id in ids.items() if job_id in states and states[job_id].active}
