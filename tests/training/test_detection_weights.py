"""Pretrained backbones from a file: both formats, wrong files, the digest in the record."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file
from torchvision.models import resnet18, resnet34

from results.yaml_file import ConfigurationError
from tests.training.support import ROOT, make_spec
from training.backbone_weights import digest, load_backbone
from training.detection_workload import DetectionWorkload
from training.workload import Shard, load_workload


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    """As torchvision saves a classifier, its last layer included; no two values alike by chance."""
    torch.manual_seed(21)
    model = resnet18()
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 2)
    found: dict[str, torch.Tensor] = model.state_dict()
    return found


@pytest.fixture(scope="module")
def files(state: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("weights")
    torch.save(state, folder / "resnet18.pt")
    torch.save(state, folder / "resnet18.pth")
    save_file(state, folder / "resnet18.safetensors")
    return {path.suffix: path for path in folder.iterdir()}


def detector(name: str, weights: Path | None, preset: str = "digits-coco", **overrides: Any) -> DetectionWorkload:
    spec = make_spec(
        Path("unused"), workload=name, preset=preset, model__backbone="resnet18",
        model__backbone_weights=None if weights is None else str(weights), **overrides,
    )  # fmt: skip
    workload = load_workload(spec=spec, shard=Shard(index=0, count=1), device=torch.device("cpu"))
    assert isinstance(workload, DetectionWorkload)
    return workload


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
def test_ssds_backbone_has_the_files_weights(files: dict[str, Path], state: dict[str, torch.Tensor], suffix: str) -> None:
    model = detector("ssd", files[suffix]).build_model()
    found = model.state_dict()
    # conv1, bn1, relu, maxpool, layer1, layer2, layer3
    for place, name in {0: "conv1", 1: "bn1", 4: "layer1", 5: "layer2", 6: "layer3"}.items():
        parts = [key for key in state if key.startswith(f"{name}.")]
        assert parts
        for key in parts:
            assert torch.equal(found[f"backbone.{place}.{key.removeprefix(name + '.')}"], state[key])
    random = detector("ssd", None).build_model().state_dict()
    assert not torch.equal(random["backbone.0.weight"], state["conv1.weight"])


@pytest.mark.parametrize("batch_norm", ["frozen", "trained"])
def test_mask_rcnns_backbone_has_the_files_weights(
    files: dict[str, Path], state: dict[str, torch.Tensor], batch_norm: str
) -> None:
    found = detector("maskrcnn", files[".safetensors"], model__batch_norm=batch_norm).build_model().state_dict()
    kept = [name for name in state if not name.startswith("fc.") and not name.endswith("num_batches_tracked")]
    for name in kept:
        assert torch.equal(found[f"backbone.body.{name}"], state[name])


def test_the_record_names_file_and_digest(files: dict[str, Path]) -> None:
    path = files[".pt"]
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest(path) == expected
    assert detector("ssd", path).record_extra() == {"backbone_weights": "resnet18.pt", "backbone_weights_sha256": expected}
    assert detector("ssd", None).record_extra() == {"backbone_weights": "none: random initial weights"}


def wrong_file(kind: str, folder: Path, state: dict[str, torch.Tensor]) -> Path:
    path = folder / ("weights.safetensors" if "safetensors" in kind else "weights.pt")
    contents: dict[str, Any] = {
        "another depth": resnet34().state_dict(),
        "too small": {name: value for name, value in state.items() if not name.startswith("layer4.1")},
        "other shapes": state | {"conv1.weight": torch.zeros(64, 3, 3, 3)},
        "a checkpoint": {"state_dict": state, "epoch": 3},
        "a list": [1, 2],
    }
    if kind in contents:
        torch.save(contents[kind], path)
    elif kind != "nothing":
        path.write_text("no weights")
    return path


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nothing", "no such file"),
        ("text", "cannot be read"),
        ("broken safetensors", "cannot be read"),
        ("another depth", "the file has besides layer1.2."),
        ("too small", "the file lacks layer4.1."),
        ("other shapes", "the file has another shape of conv1.weight (1 in all)"),
        ("a checkpoint", "are no state dict"),
        ("a list", "are no state dict"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, state: dict[str, torch.Tensor], kind: str, words: str) -> None:
    path = wrong_file(kind, tmp_path, state)
    with pytest.raises(ConfigurationError, match=re.escape(words)) as caught:
        load_backbone(resnet18(), path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ssd", "maskrcnn"])
def test_full_presets_say_that_they_need_weights(name: str) -> None:
    preset = yaml.safe_load((ROOT / "training" / name / "presets" / "mlperf-v0.6.yaml").read_text())
    assert "needs --backbone-weights" in preset["description"]
    assert preset["model"]["backbone_weights"] is None
