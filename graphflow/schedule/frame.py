"""Schedules: steps on one kernel with their proofs, and handles that stay valid across steps.

In: a definition, and primitives with plain arguments.  Out: the `Schedule`, which holds the kernel,
the steps with their proofs, and the refusals.  What always holds: `replay` of the steps on the
definition gives the same kernel.

A *place* is a loop, a block or a buffer of a kernel.  Within one kernel its name identifies it
(that of a loop is its variable's), so a primitive is a function from a kernel and plain arguments,
names among them, to a `Rewrite`: the new kernel, the proofs that permitted it, where the old places
went, and which new ones it made.

A later step may rename, copy or remove a place, so a name identifies nothing across steps.  A
`Handle`, which belongs to a `Schedule`, does: `schedule[handle]` is the name that the place has
now, and `schedule.forward(handle)` is what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from graphflow.arith import Proof
from graphflow.base.errors import ScheduleError
from graphflow.effects import DomainTouched, domain_touched
from graphflow.schedule.bound_inference import Bounds, infer_bounds
from graphflow.schedule.obligations import Unproven
from graphflow.schedule.places import (
    find_buffer,
    find_loop,
    fresh_name,
    has_place,
    names_in,
    place_names,
    unknown_place,
)
from graphflow.schedule.soundness import require_sound
from graphflow.tir import Block, Call, For, NotUnifiable, PrimFunc, calls_in, to_text, unify, walk

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a primitive gives back.

    `places` maps the name of an old place to the names it has now, in program order; an empty tuple
    means that the place is gone.  Places that kept their name are not in it.  `made` has the names
    of the places that the primitive made, or kept as parts of those it was given, by role; each
    primitive documents its roles.
    """

    func: PrimFunc
    proofs: tuple[Proof, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    """The fields of configuration state that may hold something else after the new kernel."""


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One application of a primitive: arguments, the proofs that permitted it, and moved places."""

    primitive: Callable[..., Rewrite]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    proofs: tuple[Proof, ...]
    places: Mapping[str, tuple[str, ...]]
    fields: tuple[str, ...] = ()
    """As in `Rewrite`."""

    def __str__(self) -> str:
        positional = [_argument_text(a) for a in self.arguments]
        named = [f"{name}={_argument_text(value)}" for name, value in self.options]
        return f"{self.primitive.__name__}({', '.join((*positional, *named))})"


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """A loop, block or buffer, wherever later steps of its schedule take it.

    Its name was `name` after the first `since` steps.  `origin` is the last of these steps, or the
    definition if there was none.  `there` is false where the step that made the place also removed
    it, as simplification does with a loop that runs once.
    """

    name: str
    since: int
    origin: ScheduleStep | PrimFunc
    there: bool = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused step, as text, the reason, and the proof that failed, if one did.

    `step` is empty where a query failed before any step, such as for the constant bounds of a loop.
    """

    step: str
    reason: str
    proof: Proof | None = None

    def __str__(self) -> str:
        """The step and the reason, without the proof."""
        return f"{self.step}: {self.reason}" if self.step else self.reason

    @staticmethod
    def of(error: ScheduleError) -> Refusal:
        """The refusal that an error stands for, without the kernel's text."""
        if isinstance(error, StepRefused):
            return error.refusal
        if isinstance(error, Unproven):
            return Refusal("", error.reason, error.proof)
        return Refusal("", str(error))


class StepRefused(ScheduleError):
    """A primitive refused: which step and why, and the kernel that it was applied to."""

    def __init__(self, refusal: Refusal, func: PrimFunc) -> None:
        super().__init__(refusal, func)
        self.refusal, self.func = refusal, func

    def __str__(self) -> str:
        # Printing a kernel is slow, and most refusals are of attempts whose text nobody reads.
        because = f": {_proof_text(self.refusal.proof)}" if self.refusal.proof else ""
        return f"{self.refusal}{because}\nin\n{to_text(self.func)}"


def _proof_text(proof: Proof) -> str:
    return f"{proof.claim} ({proof.method}: {proof.reason})"


def _moved(before: PrimFunc, done: Rewrite) -> Mapping[str, tuple[str, ...]]:
    """Where the places of `before` went: as the rewrite states, without names that are gone."""
    now = done.func
    # Names are unique in a kernel, so places in a statement that both kernels share did not move.
    params = _differing(before.params, now.params)
    bodies = _differing(before.body, now.body)
    old_names, new_names = (
        dict.fromkeys(place_names(replace(now, params=some, body=body)))
        for some, body in zip(params, bodies, strict=True)
    )
    stated = {
        old: tuple(n for n in new if n in new_names or has_place(now, n))
        for old, new in done.places.items()
    }
    gone = {old: () for old in old_names if old not in new_names and old not in stated}
    return {**stated, **gone}


def _require_instances(before: PrimFunc, now: PrimFunc) -> None:
    """ScheduleError where a call of `before` does in `now` what its definition does not.

    Traversals leave a block with the name of the call in such a place.
    """
    calls = {call.name: call for call in calls_in(before.body)}
    if not calls:
        return
    for stmt in walk(now.body):
        if isinstance(stmt, Block) and stmt.name in calls:
            definition = calls[stmt.name].definition
            try:
                unify(definition, stmt.body, stmt.name)
            except NotUnifiable as error:
                raise ScheduleError(
                    f"{stmt.name} would be no call of {definition.name} any more: {error}; "
                    "inline it first"
                ) from None


def _differing(
    before: tuple[Item, ...], now: tuple[Item, ...]
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Both tuples without the objects that both begin with, and without those that both end with.

    A step on a wide kernel changes one statement of hundreds.
    """
    shorter = min(len(before), len(now))
    pairs = zip(before, now, strict=False)
    front = next((k for k, (a, b) in enumerate(pairs) if a is not b), shorter)
    pairs = zip(reversed(before), reversed(now), strict=False)
    back = next((k for k, (a, b) in enumerate(pairs) if a is not b), shorter)
    back = min(back, shorter - front)
    return before[front : len(before) - back], now[front : len(now) - back]


def _argument_text(value: Any) -> str:
    describe = getattr(value, "describe", None)
    return describe() if describe is not None else repr(value)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A kernel under transformation: the definition, the kernel now, and the steps between.

    `made` holds the handles of what the last step made, by role; each primitive documents its
    roles.  `refusals` are the steps that were attempted and refused, in that order.
    """

    definition: PrimFunc
    func: PrimFunc
    steps: tuple[ScheduleStep, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    made: Mapping[str, tuple[Handle, ...]] = field(default_factory=dict, compare=False)

    def describe(self) -> str:
        """How the schedule reads as an argument of a step."""
        return f"<schedule of {self.definition.name}, {len(self.steps)} steps>"

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
        """The schedule one step further; a refusal is a `StepRefused` that shows the kernel."""
        try:
            done = primitive(self.func, *arguments, **options)
            _require_instances(self.func, done.func)
        except ScheduleError as error:
            step = ScheduleStep(primitive, arguments, tuple(options.items()), (), {})
            refusal = replace(Refusal.of(error), step=str(step))
            raise StepRefused(refusal, self.func) from None
        if done.func is self.func:
            return replace(self, made={}) if self.made else self
        places = _moved(self.func, done)
        named = tuple(options.items())
        step = ScheduleStep(primitive, arguments, named, done.proofs, places, done.fields)
        steps = (*self.steps, step)
        made = {
            role: tuple(
                Handle(name, len(steps), step, has_place(done.func, name)) for name in names
            )
            for role, names in done.made.items()
        }
        return Schedule(self.definition, done.func, steps, self.refusals, made)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of configuration state that may hold something else after the kernel than
        after the definition."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.fields))

    def attempt(
        self,
        primitive: Callable[Concatenate[PrimFunc, Arguments], Rewrite],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Schedule:
        """The schedule one step further, or where that is refused, this one with the reason."""
        try:
            return self.apply(primitive, *arguments, **options)
        except ScheduleError as error:
            return self.refusing(error)

    def attempt_all(
        self,
        change: Callable[Concatenate[Schedule, Arguments], Schedule],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Schedule:
        """`change(self, …)`, or where a step in it is refused, this schedule with the reason."""
        try:
            return change(self, *arguments, **options)
        except ScheduleError as error:
            return self.refusing(error)

    def refusing(self, error: ScheduleError) -> Schedule:
        """This schedule, with the reason of `error` among what was refused."""
        refusals = dict.fromkeys((*self.refusals, Refusal.of(error)))
        return replace(self, refusals=tuple(refusals), made={})

    def handle(self, name: str) -> Handle:
        """The place that is called `name` now; ScheduleError where there is none."""
        if not has_place(self.func, name):
            raise ScheduleError(unknown_place(self.func, name))
        return self._now(name)

    def handles(self, found: Iterable[For | Block | Call]) -> tuple[Handle, ...]:
        """Handles of loops and blocks that were found in the kernel as it is now."""
        return tuple(
            self._now(stmt.var.name if isinstance(stmt, For) else stmt.name) for stmt in found
        )

    def _now(self, name: str) -> Handle:
        return Handle(name, len(self.steps), self.steps[-1] if self.steps else self.definition)

    def forward(self, place: Handle) -> tuple[Handle, ...]:
        """What became of a place: itself, the parts or copies of it, or nothing where it is gone.

        ScheduleError for a handle of another schedule, or of a step that is not in this one.
        """
        return tuple(self._now(name) for name in self._names(place))

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

    def loop(self, place: Handle) -> For:
        """The loop as it is now; ScheduleError where it is gone, or is no loop."""
        return find_loop(self.func, self[place])[0]

    def present(self, places: Iterable[Handle]) -> tuple[Handle, ...]:
        """Those of the places of which something is left, in the order given."""
        return tuple(place for place in places if self._names(place))

    def inside(self, outer: Handle, places: Iterable[Handle]) -> tuple[Handle, ...]:
        """What became of each of the places inside the loop `outer`, in the order given.

        Of a place that a cut or a fission copied, that is the copy in this piece.
        """
        below = set(names_in(self.loop(outer).body))
        names = (name for place in places for name in self._names(place) if name in below)
        return tuple(self._now(name) for name in dict.fromkeys(names))

    def fresh(self, pattern: str, *parts: Handle | int) -> str:
        """A name that no place of the kernel has, for a step to give.

        It is `pattern`, each `{}` in it replaced with the name of a place or a number, and a number
        behind it where that name is taken.
        """
        wanted = pattern.format(*(self[p] if isinstance(p, Handle) else p for p in parts))
        return fresh_name(wanted, lambda name: has_place(self.func, name))

    def bounds(self, attached: Mapping[Handle | str, Handle | str] | None = None) -> Bounds:
        """What each stage must compute and over which range each loop runs; `print` shows it.

        With `attached`, by names or handles of buffers, as if each were computed at the loop given
        for it.  ScheduleError as of `infer_bounds`.
        """

        def name(place: Handle | str) -> str:
            return self[place] if isinstance(place, Handle) else place

        return infer_bounds(self.func, {name(b): name(at) for b, at in (attached or {}).items()})

    def domain_touched(self, buffer: Handle | str) -> DomainTouched:
        """What the kernel reads and writes of a buffer, and under which conditions; `print` it.

        ScheduleError where there is no such buffer.
        """
        name = self[buffer] if isinstance(buffer, Handle) else buffer
        return domain_touched(self.func, find_buffer(self.func, name))

    def trace(self) -> str:
        """The steps as text, one a line, each followed by its proofs; then what was refused."""
        lines: list[str] = []
        for step in self.steps:
            lines.append(str(step))
            lines += [f"    {proof}" for proof in step.proofs]
        for refusal in self.refusals:
            lines.append(f"refused: {refusal}")
            lines += [f"    {_proof_text(refusal.proof)}"] if refusal.proof else []
        return "\n".join(lines)

    def _names(self, place: Handle) -> tuple[str, ...]:
        names: tuple[str, ...] = (place.name,) if place.there else ()
        self._require_own(place)
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
            made = "" if isinstance(place.origin, PrimFunc) else f", made by {place.origin},"
            raise ScheduleError(f"the handle of {place}{made} belongs to another schedule")

    def _consumed(self, place: Handle) -> str:
        """Which step took a place away, or made several of it."""
        names: tuple[str, ...] = (place.name,) if place.there else ()
        if not names:
            return f"{place} is gone: {place.origin} made it and simplified it away"
        story = ""
        for step in self.steps[place.since :]:
            now = tuple(dict.fromkeys(n for x in names for n in step.places.get(x, (x,))))
            if not now:
                return f"{place} is gone: {step} took it away"
            if len(now) > len(names):
                story = f"{place} is not one place any more: {step} made {' and '.join(now)} of it"
            names = now
        return story


def replay(definition: PrimFunc, steps: tuple[ScheduleStep, ...]) -> PrimFunc:
    """The kernel that the steps make of `definition`, proving each of them again."""
    schedule = Schedule.of(definition)
    for step in steps:
        schedule = schedule.apply(step.primitive, *step.arguments, **dict(step.options))
    return schedule.func
