"""The GPU's part of training as far as it can be proved without one: devices, timing by events, DALI's GPU pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import types
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList

from results.yaml_file import ConfigurationError
from tests.training.support import make_spec
from training import device as devices
from training.clock import RunClock
from training.communicator import SingleProcess
from training.data import dali_classification, dali_maskrcnn, dali_options, dali_ssd
from training.data.coco_index import read_index
from training.data.folder import list_split
from training.maskrcnn.model import ExactAnchors
from training.process import RankPlace
from training.ssd.boxes import SCALES_300, BoxCoder, default_boxes
from training.step_timer import READ_AFTER_STEPS, step_timer
from training.workload import Shard

GPU = torch.device("cuda", 0)


@pytest.fixture
def node_of_gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let torch see so many GPUs."""

    def see(count: int) -> list[int]:
        current: list[int] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", current.append)
        return current

    return see


@pytest.mark.parametrize(("count", "local_rank", "index"), [(4, 0, 0), (4, 3, 3), (1, 0, 0), (1, 3, 0)])
def test_a_rank_takes_the_gpu_of_its_local_rank(node_of_gpus: Any, count: int, local_rank: int, index: int) -> None:
    """With one GPU visible the launcher has shown each rank its own."""
    current = node_of_gpus(count)
    assert devices.rank_device(RankPlace(rank=7, size=8, local_rank=local_rank)) == torch.device("cuda", index)
    assert current == [index]


def test_more_ranks_than_gpus_is_said(node_of_gpus: Any) -> None:
    node_of_gpus(2)
    with pytest.raises(ConfigurationError, match=r"rank 5 is number 2 of its host .* torch sees 2 GPUs; start at most 2 ranks"):
        devices.rank_device(RankPlace(rank=5, size=8, local_rank=2))


def test_no_gpu_is_the_cpu(node_of_gpus: Any) -> None:
    node_of_gpus(0)
    assert devices.rank_device(RankPlace(rank=0, size=1, local_rank=0)) == torch.device("cpu")


class TwoRanks(SingleProcess):
    """Both ranks say the same of themselves."""

    exchanges_by_nccl = True

    def gather_objects(self, value: Any) -> list[Any]:
        return [value, value]


def test_two_ranks_on_one_gpu_are_told_before_nccl_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="5f2e-11"))
    communicator = TwoRanks(RankPlace(rank=0, size=2, local_rank=0))
    with pytest.raises(ConfigurationError, match="ranks 0 and 1 share GPU-5f2e-11 of host"):
        devices.check_not_shared(communicator, GPU)
    devices.check_not_shared(communicator, torch.device("cpu"))
    communicator.exchanges_by_nccl = False  # MPI carries it through the host, which is slow and works
    devices.check_not_shared(communicator, GPU)


class Stream:
    """A GPU's queue and its events on a clock of our own, as CUDA's programming guide has them: an event passes when all that
    was queued before it is done, and not before it was recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host_s = self.busy_until_s = 0.0
        self.synchronized = 0
        self.made = 0
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event(self))
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)

    def launch(self, seconds_s: float) -> None:
        self.busy_until_s = max(self.busy_until_s, self.host_s) + seconds_s

    def synchronize(self) -> None:
        self.synchronized += 1
        self.host_s = max(self.host_s, self.busy_until_s)


class Event:
    def __init__(self, stream: Stream) -> None:
        self.stream, self.at_s = stream, None
        stream.made += 1

    def record(self) -> None:
        self.at_s = max(self.stream.host_s, self.stream.busy_until_s)

    def query(self) -> bool:
        return self.at_s <= self.stream.host_s

    def elapsed_time(self, end: Event) -> float:
        assert self.query(), "CUDA refuses to time events that have not passed"
        assert end.query()
        return (end.at_s - self.at_s) * 1e3


def gpu_step(timer: Any, stream: Stream, *, input_s: float, compute_s: float, exchange_s: float, passes: int = 1) -> None:
    timer.start_step()
    for _ in range(passes):
        timer.waiting_for_input()
        stream.host_s += input_s
        timer.input_arrived()
        stream.launch(compute_s)
    timer.exchange_begins()
    stream.launch(exchange_s)
    timer.exchange_ends()
    stream.launch(0.001)
    timer.end_step()


def test_a_wait_that_the_gpu_does_not_feel_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    timer = step_timer(GPU)
    gpu_step(timer, stream, input_s=0.030, compute_s=0.100, exchange_s=0.020)  # nothing is queued yet: the wait is felt
    gpu_step(timer, stream, input_s=0.040, compute_s=0.100, exchange_s=0.020)  # 121 ms are queued: it is not
    gpu_step(timer, stream, input_s=0.240, compute_s=0.100, exchange_s=0.010)  # 242 ms after 40 of them: 202 left, 38 felt
    np.testing.assert_allclose(timer.take(), [[0.151, 0.030, 0.020], [0.121, 0.0, 0.020], [0.149, 0.038, 0.010]], atol=1e-9)


def test_waits_of_several_passes_are_summed_and_a_search_after_the_last_batch_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    timer = step_timer(GPU)
    gpu_step(timer, stream, input_s=0.030, compute_s=0.010, exchange_s=0.0, passes=2)
    timer.waiting_for_input()  # the trainer asks once more, and the pipeline says that the epoch is over
    timer.input_arrived()
    gpu_step(timer, stream, input_s=0.0, compute_s=0.010, exchange_s=0.0)
    np.testing.assert_allclose(timer.take()[:, 1], [0.050, 0.0], atol=1e-9)


def test_events_are_read_without_stopping_the_queue_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    timer = step_timer(GPU)
    steps = 40 * READ_AFTER_STEPS
    for _ in range(steps):
        gpu_step(timer, stream, input_s=0.011, compute_s=0.009, exchange_s=0.0)
    assert stream.synchronized == 0
    assert stream.made < 6 * (READ_AFTER_STEPS + 2)
    assert timer.take().shape == (steps, 3)
    assert stream.synchronized == 1
    assert timer.take().shape == (0, 3)


def test_the_clock_waits_for_the_gpu_at_account_boundaries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    clock = RunClock(now=lambda: stream.host_s)
    clock.synchronize_with(GPU)
    clock.switch("training")
    stream.launch(3.0)  # queued in training, still running when the host comes to evaluate
    clock.switch("evaluation")
    stream.launch(1.0)
    clock.switch("training")
    assert clock.seconds_s["training"] == 3.0
    assert clock.seconds_s["evaluation"] == 1.0
    assert stream.synchronized == 3


@pytest.fixture
def numerics() -> Iterator[None]:
    kept = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.benchmark = kept


def test_convolutions_are_fp32_where_fp32_was_asked_for(numerics: None) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    devices.set_numerics(GPU, fixed_sizes=True)
    assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    devices.set_numerics(GPU, fixed_sizes=False)
    assert not torch.backends.cudnn.benchmark


class Defined:
    """A pipeline that is defined and not built, which wants a driver; DALI holds each operator against its schema."""

    def __init__(self, pipeline: Any) -> None:
        pipeline._build_graph()
        for operator in pipeline._ops:
            operator.check_args()
        self.specs = {str(operator.spec).splitlines()[0]: str(operator.spec) for operator in pipeline._ops}
        self.outputs = [output.device for output in pipeline._graph_outputs]

    def argument(self, operator: str, name: str) -> str:
        """As DALI prints it."""
        lines = [line.strip() for line in self.specs[f"OpSpec for {operator}:"].splitlines()]
        return next(line.partition(": ")[2] for line in lines if line.startswith(f"{name}: "))

    def devices(self, *operators: str) -> list[str]:
        return [self.argument(operator, "device") for operator in operators]


FLOAT16 = str(int(types.DALIDataType.FLOAT16))


def test_resnet_is_decoded_and_normalised_on_the_gpu(few_digits_dir: Path) -> None:
    settings = make_spec(few_digits_dir, precision="fp16", flip=True).settings
    images, shard = list_split(few_digits_dir, "train"), Shard(index=0, count=1)
    options = dali_options.pipeline_options(settings, GPU) | {"batch_size": 4}
    training = Defined(dali_classification._training_pipeline(images, settings, shard, 1, True, **options))
    evaluation = Defined(dali_classification._evaluation_pipeline(images, settings, shard, True, **options))
    assert training.devices("readers__File", "decoders__ImageRandomCrop") == ["cpu", "mixed"]  # the crop alone is decoded
    assert evaluation.devices("readers__File", "decoders__Image") == ["cpu", "mixed"]
    for defined in (training, evaluation):
        assert defined.devices("Resize", "CropMirrorNormalize") == ["gpu", "gpu"]
        assert defined.argument("CropMirrorNormalize", "dtype") == FLOAT16
        assert defined.argument("CropMirrorNormalize", "output_layout") == "HWC"
        assert defined.outputs == ["gpu", "gpu"]


def test_ssd_encodes_its_boxes_on_the_gpu(scenes_dir: Path) -> None:
    settings = make_spec(scenes_dir, precision="fp16", image_size=300).settings
    index = read_index(scenes_dir, "train", segmentations=False)
    options = dali_options.pipeline_options(settings, GPU) | {"batch_size": 4}
    coder = BoxCoder(default_boxes(300, SCALES_300))
    defined = Defined(dali_ssd._training_pipeline(index, index.files, settings, coder, 1, 1, True, **options))
    assert defined.devices("readers__COCO", "RandomBBoxCrop", "decoders__ImageSlice") == ["cpu", "cpu", "mixed"]
    assert defined.devices("Resize", "ColorTwist", "BoxEncoder", "CropMirrorNormalize") == ["gpu"] * 4
    assert defined.argument("CropMirrorNormalize", "dtype") == FLOAT16
    assert defined.outputs == ["gpu", "gpu", "gpu"]
    evaluation = Defined(dali_ssd._evaluation_pipeline(index, index.files, settings, True, **options))
    assert (evaluation.devices("decoders__Image", "Resize"), evaluation.outputs) == (["mixed", "gpu"], ["gpu"])


def test_mask_rcnn_keeps_what_is_rasterised_on_the_host(scenes_dir: Path) -> None:
    settings = make_spec(scenes_dir, precision="fp16", image_size=800, max_image_size=1333).settings
    index = read_index(scenes_dir, "train", segmentations=True)
    options = dali_options.pipeline_options(settings, GPU) | {"batch_size": 4}
    defined = Defined(dali_maskrcnn._training_pipeline(index, index.files, settings, 1, True, **options))
    assert defined.devices("decoders__Image", "Resize", "CropMirrorNormalize") == ["mixed", "gpu", "gpu"]
    assert defined.outputs == ["gpu", "cpu", "cpu", "cpu", "cpu", "cpu"]
    evaluation = Defined(dali_maskrcnn._evaluation_pipeline(index, index.files, settings, True, **options))
    assert (evaluation.devices("decoders__Image", "Resize"), evaluation.outputs) == (["mixed", "gpu"], ["gpu"])


def epochs(root: Path, precision: str, channels_last: bool = True) -> list[torch.Tensor]:
    """Images of two epochs, the second by a pipeline that goes on from the first one's checkpoint."""
    spec = make_spec(root, precision=precision, channels_last=channels_last, image_size=32, local_batch_size=16, flip=True)
    found: list[torch.Tensor] = []
    state = None
    for epoch in (1, 2):
        images, shard = list_split(root, "train"), Shard(index=0, count=1)
        source = dali_classification.DaliClassification(images, spec.settings, shard, torch.device("cpu"), seed=3)
        if state is not None:
            source.restore(state)
        found += [batch.inputs.clone() for batch in source.epoch(epoch)]
        state = source.state()
        source.close()
    return found


def test_fp16_images_are_what_autocast_would_make_of_fp32_ones(few_digits_dir: Path) -> None:
    full, half = epochs(few_digits_dir, "fp32"), epochs(few_digits_dir, "fp16")
    assert {image.dtype for image in half} == {torch.float16}
    assert all(image.is_contiguous(memory_format=torch.channels_last) for image in half)
    assert all(torch.equal(one.half(), other) for one, other in zip(full, half, strict=True))
    plain = epochs(few_digits_dir, "fp16", channels_last=False)
    assert all(image.is_contiguous() for image in plain)
    assert all(torch.equal(one, other) for one, other in zip(plain, half, strict=True))


def test_the_executor_that_copies_gives_the_same_images(few_digits_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that GPUs get, on the CPU."""
    assert dali_options.pipeline_options(make_spec(few_digits_dir).settings, GPU)["exec_dynamic"] is False
    lent = epochs(few_digits_dir, "fp16")
    usual = dali_options.pipeline_options
    monkeypatch.setattr(dali_classification, "pipeline_options", lambda *a: usual(*a) | {"exec_dynamic": False})
    copied = epochs(few_digits_dir, "fp16")
    assert all(torch.equal(one, other) for one, other in zip(lent, copied, strict=True))


def test_anchors_are_whole_pixels_whatever_the_precision() -> None:
    sizes = (((32,),), ((0.5, 1.0, 2.0),))
    images = ImageList(torch.zeros(1, 3, 800, 1344), [(800, 1333)])
    features = torch.zeros(1, 8, 50, 84)
    (expected,) = AnchorGenerator(*sizes)(images, [features])
    for dtype in (torch.bfloat16, torch.float16):
        (found,) = ExactAnchors(*sizes)(images, [features.to(dtype)])
        assert torch.equal(found, expected)
    assert not torch.equal(AnchorGenerator(*sizes)(images, [features.bfloat16()])[0].float(), expected)


def test_a_checkpoint_keeps_the_gpus_generator_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"state": torch.tensor([1], dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: kept["state"])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: kept.update(state=state))
    state = devices.random_state(GPU)
    expected = torch.rand(3)
    kept["state"] = torch.tensor([2], dtype=torch.uint8)
    devices.set_random_state(GPU, state)
    assert torch.equal(torch.rand(3), expected)
    assert kept["state"].tolist() == [1]
    assert set(devices.random_state(torch.device("cpu"))) == {"cpu"}
