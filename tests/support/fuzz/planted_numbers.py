"""A fuzz test of lists of numbers: above 90 is wrong, 13 ends the process, 65 takes for ever."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from support.fuzz.fuzz_test import Failure, by_case


@dataclass(frozen=True)
class Numbers:
    values: tuple[int, ...]


def draw(seed: int) -> Numbers:
    return Numbers(tuple(Random(seed).choices(range(100), k=3)))


def check(case: Numbers) -> Failure | None:
    if 13 in case.values:
        os.abort()
    if 65 in case.values:
        time.sleep(1000)
    return Failure("large", f"{case.values} has one above 90") if max(case.values) > 90 else None


def smaller(case: Numbers) -> Iterator[Numbers]:
    for k in range(len(case.values)):
        if len(case.values) > 1:
            yield Numbers((*case.values[:k], *case.values[k + 1 :]))
        if case.values[k] > 0:
            yield Numbers((*case.values[:k], case.values[k] - 1, *case.values[k + 1 :]))


FUZZ_TESTS = {"numbers": by_case("numbers", draw, check, smaller, 0)}
