"""The direction of imports, which DESIGN fixes: training -> results, launch -> results, results -> nothing of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "results": {"training", "launch", "torch", "torchvision", "horovod", "nvidia", "mpi4py"},
    "launch": {"training", "torch", "torchvision", "horovod", "nvidia", "mpi4py"},
    "training": {"launch"},
}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_arrows_point_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    turned = {str(path.relative_to(ROOT)): imported(path) & FORBIDDEN[package] for path in files}
    assert {name: modules for name, modules in turned.items() if modules} == {}
