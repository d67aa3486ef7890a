"""`trainscale predict-images`: pictures of what a trained detector finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the pictures.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Default: the data set that the checkpoint was trained on.")
@click.option("--count", type=click.IntRange(1), default=16, show_default=True, help="Validation images to draw.")
@click.option("--least-score", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Draw detections from here on.")
@click.option("--json", "as_json", is_flag=True, help="Print the folder and the files as JSON, and nothing else.")
def command(checkpoint: Path, out: Path, data_dir: Path | None, count: int, least_score: float, as_json: bool) -> None:
    """Draw boxes and masks that the detector of CHECKPOINT finds in validation images.

    CHECKPOINT is a file such as RUN_DIR/checkpoints/best.pt, or a run directory.
    """
    from results.rundir import RunDirectory
    from results.yaml_file import ConfigurationError

    if checkpoint.is_dir():
        checkpoint = RunDirectory(checkpoint).checkpoints / "best.pt"
    if not checkpoint.is_file():
        raise ConfigurationError(f"checkpoint {checkpoint} does not exist; runs leave theirs in RUN_DIR/checkpoints/best.pt")
    tokens = [sys.executable, "-m", "training.predict_images", str(checkpoint), "--out", str(out), "--count", str(count)]
    tokens += ["--least-score", str(least_score)]
    if data_dir is not None:
        tokens += ["--data-dir", str(data_dir)]
    done = subprocess.run(tokens, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["predict-images: it said nothing"]
        raise ConfigurationError(lines[-1].removeprefix("predict-images: "))
    files = done.stdout.strip().splitlines()
    click.echo(json.dumps({"out": str(out), "files": files}) if as_json else f"{len(files)} pictures in {out}")
