"""Exploring: fresh seeds for every fuzz test for a given time, and regression cases of what fails.

In: fuzz tests by name, a time, a seed of seeds.  Out: `Explored`.  What always holds: the same seed
gives the same seeds of each test, of which a faster machine runs more; of failures of one kind a
test shrinks and writes the first.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Lock
from time import monotonic

from support.fuzz.case_source import case_in, source_of
from support.fuzz.fuzz_process import FuzzProcess, registry_of
from support.fuzz.fuzz_test import Failure, FuzzTest
from support.paths import TESTS

REGRESSIONS = TESTS / "regressions"
"""A folder for each fuzz test, with a module for each case: `NAME/seed_SEED.py`."""

REGISTRY = "fuzz_registry"
TURN = 20.0
"""Seconds for which a test runs before the next one does."""


@dataclass
class Explored:
    """What one test ran, and the failures of each kind."""

    seeds: Iterator[int]
    ran: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    written: list[Path] = field(default_factory=list)

    def __str__(self) -> str:
        rate = f"{self.ran} seeds in {self.seconds:.0f} s"
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.most_common(8))
        kinds = ", ".join(f"{count} x {kind}" for kind, count in self.kinds.items())
        return f"{rate}; {kinds or 'nothing wrong'}; {counts}"


def fresh_seeds(seed: int, name: str) -> Iterator[int]:
    random = Random(f"{seed} {name}")
    while True:
        yield random.randrange(2**31)


def explore(
    names: Sequence[str],
    seconds: float,
    seed: int,
    folder: Path = REGRESSIONS,
    registry: str = REGISTRY,
    jobs: int = 1,
    say: Callable[[str], None] = print,
) -> dict[str, Explored]:
    """Tests take turns in `jobs` processes until the time is over, one seed at least."""
    tests = registry_of(registry)
    found = {name: Explored(fresh_seeds(seed, name)) for name in names}
    end, lock, waiting = monotonic() + seconds, Lock(), list(names)
    turn = min(TURN, seconds * jobs / len(names))

    def work() -> None:
        process = FuzzProcess(registry)
        try:
            while True:
                with lock:
                    if not waiting:
                        return  # each of fewer tests than processes has one
                    name = waiting.pop(0)
                until = min(end, monotonic() + turn)
                _take_turn(process, tests[name], found[name], until, folder, say)
                if monotonic() >= end:
                    return
                with lock:
                    waiting.append(name)
        finally:
            process.close()

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work) for _ in range(jobs)]:
            done.result()
    return found


def _take_turn(
    process: FuzzProcess,
    test: FuzzTest,
    found: Explored,
    until: float,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """At least one seed, and more until the turn is over."""
    began = monotonic()
    for seed in found.seeds:
        result = process.run(test, seed)
        found.ran += 1
        found.counts += result.counts
        if result.failure is not None:
            kind = result.failure.kind
            found.kinds[kind] += 1
            if found.kinds[kind] == 1:
                say(f"{test.name}, seed {seed}: {result.failure.text}")
                found.written.append(write_regression(process, test, seed, result.failure, folder))
                say(f"written: {found.written[-1]}")
        if monotonic() >= until:
            break
    found.seconds += monotonic() - began


def write_regression(
    process: FuzzProcess, test: FuzzTest, seed: int, failure: Failure, folder: Path
) -> Path:
    """The simplest case with this failure as a module; the seed where no case shows it."""
    shrunk = process.shrink(test, seed, failure)
    about = f"{test.name}, seed {seed}, {failure.kind}: {failure.text}"
    source = source_of(seed, about) if shrunk is None else shrunk.source
    path = folder / test.name / f"seed_{seed}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    return path


def regressions(folder: Path = REGRESSIONS) -> list[Path]:
    return sorted(folder.glob("*/seed_*.py"))


def check_regression(path: Path, tests: Mapping[str, FuzzTest]) -> Failure | None:
    """What is wrong with a case that was written."""
    test, case = tests[path.parent.name], case_in(path.read_text(encoding="utf-8"))
    if isinstance(case, int) and test.draw is not int:
        return test.run(case).failure
    return test.check(case)
