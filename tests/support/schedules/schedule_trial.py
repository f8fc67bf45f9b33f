"""A random schedule under construction: the steps that were tried and taken.

In: a definition and a `Dice`.  Out: a `Trial`, which applies steps, keeps those that are accepted,
and draws arguments for the next one.
"""

from collections import Counter
from collections.abc import Callable
from math import isinf
from typing import Any

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    ScheduleStep,
    assume_finite,
    remove_branching_through_overcompute,
)
from graphflow.schedule.places.place_names import names_of_places
from support.kernels.schedule_kernels import Dice
from support.primitives.choices import Choices

OVERCOMPUTE = remove_branching_through_overcompute.__name__


class Crashed(Exception):
    """A primitive raised something else than a refusal; the note is the step."""


class Trial(Choices):
    """A schedule that grows by random steps; counts what was tried and what was taken.

    `each` checks the kernel after every step that changed it; whatever it raises is a crash.
    """

    def __init__(
        self,
        definition: tir.PrimFunc,
        dice: Dice,
        each: Callable[[tir.PrimFunc], object] = lambda func: tir.verify(func, "scheduled"),
    ) -> None:
        super().__init__(definition, dice)
        self.schedule = Schedule.of(definition)
        self.held = [self.schedule.handle(name) for name in names_of_places(definition)]
        self.each = each
        self.infinite = _infinite(definition)
        self.tried: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()

    def step(self, primitive: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
        """Whether the primitive accepted and changed something; `Crashed` where it did worse."""
        if primitive is assume_finite and arguments[0] in self.infinite:
            return False
        name = primitive.__name__
        before = self.schedule
        self.tried[name] += 1
        try:
            self.schedule = before.apply(primitive, *arguments, **options)
            if self.schedule is not before:
                self.func = self.schedule.func
                self.each(self.func)
                self.follow()
        except ScheduleError as error:
            if tir.to_text(before.func) in str(error):
                return False
            raise self.crash(primitive, arguments, options) from AssertionError(
                f"the refusal does not show the kernel: {error}"
            )
        except Exception as error:
            raise self.crash(primitive, arguments, options) from error
        changed = self.schedule is not before
        self.taken[name] += changed
        return changed

    def crash(self, primitive: Callable[..., Any], arguments: Any, options: Any) -> Crashed:
        return Crashed(ScheduleStep(primitive, arguments, tuple(options.items()), (), {}))

    def follow(self) -> None:
        """Handles of the definition's places give places of the kernel, each of them once."""
        there = set(names_of_places(self.func))
        for place in self.held:
            found = [now.name for now in self.schedule.forward(place)]
            assert there.issuperset(found), (place.name, found)
            assert len(found) == len(set(found)), (place.name, found)


def _infinite(definition: tir.PrimFunc) -> set[str]:
    """The buffers of which a definition assumes an infinite element."""
    assumed = [stmt for stmt in tir.walk(definition.body) if isinstance(stmt, tir.Assume)]
    return {
        load.buffer.name
        for stmt in assumed
        for load in tir.loads_in((stmt,))
        if any(isinstance(e, tir.Literal) and isinf(e.value) for e in tir.walk_expr(stmt.claim))
    }
