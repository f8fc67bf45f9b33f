"""One direction of a recurrent layer: for each sequence a serial loop over the time steps.

In: the extents, and what the operator's attributes say.  Out: a PrimFunc.  Its parameters are the
contribution of the input to each step (`gates`, a matrix product made beforehand for all steps at
once), the recurrent weights in panels, the initial states, and the optional inputs that are given.
A panel holds the weights of `LANES` units, those of all gates side by side, so that the innermost
loops run over units and the sums of a panel fit in registers.  The last panel may reach past the
last unit; what is computed there is never stored.

In a quantized layer input and hidden states are bytes, and so are the weights: those of `TERMS`
input units for one unit are neighbours, as instructions multiply them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from graphflow import tir
from graphflow.arith import IndexExpr, IndexLike, Predicate, Var, as_index, within
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.quantized import scale_of_range, zero_point_of_range
from graphflow.kernels.definitions.scalar_functions import (
    UNARY_VALUES,
    add,
    clipped,
    compared,
    converted,
    divide,
    multiply,
    subtract,
)
from graphflow.kernels.definitions.stages import Loop, Shape

LANES = 16
"""Units of a panel: one vector of float32 on AVX-512, two on AVX2, where panels of eight units took
1.2 times as long."""

TERMS = 4
"""Input units whose quantized weights for one unit are neighbours."""

TOTAL = "int32"
"""The type of sums of products of bytes."""

Activation = Callable[[tir.Expr], tir.Expr]

ACTIVATIONS: dict[str, tuple[dict[str, float], Callable[..., tir.Expr]]] = {
    "relu": ({}, UNARY_VALUES["relu"]),
    "tanh": ({}, UNARY_VALUES["tanh"]),
    "sigmoid": ({}, UNARY_VALUES["sigmoid"]),
    "affine": ({"alpha": 1.0, "beta": 0.0}, lambda x, alpha, beta: add(multiply(x, alpha), beta)),
    "leakyrelu": ({"alpha": 0.01}, UNARY_VALUES["leaky_relu"]),
    "thresholdedrelu": ({"alpha": 1.0}, UNARY_VALUES["thresholded_relu"]),
    "scaledtanh": (
        {"alpha": 1.0, "beta": 1.0},
        lambda x, alpha, beta: multiply(tir.Unary("tanh", multiply(x, beta)), alpha),
    ),
    "hardsigmoid": ({"alpha": 0.2, "beta": 0.5}, UNARY_VALUES["hard_sigmoid"]),
    "elu": ({"alpha": 1.0}, UNARY_VALUES["elu"]),
    "softsign": ({}, UNARY_VALUES["softsign"]),
    "softplus": ({}, UNARY_VALUES["softplus"]),
}
"""ONNX's activations of recurrent layers by lower-case name: attributes with their defaults, and
the function."""


@dataclass(frozen=True, slots=True)
class Recurrence:
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


def lstm(
    r: Recurrence,
    peepholes: bool = False,
    coupled: bool = False,
    quantized: bool = False,
    zeros: bool = False,
) -> tir.PrimFunc:
    """ONNX's LSTM: parameters gates, weights, h0, c0, then peepholes (3, hidden) and lengths where
    there are any; outputs y (steps, batch, hidden), y_h and y_c (batch, hidden).

    Gates are in ONNX's order, input, output, forget, cell; those of the peepholes input, output,
    forget.  With `coupled` the forget gate is one minus the input gate.  If `quantized`, weights
    are int8, zeros for input units that the last group lacks, and each step quantizes the hidden
    state of each sequence to uint8 by its range.  Before the lengths there are then parameters
    `scales` and `weight_sums`, int32, and with `zeros` the zero points `zeros` of the weights,
    int32: each (4 · hidden).  A weight sum is that of the weights minus the zero point over all
    input units.
    """
    f, g, h = r.activations
    k = _RecurrentKernel("lstm", r, 4, quantized)
    c0, cell = k.parameter("c0", (r.batch, r.hidden)), k.state("c")
    held = k.parameter("peepholes", (3, r.hidden)) if peepholes else None
    k.start(cell, c0)
    i, o, forget, update = sums = [k.state(f"z{n}") for n in range(4)]
    if quantized:
        k.sum_quantized(sums, zeros)
    else:
        k.sum_panels(sums, k.h)

    def peeped(at: _Unit, gate: tir.Buffer, number: int) -> tir.Expr:
        value: tir.Expr = at.load(gate)
        if held is not None:
            value = add(value, multiply(at.guarded(held, number), at.load(cell)))
        return k.clipped(value)

    def finish(at: _Unit) -> tir.Body:
        forgotten = (
            subtract(stages.literal(1, r.dtype), at.load(i))
            if coupled
            else f(peeped(at, forget, 2))
        )
        kept = multiply(forgotten, at.load(cell))
        grown = add(kept, multiply(at.load(i), at.load(update)))
        return (
            at.store(i, f(peeped(at, i, 0))),
            at.store(update, g(k.clipped(at.load(update)))),
            at.store(cell, k.chosen(at, grown, at.load(cell))),
            at.store(o, multiply(f(peeped(at, o, 1)), h(at.load(cell)))),
            *k.result(at, at.load(o)),
        )

    k.over_units(finish)
    return k.finished([("y_h", k.h), ("y_c", cell)])


def gru(r: Recurrence, linear_before_reset: bool = False) -> tir.PrimFunc:
    """ONNX's GRU: parameters gates, weights, h0, then bias (hidden) with `linear_before_reset` and
    lengths where there are any; outputs y and y_h.

    Gates are update, reset, hidden; `bias` is the recurrent one of the last, which the reset gate
    then multiplies too.
    """
    f, g = r.activations
    k = _RecurrentKernel("gru", r, 3)
    z, reset, new = (k.state(name) for name in ("z", "r", "n"))
    if linear_before_reset:
        bias, recurrent = k.parameter("bias", (r.hidden,)), k.state("q")
        k.sum_panels(
            [z, reset, recurrent],
            k.h,
            start=lambda at, gate: k.gate(at, gate) if gate < 2 else at.guarded(bias),
        )

        def candidate(at: _Unit) -> tir.Expr:
            gate = f(k.clipped(at.load(reset)))
            return add(k.gate(at, 2), multiply(gate, at.load(recurrent)))
    else:
        scaled = k.state("s")
        k.sum_panels([z, reset], k.h)
        k.over_units(
            lambda at: (at.store(scaled, multiply(f(k.clipped(at.load(reset))), at.load(k.h))),)
        )
        k.sum_panels([new], scaled, first=2)

        def candidate(at: _Unit) -> tir.Expr:
            return at.load(new)

    def finish(at: _Unit) -> tir.Body:
        share = at.load(z)
        fresh = multiply(subtract(stages.literal(1, r.dtype), share), at.load(new))
        return (
            at.store(new, g(k.clipped(candidate(at)))),
            at.store(z, f(k.clipped(at.load(z)))),
            at.store(new, add(fresh, multiply(share, at.load(k.h)))),
            *k.result(at, at.load(new)),
        )

    k.over_units(finish)
    return k.finished([("y_h", k.h)])


def rnn(r: Recurrence) -> tir.PrimFunc:
    """ONNX's RNN: parameters gates, weights, h0, then lengths where there are any.

    The outputs are y and y_h.
    """
    (f,) = r.activations
    k = _RecurrentKernel("rnn", r, 1)
    total = k.state("z")
    k.sum_panels([total], k.h)
    k.over_units(lambda at: k.result(at, f(k.clipped(at.load(total)))))
    return k.finished([("y_h", k.h)])


@dataclass(frozen=True, slots=True)
class _Unit:
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
class _RecurrentKernel:
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
        h0, self.h = self.parameter("h0", (r.batch, r.hidden)), self.state("h")
        self.start(self.h, h0)
        self.lengths = tir.Buffer("lengths", (r.batch,), "int32") if r.lengths else None
        self.count = tir.Buffer("count", (), "int64") if r.counted else None
        self.t = Var("t")
        time = as_index(r.steps - 1) - self.t if r.reverse else as_index(self.t)
        self.time: IndexExpr = time
        self.y = tir.Buffer("y", (r.steps, r.batch, r.hidden), r.dtype)

    def parameter(self, name: str, shape: Shape, dtype: str | None = None) -> tir.Buffer:
        buffer = tir.Buffer(name, shape, dtype or self.r.dtype)
        self.parameters.append(buffer)
        return buffer

    def state(self, name: str, dtype: str | None = None) -> tir.Buffer:
        """A buffer with one number for each sequence and each unit of a panel."""
        shape = (self.r.batch, self.r.panels * LANES)
        return self._allocated(f"{name}_state", shape, dtype or self.r.dtype)

    def number(self, name: str, dtype: str) -> tir.Buffer:
        """A buffer with one number for each sequence."""
        return self._allocated(name, (self.r.batch,), dtype)

    def _allocated(self, name: str, shape: Shape, dtype: str) -> tir.Buffer:
        buffer = tir.Buffer(name, shape, dtype)
        self.states.append(buffer)
        return buffer

    def fresh(self, prefix: str, extent: int) -> Loop:
        return Var(f"{prefix}{next(self._numbers)}"), extent

    def unit(self) -> tuple[_Unit, tuple[Loop, Loop]]:
        panel = self.fresh("p", self.r.panels)
        at, lane = self.lane(panel)
        return at, (panel, lane)

    def lane(self, panel: Loop) -> tuple[_Unit, Loop]:
        lane = self.fresh("u", LANES)
        unit = panel[0] * LANES + lane[0]
        inside = within(unit, 0, self.r.hidden) if self.r.hidden % LANES else None
        return _Unit(self.batch, unit, inside), lane

    def start(self, state: tir.Buffer, given: tir.Buffer) -> None:
        at, loops = self.unit()
        self.starts += tir.nest(loops, (at.store(state, at.guarded(given, at.batch)),))

    def over_units(self, body: Callable[[_Unit], tir.Body]) -> None:
        at, loops = self.unit()
        self.step += tir.nest(loops, body(at))

    def gate(self, at: _Unit, number: int) -> tir.Expr:
        """The contribution of the input to a gate in this step."""
        return at.guarded(self.x, self.time, at.batch, offset=number * self.r.hidden)

    def sum_panels(
        self,
        sums: Sequence[tir.Buffer],
        source: tir.Buffer,
        first: int = 0,
        start: Callable[[_Unit, int], tir.Expr] | None = None,
        finish: Callable[[_Unit, int], tir.Stmt] | None = None,
    ) -> None:
        """`sums[g] = start + source · weights of gate (first + g)`.

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
        self, panel: Loop, sums: Sequence[tuple[int, tir.Buffer]], source: tir.Buffer
    ) -> tir.Body:
        """The terms of the sums of a panel, by gate."""
        k = self.fresh("k", self.r.hidden)
        grow: list[tir.Stmt] = []
        for gate, total in sums:
            at, lane = self.lane(panel)
            weight = tir.Load(self.weights, (panel[0], k[0], as_index(gate), lane[0]))
            term = multiply(tir.Load(source, (self.batch, k[0])), weight)
            update = tir.Reduce(tir.ReduceOp.ADD, total, (at.batch, at.unit), term)
            grow += tir.nest((lane,), (update,))
        return tir.nest((k,), tuple(grow))

    def _byte_terms(
        self, panel: Loop, sums: Sequence[tuple[int, tir.Buffer]], source: tir.Buffer
    ) -> tir.Body:
        """The same of bytes in int32, for which `source` has elements in whole groups."""
        k = self.fresh("k", self.r.groups)
        grow: list[tir.Stmt] = []
        for gate, total in sums:
            (at, lane), byte = self.lane(panel), self.fresh("e", TERMS)
            where = (panel[0], k[0], as_index(gate), lane[0], as_index(byte[0]))
            code = tir.Load(source, (self.batch, k[0] * TERMS + byte[0]))
            term = multiply(converted(code, TOTAL), converted(tir.Load(self.weights, where), TOTAL))
            update = tir.Reduce(tir.ReduceOp.ADD, total, (at.batch, at.unit), term)
            grow += tir.nest((lane, byte), (update,))
        return tir.nest((k,), tuple(grow))

    def sum_quantized(self, sums: Sequence[tir.Buffer], has_zeros: bool) -> None:
        """`sums[g] = input + (Σ (q − zero) · (w − zero of w)) · (step · scale of w)`.

        q are the hidden states as uint8, `step` and `zero` their scale and zero point.  The zero
        points are taken out of the sum of products, which begins with what they contribute:
        `−zero · Σ (w − zero of w) − zero of w · Σ q`.
        """
        width = (4 * self.r.hidden,)
        scales = self.parameter("scales", width)
        weight_sums = self.parameter("weight_sums", width, TOTAL)
        zeros = self.parameter("zeros", width, TOTAL) if has_zeros else None
        codes, step, zero = self._quantized_state()
        totals = [self.state(f"t{gate}", TOTAL) for gate in range(len(sums))]
        at = (self.batch,)
        coded = None
        if zeros is not None:
            coded = self.number("coded", TOTAL)
            unit = self.fresh("u", self.r.hidden)
            code = converted(tir.Load(codes, (self.batch, unit[0])), TOTAL)
            self.step += (
                tir.Store(coded, at, stages.literal(0, TOTAL)),
                *tir.nest((unit,), (tir.Reduce(tir.ReduceOp.ADD, coded, at, code),)),
            )

        def first(unit: _Unit, gate: int) -> tir.Expr:
            offset = gate * self.r.hidden
            less = multiply(tir.Load(zero, at), unit.guarded(weight_sums, offset=offset))
            value = subtract(stages.literal(0, TOTAL), less)
            if zeros is None or coded is None:
                return value
            return subtract(
                value, multiply(tir.Load(coded, at), unit.guarded(zeros, offset=offset))
            )

        def scaled(unit: _Unit, gate: int) -> tir.Stmt:
            scale_of_gate = unit.guarded(scales, offset=gate * self.r.hidden)
            factor = multiply(tir.Load(step, at), scale_of_gate)
            product = multiply(converted(unit.load(totals[gate]), self.r.dtype), factor)
            return unit.store(sums[gate], add(self.gate(unit, gate), product))

        self.sum_panels(totals, codes, start=first, finish=scaled)

    def _quantized_state(self) -> tuple[tir.Buffer, tir.Buffer, tir.Buffer]:
        """The hidden states as uint8, and the scale and the zero point, int32, of each sequence.

        The ends of a range are first those of each lane over the panels.
        """
        r, at = self.r, (self.batch,)
        codes = self.state("q", "uint8")
        ends = [self._allocated(name, (r.batch, LANES), r.dtype) for name in ("lows", "highs")]
        low, high, step, middle = (
            self.number(name, r.dtype) for name in ("low", "high", "step", "middle")
        )
        zero = self.number("zero", TOTAL)
        if r.hidden % TERMS:
            unit, loops = self.unit()
            self.starts += tir.nest(loops, (unit.store(codes, stages.literal(0, "uint8")),))
        lowest, highest = stages.literal(0, r.dtype), stages.literal(255, r.dtype)
        operations = (tir.ReduceOp.MIN, tir.ReduceOp.MAX)
        lane = self.fresh("u", LANES)
        cleared = (tir.Store(end, (self.batch, lane[0]), lowest) for end in ends)
        self.step += tir.nest((lane,), tuple(cleared))

        def seen(unit: _Unit, lane: Loop) -> tir.Body:
            place = (self.batch, lane[0])
            return tuple(
                unit.where_inside(tir.Reduce(op, end, place, unit.load(self.h)))
                for op, end in zip(operations, ends, strict=True)
            )

        panel = self.fresh("p", r.panels)
        unit, lane = self.lane(panel)
        self.step += tir.nest((panel, lane), seen(unit, lane))
        for op, end, one in zip(operations, ends, (low, high), strict=True):
            lane = self.fresh("u", LANES)
            joined = tir.Reduce(op, one, at, tir.Load(end, (self.batch, lane[0])))
            self.step += (tir.Store(one, at, lowest), *tir.nest((lane,), (joined,)))
        least, most, scale, whole = (tir.Load(b, at) for b in (low, high, step, middle))
        one = self.fresh("u", r.hidden)
        quotient = divide(tir.Load(self.h, (self.batch, one[0])), scale)
        code = clipped(add(tir.Unary("round", quotient), whole), lowest, highest)
        self.step += (
            tir.Store(step, at, scale_of_range(least, most)),
            tir.Store(middle, at, zero_point_of_range(least, scale)),
            tir.Store(zero, at, converted(whole, TOTAL)),
            *tir.nest((one,), (tir.Store(codes, (self.batch, one[0]), converted(code, "uint8")),)),
        )
        return codes, step, zero

    def clipped(self, value: tir.Expr) -> tir.Expr:
        bound = self.r.clip
        if bound is None:
            return value
        low, high = (stages.literal(end, value.dtype) for end in (-bound, bound))
        return clipped(value, low, high)

    def valid(self, at: _Unit) -> tir.Expr | None:
        if self.lengths is None:
            return None
        length = tir.Load(self.lengths, (at.batch,))
        return compared("lt", tir.IndexValue(self.time, "int32"), length)

    def chosen(self, at: _Unit, value: tir.Expr, otherwise: tir.Expr) -> tir.Expr:
        valid = self.valid(at)
        return value if valid is None else tir.Select(valid, value, otherwise)

    def result(self, at: _Unit, value: tir.Expr) -> tir.Body:
        """The new hidden state and the output of this step."""
        zero = stages.literal(0, self.r.dtype)
        output = tir.Store(
            self.y, (self.time, at.batch, at.unit), self.chosen(at, at.load(self.h), zero)
        )
        return (
            at.store(self.h, self.chosen(at, value, at.load(self.h))),
            at.where_inside(output),
        )

    def finished(self, last: Sequence[tuple[str, tir.Buffer]]) -> tir.PrimFunc:
        outputs, ends = [self.y], list[tir.Stmt]()
        for name, state in last:
            buffer = tir.Buffer(name, (self.r.batch, self.r.hidden), self.r.dtype)
            outputs.append(buffer)
            unit = self.fresh("u", self.r.hidden)
            where = (self.batch, unit[0])
            ends += tir.nest((unit,), (tir.Store(buffer, where, tir.Load(state, where)),))
        more = (buffer for buffer in (self.lengths, self.count) if buffer is not None)
        step = tuple(self.step)
        if self.count is not None:
            is_given = compared("lt", tir.IndexValue(self.time), tir.Load(self.count, ()))
            step = (tir.If(is_given, step),)
        steps = tir.nest(((self.t, self.r.steps),), step)
        sequence = (*self.starts, *steps, *ends)
        body: tir.Body = (
            *(tir.Allocate(state) for state in self.states),
            tir.Block(f"{self.name}_sequences", tir.nest(((self.batch, self.r.batch),), sequence)),
        )
        return stages.kernel_of_stages(self.name, (*self.parameters, *more), outputs, body)
