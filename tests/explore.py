"""Runs fresh seeds of every fuzz test for a given time; by hand, or at night.

`python tests/explore.py --minutes N [--only NAME …] [--seed S] [--jobs N]` prints what fails,
shrinks it and writes it to `tests/regressions/NAME/seed_SEED.py`, which the ordinary tests run.  It
exits with 1 if anything failed.  Child processes run the seeds, so that a crash or a hang is a
failure like others.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.fuzz.exploring import REGISTRY, explore
from support.fuzz.fuzz_process import registry_of


def main() -> None:
    names = list(registry_of(REGISTRY))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--jobs", type=int, default=1, help="processes that run seeds")
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    found = explore(given.only, 60 * given.minutes, given.seed, jobs=given.jobs)
    for name, one in found.items():
        print(f"{name:20} {one}")
    sys.exit(any(one.kinds for one in found.values()))


if __name__ == "__main__":
    main()
