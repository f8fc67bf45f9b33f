"""A kernel under transformation: its definition, the steps with their proofs, and its handles.

In: a definition, and primitives with plain arguments.  Out: the schedule one step further, or the
reason why not.  What always holds: `replay` of the steps on the definition gives the same kernel.
`Schedule`, which users have, adds each primitive as a method, and how a schedule is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Self, cast

import numpy as np

from graphflow import effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.effects import domain_touched
from graphflow.schedule.facts import bound_inference, soundness
from graphflow.schedule.places import addresses, place_names, statement_patterns
from graphflow.schedule.places.places import find_buffer, loop_at
from graphflow.schedule.places.step_arguments import require_arguments
from graphflow.schedule.steps.frame import (
    Handle,
    Refusal,
    Rewrite,
    ScheduleStep,
    StepRefused,
    moved_places,
    require_expandable,
    require_instances,
)
from graphflow.schedule.steps.tracking import follow

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class BaseSchedule:
    """A kernel under transformation: the definition, the kernel now, and the steps between.

    `made` holds the handles of what the last step made, by role; each primitive documents its
    roles.  `refusals` are the steps that were attempted and refused, in that order.
    """

    definition: tir.PrimFunc
    func: tir.PrimFunc
    steps: tuple[ScheduleStep, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    made: Mapping[str, tuple[Handle, ...]] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        """The kernel as it is now, in the text form."""
        return tir.to_text(self.func)

    def describe(self) -> str:
        """How the schedule reads as an argument of a step."""
        return f"<schedule of {self.definition.name}, {len(self.steps)} steps>"

    @classmethod
    def of(cls, definition: tir.PrimFunc) -> Self:
        """The empty schedule of a definition.

        VerifyError where the definition is not well formed, or marks a loop parallel or vectorized
        whose iterations are not proven to be independent, or assumes what cannot be true.
        """
        soundness.require_sound(definition)
        return cls(definition, definition)

    def apply(
        self,
        primitive: Callable[Concatenate[tir.PrimFunc, Arguments], Rewrite],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Self:
        """The schedule one step further; a refusal is a `StepRefused` that shows the kernel.

        A handle among the arguments stands for the name that its place has now.
        """
        given: tuple[Any, ...] = arguments
        named = tuple(options.items())
        try:
            given = self._named(arguments)
            named = tuple((name, self._named(value)) for name, value in named)
            require_arguments(primitive, given, dict(named))
            done = cast(Callable[..., Rewrite], primitive)(self.func, *given, **dict(named))
            require_instances(self.func, done.func)
            require_expandable(self.func, done.func)
        except ScheduleError as error:
            step = ScheduleStep(primitive, given, named, (), {})
            refusal = replace(Refusal.of(error), step=str(step))
            raise StepRefused(refusal, self.func) from None
        if done.func is self.func:
            return replace(self, made={}) if self.made else self
        if done.func.intrinsic is not None:  # it performs the parameters as they were defined
            done = replace(done, func=replace(done.func, intrinsic=None))
        places = moved_places(self.func, done)
        if done.arguments is not None:
            given, named = done.arguments, ()
        there = {
            role: tuple(name if place_names.has_place(done.func, name) else None for name in names)
            for role, names in done.made.items()
        }
        step = ScheduleStep(primitive, given, named, done.proofs, places, there, done.fields)
        steps = (*self.steps, step)
        made = {
            role: tuple(
                Handle(name, len(steps), step, now is not None)
                for name, now in zip(names, there[role], strict=True)
            )
            for role, names in done.made.items()
        }
        return replace(self, func=done.func, steps=steps, made=made)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of configuration state that may hold something else after the kernel than
        after the definition."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.fields))

    def attempt(
        self,
        primitive: Callable[Concatenate[tir.PrimFunc, Arguments], Rewrite],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Self:
        """The schedule one step further, or where that is refused, this one with the reason."""
        try:
            return self.apply(primitive, *arguments, **options)
        except ScheduleError as error:
            return self.refusing(error)

    def attempt_all(
        self,
        change: Callable[Concatenate[Self, Arguments], Self],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Self:
        """`change(self, …)`, or where a step in it is refused, this schedule with the reason."""
        try:
            return change(self, *arguments, **options)
        except ScheduleError as error:
            return self.refusing(error)

    def refusing(self, error: ScheduleError) -> Self:
        """This schedule, with the reason of `error` among what was refused."""
        refusals = dict.fromkeys((*self.refusals, Refusal.of(error)))
        return replace(self, refusals=tuple(refusals), made={})

    def handle(self, name: str) -> Handle:
        """The place that is called `name` now; ScheduleError where there is none."""
        if not place_names.has_place(self.func, name):
            raise ScheduleError(place_names.unknown_place(self.func, name))
        return self._now(name)

    def find(self, pattern: str, inside: Handle | None = None) -> Handle:
        """The first statement that is like a pattern: `for i in _: _`, `x[_] = _`, `x[_] += _`,
        `t: _` (an allocation), `f(_)` (a call), `if _: _` or a name; `_` stands for anything.

        ` #n` behind the pattern chooses the match number n, from 0.  With `inside`, only statements
        in the one of this handle count.  ScheduleError where nothing matches, with what there is.
        """
        return self.find_all(pattern, inside)[0]

    def find_all(self, pattern: str, inside: Handle | None = None) -> tuple[Handle, ...]:
        """All statements that are like a pattern, in program order, as `find` finds the first."""
        around = addresses.path_of(self.func, self[inside]) if inside is not None else ()
        paths = statement_patterns.found_in(
            self.func, statement_patterns.pattern_of(pattern), around
        )
        return tuple(map(self._at, paths))

    def _at(self, path: effects.Path) -> Handle:
        stmt = effects.statement_at(self.func, path)
        if isinstance(stmt, tir.Allocate):
            return self._now(stmt.buffer.name)
        name = place_names.name_of(stmt)
        if name is not None:
            return self._now(name)
        return replace(self._now(addresses.statement_address(self.func, path)), kernel=self.func)

    def handles(self, found: Iterable[tir.For | tir.Block | tir.Call]) -> tuple[Handle, ...]:
        """Handles of loops and blocks that were found in the kernel as it is now."""
        return tuple(
            self._now(stmt.var.name if isinstance(stmt, tir.For) else stmt.name) for stmt in found
        )

    def _named(self, value: Any) -> Any:
        """An argument with the names of places in the stead of handles and addresses, and numbers
        and sequences as Python's own."""
        if isinstance(value, Handle):
            return self[value]
        if isinstance(value, str) and value.endswith("]"):
            return addresses.place_at(self.func, value)
        if type(value) in (tuple, list):
            return tuple(map(self._named, value))
        return value.item() if isinstance(value, np.generic) else value

    def _now(self, name: str) -> Handle:
        return Handle(name, len(self.steps), self.steps[-1] if self.steps else self.definition)

    def forward(self, place: Handle) -> tuple[Handle, ...]:
        """What became of a place: itself, the parts or copies of it, or nothing where it is gone.

        ScheduleError for a handle of another schedule, or of a step that is not in this one.
        """
        kernel = None if place.kernel is None else self.func
        return tuple(replace(self._now(name), kernel=kernel) for name in self._names(place))

    def __getitem__(self, place: Handle) -> str:
        """The name that a place has now.

        ScheduleError, which names the step that did it, where the place is gone or has become
        several: `forward` gives those.
        """
        names = self._names(place)
        if len(names) != 1:
            raise ScheduleError(self._consumed(place))
        return names[0]

    def names(self, places: Iterable[Handle]) -> tuple[str, ...]:
        """The names that places have now, as `schedule[place]` gives them."""
        return tuple(self[place] for place in places)

    def loop(self, place: Handle) -> tir.For:
        """The loop as it is now; ScheduleError where it is gone, or is no loop."""
        return loop_at(self.func, self[place])

    def present(self, places: Iterable[Handle]) -> tuple[Handle, ...]:
        """Those of the places of which something is left, in the order given."""
        return tuple(place for place in places if self._names(place))

    def inside(self, outer: Handle, places: Iterable[Handle]) -> tuple[Handle, ...]:
        """What became of each of the places inside the loop `outer`, in the order given.

        Of a place that a cut or a fission copied, that is the copy in this piece.
        """
        below = set(place_names.declared_names(self.loop(outer).body))
        names = (name for place in places for name in self._names(place) if name in below)
        return tuple(self._now(name) for name in dict.fromkeys(names))

    def fresh(self, pattern: str, *parts: Handle | int) -> str:
        """A name that no place of the kernel has, for a step to give.

        It is `pattern`, each `{}` in it replaced with the name of a place or a number, and a number
        behind it where that name is taken.
        """
        wanted = pattern.format(*(self[p] if isinstance(p, Handle) else p for p in parts))
        return place_names.fresh_name(wanted, lambda name: place_names.has_place(self.func, name))

    def bounds(
        self, attached: Mapping[Handle | str, Handle | str] | None = None
    ) -> bound_inference.Bounds:
        """What each stage must compute and over which range each loop runs; `print` shows it.

        With `attached`, by names or handles of buffers, as if each were computed at the loop given
        for it.  ScheduleError as of `infer_bounds`.
        """

        def name(place: Handle | str) -> str:
            return self[place] if isinstance(place, Handle) else place

        return bound_inference.infer_bounds(
            self.func, {name(b): name(at) for b, at in (attached or {}).items()}
        )

    def domain_touched(self, buffer: Handle | str) -> effects.DomainTouched:
        """What the kernel reads and writes of a buffer, and under which conditions; `print` it.

        ScheduleError where there is no such buffer.
        """
        name = self[buffer] if isinstance(buffer, Handle) else buffer
        return domain_touched(self.func, find_buffer(self.func, name))

    def _names(self, place: Handle) -> tuple[str, ...]:
        names: tuple[str, ...] = (place.name,) if place.there else ()
        self._require_own(place)
        if place.kernel is not None:
            return follow(place.kernel, place.name, self.steps[place.since :])[0]
        for step in self.steps[place.since :]:
            if not step.places.keys().isdisjoint(names):
                moved = (new for name in names for new in step.places.get(name, (name,)))
                names = tuple(dict.fromkeys(moved))
        return names

    def _require_own(self, place: Handle) -> None:
        """Refuses a handle that was made by a step which is not in this schedule."""
        count = place.since
        here = self.steps[count - 1] if 0 < count <= len(self.steps) else None
        if place.origin is not (here if count else self.definition):
            made = "" if isinstance(place.origin, tir.PrimFunc) else f", made by {place.origin},"
            raise ScheduleError(f"the handle of {place}{made} belongs to another schedule")

    def _consumed(self, place: Handle) -> str:
        """Which step took a place away, or made several of it."""
        names: tuple[str, ...] = (place.name,) if place.there else ()
        if not names:
            return f"{place} is gone: {place.origin} made it and simplified it away"
        if place.kernel is not None:
            left, step = follow(place.kernel, place.name, self.steps[place.since :])
            if not left:
                return f"{place} is gone: {step} took it away"
            return f"{place} is not one place any more: {step} made {' and '.join(left)} of it"
        story = ""
        for step in self.steps[place.since :]:
            now = tuple(dict.fromkeys(n for x in names for n in step.places.get(x, (x,))))
            if not now:
                return f"{place} is gone: {step} took it away"
            if len(now) > len(names):
                story = f"{place} is not one place any more: {step} made {' and '.join(now)} of it"
            names = now
        return story


def replay(definition: tir.PrimFunc, steps: tuple[ScheduleStep, ...]) -> tir.PrimFunc:
    """The kernel that the steps make of `definition`, proving each of them again."""
    return (definition, *replayed(definition, steps))[-1]


def replayed(definition: tir.PrimFunc, steps: tuple[ScheduleStep, ...]) -> Iterator[tir.PrimFunc]:
    """The kernel after each of the steps on `definition`, proving each of them again."""
    schedule = BaseSchedule.of(definition)
    for step in steps:
        schedule = schedule.apply(step.primitive, *step.arguments, **dict(step.options))
        yield schedule.func
