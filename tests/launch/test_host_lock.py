"""Timed runs do not share a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launch.host_lock import hosts_to_itself
from launch.show import SilentDisplay
from tests.launch.support import ROOT, TINY, overrides, start_trainscale

HOLDER = """
import sys, time
from launch.host_lock import hosts_to_itself
from launch.show import SilentDisplay
with hosts_to_itself(sys.argv[1:], SilentDisplay()):
    print("held", flush=True)
    time.sleep(600)
"""


class Saying(SilentDisplay):
    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self.said: list[str] = []
        self.holder = holder

    def say(self, text: str) -> None:
        self.said.append(text)
        self.holder.kill()  # kill -9: nothing is tidied up


def test_a_run_waits_for_another_on_one_of_its_hosts_and_a_killed_one_holds_nothing() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, "n2", "n1"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    other = Saying(holder)
    with hosts_to_itself(["n3"], other):
        assert other.said == []
    with hosts_to_itself(["n2"], other):
        assert other.said == ["  waiting: another run is timed on n2"]
    holder.communicate()


def test_trainscale_run_waits(few_digits_dir: Path, tmp_path: Path) -> None:
    words = ["run", "resnet50", "--data-dir", few_digits_dir, "--runs", tmp_path, "--launcher", "local", "--backend", "single"]
    with hosts_to_itself([], SilentDisplay()):
        process = start_trainscale(*words, *overrides(*TINY))
        assert process.stdout is not None
        assert "1 node x 1 rank" in process.stdout.readline()
        assert "waiting: another run is timed on" in process.stdout.readline()
        assert not list(tmp_path.rglob("events.jsonl"))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
