"""A random schedule under construction: the steps tried and taken, names, layouts and pad values.

In: a definition and a `Dice`.  Out: a `Trial`, which applies steps, keeps those that are accepted,
and draws names, layouts and pad values for the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

from graphflow import tir
from graphflow.arith import floor_mod
from graphflow.base.errors import ScheduleError
from graphflow.layout import IndexMap, Layout, dtype_limits, physical_vars
from graphflow.schedule import (
    PadFunction,
    PadValue,
    Schedule,
    ScheduleStep,
    remove_branching_through_overcompute,
)
from graphflow.schedule.places.place_names import names_of_places
from support.kernels.schedule_kernels import CLASHING, Dice

OVERCOMPUTE = remove_branching_through_overcompute.__name__

MOST_PLACES = 400
"""Elements of a box: a larger one takes longer than it shows."""


class Crashed(Exception):
    """A primitive raised something else than a refusal; the note is the step."""


class Trial:
    """A schedule that grows by random steps; counts what was tried and what was taken.

    `each` checks the kernel after every step that changed it; whatever it raises is a crash.
    """

    def __init__(
        self,
        definition: tir.PrimFunc,
        dice: Dice,
        each: Callable[[tir.PrimFunc], object] = lambda func: tir.verify(func, "scheduled"),
    ) -> None:
        self.schedule = Schedule.of(definition)
        self.held = [self.schedule.handle(name) for name in names_of_places(definition)]
        self.dice, self.each = dice, each
        self.tried: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.fresh = 0

    @property
    def func(self) -> tir.PrimFunc:
        return self.schedule.func

    def step(self, primitive: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
        """Whether the primitive accepted and changed something; `Crashed` where it did worse."""
        name = primitive.__name__
        before = self.schedule
        self.tried[name] += 1
        try:
            self.schedule = before.apply(primitive, *arguments, **options)
            if self.schedule is not before:
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

    # -- names

    def name(self, pool: tuple[str, ...] = CLASHING) -> str:
        self.fresh += 1
        return self.dice.among(pool) if self.dice.chance(0.2) else f"n{self.fresh}"

    def suffix(self) -> str:
        self.fresh += 1
        return str(self.dice.among((f"_{self.fresh}", f"_s{self.fresh}", "_tail", "_in", "_0")))

    # -- places

    def loops(self) -> list[tir.For]:
        return list(tir.loops_of(self.func.body))

    def computing(self) -> list[tir.For]:
        """The loops outside the stages that copy and pad; all loops where there are none."""
        aside = {
            loop.var
            for block in self.blocks()
            if block.annotations
            for loop in tir.loops_of(block.body)
        }
        return [loop for loop in self.loops() if loop.var not in aside] or self.loops()

    def blocks(self, stages: bool = True) -> list[tir.Block]:
        """The stages that compute; with `stages` those that copy and pad too."""
        found = [s for s in tir.walk(self.func.body) if isinstance(s, tir.Block)]
        return found if stages else [b for b in found if not b.annotations]

    def buffers(self) -> list[tir.Buffer]:
        return list(tir.buffers_of(self.func))

    def guarded(self) -> list[str]:
        """Loops and stages with an index condition inside."""
        return [
            s.var.name if isinstance(s, tir.For) else s.name
            for s in tir.walk(self.func.body)
            if isinstance(s, tir.For | tir.Block)
            and any(
                isinstance(t, tir.If) and tir.is_predicate(t.condition) for t in tir.walk(s.body)
            )
            and (self.dice.chance(0.1) or not _pads(s))
        ]

    def bodies(self) -> list[tir.Body]:
        return [
            self.func.body,
            *(s.body for s in tir.walk(self.func.body) if isinstance(s, tir.Block | tir.For)),
        ]

    # -- layouts and padding

    def layout(self, shape: tuple[int, ...], padded: bool = False) -> Layout | None:
        """A random layout whose box is not too large; with `padded` one that has padding."""
        for _ in range(6):
            found = self._layout(shape)
            if prod(found.physical_shape) <= MOST_PLACES and (found.is_padded or not padded):
                return found
        return None

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        dice, rank = self.dice, len(shape)
        chain = IndexMap.identity(rank)
        if dice.chance(0.3):
            chain = chain.then(IndexMap.offset(rank, dice.between(0, rank - 1), dice.between(1, 3)))
        for _ in range(dice.weighted({0: 2, 1: 6, 2: 1})):
            now = chain.physical_rank
            axis, factor = dice.between(0, now - 1), dice.among((2, 3, 4, 4, 5, 8))
            chain = chain.then(IndexMap.split(now, axis, factor, dice.chance(0.5)))
        if dice.chance(0.4):
            chain = chain.then(IndexMap.permute(dice.shuffled(range(chain.physical_rank))))
        found = Layout.of(chain, shape)
        if dice.chance(0.3):
            more = [n + dice.weighted({0: 3, 1: 1, 2: 1}) for n in found.physical_shape]
            found = found.boxed(more)
        return found

    def number(self, buffer: tir.Buffer, op: tir.ReduceOp | None = None) -> float | int:
        """A constant for padding, often what `op` does not change anything by."""
        usual: float | int = 0
        floats = buffer.dtype in tir.FLOATS
        if op is not None:
            low, high = (-float("inf"), float("inf")) if floats else dtype_limits(buffer.dtype)
            usual = {
                tir.ReduceOp.ADD: 0,
                tir.ReduceOp.MUL: 1,
                tir.ReduceOp.MAX: low,
                tir.ReduceOp.MIN: high,
            }[op]
        if self.dice.chance(0.6):
            return float(usual) if floats else int(usual)
        if floats:
            odd = (0.0, 0.0, 1.0, 1.0, -0.0, 2.0, float("inf"), float("-inf"), 1e-40, float("nan"))
            return float(self.dice.among(odd))
        if buffer.dtype == "bool":
            return int(self.dice.chance(0.5))
        return int(self.dice.among((0, 1, 1, 2, *dtype_limits(buffer.dtype))))

    def pad(self, buffer: tir.Buffer, layout: Layout, op: tir.ReduceOp | None = None) -> PadValue:
        kind = self.dice.weighted({"none": 1, "undef": 3, "number": 5, "function": 0.6})
        if kind == "number":
            return self.number(buffer, op)
        if kind == "function":
            return self.pad_function(buffer, layout, op)
        return "undef" if kind == "undef" else None

    def pad_function(
        self, buffer: tir.Buffer, layout: Layout, op: tir.ReduceOp | None
    ) -> PadFunction:
        """Nothing, anything, a number, the position, or the tensor wrapped around."""
        names = physical_vars(len(layout.physical_shape))
        kind = self.dice.among(("none", "undef", "literal", "position", "wrap", "wrap"))
        if kind == "wrap":
            logical = zip(layout.logical_index(names), layout.logical_shape, strict=True)
            inside = layout.physical_index(tuple(floor_mod(e, n) for e, n in logical))
            return PadFunction(
                names, tir.Load(layout.buffer(buffer.name, buffer.dtype, buffer.scope), inside)
            )
        if kind == "position" and buffer.dtype != "bool":
            return PadFunction(names, names[0] + names[-1])
        if kind == "literal" and buffer.dtype != "bool":
            return PadFunction(names, tir.Literal(self.number(buffer, op), buffer.dtype))
        return PadFunction(names, tir.Undef(buffer.dtype) if kind == "undef" else None)

    def reduced_by(self, buffer: tir.Buffer | None = None) -> tir.ReduceOp | None:
        """The operator of a reduction that loads `buffer`."""
        for stmt in tir.walk(self.func.body):
            if isinstance(stmt, tir.Reduce) and (
                buffer is None
                or any(
                    a.buffer == buffer and a.kind is tir.AccessKind.READ
                    for a in tir.accesses((stmt,))
                )
            ):
                return stmt.op
        return None


def _pads(stmt: tir.For | tir.Block) -> bool:
    """Whether a stage, or the loop of one, states where padding lies."""
    return (isinstance(stmt, tir.Block) and "padding_of" in dict(stmt.annotations)) or (
        isinstance(stmt, tir.For) and "_padding" in stmt.var.name
    )
