"""What random applications of primitives draw: names, places, layouts and padding.

In: a kernel and a `Dice`.  Out: arguments that primitives often accept, and at times nonsense.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

from graphflow import tir
from graphflow.arith import floor_mod
from graphflow.layout import IndexMap, Layout, dtype_limits, physical_vars
from graphflow.schedule import PadFunction, PadValue
from support.kernels.random_kernels import Number
from support.kernels.schedule_kernels import CLASHING, Dice

MOST_PLACES = 400
"""Elements of a box: a larger one takes longer than it shows."""

SCOPES = ("register", "scratch", "global")

Arguments: TypeAlias = "tuple[Any, ...] | None"
"""Arguments behind the kernel; None where the kernel has no place for the primitive."""


class Choices:
    """What is drawn for a kernel."""

    def __init__(self, func: tir.PrimFunc, dice: Dice) -> None:
        self.func, self.dice = func, dice

    # -- names

    def name(self, pool: tuple[str, ...] = CLASHING) -> str:
        fresh = f"n{self.dice.between(1, 9999)}"
        return str(self.dice.among(pool)) if self.dice.chance(0.2) else fresh

    def suffix(self) -> str:
        number = self.dice.between(1, 9999)
        return str(self.dice.among((f"_{number}", f"_s{number}", "_tail", "_in", "_0")))

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

    def some_loops(self) -> list[tir.For]:
        """All loops, or mostly those that compute."""
        return self.computing() if self.dice.chance(0.75) else self.loops()

    def loop(self) -> tir.For | None:
        found = self.some_loops()
        return self.dice.among(found) if found else None

    def pair(self) -> tuple[str, str] | None:
        """A loop that is the whole body of another one, outer first."""
        found = [
            (loop.var.name, loop.body[0].var.name)
            for loop in self.some_loops()
            if len(loop.body) == 1 and isinstance(loop.body[0], tir.For)
        ]
        return self.dice.among(found) if found else None

    def neighbours(self, kind: type) -> tuple[str, str] | None:
        """Two loops or blocks that follow each other, with nothing but allocations between."""
        found = []
        for body in self.bodies():
            working = [s for s in body if not isinstance(s, tir.Allocate)]
            for a, b in pairwise(working):
                if isinstance(a, kind) and isinstance(b, kind):
                    found.append((place_name(a), place_name(b)))
        return self.dice.among(found) if found else None

    def blocks(self, stages: bool = True) -> list[tir.Block]:
        """The stages that compute; with `stages` those that copy and pad too."""
        found = [s for s in tir.walk(self.func.body) if isinstance(s, tir.Block)]
        return found if stages else [b for b in found if not b.annotations]

    def buffers(self) -> list[tir.Buffer]:
        return list(tir.buffers_of(self.func))

    def guarded(self) -> list[str]:
        """Loops and stages with an index condition inside."""
        return [
            place_name(s)
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

    def transformation(self, buffers: Sequence[tir.Buffer]) -> Arguments:
        """One of the buffers, a layout for it, and what its padding holds."""
        shaped = [buffer for buffer in buffers if buffer.shape]
        if not shaped:
            return None
        buffer = self.dice.among(shaped)
        layout = self.layout(buffer.shape)
        if layout is None:
            return None
        return buffer.name, layout, self.pad(buffer, layout, self.reduced_by(buffer))

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


def place_name(stmt: tir.For | tir.Block) -> str:
    return stmt.var.name if isinstance(stmt, tir.For) else stmt.name


def on_loop(c: Choices) -> Arguments:
    loop = c.loop()
    return loop and (loop.var.name,)


def chosen(draw: Callable[[Choices], Arguments]) -> Callable[[tir.PrimFunc, Number], Arguments]:
    """`draw` as the arguments of a `PrimitiveCase`."""
    return lambda func, number: draw(Choices(func, Dice(number(0, 2**31 - 1))))


def _pads(stmt: tir.For | tir.Block) -> bool:
    """Whether a stage, or the loop of one, states where padding lies."""
    return (isinstance(stmt, tir.Block) and "padding_of" in dict(stmt.annotations)) or (
        isinstance(stmt, tir.For) and "_padding" in stmt.var.name
    )
