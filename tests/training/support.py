"""Specs, small data and real mpirun ranks for the training tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from launch.mpi import find_mpi
from results.settings import Settings
from results.spec import RunSpec

ROOT = Path(__file__).parents[2]


def make_spec(
    data_dir: Path, *, workload: str = "resnet50", preset: str = "digits", ranks: int = 1, seed: int = 1, run_id: str = "test",
    **overrides: Any,
) -> RunSpec:  # fmt: skip
    """A preset with overrides; `a__b=1` sets key b under a."""
    settings = yaml.safe_load((ROOT / "training" / workload / "presets" / f"{preset}.yaml").read_text())
    for name, value in overrides.items():
        *path, last = name.split("__")
        node = settings
        for part in path:
            node = node[part]
        node[last] = value
    return RunSpec(
        run_id=run_id,
        workload=workload,
        preset=preset,
        nodes=ranks,
        ranks_per_node=1,
        interconnect="loopback",
        emulated_nodes=ranks > 1,
        seed=seed,
        data_dir=data_dir,
        settings=Settings.model_validate(settings),
    )


def write_spec(run_dir: Path, spec: RunSpec) -> Path:
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "spec.json").write_text(spec.model_dump_json())
    return run_dir


def run_ranks(ranks: int, *tokens: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run `python -m TOKENS` on real mpirun ranks on this host."""
    mpi = find_mpi()
    command = [str(mpi.mpirun), "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    return subprocess.run(
        [*command, sys.executable, "-m", *tokens], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s
    )


def train(run_dir: Path, ranks: int = 1) -> int:
    """`python -m training RUN_DIR` on real ranks; returns the exit status."""
    return run_ranks(ranks, "training", str(run_dir)).returncode
