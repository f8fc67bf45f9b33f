"""The frame of every schedule: rewrites, the trace, and places that stay valid across rewrites.

A *place* is a name: of a loop (its variable), of a block, or of a buffer; names are unique within
a kernel, so a place needs no path.  A primitive is a function from a kernel and plain arguments to
a `Rewrite`: the new kernel, the proofs that permitted it, and where the old places went.  A
`Schedule` keeps the definition and the trace; `replay` makes the same kernel again from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

from graphflow.arith import Proof
from graphflow.base.errors import ScheduleError
from graphflow.schedule.places import has_place, place_names
from graphflow.schedule.soundness import require_sound
from graphflow.tir import PrimFunc, to_text

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a primitive gives back.

    `places` sends the name of an old place to the names it has now, in program order, and says
    nothing of places that kept their name; an empty tuple means that the place is gone.
    """

    func: PrimFunc
    proofs: tuple[Proof, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One application of a primitive, with what permitted it."""

    primitive: Callable[..., Rewrite]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    proofs: tuple[Proof, ...]
    places: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        positional = [_argument_text(a) for a in self.arguments]
        named = [f"{name}={_argument_text(value)}" for name, value in self.options]
        return f"{self.primitive.__name__}({', '.join((*positional, *named))})"


def _moved(before: PrimFunc, done: Rewrite) -> Mapping[str, tuple[str, ...]]:
    """The places that a rewrite states, without names that simplification took away after it."""
    now = done.func
    # Names are unique in a kernel, so those of a stage that both have are where they were.
    common = {*map(id, before.body), *map(id, before.params)}
    common &= {*map(id, now.body), *map(id, now.params)}
    old_names, new_names = (_names_beside(func, common) for func in (before, now))
    stated = {
        old: tuple(n for n in new if n in new_names or has_place(now, n))
        for old, new in done.places.items()
    }
    gone = {old: () for old in old_names if old not in new_names and old not in stated}
    return {**stated, **gone}


def _names_beside(func: PrimFunc, common: set[int]) -> dict[str, None]:
    """The names of places, in program order, without those in what is `common`."""
    params = tuple(param for param in func.params if id(param) not in common)
    body = tuple(stmt for stmt in func.body if id(stmt) not in common)
    return dict.fromkeys(place_names(replace(func, params=params, body=body)))


def _argument_text(value: Any) -> str:
    describe = getattr(value, "describe", None)
    return describe() if describe is not None else repr(value)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A kernel under transformation: the definition, the kernel now, and the steps between."""

    definition: PrimFunc
    func: PrimFunc
    steps: tuple[Step, ...] = ()

    @staticmethod
    def of(definition: PrimFunc) -> Schedule:
        """The empty schedule of a definition.

        VerifyError where the definition is not well formed, or marks a loop parallel or vectorized
        whose iterations are not proven to be independent, or assumes what cannot be true.
        """
        require_sound(definition)
        return Schedule(definition, definition)

    def apply(
        self,
        primitive: Callable[Concatenate[PrimFunc, Arguments], Rewrite],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Schedule:
        """The schedule one step further; a refusal is a `ScheduleError` that shows the kernel."""
        try:
            done = primitive(self.func, *arguments, **options)
        except ScheduleError as error:
            step = Step(primitive, arguments, tuple(options.items()), (), {})
            raise ScheduleError(f"{step}: {error}\nin\n{to_text(self.func)}") from None
        if done.func is self.func:
            return self
        places = _moved(self.func, done)
        step = Step(primitive, arguments, tuple(options.items()), done.proofs, places)
        return Schedule(self.definition, done.func, (*self.steps, step))

    def forward(self, place: str, since: int = 0) -> tuple[str, ...]:
        """The names that `place` has now, if it was valid after the first `since` steps."""
        names: tuple[str, ...] = (place,)
        for step in self.steps[since:]:
            names = tuple(new for name in names for new in step.places.get(name, (name,)))
        return names

    def trace(self) -> str:
        """The steps as text, one a line, each followed by its proofs."""
        lines: list[str] = []
        for step in self.steps:
            lines.append(str(step))
            lines += [f"    {proof}" for proof in step.proofs]
        return "\n".join(lines)


def replay(definition: PrimFunc, steps: tuple[Step, ...]) -> PrimFunc:
    """The kernel that the steps make of `definition`, proving each of them again."""
    schedule = Schedule.of(definition)
    for step in steps:
        schedule = schedule.apply(step.primitive, *step.arguments, **dict(step.options))
    return schedule.func
