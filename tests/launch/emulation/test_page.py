"""The page on emulated clusters, line by line as it stands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.emulation import requirements
from tests.test_docs import DOCS, commands

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2400)]


def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    if (why := requirements.missing()) is not None:
        pytest.skip(why)
    lines = [line for line in commands(DOCS / "emulated-cluster.md", "trainscale") if len(line.split()) > 2]
    assert [line.split()[2] for line in lines if line.split()[2] in ("up", "down")] == ["up", "down"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"TRAINSCALE_CLUSTER_STATE": str(tmp_path / "lab"), "PATH": path}
    told = {}
    try:
        for line in lines:
            words = shlex.split(line.replace("COMMAND", "hostname"))
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            told[line] = done.stdout
    finally:
        subprocess.run(["trainscale", "cluster", "down"], env=environment, capture_output=True, timeout=120)
    (run,) = (tmp_path / "runs").glob("resnet50-*/record.json")
    assert '"verdict": "as-asked"' in run.read_text()
    assert next(text for line, text in told.items() if " cluster run " in line).splitlines()[-1] == "head"
