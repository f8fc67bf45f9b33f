"""Fuzz tests of the compiler with a mistake in it, which the explorer has to find.

One is seen in numbers, one in a crash of native code, and one where a proof does not hold.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

from graphflow.base.fields import replace
from graphflow.layout import Constant, Demand, Fact, serves
from graphflow.schedule.padding import neutral
from support.fuzz.fuzz_registry import FUZZ_TESTS as SOUND
from support.fuzz.fuzz_test import FuzzTest
from support.mutants.native_mutants import MUTANTS
from support.mutated import Patches, mutated, seen_as


def with_mistake(test: FuzzTest, name: str, patches: Patches) -> FuzzTest:
    """The test in a compiler with a mistake, which the process makes at its first seed and keeps:
    caches are emptied once."""

    @cache
    def make() -> None:
        KEPT.enter_context(mutated(patches))

    def after(function: Callable[[Any], Any], case: Any) -> Any:
        make()
        return function(case)

    functions = {f: partial(after, getattr(test, f)) for f in ("run", "draw", "check")}
    return replace(test, name=name, **functions)


KEPT = ExitStack()


def constants_serve(fact: Fact, demand: Demand) -> bool:
    return isinstance(fact, Constant) or serves(fact, demand)


NATIVE = SOUND["native_kernels"]
MISTAKES = (
    with_mistake(
        NATIVE, "native_kernels of other signs", MUTANTS["integers compare as unsigned"].patches
    ),
    with_mistake(
        NATIVE, "native_kernels that divide by zero", MUTANTS["a divisor is not made safe"].patches
    ),
    with_mistake(
        SOUND["schedules"],
        "schedules of any padding",
        [seen_as(neutral, "layout", serves=constants_serve)],
    ),
)

FUZZ_TESTS = {test.name: test for test in MISTAKES}
