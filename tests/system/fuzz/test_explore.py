"""Every fuzz test on many seeds, what was wrong before, and the explorer on planted mistakes.

`-m slow` runs all seeds of support/fuzz/fuzz_registry.py, or those of `--fuzz-seeds LOW:HIGH`, in
child processes; seeds are independent, so that processes can share the work and a run can be
resumed.
"""

from collections import Counter
from pathlib import Path

import pytest

from graphflow.base.fields import replace
from support.fuzz.case_source import case_in, source_of
from support.fuzz.exploring import check_regression, explore, regressions, write_regression
from support.fuzz.fuzz_process import FuzzProcess
from support.fuzz.fuzz_registry import FUZZ_TESTS
from support.fuzz.fuzz_test import FuzzTest
from support.fuzz.planted_fuzz import MISTAKES
from support.fuzz.planted_numbers import FUZZ_TESTS as PLANTED
from support.fuzz.planted_numbers import Numbers
from support.paths import TESTS

SLICES = 25
"""Of the seeds of a test, each with a process of its own."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "many" in metafunc.fixturenames:
        text = metafunc.config.getoption("--fuzz-seeds")
        chosen = []
        for name, test in FUZZ_TESTS.items():
            low, high = map(int, text.split(":")) if text else (0, test.many)
            size = -(-(high - low) // SLICES)
            chosen += [(name, range(k, min(k + size, high))) for k in range(low, high, size)]
        ids = [f"{name}-{seeds.start}:{seeds.stop}" for name, seeds in chosen]
        metafunc.parametrize(("name", "many"), chosen, ids=ids)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_seeds(name: str, many: range) -> None:
    """Every seed is run, so that one that fails hides no other; the first that does is shrunk."""
    test, process = FUZZ_TESTS[name], FuzzProcess("fuzz_registry")
    counts: Counter[str] = Counter()
    wrong = {}
    try:
        for seed in many:
            found = process.run(test, seed)
            counts += found.counts
            if found.failure:
                wrong[seed] = found.failure
        print(dict(counts.most_common()))
        lines = [f"seed {seed}: {failure.kind}: {failure.text}" for seed, failure in wrong.items()]
        for seed, failure in [*wrong.items()][:1]:
            shrunk = process.shrink(test, seed, failure)
            lines.append(shrunk.source if shrunk else "")
        assert not wrong, "\n\n".join(lines)
    finally:
        process.close()
    assert not test.reach(counts)


@pytest.mark.parametrize("path", regressions(), ids=lambda p: p.relative_to(TESTS).as_posix())
def test_what_was_wrong_is_right(path: Path) -> None:
    failure = check_regression(path, FUZZ_TESTS)
    assert failure is None, failure.text


@pytest.mark.parametrize("name", FUZZ_TESTS)
def test_a_case_is_written_as_what_it_is(name: str) -> None:
    """What draws cases may change: what was written stays the same case."""
    test = FUZZ_TESTS[name]
    case = test.draw(3)
    written = source_of(case, "seed 3")
    assert source_of(case_in(written), "seed 3") == written


# Planted mistakes ---------------------------------------------------------------------------------


SEEDS = {"large": 2, "died": 1, "hung": 7}
"""By what becomes of the numbers of a seed."""


@pytest.mark.parametrize("kind", SEEDS)
def test_a_failure_a_crash_and_a_hang_are_shrunk_and_written(kind: str, tmp_path: Path) -> None:
    seconds = 0.5 if kind == "hung" else 60.0
    test = replace(PLANTED["numbers"], seconds=seconds)
    process = FuzzProcess("planted_numbers")
    try:
        failure = process.run(test, SEEDS[kind]).failure
        assert failure is not None and failure.kind == kind
        path = write_regression(process, test, SEEDS[kind], failure, tmp_path)
    finally:
        process.close()
    assert regressions(tmp_path) == [path]
    assert case_in(path.read_text()) == Numbers(({"large": 91, "died": 13, "hung": 65}[kind],))
    if kind == "large":
        assert check_regression(path, PLANTED) is not None


def test_the_explorer_draws_seeds_until_the_time_is_over(tmp_path: Path) -> None:
    said: list[str] = []
    found = explore(["numbers"], 0, 1, tmp_path, "planted_numbers", say=said.append)["numbers"]
    assert found.ran == 1 and found.kinds == {"large": 1}
    assert len(said) == 2 and found.written == regressions(tmp_path)


LIKELY = (742482775, 788036717, 1484771968)
"""A seed that shows each of the mistakes."""


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("test", "seed"), [*zip(MISTAKES, LIKELY, strict=True)], ids=[test.name for test in MISTAKES]
)
def test_a_mistake_in_the_compiler_is_shrunk_and_written(
    test: FuzzTest, seed: int, tmp_path: Path
) -> None:
    """As a case of its own, which is right once the mistake is gone."""
    process = FuzzProcess("planted_fuzz")
    try:
        failure = process.run(test, seed).failure
        assert failure is not None
        path = write_regression(process, test, seed, failure, tmp_path)
    finally:
        process.close()
    text = path.read_text(encoding="utf-8")
    assert not isinstance(case_in(text), int)
    assert len(text.splitlines()) < 40
    assert check_regression(path, {test.name: FUZZ_TESTS[test.name.partition(" ")[0]]}) is None
