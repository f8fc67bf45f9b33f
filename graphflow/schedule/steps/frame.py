"""What schedules are made of: rewrites, steps with their proofs, refusals, and handles.

In: what a primitive returns for a kernel.  Out: where the places of the kernel went.

A *place* is a loop, a block or a buffer of a kernel.  Within one kernel its name identifies it
(that of a loop is its variable's), so a primitive is a function from a kernel and plain arguments,
names among them, to a `Rewrite`: the new kernel, the proofs that permitted it, where the old places
went, and which new ones it made.

A later step may rename, copy or remove a place, so a name identifies nothing across steps.  A
`Handle`, which belongs to a `Schedule`, does: `schedule[handle]` is the name that the place has
now, and `schedule.forward(handle)` is what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, field

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.places import addresses, obligations, place_names

Item = TypeVar("Item")


class Rewrite(Struct, frozen=True):
    """What a primitive gives back.

    `places` maps the name of an old place to the names it has now, in program order; an empty tuple
    means that the place is gone.  Places that kept their name are not in it.  `made` has the names
    of the places that the primitive made, or kept as parts of those it was given, by role; each
    primitive documents its roles.  `arguments` are those that the step keeps where a function was
    among those given: what it returned stands in its place.
    """

    func: tir.PrimFunc
    proofs: tuple[arith.Proof, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    arguments: tuple[Any, ...] | None = None
    fields: tuple[str, ...] = ()
    """The fields of configuration state that may hold something else after the new kernel."""


class ScheduleStep(Struct, frozen=True):
    """One application of a primitive: what it was given, its proofs, and places moved and made.

    `made` has the names of what it made, by role; None for what the step also removed.
    """

    primitive: Callable[..., Rewrite]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    proofs: tuple[arith.Proof, ...]
    places: Mapping[str, tuple[str, ...]]
    made: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    """As in `Rewrite`."""

    def __str__(self) -> str:
        positional = [_argument_text(a) for a in self.arguments]
        named = [f"{name}={_argument_text(value)}" for name, value in self.options]
        return f"{self.primitive.__name__}({', '.join((*positional, *named))})"


class Handle(Struct, frozen=True, eq=False):
    """A loop, block, buffer or statement, wherever later steps of its schedule take it.

    Its name was `name` after the first `since` steps.  `origin` is the last of these steps, or the
    definition if there was none.  `there` is false where the step that made the place also removed
    it, as simplification does with a loop that runs once.
    """

    name: str
    since: int
    origin: ScheduleStep | tir.PrimFunc
    there: bool = True
    kernel: tir.PrimFunc | None = None
    """Of a statement without a name, whose `name` is an address, the kernel with this address."""

    def __str__(self) -> str:
        return self.name


class Refusal(Struct, frozen=True):
    """A refused step, as text, the reason, and the proof that failed, if one did.

    `step` is empty where a query failed before any step, such as for the constant bounds of a loop.
    """

    step: str
    reason: str
    proof: arith.Proof | None = None

    def __str__(self) -> str:
        """The step and the reason, without the proof."""
        return f"{self.step}: {self.reason}" if self.step else self.reason

    @staticmethod
    def of(error: ScheduleError) -> Refusal:
        """The refusal that an error stands for, without the kernel's text."""
        if isinstance(error, StepRefused):
            return error.refusal
        if isinstance(error, obligations.Unproven):
            return Refusal("", error.reason, error.proof)
        return Refusal("", str(error))


class StepRefused(ScheduleError):
    """A primitive refused: which step and why, and the kernel that it was applied to."""

    def __init__(self, refusal: Refusal, func: tir.PrimFunc) -> None:
        super().__init__(refusal, func)
        self.refusal, self.func = refusal, func

    def __str__(self) -> str:
        # Printing a kernel is slow, and most refusals are of attempts whose text nobody reads.
        because = f": {proof_text(self.refusal.proof)}" if self.refusal.proof else ""
        return f"{self.refusal}{because}\nin\n{tir.to_text(self.func)}"


def proof_text(proof: arith.Proof) -> str:
    """What was to be proven, how that was tried, and why it failed."""
    return f"{proof.claim} ({proof.method}: {proof.reason})"


def moved_places(before: tir.PrimFunc, done: Rewrite) -> Mapping[str, tuple[str, ...]]:
    """Where the places of `before` went: as the rewrite states, without names that are gone."""
    now = done.func
    # Names are unique in a kernel, so places in a statement that both kernels share did not move.
    params = _differing(before.params, now.params)
    bodies = _differing(before.body, now.body)
    old_names, new_names = (
        dict.fromkeys((*(param.buffer.name for param in some), *place_names.declared_names(body)))
        for some, body in zip(params, bodies, strict=True)
    )
    stated = {
        old: tuple(n for n in new if n in new_names or place_names.has_place(now, n))
        for old, new in done.places.items()
    }
    gone = {old: () for old in old_names if old not in new_names and old not in stated}
    return {**stated, **gone}


def require_instances(before: tir.PrimFunc, now: tir.PrimFunc) -> None:
    """ScheduleError where a call of `before` does in `now` what its definition does not, or where a
    call of `now` names a buffer or variable that is not there.

    Traversals leave a block with the name of the call in the place of the first kind.  Those of the
    second kind only prefetch from a buffer, so that no rewrite of accesses reaches their windows.
    """
    calls = {call.name: call for call in tir.calls_in(before.body)}
    for call in tir.calls_in(now.body):
        _require_arguments(now, call)
        calls.pop(call.name, None)  # names are unique, so no block has this one
    if not calls:
        return
    for stmt in tir.walk(now.body):
        if isinstance(stmt, tir.Block) and stmt.name in calls:
            definition = calls[stmt.name].definition
            try:
                tir.unify(definition, stmt.body, stmt.name)
            except tir.NotUnifiable as error:
                raise ScheduleError(
                    f"calls: {stmt.name} would be no call of {definition.name} any more: {error}; "
                    "inline it first"
                ) from None


def require_expandable(before: tir.PrimFunc, now: tir.PrimFunc) -> None:
    """ScheduleError where a loop of `now` is vectorized or unrolled and its number of iterations is
    not a constant any more, so that it could not be emitted."""
    for loop in _open_extents(_differing(before.body, now.body)[1])[:1]:
        if loop not in _open_extents(before.body):
            raise ScheduleError(
                f"kinds: the {loop.kind.value} loop {loop.var} would run over ({loop.start}, "
                f"{loop.stop}), and needs a constant number of iterations; make it serial first, "
                "or divide it"
            )


def _open_extents(body: tir.Body) -> tuple[tir.For, ...]:
    found: list[tir.For] = []
    for stmt in body:
        if isinstance(stmt, tir.Compound):
            found += _with_open_extents(stmt)
    return tuple(found)


@tir.kept_by_node
def _with_open_extents(
    stmt: tir.For | tir.If | tir.Block | tir.Call | tir.Let | tir.NamedWindow,
) -> tuple[tir.For, ...]:
    """The loops to expand, in and below a statement, of which the extent is not a constant."""
    below = [loop for body in tir.sub_bodies(stmt) for loop in _open_extents(body)]
    if isinstance(stmt, tir.For) and stmt.kind in tir.EXPANDED and stmt.extent is None:
        return (stmt, *below)
    return tuple(below)


def _require_arguments(func: tir.PrimFunc, call: tir.Call) -> None:
    buffers, names = effects.declared_around(func, addresses.path_of(func, call.name))
    for window, param in zip(call.windows, call.definition.params, strict=True):
        buffer = window.buffer
        missing = [v.name for i in window.starts for v in arith.variables(i) if v.name not in names]
        if buffer not in buffers or buffer.dtype != param.buffer.dtype:
            missing.insert(0, f"{buffer.name}: {buffer.dtype}{list(buffer.shape)}")
        if missing:
            raise ScheduleError(
                f"calls: {call.name}, a call of {call.definition.name}, names {missing[0]}, which "
                "would not be there any more; inline the call first, and make it again afterwards"
            )


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
    if isinstance(value, tir.EXPRESSIONS):
        return tir.expr_text(value)
    describe = getattr(value, "describe", None)
    return describe() if describe is not None else repr(value)
