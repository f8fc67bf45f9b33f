"""Random applications of scheduling primitives, and whether they were safe by running both kernels.

In: a `PrimitiveCase` and a seed.  Out: whether the primitive applied, and if it refused, whether
it would have changed what the kernel computes, had it not asked for proofs.  What always holds: an
application that changes what a kernel computes raises AssertionError, and so does one that loses a
place.

To add a primitive, add a `PrimitiveCase` to the tuple of a `*_cases.py` beside this file, with a
refusal for each clause of its condition: random sequences of primitives draw it too, and random
schedules where it has a share.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Self
from unittest import mock

import numpy as np

from graphflow import tir
from graphflow.base.errors import GraphflowError, ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.schedule import Rewrite, Schedule
from graphflow.schedule.buffers import lifetimes
from graphflow.schedule.places import obligations
from graphflow.schedule.places.place_names import names_of_places
from support.kernels.effect_kernels import EffectKernel
from support.kernels.random_kernels import Number
from support.primitives.refusal import Refusal
from support.schedule_checks import PARAMS, kernel

POISONS = (-7.0, 1_000_003.0)
"""What memory that was never written holds, on both sides of every constant of the kernels."""

RUNS = 3
"""Random inputs for each comparison."""


def effect_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel, every third one with conditions on data."""
    return EffectKernel.of(number, data_conditions=number(0, 2) == 0).func()


def literal(value: int, dtype: str) -> tir.Literal:
    """A small number as a constant of a type."""
    if dtype == "bool":
        return tir.Literal(value > 1, dtype)
    return tir.Literal(float(value) if dtype in tir.FLOATS else value, dtype)


@dataclass(frozen=True)
class PrimitiveCase:
    """A primitive with random arguments for it."""

    primitive: Callable[..., Rewrite]
    arguments: Callable[[tir.PrimFunc, Number], tuple[Any, ...] | None]
    """Arguments behind the kernel; None where the kernel has no place for the primitive."""
    kernel: Callable[[Number], tir.PrimFunc] = effect_kernel
    variant: str = ""
    """What sets the case apart from others of the same primitive."""
    keeps_interface: bool = True
    """Whether the kernel takes and returns the same arrays; others are in no sequences."""
    share: float = 0.0
    """How often a random schedule draws it."""
    least: float = 1 / 3
    """The least part of the applications that are not unsafe which it accepts."""

    refusals: tuple[Refusal, ...] = field(default=(), compare=False)
    """One for each clause of the condition at least; of several cases the first has them."""
    refused_on: Callable[[], tir.PrimFunc] = field(default=lambda: kernel(""), compare=False)
    refused_by: Callable[[tir.PrimFunc], Any] = field(default=lambda func: func, compare=False)

    @property
    def name(self) -> str:
        return " ".join((self.primitive.__name__, self.variant)).strip()

    def on(
        self, func: str | Callable[[], tir.PrimFunc], *arguments: Any, params: str = PARAMS
    ) -> Self:
        """The case with what the next refusals are about: a kernel, as the text of its body with
        these `params` or as a function that makes it, and arguments for the primitive."""
        make = (lambda: kernel(func, params)) if isinstance(func, str) else func
        return replace(self, refused_on=make).given(*arguments)

    def given(
        self, *arguments: Any, by: Callable[[tir.PrimFunc], Any] | None = None, **options: Any
    ) -> Self:
        """The case with other arguments for the same kernel, or a function that applies the
        primitive to it."""
        apply = by or (lambda func: self.primitive(func, *arguments, **options))
        return replace(self, refused_by=apply)

    def refuses(self, clause: str, message: str, witness: str = "") -> Self:
        """The case with a refusal by this clause; its name is put in front of the message."""
        message = f"{clause}: {message}" if clause.isalpha() else message
        on, by = self.refused_on, self.refused_by
        refusal = Refusal(self.primitive, clause, on, by, message, witness)
        return replace(self, refusals=(*self.refusals, refusal))


class Outcome(StrEnum):
    """What became of one application."""

    APPLIED = "applied"
    REFUSED = "refused, though safe or by its form"
    REFUSED_UNSAFE = "refused, and unsafe"


def try_primitive(case: PrimitiveCase, seed: int) -> Outcome | None:
    """The outcome for a seed; None without a place, or where nothing is to be changed.

    AssertionError, with both kernels, where the primitive applied and the meaning changed.
    """
    drawn = drawn_for(case, seed)
    return None if drawn.arguments is None else try_on(case, drawn)


@dataclass(frozen=True)
class Application:
    """A primitive on a kernel, by the name of its `PrimitiveCase`."""

    name: str
    func: tir.PrimFunc
    arguments: tuple[Any, ...] | None


def drawn_for(case: PrimitiveCase, seed: int) -> Application:
    random = Random(f"{case.name} {seed}")
    func = case.kernel(random.randint)
    return Application(case.name, func, case.arguments(func, random.randint))


def try_on(case: PrimitiveCase, drawn: Application) -> Outcome | None:
    """The outcome of one application, as of `try_primitive`."""
    func, arguments = drawn.func, drawn.arguments
    assert arguments is not None
    if not is_same(func, func):
        return None
    schedule = Schedule.of(func)
    held = [schedule.handle(name) for name in names_of_places(func)]
    try:
        after = schedule.apply(case.primitive, *arguments)
    except ScheduleError:
        return Outcome.REFUSED_UNSAFE if is_unsafe(case, drawn) else Outcome.REFUSED
    if after.func is func:
        return None
    before, made = tir.to_text(func), tir.to_text(after.func)
    story = f"{case.name}{arguments}\n{before}\nbecame\n{made}"
    tir.verify(after.func, "scheduled")
    assert means_the_same(func, after.func), story
    assert leaves_the_same(func, after.func, after.fields), story
    there = set(names_of_places(after.func))
    for place in held:
        assert there.issuperset(now.name for now in after.forward(place)), story
    for places in after.made.values():
        assert there.issuperset(place.name for place in places if place.there), story
    return Outcome.APPLIED


def is_unsafe(case: PrimitiveCase, drawn: Application) -> bool:
    """Whether the primitive changes the meaning of the kernel where all that it has to prove counts
    as proven; not where it refuses the form of the kernel all the same."""
    with ExitStack() as granted:
        for module in (obligations, lifetimes):
            granted.enter_context(mock.patch.object(module, "require", lambda proof, _: proof))
        try:
            after = Schedule.of(drawn.func).apply(case.primitive, *drawn.arguments or ())
        except ScheduleError:
            return False
        except Exception:  # what later code relies on does not hold without the proof
            return True
    return not is_same(drawn.func, after.func)


def is_same(func: tir.PrimFunc, other: tir.PrimFunc) -> bool:
    """Whether `other` is a valid kernel with the meaning of `func`."""
    try:
        tir.verify(other, "scheduled")
        return means_the_same(func, other)
    except GraphflowError:
        return False


def means_the_same(func: tir.PrimFunc, other: tir.PrimFunc) -> bool:
    """Whether both leave the same in each element of an output that `func` defines.

    An element is defined if it is the same whatever unwritten memory holds.
    """
    random = np.random.default_rng(0)
    for _ in range(RUNS):
        given = [param.buffer for param in func.params if param.role is not tir.Role.OUTPUT]
        arrays = {
            b.name: random.integers(-2, 9, b.shape).astype(tir.DTYPES[b.dtype]) for b in given
        }
        wants = [
            tir.interpret(func, arrays, undefined=poison, state=state_before(func))
            for poison in POISONS
        ]
        for poison in POISONS:
            before = state_before(other)
            try:
                got = tir.interpret(
                    other, arrays, undefined=poison, reverse=poison > 0, state=before
                )
            except VerifyError:
                return False
            for name in wants[0]:
                defined = wants[0][name] == wants[1][name]
                if not np.array_equal(got[name][defined], wants[0][name][defined]):
                    return False
    return True


def state_before(func: tir.PrimFunc) -> dict[str, Any]:
    """What the fields of configuration state that a kernel uses hold before it."""
    return {field.name: 2 + len(field.name) for field in tir.fields_of(func)}


def leaves_the_same(func: tir.PrimFunc, other: tir.PrimFunc, except_fields: Sequence[str]) -> bool:
    """Whether fields of configuration state hold the same after both, but for `except_fields`.

    A kernel that does not use a field leaves what it held before.
    """
    names = {*state_before(func), *state_before(other)}.difference(except_fields)
    if not names:
        return True
    for poison in POISONS:
        states = []
        for one in (func, other):
            given = (param.buffer for param in one.params if param.role is not tir.Role.OUTPUT)
            arrays = {b.name: np.ones(b.shape, tir.DTYPES[b.dtype]) for b in given}
            states.append({**state_before(func), **state_before(other)})
            tir.interpret(one, arrays, undefined=poison, state=states[-1])
        if any(states[0][name] != states[1][name] for name in names):
            return False
    return True


def outcomes(case: PrimitiveCase, seeds: range) -> Counter[Outcome]:
    """The outcomes over some seeds."""
    found = (try_primitive(case, seed) for seed in seeds)
    return Counter(outcome for outcome in found if outcome is not None)


def share(found: Counter[Outcome]) -> float:
    """The part of the applications that are not unsafe which the primitive accepted; 1 of none."""
    safe = found[Outcome.APPLIED] + found[Outcome.REFUSED]
    return found[Outcome.APPLIED] / safe if safe else 1.0
