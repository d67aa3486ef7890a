"""`python -m training.predict_images CHECKPOINT --out DIR`: draw what a detector finds in validation images."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from results.spec import RunSpec
from results.yaml_file import ConfigurationError
from training import checkpoint
from training.detection_workload import ALONE, DetectionWorkload
from training.precision import Precision
from training.workload import load_workload


def predict_images(path: Path, out: Path, *, data_dir: Path | None, count: int, least_score: float) -> list[Path]:
    """Draw the first `count` validation images; returns the files written.

    Raises:
        ConfigurationError: the checkpoint is unreadable or of no detector, or the data do not fit it.
    """
    state = checkpoint.load(path)
    try:
        spec = RunSpec.model_validate_json(state["spec"])
        weights = state["model"]
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError(f"{path}: no checkpoint of this project (it holds no spec and model)") from None
    spec = spec.model_copy(update={"data_dir": (data_dir or spec.data_dir).absolute()})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    workload = load_workload(spec=spec, shard=ALONE, device=device)
    if not isinstance(workload, DetectionWorkload):
        raise ConfigurationError(f"{path} is a checkpoint of {spec.workload}, which detects nothing; give one of ssd or maskrcnn")
    model = workload.make_model(None)  # the checkpoint has all weights, those of the backbone too
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ConfigurationError(f"{path}: weights and model differ: {str(error).splitlines()[-1].strip()}") from None
    workload.open_validation()
    model = model.to(device).eval()
    out.mkdir(parents=True, exist_ok=True)
    written = []
    with torch.inference_mode(), Precision(spec.settings.precision, device).autocast():
        for name, picture in workload.pictures(model, count, least_score):
            written.append(out / f"{Path(name).stem}.png")
            _save(picture, written[-1])
    return written


def _save(picture: torch.Tensor, path: Path) -> None:
    from PIL import Image

    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(path)


def main() -> int:
    """Exit status 0 when the pictures are written."""
    parser = argparse.ArgumentParser(description="Draw what a detector finds in validation images.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--least-score", type=float, default=0.5)
    arguments = parser.parse_args()
    try:
        written = predict_images(
            arguments.checkpoint, arguments.out, data_dir=arguments.data_dir, count=arguments.count,
            least_score=arguments.least_score,
        )  # fmt: skip
    except (ConfigurationError, OSError) as error:
        print(f"predict-images: {error}", file=sys.stderr)
        return 2
    print(*written, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
