"""`trainscale sweep`: what is missing is done, once; the report ends it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from launch.catalog import preset_path
from results import events
from results.record import RunRecord
from tests.launch.support import start_trainscale, trainscale


@pytest.fixture
def experiment(few_digits_dir: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(
        f"""
name: tiny
system: test host
workloads:
  - name: resnet50
    data_dir: {few_digits_dir}
    settings:
      image_size: 32
      local_batch_size: 16
      evaluation.local_batch_size: 31
      quality_target: {{accuracy: 0.01}}
nodes: [1, 2]
ranks_per_node: 1
interconnects: [loopback]
repeats: 1
emulate_nodes: true
"""
    )
    return path


def starts(runs: Path) -> dict[str, int]:
    """How often the ranks of each run were started."""
    return {
        path.parent.name: sum(event["event"] == "process_start" for event in events.read(path.parent))
        for path in runs.rglob("spec.json")
    }


def test_two_sweeps_at_once_and_one_after_do_each_run_once(experiment: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    pair = [start_trainscale("sweep", experiment, "--runs", runs, "--json") for _ in range(2)]
    answers = [process.communicate(timeout=240) for process in pair]
    for process, (out, err) in zip(pair, answers, strict=True):
        assert process.returncode == 0, err
        assert set(json.loads(out).values()) == {"finished"}
    once = {"resnet50-digits-n1x1-loopback-r1": 1, "resnet50-digits-n2x1-loopback-r1": 1}
    assert starts(runs) == once

    shutil.rmtree(runs / "resnet50-digits-n1x1-loopback-r1")
    seeds = json.loads((runs / "seeds.json").read_text())
    again = trainscale("sweep", experiment, "--runs", runs, "--report")
    assert again.returncode == 0, again.stderr
    assert "2 runs, 1 left to do" in again.stdout
    assert starts(runs) == once
    record = RunRecord.model_validate_json((runs / "resnet50-digits-n1x1-loopback-r1" / "record.json").read_text())
    assert record.spec.seed == seeds["resnet50-digits-n1x1-loopback-r1"]

    assert "emulated" in again.stdout.lower()
    assert "ResNet-50" in again.stdout or "resnet50" in again.stdout
    assert (runs / "report.html").is_file()
    assert "report.html" in again.stdout + again.stderr


def test_a_failing_run_does_not_stop_the_others_and_is_shown(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text(experiment.read_text().replace("image_size: 32", "image_size: 32\n      classes: 7"))
    runs = tmp_path / "runs"
    done = trainscale("sweep", experiment, "--runs", runs)
    assert done.returncode == 4
    assert done.stdout.count("the preset expects 7") == 2
    status = trainscale("status", runs)
    assert status.stdout.count("failed") == 2


def test_preset_is_found_where_it_is() -> None:
    assert preset_path("resnet50", "digits").is_file()
