"""What libraries hold, read from their fat binaries and compared with NVIDIA's own tool; pins; the command."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from launch import fatbin
from launch.wheel_architectures import held, main, pins
from results.yaml_file import ConfigurationError
from tests.launch.support import ROOT

PACKAGES = Path(sysconfig.get_path("purelib"))
CUOBJDUMP = PACKAGES / "triton" / "backends" / "nvidia" / "bin" / "cuobjdump"


def this_stack() -> Path:
    """The requirements that this environment was installed from."""
    found = metadata.version("torch").partition("+")[0]
    stacks = [ROOT / "requirements" / f"{name}.txt" for name in ("default", "volta")]
    matching = [path for path in stacks if pins(path)["torch"] == found]
    if not matching:
        pytest.skip(f"torch {found} is of no pinned stack")
    return matching[0]


@pytest.mark.parametrize("pattern", ["torchvision/_C*.so", "nvidia/nccl/lib/libnccl.so.2", "nvidia/dali/libdali_kernels.so"])
def test_the_same_as_cuobjdump(pattern: str) -> None:
    libraries = sorted(PACKAGES.glob(pattern))
    if not libraries or not CUOBJDUMP.exists():
        pytest.skip(f"{pattern} or {CUOBJDUMP} is not installed")
    listed = [
        subprocess.run([CUOBJDUMP, option, libraries[0]], capture_output=True, text=True, timeout=300)
        for option in ("--list-elf", "--list-ptx")
    ]
    if listed[0].returncode:
        pytest.skip(f"cuobjdump cannot read it: {listed[0].stderr.strip()}")
    code, ptx = (frozenset(int(number) for number in re.findall(r"sm_(\d+)", done.stdout)) for done in listed)
    assert len(code) > 3
    assert fatbin.read(libraries[0]) == fatbin.Architectures(code, ptx)


def test_the_same_as_torch_says_of_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch._C._cuda_getArchFlags())"], capture_output=True, text=True, timeout=120
    )
    said = {int(number) for number in re.findall(r"sm_(\d+)", done.stdout)}
    if not said:
        pytest.skip("this torch was built without CUDA")
    assert said <= fatbin.read(PACKAGES / "torch" / "lib" / "libtorch_cuda.so").machine_code


def test_what_runs_on_what() -> None:
    """Machine code runs on GPUs of its major version from its minor version on (CUDA programming guide, binary compatibility)."""
    held = fatbin.Architectures(frozenset({60, 75, 80}), frozenset({80}))
    assert [number for number in (60, 61, 70, 75, 80, 86, 90) if held.run_on(number)] == [60, 61, 75, 80, 86]
    assert str(held) == "sm_60 sm_75 sm_80; PTX compute_80"
    assert not fatbin.NONE


def test_files_that_are_no_libraries(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("INPUT(libnccl.so.2)")
    with pytest.raises(ValueError, match=r"text\.so is no ELF library"):
        fatbin.read(tmp_path / "text.so")
    cc = shutil.which("gcc")
    if cc is None:
        pytest.skip("no gcc")
    subprocess.run([cc, "-shared", "-o", tmp_path / "none.so", "-x", "c", "/dev/null"], check=True)
    assert fatbin.read(tmp_path / "none.so") == fatbin.NONE


def test_a_library_that_is_cut_short_is_named(tmp_path: Path) -> None:
    libraries = sorted(PACKAGES.glob("torchvision/_C*.so"))
    if not libraries:
        pytest.skip("no torchvision")
    (tmp_path / "cut.so").write_bytes(libraries[0].read_bytes()[:100_000])
    with pytest.raises(ValueError, match=r"cut\.so: "):
        fatbin.read(tmp_path / "cut.so")


def test_pins_of_a_file_and_those_it_names(tmp_path: Path) -> None:
    volta = pins(ROOT / "requirements" / "volta.txt")
    assert (volta["torch"], volta["numpy"]) == ("2.7.1", pins(ROOT / "requirements" / "default.txt")["numpy"])
    (tmp_path / "loose.txt").write_text("torch>=2\n")
    with pytest.raises(ConfigurationError, match=r"loose\.txt: expected NAME==VERSION or -r FILE, found: torch>=2"):
        pins(tmp_path / "loose.txt")


def test_the_pinned_stack_as_it_is_installed() -> None:
    """torch, torchvision, DALI, NCCL, cuDNN and cuBLAS: all hold kernels, for a V100 in the volta stack alone."""
    stack = this_stack()
    found = list(held(PACKAGES, pins(stack)))
    kinds = {re.sub(r"nvidia-|-cu.*", "", one.package) for one in found}
    assert {"torch", "torchvision", "dali", "nccl", "cudnn", "cublas"} <= kinds
    on_v100 = {one.architectures.run_on(70) for one in found}
    assert on_v100 == {stack.stem == "volta"}
    done = CliRunner().invoke(main, [str(stack), "--need", "sm_70"])
    assert done.exit_code == (0 if stack.stem == "volta" else 1)
    assert f"torch=={pins(stack)['torch']}  libtorch_cuda.so: sm_" in done.output


def test_the_page_says_what_the_libraries_say() -> None:
    rows = re.findall(r"^\| (\S+) (\S+) \| (.+) \| ([\d ]+) \|$", (ROOT / "docs" / "stacks.md").read_text(), re.MULTILINE)
    told = {
        (package, version, library): {int(number) for number in numbers.split()}
        for package, version, libraries, numbers in rows
        for library in libraries.split(", ")
    }
    stack = pins(this_stack())
    # A wheel that bundles another's library adds a hash to its name.
    stem = re.compile(r"(-[0-9a-f]{8}|\.[0-9a-f]{8})?(\.cpython-.*)?\.so.*$")
    found = {
        (one.package, one.version, stem.sub("", one.library)): one.architectures.machine_code for one in held(PACKAGES, stack)
    }
    versions = {key[:2] for key in found}
    assert {key: numbers for key, numbers in told.items() if key[:2] in versions} == found


def test_another_version_than_the_pinned_one(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("torch==1.0.0\n")
    with pytest.raises(ConfigurationError, match=r"of torch, not 1\.0\.0; let pip fill a folder: --into DIR"):
        list(held(PACKAGES, pins(tmp_path / "other.txt")))
