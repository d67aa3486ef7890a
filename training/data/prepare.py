"""`python -m training.data.prepare NAME --root DIR`: write an embedded data set, or check and index one that is there."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from results.yaml_file import ConfigurationError

MODULES = {
    "digits": "training.data.digits",
    "imagenet": "training.data.imagenet",
    "coco": "training.data.coco",
    "digits-coco": "training.data.digits_coco",
}
"""Module of each data set; each has `prepare(root: Path) -> Path`, which returns the manifest or summary it wrote."""


def main() -> int:
    """Exit status 0 when the data set is whole."""
    parser = argparse.ArgumentParser(description="Prepare a data set for training.")
    parser.add_argument("name", choices=sorted(MODULES))
    parser.add_argument("--root", type=Path, required=True, help="folder of the data set")
    arguments = parser.parse_args()
    try:
        written = importlib.import_module(MODULES[arguments.name]).prepare(arguments.root)
    except (ConfigurationError, RuntimeError, OSError) as error:
        print(f"{arguments.name}: {error}", file=sys.stderr)
        return 2
    print(f"{arguments.name}: ready, {written}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
