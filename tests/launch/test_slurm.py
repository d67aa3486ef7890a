"""sbatch files and the queue, with small scripts on PATH in place of Slurm's programs; test_slurm_for_real.py has the real."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from launch.experiment import load_experiment, plan
from launch.site import load_site
from launch.slurm import JobTicket, experiment_script, run_script, train_script
from launch.slurm_queue import JobState, QueueUnknownError, job_states
from results.rundir import RunDirectory
from tests.launch.support import ROOT, trainscale
from tests.results.records import a_record

GOLDEN = Path(__file__).parent / "golden"
SITE = ROOT / "slurm" / "sites" / "edr-v100.yaml"


def program(folder: Path, name: str, text: str) -> None:
    """Put a shell script of that name first on PATH."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize(("name", "script"), [("train", train_script()), ("experiment", experiment_script())])
def test_the_files_to_submit_by_hand_are_what_the_template_renders(name: str, script) -> None:
    assert (ROOT / "slurm" / f"{name}.sbatch").read_text() == script.render()


def test_the_file_of_one_run_is_as_recorded() -> None:
    spec = plan(load_experiment(ROOT / "experiments" / "demo.yaml"), Path("/runs"), keep_seeds=False)[-1]
    script = run_script(spec, Path("/runs/a run"), load_site(SITE), Path("/sites/my site.yaml"))
    text = script.render().replace(script.program[0], "PYTHON")
    assert text == (GOLDEN / "run.sbatch").read_text()


def test_files_are_valid_shell(tmp_path: Path) -> None:
    for path in [*ROOT.glob("slurm/*.sbatch"), GOLDEN / "run.sbatch"]:
        subprocess.run(["bash", "-n", str(path)], check=True)


class TestJobScript:
    """The script around `trainscale`, run by bash with a stand-in for `trainscale` and for `scontrol`."""

    def run(self, programs: Path, trainscale_text: str, signal: str | None, *, begun: bool = False) -> tuple[int, str]:
        work = programs.parent
        program(programs, "trainscale", f'echo "$@" >> {work}/calls\n{trainscale_text}')
        program(programs, "scontrol", f'echo "$@" >> {work}/scontrol')
        if begun:
            (work / "runs" / "slurm-7").mkdir(parents=True)
            (work / "runs" / "slurm-7" / "spec.json").write_text("{}")
        environment = os.environ | {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8", "SLURM_NTASKS_PER_NODE": "4"}
        process = subprocess.Popen(
            ["bash", str(ROOT / "slurm" / "train.sbatch"), "resnet50", "--set", "a={b: 1}"], cwd=work, env=environment
        )
        if signal:
            while not (work / "ready").exists():
                time.sleep(0.01)
            subprocess.run(["kill", f"-{signal}", str(process.pid)], check=True)
        status = process.wait(timeout=30)
        requeued = work / "scontrol"
        return status, requeued.read_text().strip() if requeued.exists() else ""

    STOPS = "trap 'kill $p; exit 5' TERM; sleep 60 & p=$!; touch ready; wait"

    def test_counts_come_from_slurm_and_arguments_pass_untouched(self, programs: Path) -> None:
        assert self.run(programs, "exit 0", None) == (0, "")
        calls = (programs.parent / "calls").read_text()
        assert calls == "run resnet50 --set a={b: 1} --run-id slurm-7 --nodes 8 --ranks-per-node 4\n"

    def test_a_job_queued_again_goes_on(self, programs: Path) -> None:
        self.run(programs, "exit 0", None, begun=True)
        assert (programs.parent / "calls").read_text() == "resume runs/slurm-7\n"

    def test_before_the_time_limit_the_run_stops_and_the_job_is_queued_again(self, programs: Path) -> None:
        status, requeued = self.run(programs, self.STOPS, "USR1")
        assert requeued == "requeue 7"
        assert status == 0

    def test_scancel_stops_the_run_for_good(self, programs: Path) -> None:
        assert self.run(programs, self.STOPS, "TERM") == (5, "")

    def test_a_run_that_lost_a_node_is_queued_again_and_a_failed_one_is_not(self, programs: Path) -> None:
        assert self.run(programs, "exit 5", None) == (0, "requeue 7")
        (programs.parent / "scontrol").unlink()
        assert self.run(programs, "exit 4", None) == (4, "")


EXPERIMENT = """\
name: small
system: test
workloads: [{name: resnet50, preset: digits, data_dir: /data}]
nodes: [1, 2]
ranks_per_node: 1
interconnects: [ethernet]
repeats: 2
seeds: [1, 2]
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(EXPERIMENT)
    return path


def run_ids() -> list[str]:
    return [f"resnet50-digits-n{nodes}x1-ethernet-r{repeat}" for nodes in (1, 2) for repeat in (1, 2)]


def test_dry_run_shows_files_and_commands_and_writes_nothing(experiment: Path, tmp_path: Path) -> None:
    done = trainscale("submit", experiment, "--runs", tmp_path / "runs", "--site", SITE, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)
    assert [Path(file["path"]).parent.name for file in files] == run_ids()
    assert "#SBATCH --partition=gpu" in files[0]["text"]
    assert files[0]["command"] == ["sbatch", "--parsable", files[0]["path"]]
    assert files[1]["command"][2] == f"--dependency=afterany:<job of {run_ids()[0]}>"
    assert not (tmp_path / "runs").exists()


def test_each_run_waits_for_the_one_before_and_is_submitted_once(experiment: Path, tmp_path: Path, programs: Path) -> None:
    runs = tmp_path / "runs"
    finished = RunDirectory(runs / run_ids()[0])
    finished.path.mkdir(parents=True)
    finished.record.write_text(a_record(nodes=1).model_dump_json())
    program(programs, "sbatch", f'echo "$@" >> {tmp_path}/calls\necho $((100 + $(wc -l < {tmp_path}/calls)))')
    program(programs, "squeue", "echo '101|PENDING|Dependency|'; echo '102|RUNNING|None|n1'; echo '9|RUNNING|None|n2'")
    done = trainscale("submit", experiment, "--runs", runs, "--json")
    assert done.returncode == 0, done.stderr
    second, third, fourth = run_ids()[1:]
    assert json.loads(done.stdout) == {
        "submitted": {second: 101, third: 102, fourth: 103}, "skipped": {run_ids()[0]: "finished"},
    }  # fmt: skip
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"--parsable {runs}/{second}/job.sbatch",
        f"--parsable --dependency=afterany:101 {runs}/{third}/job.sbatch",
        f"--parsable --dependency=afterany:102 {runs}/{fourth}/job.sbatch",
    ]
    assert (runs / second / "spec.json").exists()
    again = json.loads(trainscale("submit", experiment, "--runs", runs, "--json").stdout)
    assert again["submitted"] == {fourth: 104}  # squeue knows nothing of 103: it is gone without a record
    assert (tmp_path / "calls").read_text().splitlines()[-1].startswith("--parsable --dependency=afterany:102 ")


def test_the_fabric_comes_first_where_it_is_asked_for(experiment: Path, tmp_path: Path, programs: Path) -> None:
    experiment.write_text(EXPERIMENT + "fabric_check: {expect: 85%, line_rate: 10gbit}\n")
    runs = tmp_path / "runs"
    program(programs, "sbatch", f'echo "$@" >> {tmp_path}/calls\necho $((100 + $(wc -l < {tmp_path}/calls)))')
    program(programs, "squeue", "true")
    files = json.loads(trainscale("submit", experiment, "--runs", runs, "--dry-run", "--json").stdout)
    assert len(files) == 5
    assert "fabric --interconnect ethernet --launcher srun --expect 85% --line-rate 10gbit" in files[0]["text"]
    assert "#SBATCH --nodes=2" in files[0]["text"]
    assert "--dependency=afterok:<job of fabric ethernet>" in files[1]["command"]
    done = trainscale("submit", experiment, "--runs", runs)
    assert done.returncode == 0, done.stderr
    first, second, third, *_ = (tmp_path / "calls").read_text().splitlines()
    assert first.startswith(f"--parsable {runs}/fabric/ethernet-")
    assert second == f"--parsable --dependency=afterok:101 --kill-on-invalid-dep=yes {runs}/{run_ids()[0]}/job.sbatch"
    assert third.startswith("--parsable --dependency=afterok:101,afterany:102 --kill-on-invalid-dep=yes ")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("85", "fabric_check"),
        ('"85"', "fabric_check 85: write a percentage of the line rate, for example 90%"),
        ("85%", "ethernet states no line rate; add fabric_check.line_rate, for example 100gbit"),
        ("{expekt: 85%}", "fabric_check.expekt"),
    ],
)
def test_a_wrong_fabric_check_is_one_line(experiment: Path, tmp_path: Path, check: str, words: str) -> None:
    experiment.write_text(EXPERIMENT + f"fabric_check: {check}\n")
    done = trainscale("submit", experiment, "--runs", tmp_path / "runs", "--dry-run")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_side_by_side_when_asked(experiment: Path, tmp_path: Path, programs: Path) -> None:
    program(programs, "sbatch", f'echo "$@" >> {tmp_path}/calls; echo 5')
    assert trainscale("submit", experiment, "--runs", tmp_path / "runs", "--parallel").returncode == 0
    assert "dependency" not in (tmp_path / "calls").read_text()


def test_status_says_why_jobs_wait_and_how_they_ended(experiment: Path, tmp_path: Path, programs: Path) -> None:
    runs = tmp_path / "runs"
    program(programs, "sbatch", f"echo x >> {tmp_path}/n; echo $((100 + $(wc -l < {tmp_path}/n)))")
    trainscale("submit", experiment, "--runs", runs)
    program(programs, "squeue", "echo '101|PENDING|Resources|'; echo '102|PENDING|Dependency|'; echo '103|OUT_OF_MEMORY|None|n1'")
    program(programs, "sacct", '[[ "$*" == *--completion* ]] || exit 1; echo "104|CANCELLED by 0"; echo "104.batch|FAILED"')
    rows = {row["job"]: row for row in json.loads(trainscale("status", runs, "--json").stdout)}
    assert (rows[101]["status"], rows[101]["detail"]) == ("queued", "waits for nodes to become free")
    assert (rows[102]["status"], rows[102]["detail"]) == ("queued", "waits for the run before it")
    assert rows[103]["detail"].startswith("the job used more memory than it had asked for")
    assert rows[104]["detail"].startswith("the job was cancelled")
    program(programs, "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    row = json.loads(trainscale("status", runs, "--json").stdout)[0]
    assert "job unknown: squeue does not tell: slurm_load_jobs error: Unable to contact slurm controller" in row["detail"]


def test_slurm_refuses(experiment: Path, tmp_path: Path, programs: Path) -> None:
    program(
        programs, "sbatch",
        "echo 'sbatch: error: invalid partition specified: gpus' >&2\n"
        "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1",
    )  # fmt: skip
    program(programs, "sinfo", "echo cpu; echo gpu")
    done = trainscale("submit", experiment, "--runs", tmp_path / "runs")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "there is no partition gpus; did you mean gpu?" in done.stderr


def test_no_sbatch(experiment: Path, tmp_path: Path) -> None:
    done = trainscale("submit", experiment, "--runs", tmp_path / "runs", PATH="/nowhere")
    assert done.returncode == 2
    assert "there is no sbatch here; submit from a login node, or run now: trainscale sweep" in done.stderr


def test_unknown_reasons_are_shown_as_they_are() -> None:
    assert JobState("PENDING", "QOSMaxWallDurationPerJobLimit").words == "Slurm's reason: QOSMaxWallDurationPerJobLimit"
    assert JobState("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1").words.startswith("nodes that it needs are down")


def test_no_queue_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert job_states([]) == {}
    with pytest.raises(QueueUnknownError, match="there is no squeue here"):
        job_states([1])


def test_a_run_submitted_by_hand_knows_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from launch.overhead import note_own_job

    run_dir = RunDirectory(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    note_own_job(run_dir)
    assert JobTicket.read(run_dir) is None
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    note_own_job(run_dir)
    ticket = JobTicket.read(run_dir)
    assert ticket is not None
    assert ticket.job_id == 12
    assert ticket.slurm is None  # there is no squeue of that job
