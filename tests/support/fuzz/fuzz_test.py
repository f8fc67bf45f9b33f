"""A fuzz test: what a seed runs, what is wrong, and what simpler case shows the same.

In: a seed.  Out: a `Result`: a `Failure` or none, and counts of what the case was.  What always
holds: the same seed gives the same result, unless what is wrong depends on undefined memory.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Case = TypeVar("Case")

MOST_TRIES = 400
"""Simpler cases that are tried for one failure."""


@dataclass(frozen=True)
class Failure(Exception):
    """What is wrong with a case, of a kind that shrinking keeps."""

    kind: str
    text: str


@dataclass(frozen=True)
class Result:
    """What a seed showed; the counts of many are added up."""

    failure: Failure | None = None
    counts: Counter[str] = field(default_factory=Counter)


def result(wrong: str, kind: str = "", **counts: int) -> Result:
    """The result of a check that says what is wrong, and nothing where nothing is.

    Without a `kind` it is what stands before the first colon.
    """
    failure = Failure(kind or wrong.partition(":")[0][:60], wrong) if wrong else None
    return Result(failure, Counter(counts))


def attempted(check: Callable[[], object]) -> Failure | None:
    """The exception that a check raises, as a failure."""
    try:
        check()
    except Failure as failure:
        return failure
    except Exception as error:
        return Failure(type(error).__name__, traceback.format_exc())
    return None


def none_smaller(_: Any) -> Iterable[Any]:
    return ()


@dataclass(frozen=True)
class FuzzTest:
    """One random test of the project, for which `explore.py` and `-m slow` draw seeds.

    `check` says what is wrong with a case, which `draw` makes from a seed; a case is its seed where
    nothing else is given.  `smaller` gives simpler cases, the simplest first.  `reach` says which
    part of what the test is for a large corpus lacks, by its counts.
    """

    name: str
    run: Callable[[int], Result]
    many: int
    """Seeds from 0 on that `-m slow` runs."""
    draw: Callable[[int], Any] = int
    check: Callable[[Any], Failure | None] = lambda case: None
    smaller: Callable[[Any], Iterable[Any]] = none_smaller
    reach: Callable[[Counter[str]], str] = lambda counts: ""
    seconds: float = 60.0
    """After them a seed counts as one that hangs."""


def by_seed(
    name: str, check: Callable[[int], object], many: int, seconds: float = 60.0
) -> FuzzTest:
    """A test whose cases are seeds: whatever `check` raises is a failure."""

    def failure(seed: int) -> Failure | None:
        return attempted(lambda: check(seed))

    return FuzzTest(name, lambda s: Result(failure(s)), many, check=failure, seconds=seconds)


def by_case(
    name: str,
    draw: Callable[[int], Case],
    check: Callable[[Case], Failure | None],
    smaller: Callable[[Case], Iterable[Case]],
    many: int,
) -> FuzzTest:
    """A test whose cases are drawn first and checked then."""
    return FuzzTest(
        name, lambda seed: Result(check(draw(seed))), many, draw=draw, check=check, smaller=smaller
    )


def shrunk(
    case: Case,
    smaller: Callable[[Case], Iterable[Case]],
    fails: Callable[[Case], bool],
    tries: int = MOST_TRIES,
) -> Case:
    """A case that fails too and of which no simpler one does, as far as the tries suffice.

    The first simpler case that fails takes the place of the case (greedy, as in QuickCheck).
    """
    again = True
    while again:
        again = False
        for candidate in smaller(case):
            if tries == 0:
                return case
            tries -= 1
            if fails(candidate):
                case, again = candidate, True
                break
    return case
