"""Training on a GPU: precision against fp32, a few hundred steps of each workload, a whole run, and its speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from results.record import RunRecord
from results.rundir import RunDirectory
from tests.training.gpu import bodies
from tests.training.support import make_spec, run_ranks, train, write_spec

pytestmark = pytest.mark.gpu

STEPS = 300
MEMORY_MARGIN_BYTES = 64 * 2**20
PROCESS_MARGIN_BYTES = 512 * 2**20


def half_precisions() -> list[str]:
    """Those that the GPU computes in: bfloat16 from Ampere (8.0) on."""
    return ["fp16", "bf16"] if torch.cuda.get_device_capability(0) >= (8, 0) else ["fp16"]


def test_torch_holds_kernels_for_this_gpu(gpu: torch.device) -> None:
    """A torch without them fails at the first kernel: today's default stack has none for a V100 (sm_70)."""
    major, minor = torch.cuda.get_device_capability(gpu)
    architectures = torch.cuda.get_arch_list()
    assert f"sm_{major}{minor}" in architectures or any(
        name.startswith(f"sm_{major}") and int(name.removeprefix(f"sm_{major}") or 0) <= minor for name in architectures
    ), f"torch {torch.__version__} holds {architectures}, this is sm_{major}{minor}: requirements/volta.txt has one for V100"


def test_half_precision_follows_fp32_over_50_steps(gpu: torch.device, digits_dir: Path) -> None:
    """The same seed, images and order. Means over 10 steps, since single steps differ by chance: within a tenth."""
    rate = {"rule": "constant", "value": 0.002, "batch_size": 32}
    curves = {}
    for precision in ("fp32", *half_precisions()):
        spec = bodies.spec_of("resnet50", digits_dir, precision=precision, learning_rate=rate)
        curves[precision] = bodies.windows(bodies.train_steps(spec, gpu, 50).losses, 10)
    bodies.show("loss over 50 steps", gpu, {name: [round(value, 4) for value in curve] for name, curve in curves.items()})
    for precision in half_precisions():
        assert curves[precision] != curves["fp32"]
        assert curves[precision] == pytest.approx(curves["fp32"], rel=0.1)


def test_fp32_is_not_tf32(gpu: torch.device) -> None:
    """2^-12 beside 1 is lost in 10 bits of mantissa, not in 23."""
    from training.device import set_numerics

    set_numerics(gpu, fixed_sizes=True)
    value = 1 + 2**-12
    images = torch.full((8, 64, 16, 16), value, device=gpu)
    weights = torch.full((64, 64, 1, 1), 1.0, device=gpu)
    assert torch.allclose(torch.conv2d(images, weights), torch.full((), 64 * value, device=gpu), rtol=1e-6)
    assert torch.allclose(images[0, :, :, 0].T @ weights[:, :, 0, 0], torch.full((), 64 * value, device=gpu), rtol=1e-6)


@pytest.mark.parametrize("workload", ["resnet50", "ssd", "maskrcnn"])
def test_loss_falls_and_memory_does_not_grow(gpu: torch.device, digits_dir: Path, scenes_dir: Path, workload: str) -> None:
    data_dir = digits_dir if workload == "resnet50" else scenes_dir
    spec = bodies.spec_of(workload, data_dir, precision="fp16", max_epochs=100)
    course = bodies.train_steps(spec, gpu, STEPS)
    means = bodies.windows(course.losses, STEPS // 10)
    figures = {
        "workload": workload, "losses": [round(mean, 4) for mean in means], "memory_bytes": max(course.allocated_bytes),
        "memory_growth_bytes": bodies.growth_bytes(course.allocated_bytes),
        "process_growth_bytes": bodies.growth_bytes(course.resident_bytes),
    }  # fmt: skip
    bodies.show("a few hundred steps", gpu, figures)
    assert means[-1] < 0.8 * means[0]
    assert figures["memory_growth_bytes"] < MEMORY_MARGIN_BYTES
    assert figures["process_growth_bytes"] < PROCESS_MARGIN_BYTES


def backend() -> str:
    """Horovod where it was built for GPUs, torch.distributed where it was not."""
    try:
        import horovod.torch as hvd
    except ImportError:
        return "torch"
    return "horovod" if hvd.cuda_built() else "torch"


def test_a_whole_run_reaches_its_target_and_says_how(gpu: torch.device, digits_dir: Path, tmp_path: Path) -> None:
    spec = make_spec(digits_dir, precision="fp16", communication__backend=backend())
    assert train(write_spec(tmp_path, spec)) == 0, RunDirectory(tmp_path).rank_log(0).read_text()[-3000:]
    record = RunRecord.model_validate_json((tmp_path / "record.json").read_text())
    assert record.compute is not None
    assert record.compute.device == torch.cuda.get_device_name(gpu)
    assert "fused" in record.compute.optimizer.lower()
    assert record.compute.cudnn_benchmark
    assert not record.compute.tf32
    for figures in record.epochs:  # steps by events on the stream, the epoch by the host's clock: two clocks that must agree
        steps_s = figures.step_time_s.median * figures.steps
        assert figures.input_wait_s.maximum + figures.exposed_communication_s.maximum <= steps_s <= figures.seconds_s * 1.01
    energy = record.gpu_boards
    figures_shown = {
        "time_to_train_s": record.time_to_train_s, "optimizer": record.compute.optimizer, "notes": record.notes,
        "mean_board_power_w": energy.mean_power_w if energy else None,
    }  # fmt: skip
    bodies.show("a whole run of the digits preset", gpu, figures_shown)
    if energy is not None:
        assert 10 < energy.mean_power_w < 2000 * len(energy.boards)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("source", ["synthetic", "dali"])
def test_throughput(gpu: torch.device, tmp_path_factory: pytest.TempPathFactory, source: str, precision: str) -> None:
    """ResNet-50 at 224x224, local batch 128, on photographs of 500x400 pixels. Nothing is asserted: it is measured."""
    photos = bodies.write_photos(tmp_path_factory.mktemp("photos"), 1280)
    spec = bodies.spec_of(
        "resnet50", photos, precision=precision, input__source=source, image_size=224, local_batch_size=128, max_epochs=20,
        input__threads=4, input__prefetch=3, flip=True, crop_area=[0.08, 1.0],
    )  # fmt: skip
    figures = bodies.throughput(spec, gpu, warm_up_steps=20, steps=60)
    bodies.show("throughput", gpu, figures | {"decoded_px": list(bodies.PHOTO_PX) if source == "dali" else None})


@pytest.mark.parametrize("name", ["horovod", "torch"])
def test_nccl_sums_and_averages(gpu: torch.device, tmp_path: Path, name: str) -> None:
    """As many ranks as GPUs; on one GPU NCCL still is asked, by a group of one."""
    if name == "horovod":
        hvd = pytest.importorskip("horovod.torch", reason="Horovod is not installed")
        if not hvd.nccl_built():
            pytest.skip("this Horovod was built without NCCL: python -m launch.horovod_build --gpu")
    count = torch.cuda.device_count()
    done = run_ranks(count, "tests.training.ranks.allreduce", str(tmp_path / "out.json"), name)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = json.loads((tmp_path / "out.json").read_text())
    assert [rank["device"] for rank in ranks] == [f"cuda:{index}" for index in range(count)]
    mean = (count + 1) / 2
    for rank in ranks:
        assert rank["nccl"]
        assert set(rank["sums"].values()) == {count * mean}
        assert rank["gradients"] == pytest.approx({"weight": mean, "bias": mean}, rel=1e-3)
