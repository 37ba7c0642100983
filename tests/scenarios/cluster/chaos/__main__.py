"""`python -m tests.scenarios.cluster.chaos --minutes 10 --seed 7`: exit code 1 if a promise was broken."""

import argparse
import asyncio
import random
import signal
import sys
import time
from pathlib import Path

from tests.scenarios.cluster.chaos.run import Plan, run_chaos
from tests.scenarios.process import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make chaos", description="Break a cluster, and see whether its promises hold."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the load and the faults last (10)")
    parser.add_argument("--seed", type=int, help="what is broken and asked for; without it, one is drawn")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that servers and processes are stopped
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    folder = new_folder(seed)
    print(
        f"chaos: seed {seed}, {options.minutes:g} minutes; everything is kept in {folder.relative_to(ROOT)}", flush=True
    )
    report = asyncio.run(
        run_chaos(folder, Plan(seed, round(options.minutes * 60)), say=lambda line: print(line, flush=True))
    )
    print(f"\n{report.text}", flush=True)
    return 1 if report.broken else 0


def new_folder(seed: int) -> Path:
    folder = ROOT / "var" / "chaos" / f"{time.strftime('%Y%m%d-%H%M%S')}-seed-{seed}"
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
