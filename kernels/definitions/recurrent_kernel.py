"""A kernel of a recurrent layer under construction: its extents, parameters, states and loops.

In: the extents, and what the functions of a layer make of a unit's numbers.  Out: a PrimFunc; its
parameters are the contribution of the input to each step (`gates`, a matrix product made beforehand
for all steps at once), the recurrent weights in panels, the initial states, and those that the
layer asks for.

A panel holds the weights of `LANES` units, those of all gates side by side, so that the innermost
loops run over units and the sums of a panel fit in registers.  The last panel may reach past the
last unit; what is computed there is never stored.  Quantized weights of `TERMS` input units for one
unit are neighbours, as instructions multiply them.

The hidden state is there twice, and steps take turns: each reads one and writes the other.  So the
units of a step depend on none of each other, and threads that share them meet once in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, IndexLike, Predicate, Var, as_index, within
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import clipped, compared, converted, multiply
from graphflow.kernels.definitions.stages import Loop, Shape

LANES = 16
"""Units of a panel: one vector of float32 on AVX-512, two on AVX2, where panels of eight units took
1.2 times as long."""

TERMS = 4
"""Input units whose quantized weights for one unit are neighbours."""

TOTAL = "int32"
"""The type of sums of products of bytes."""

Activation = Callable[[tir.Expr], tir.Expr]


class Recurrence(Struct, frozen=True):
    """The parameters that LSTM, GRU and RNN have in common.

    `activations` are ONNX's f, g and h, as many as the layer has; `clip` bounds their arguments.
    With `lengths` there is a parameter of that name with the number of steps of each batch: later
    steps leave the states unchanged and give zeros.  With `counted` the last parameter `count` is
    the number of steps of a run; there are no later ones, and their part of y is not written.
    """

    steps: int
    batch: int
    hidden: int
    activations: tuple[Activation, ...]
    reverse: bool = False
    clip: float | None = None
    lengths: bool = False
    counted: bool = False
    dtype: str = "float32"

    @property
    def panels(self) -> int:
        """The number of panels of `LANES` units."""
        return -(-self.hidden // LANES)

    def weights_shape(self, gates: int) -> Shape:
        """The shape of the recurrent weights: panels, input units, gates, units of the panel."""
        return (self.panels, self.hidden, gates, LANES)

    @property
    def groups(self) -> int:
        """The number of groups of `TERMS` input units."""
        return -(-self.hidden // TERMS)

    def byte_weights_shape(self, gates: int) -> Shape:
        """The shape of quantized recurrent weights: panels, groups of input units, gates, units of
        the panel, input units of the group."""
        return (self.panels, self.groups, gates, LANES, TERMS)


class RecurrentUnit(Struct, frozen=True):
    """One unit of one sequence; `unit` may be past the last one, unless `inside` is None."""

    batch: Var
    unit: IndexExpr
    inside: Predicate | None

    def load(self, state: tir.Buffer) -> tir.Expr:
        return tir.Load(state, (self.batch, self.unit))

    def store(self, state: tir.Buffer, value: tir.Expr) -> tir.Stmt:
        return tir.Store(state, (self.batch, self.unit), value)

    def guarded(self, buffer: tir.Buffer, *before: IndexLike, offset: int = 0) -> tir.Expr:
        """An element of a tensor that ends with the last unit; 0 past it."""
        where = (*(as_index(index) for index in before), self.unit + offset)
        value = tir.Load(buffer, where)
        if self.inside is None:
            return value
        return tir.Select(self.inside, value, stages.literal(0, buffer.dtype))

    def where_inside(self, stmt: tir.Stmt) -> tir.Stmt:
        return stmt if self.inside is None else tir.If(self.inside, (stmt,))


@dataclass
class RecurrentKernel:
    """A recurrent kernel under construction: parameters, states, and the loop nests of one step."""

    name: str
    r: Recurrence
    gates: int
    quantized: bool = False
    parameters: list[tir.Buffer] = field(default_factory=list)
    states: list[tir.Buffer] = field(default_factory=list)
    starts: list[tir.Stmt] = field(default_factory=list)
    step: list[tir.Stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        r = self.r
        if r.dtype not in tir.FLOATS:
            raise UnsupportedOp(f"{self.name} of {r.dtype} is not built; cast to float32")
        if min(r.steps, r.batch, r.hidden) < 1:
            raise InvalidModel(
                f"{self.name} of {r.steps} steps, {r.batch} sequences and {r.hidden} units: all "
                "must be at least 1"
            )
        self._numbers = count()
        self.batch = Var("b")
        self.x = self.parameter("gates", (r.steps, r.batch, self.gates * r.hidden))
        self.weights = (
            self.parameter("weights", r.byte_weights_shape(self.gates), "int8")
            if self.quantized
            else self.parameter("weights", r.weights_shape(self.gates))
        )
        h0 = self.parameter("h0", (r.batch, r.hidden))
        self.lengths = tir.Buffer("lengths", (r.batch,), "int32") if r.lengths else None
        self.count = tir.Buffer("count", (), "int64") if r.counted else None
        self.t = Var("t")
        time = as_index(r.steps - 1) - self.t if r.reverse else as_index(self.t)
        self.time: IndexExpr = time
        self.y = tir.Buffer("y", (r.steps, r.batch, r.hidden), r.dtype)
        self.y_h = tir.Buffer("y_h", (r.batch, r.hidden), r.dtype)
        self._h = self.allocated("h_state", (2, r.batch, r.panels * LANES), r.dtype)
        at, loops = self.unit()
        given = at.guarded(h0, at.batch)
        # Where steps are left out, the first one may read either.
        turns = (0, 1) if r.counted and r.reverse else (0,)
        kept = (tir.Store(self._h, (as_index(k), self.batch, at.unit), given) for k in turns)
        last = tir.Store(self.y_h, (self.batch, at.unit), given)
        self.starts += tir.nest(loops, (*kept, at.where_inside(last)))

    def parameter(self, name: str, shape: Shape, dtype: str | None = None) -> tir.Buffer:
        buffer = tir.Buffer(name, shape, dtype or self.r.dtype)
        self.parameters.append(buffer)
        return buffer

    def state(self, name: str, dtype: str | None = None) -> tir.Buffer:
        """A buffer with one number for each sequence and each unit of a panel."""
        shape = (self.r.batch, self.r.panels * LANES)
        return self.allocated(f"{name}_state", shape, dtype or self.r.dtype)

    def number(self, name: str, dtype: str) -> tir.Buffer:
        """A buffer with one number for each sequence."""
        return self.allocated(name, (self.r.batch,), dtype)

    def allocated(self, name: str, shape: Shape, dtype: str) -> tir.Buffer:
        buffer = tir.Buffer(name, shape, dtype)
        self.states.append(buffer)
        return buffer

    def fresh(self, prefix: str, extent: int) -> Loop:
        return Var(f"{prefix}{next(self._numbers)}"), extent

    def unit(self) -> tuple[RecurrentUnit, tuple[Loop, Loop]]:
        panel = self.fresh("p", self.r.panels)
        at, lane = self.lane(panel)
        return at, (panel, lane)

    def lane(self, panel: Loop) -> tuple[RecurrentUnit, Loop]:
        lane = self.fresh("u", LANES)
        unit = panel[0] * LANES + lane[0]
        inside = within(unit, 0, self.r.hidden) if self.r.hidden % LANES else None
        return RecurrentUnit(self.batch, unit, inside), lane

    def h(self, unit: IndexLike) -> tir.Expr:
        """The hidden state of a unit before the step."""
        return tir.Load(self._h, (self.t % 2, self.batch, as_index(unit)))

    def start(self, state: tir.Buffer, given: tir.Buffer) -> None:
        at, loops = self.unit()
        self.starts += tir.nest(loops, (at.store(state, at.guarded(given, at.batch)),))

    def over_units(self, body: Callable[[RecurrentUnit], tir.Body]) -> None:
        at, loops = self.unit()
        self.step += tir.nest(loops, body(at))

    def gate(self, at: RecurrentUnit, number: int) -> tir.Expr:
        """The contribution of the input to a gate in this step."""
        return at.guarded(self.x, self.time, at.batch, offset=number * self.r.hidden)

    def sum_panels(
        self,
        sums: Sequence[tir.Buffer],
        source: Callable[[IndexExpr], tir.Expr],
        first: int = 0,
        start: Callable[[RecurrentUnit, int], tir.Expr] | None = None,
        finish: Callable[[RecurrentUnit, int], tir.Stmt] | None = None,
    ) -> None:
        """`sums[g] = start + source · weights of gate (first + g)`, source by the input unit.

        Without `start`, sums start from the contribution of the input.  `finish` is done with a
        panel as soon as its sums are complete.
        """
        panel = self.fresh("p", self.r.panels)
        begin, end = list[tir.Stmt](), list[tir.Stmt]()
        terms = self._byte_terms if self.quantized else self._terms
        grown = terms(panel, [*enumerate(sums, start=first)], source)
        for gate, total in enumerate(sums, start=first):
            at, lane = self.lane(panel)
            value = self.gate(at, gate) if start is None else start(at, gate)
            begin += tir.nest((lane,), (at.store(total, value),))
            if finish is not None:
                at, lane = self.lane(panel)
                end += tir.nest((lane,), (finish(at, gate),))
        self.step += tir.nest((panel,), (*begin, *grown, *end))

    def _terms(
        self,
        panel: Loop,
        sums: Sequence[tuple[int, tir.Buffer]],
        source: Callable[[IndexExpr], tir.Expr],
    ) -> tir.Body:
        """The terms of the sums of a panel, by gate."""
        k = self.fresh("k", self.r.hidden)
        grow: list[tir.Stmt] = []
        for gate, total in sums:
            at, lane = self.lane(panel)
            weight = tir.Load(self.weights, (panel[0], k[0], as_index(gate), lane[0]))
            term = multiply(source(as_index(k[0])), weight)
            update = tir.Reduce(tir.ReduceOp.ADD, total, (at.batch, at.unit), term)
            grow += tir.nest((lane,), (update,))
        return tir.nest((k,), tuple(grow))

    def _byte_terms(
        self,
        panel: Loop,
        sums: Sequence[tuple[int, tir.Buffer]],
        source: Callable[[IndexExpr], tir.Expr],
    ) -> tir.Body:
        """The same of bytes in int32, for which `source` has elements in whole groups."""
        k = self.fresh("k", self.r.groups)
        grow: list[tir.Stmt] = []
        for gate, total in sums:
            (at, lane), byte = self.lane(panel), self.fresh("e", TERMS)
            where = (panel[0], k[0], as_index(gate), lane[0], as_index(byte[0]))
            code = source(k[0] * TERMS + byte[0])
            term = multiply(converted(code, TOTAL), converted(tir.Load(self.weights, where), TOTAL))
            update = tir.Reduce(tir.ReduceOp.ADD, total, (at.batch, at.unit), term)
            grow += tir.nest((lane, byte), (update,))
        return tir.nest((k,), tuple(grow))

    def clipped(self, value: tir.Expr) -> tir.Expr:
        bound = self.r.clip
        if bound is None:
            return value
        low, high = (stages.literal(end, value.dtype) for end in (-bound, bound))
        return clipped(value, low, high)

    def valid(self, at: RecurrentUnit) -> tir.Expr | None:
        if self.lengths is None:
            return None
        length = tir.Load(self.lengths, (at.batch,))
        return compared("lt", tir.IndexValue(self.time, "int32"), length)

    def chosen(self, at: RecurrentUnit, value: tir.Expr, otherwise: tir.Expr) -> tir.Expr:
        valid = self.valid(at)
        return value if valid is None else tir.Select(valid, value, otherwise)

    def result(self, at: RecurrentUnit, value: tir.Expr) -> tir.Body:
        """The new hidden state and the output of this step."""
        zero = stages.literal(0, self.r.dtype)
        following = (as_index(self.t + 1) % 2, at.batch, at.unit)
        state = tir.Load(self._h, following)
        output = tir.Store(self.y, (self.time, at.batch, at.unit), self.chosen(at, state, zero))
        return (
            tir.Store(self._h, following, self.chosen(at, value, self.h(at.unit))),
            at.where_inside(output),
            at.where_inside(tir.Store(self.y_h, (at.batch, at.unit), state)),
        )

    def finished(self, last: Sequence[tuple[str, tir.Buffer]] = ()) -> tir.PrimFunc:
        outputs, ends = [self.y, self.y_h], list[tir.Stmt]()
        for name, state in last:
            buffer = tir.Buffer(name, (self.r.batch, self.r.hidden), self.r.dtype)
            outputs.append(buffer)
            at, loops = self.unit()
            stored = tir.Store(buffer, (at.batch, at.unit), at.load(state))
            ends += tir.nest(loops, (at.where_inside(stored),))
        more = (buffer for buffer in (self.lengths, self.count) if buffer is not None)
        step = tuple(self.step)
        if self.count is not None:
            step = (tir.If(tir.below_count(self.time, self.count), step),)
        steps = tir.nest(((self.t, self.r.steps),), step)
        sequence = (*self.starts, *steps, *ends)
        body: tir.Body = (
            *(tir.Allocate(state) for state in self.states),
            tir.Block(f"{self.name}_sequences", tir.nest(((self.batch, self.r.batch),), sequence)),
        )
        return stages.kernel_of_stages(self.name, (*self.parameters, *more), outputs, body)
