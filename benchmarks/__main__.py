"""`python -m benchmarks [NAME…]`: every benchmark, or those named; each prints what it measured."""

from __future__ import annotations

import subprocess
import sys

NAMES = ("startup", "input_pipeline", "training_loop", "report_speed", "coco_eval_speed", "emulated_cluster")


def main() -> None:
    """Run the benchmarks one after the other, since they must not share the cores, each in a process of its own, since
    the memory of one would be counted for the next."""
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            raise SystemExit(f"no benchmark {name}; there is: {', '.join(NAMES)}")
        print(f"\n{name}", flush=True)
        subprocess.run([sys.executable, "-c", f"import benchmarks.{name} as benchmark; benchmark.main()"], check=True)


if __name__ == "__main__":
    main()
