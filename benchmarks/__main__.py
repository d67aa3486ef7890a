"""`python -m benchmarks [NAME…]`: every benchmark, or those named; each prints what it measured."""

from __future__ import annotations

import importlib
import sys

NAMES = ("startup", "input_pipeline", "training_loop", "report_speed")


def main() -> None:
    """Run the benchmarks one after the other: they must not share the cores."""
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            raise SystemExit(f"no benchmark {name}; there is: {', '.join(NAMES)}")
        print(f"\n{name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
