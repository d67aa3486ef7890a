"""The data set is copied to the node's own scratch: whole or not at all, looked through, and read from there."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from results import events
from results.record import RunRecord
from results.staging import VARIABLE, StagedData
from results.yaml_file import ConfigurationError
from tests.training.support import ROOT, make_spec, train, write_spec
from training import staging
from training.communicator import SingleProcess
from training.data.folder import MANIFEST, write_manifest
from training.process import RankPlace
from training.staging import on_this_host, stage, stage_on_each_host

SMALL = {"image_size": 32, "local_batch_size": 16, "max_epochs": 1, "evaluation__local_batch_size": 31}


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def data(few_digits_dir: Path, tmp_path: Path) -> Path:
    root = tmp_path / "few"
    shutil.copytree(few_digits_dir, root)
    write_manifest(root, "few digits")
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_whole_copy_is_made_once(data: Path, scratch: Path) -> None:
    first = stage(data, scratch)
    assert first.path.parent == scratch / "trainscale"
    assert first.path.name.startswith("few-")
    assert (first.copied, first.files, first.host) == (True, 83 + 31 + 1, platform.node())
    assert contents(first.path) == contents(data)
    assert first.size_bytes == sum(map(len, contents(data).values()))
    changed_at = {path: path.stat().st_mtime_ns for path in first.path.rglob("*")}
    second = stage(data, scratch)
    assert (second.copied, second.path) == (False, first.path)
    assert {path: path.stat().st_mtime_ns for path in first.path.rglob("*")} == changed_at


def test_links_in_the_data_set_are_followed(data: Path, scratch: Path, tmp_path: Path) -> None:
    (data / "val").rename(tmp_path / "elsewhere")
    (data / "val").symlink_to(tmp_path / "elsewhere")
    copy = stage(data, scratch).path
    assert not (copy / "val").is_symlink()
    assert contents(copy / "val") == contents(tmp_path / "elsewhere")


def test_what_a_killed_copy_left_is_thrown_away(data: Path, scratch: Path) -> None:
    """A copy that ends in the middle never bears the final name, and the next one begins anew."""
    name = stage(data, scratch).path.name
    shutil.rmtree(scratch / "trainscale" / name)
    partial = scratch / "trainscale" / f".{name}.partial"
    (partial / "train").mkdir(parents=True)
    (partial / "train" / "half.jpg").write_bytes(b"half")
    found = stage(data, scratch)
    assert found.copied
    assert contents(found.path) == contents(data)
    assert not partial.exists()


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from training.staging import stage
real, copied = shutil.copyfile, []
def until_killed(source, target):
    copied.append(real(source, target))
    if len(copied) > 20:
        os.kill(os.getpid(), signal.SIGKILL)
shutil.copyfile = until_killed
stage(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_copy_killed_in_the_middle_is_not_taken_for_whole(data: Path, scratch: Path) -> None:
    """Neither its files nor its lock are in the way of the next one."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(data), str(scratch)], cwd=ROOT, timeout=240)
    assert killed.returncode == -signal.SIGKILL
    left = [path for path in (scratch / "trainscale").iterdir() if path.is_dir()]
    assert [path.suffix for path in left] == [".partial"]
    assert len(contents(left[0])) > 20
    found = stage(data, scratch)
    assert found.copied
    assert contents(found.path) == contents(data)
    assert not left[0].exists()


class TwoHosts(SingleProcess):
    """Rank 0 of four, as if the ranks of another host had answered too."""

    def __init__(self, other: StagedData | str) -> None:
        super().__init__(RankPlace(rank=0, size=4, local_rank=0))
        self.other = other

    def gather_objects(self, value: Any) -> list[Any]:
        return [self.other, None, value, None]


def test_each_host_reads_its_own_copy(data: Path, scratch: Path) -> None:
    """Data sets that were brought to each host by hand have other times of change, and so copies of another name."""
    other = StagedData(host="other", path=Path("/nvme/few-1"), files=1, size_bytes=1, copied=True, seconds_s=1.0)
    staged = stage_on_each_host(TwoHosts(other), data, scratch)
    assert [copy.host for copy in staged] == ["other", platform.node()]
    assert on_this_host(staged) == stage(data, scratch).path


def test_the_failure_of_one_host_is_told_on_all(data: Path, scratch: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^other: scratch is full$"):
        stage_on_each_host(TwoHosts("other: scratch is full"), data, scratch)


def test_a_copy_that_fails_in_the_middle_leaves_nothing(data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.copyfile

    def until_full(source: Path, target: Path) -> Path:
        if source.name == MANIFEST:
            raise OSError(28, "No space left on device", str(target))
        return real(source, target)

    monkeypatch.setattr(shutil, "copyfile", until_full)
    answer = staging._try_to_stage(data, scratch)
    assert isinstance(answer, str)
    assert answer.startswith(f"{platform.node()}: copying {data} to {scratch}: ")
    assert "No space left on device" in answer
    assert [path for path in (scratch / "trainscale").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("harm", ["gone", "shorter"])
def test_a_damaged_copy_is_made_again(data: Path, scratch: Path, harm: str) -> None:
    copy = stage(data, scratch).path
    image = next((copy / "train" / "3").iterdir())
    if harm == "gone":
        image.unlink()
    else:
        os.truncate(image, image.stat().st_size - 1)
    assert stage(data, scratch).copied
    assert contents(copy) == contents(data)


def test_a_changed_source_gets_another_folder(data: Path, scratch: Path) -> None:
    """Also when the size is the same: an image that was mended in place."""
    first = stage(data, scratch).path
    image = next((data / "train" / "3").iterdir())
    old = image.stat()
    image.write_bytes(image.read_bytes()[:-1] + b"x")
    os.utime(image, ns=(old.st_atime_ns, old.st_mtime_ns + 10**9))
    second = stage(data, scratch)
    assert second.copied
    assert second.path != first
    assert contents(second.path) == contents(data) != contents(first)


def test_a_file_that_changes_while_it_is_copied(data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", lambda source, target: os.truncate(real(source, target), 3))
    with pytest.raises(ConfigurationError, match="changed while it was copied"):
        stage(data, scratch)
    assert [path for path in (scratch / "trainscale").iterdir() if path.is_dir()] == []


def test_full_scratch_is_told_before_anything_is_copied(data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = sum(map(len, contents(data).values()))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 2**40, needed - 1))
    monkeypatch.setattr(shutil, "copyfile", lambda source, target: pytest.fail("copied all the same"))
    communicator = SingleProcess(RankPlace(rank=0, size=1, local_rank=0))
    with pytest.raises(ConfigurationError) as told:
        stage_on_each_host(communicator, data, scratch)
    assert str(told.value).startswith(f"{platform.node()}: scratch {scratch}/trainscale has {needed - 1:,} bytes free")
    assert f"{data} needs {needed:,}; delete older copies there" in str(told.value)


def test_scratch_that_cannot_be_used(data: Path, scratch: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"scratch folder {tmp_path}/none is missing; make it on every node"):
        stage(data, tmp_path / "none")
    with pytest.raises(ConfigurationError, match="scratch folder /sys/trainscale cannot be written"):
        stage(data, Path("/sys"))  # even root may make nothing there
    with pytest.raises(ConfigurationError, match="is missing or empty"):
        stage(tmp_path / "nothing", scratch)


def test_two_runs_of_one_node_do_not_copy_at_once(data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copying goes on under a lock that another process cannot take."""
    held = []

    def look(source: Path, names: list[str], target: Path) -> None:
        other = FileLock(target.with_name(target.name.removesuffix(".partial") + ".lock"), timeout=0, is_singleton=False)
        with pytest.raises(TimeoutError):
            other.acquire()
        held.append(target)
        real(source, names, target)

    real = staging._copy_files
    monkeypatch.setattr(staging, "_copy_files", look)
    stage(data, scratch)
    assert len(held) == 1


def test_two_ranks_read_from_the_copy(data: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proved by what only the copy has: two more images, laid into it after it was made."""
    monkeypatch.setenv(VARIABLE, str(scratch))
    copy = stage(data, scratch).path
    for number in (1, 2):
        shutil.copyfile(next((copy / "train" / "3").iterdir()), copy / "train" / "3" / f"more-{number}.jpg")
    run_dir = write_spec(tmp_path / "run", make_spec(data, ranks=2, **SMALL))
    assert train(run_dir, 2) == 3
    record = RunRecord.model_validate_json((run_dir / "record.json").read_text())
    assert record.train_samples_per_epoch == 83 + 2
    assert record.spec.data_dir == data
    (staged,) = record.staging
    assert (staged.path, staged.copied, staged.host) == (copy, False, platform.node())
    assert record.page_cache_cleared
    told = [event["event"] for event in events.read(run_dir)]
    places = [told.index(name) for name in ("process_start", "staging_start", "staging_stop", "init_stop", "run_start")]
    assert places == sorted(places)


def test_all_ranks_end_when_a_host_cannot_stage(few_digits_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    run_dir = write_spec(tmp_path / "run", make_spec(few_digits_dir, ranks=2, **SMALL))
    assert train(run_dir, 2) == 4
    told = json.loads(sorted((run_dir / "logs").glob("failure-*.json"))[0].read_text())["message"]
    assert told.startswith(f"{platform.node()}: scratch folder {tmp_path}/none is missing")
