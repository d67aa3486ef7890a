"""Experiments, presets, overrides and interconnects: everything that is decided before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import catalog
from launch.experiment import load_experiment, plan
from launch.interconnect import load_interconnect, names
from results.yaml_file import ConfigurationError

EXPERIMENT = """\
name: small
system: test
workloads:
  - {name: resnet50, preset: digits, settings: {input.source: torch}}
nodes: [1, 2]
ranks_per_node: 1
interconnects: [loopback]
repeats: 2
emulate_nodes: true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(text)
    return path


def test_plan_is_the_product_and_stays_the_same(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, EXPERIMENT))
    specs = plan(experiment, tmp_path / "runs")
    assert [spec.run_id for spec in specs] == [
        "resnet50-digits-n1x1-loopback-r1", "resnet50-digits-n1x1-loopback-r2",
        "resnet50-digits-n2x1-loopback-r1", "resnet50-digits-n2x1-loopback-r2",
    ]  # fmt: skip
    assert all(spec.settings.input.source == "torch" for spec in specs)
    assert [spec.global_batch_size for spec in specs] == [32, 32, 64, 64]
    assert len({spec.seed for spec in specs}) == 4
    assert plan(experiment, tmp_path / "runs") == specs  # drawn seeds are kept


def test_dry_planning_writes_nothing(tmp_path: Path) -> None:
    plan(load_experiment(write(tmp_path, EXPERIMENT)), tmp_path / "runs", keep_seeds=False)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("repeats: 2", "repeat: 2", r"experiment.yaml:8: unknown key repeat; did you mean repeats\?"),
        ("nodes: [1, 2]", "nodes: [1, none]", r"experiment.yaml:5: nodes.1: "),
        ("name: resnet50", "name: resnet5", r"unknown workload resnet5; did you mean resnet50\?"),
        ("preset: digits,", "preset: digit,", r"unknown preset digit of resnet50; did you mean digits\?"),
        ("input.source: torch", "input.sorce: torch", r"override input.sorce: unknown key sorce; did you mean source\?"),
        ("input.source: torch", "input.source: tape", r"override input.source: input.source: Input should be"),
        ("system: test\n", "", r"experiment.yaml: key system is missing"),
        ("nodes: [1, 2]", "nodes: [1, 2", r"experiment.yaml:6: not valid YAML"),
    ],
)
def test_each_fault_is_one_line_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in EXPERIMENT
    with pytest.raises(ConfigurationError, match=message) as caught:
        plan(load_experiment(write(tmp_path, EXPERIMENT.replace(old, new))), tmp_path, keep_seeds=False)
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.yaml: no such file"):
        load_experiment(tmp_path / "nowhere.yaml")


def test_a_preset_of_the_users_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(catalog.preset_path("resnet50", "digits").read_text().replace("image_size: 64", "image_sise: 64"))
    with pytest.raises(ConfigurationError, match=r"mine.yaml:\d+: unknown key image_sise; did you mean image_size\?"):
        catalog.settings("resnet50", str(mine), {})


def test_every_preset_is_valid() -> None:
    for workload in catalog.workloads():
        for preset in catalog.presets(workload):
            catalog.settings(workload, preset, {})


def test_one_rail_keeps_every_layer_off_the_second() -> None:
    one, two = (load_interconnect(name).environment() for name in ("edr-1", "edr-2"))
    assert (one["NCCL_IB_HCA"], two["NCCL_IB_HCA"]) == ("=mlx5_0:1", "=mlx5_0:1,mlx5_1:1")
    assert (one["UCX_NET_DEVICES"], one["UCX_MAX_RNDV_RAILS"]) == ("mlx5_0:1", "1")
    assert two["UCX_MAX_RNDV_RAILS"] == "2"
    assert "tcp" in one["OMPI_MCA_btl"]  # excluded: ^openib,tcp
    assert one["OMPI_MCA_btl"].startswith("^")


def test_unknown_interconnect_names_the_nearest() -> None:
    assert "edr-1" in names()
    with pytest.raises(ConfigurationError, match=r"unknown interconnect edr1; did you mean edr-"):
        load_interconnect("edr1")
