"""Statements, and the kernel (`PrimFunc`) that they form.

A body is a tuple of statements.  Names of loop variables, blocks and buffers are unique within a
kernel: scheduling primitives refer to loops, blocks and buffers by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TypeAlias

from graphflow.arith import Const, IndexExpr, Kept, Var, const, constant_value
from graphflow.tir.nodes import exprs
from graphflow.tir.nodes.node_bases import Hashed, Printed


class LoopKind(Enum):
    """How a loop runs; vectorized and unrolled loops stay loops until the emitter."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"


AT_ONCE = (LoopKind.PARALLEL, LoopKind.VECTORIZED)
"""Kinds of loops whose iterations run at the same time."""


class ReduceOp(Enum):
    """Associative, commutative operators of a reduction (float: up to reassociation)."""

    ADD = "add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"

    @property
    def selects(self) -> bool:
        """Whether a result is one of the operands, so that no order of these changes it, whatever
        their type."""
        return self in (ReduceOp.MIN, ReduceOp.MAX)


class Compound(Kept):
    """A statement with bodies below it; all others have neither a body nor a name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Store(Kept, Printed):
    """`buffer[indices] = value`."""

    buffer: exprs.Buffer
    indices: tuple[IndexExpr, ...]
    value: exprs.Expr
    mark: str | None = field(default=None, compare=False, repr=False)
    """What rewrites carry along to follow a statement without a name; nothing compares it."""

    def of(self, indices: tuple[IndexExpr, ...], value: exprs.Expr) -> Store:
        """The same store at other indices and of another value; as `replace`, in a third of its
        time."""
        return Store(self.buffer, indices, value, self.mark)


@dataclass(frozen=True, slots=True)
class Reduce(Kept, Printed):
    """`buffer[indices] ⊕= value`; iterations of it commute by declaration."""

    op: ReduceOp
    buffer: exprs.Buffer
    indices: tuple[IndexExpr, ...]
    value: exprs.Expr
    mark: str | None = field(default=None, compare=False, repr=False)
    """As of `Store`."""

    def of(self, indices: tuple[IndexExpr, ...], value: exprs.Expr) -> Reduce:
        """The same reduction at other indices and of another value."""
        return Reduce(self.op, self.buffer, indices, value, self.mark)


@dataclass(frozen=True, slots=True)
class For(Compound, Printed):
    """`body` for each `start <= var < stop`; the bounds may use outer variables."""

    var: Var
    start: IndexExpr
    stop: IndexExpr
    kind: LoopKind
    body: Body

    @property
    def extent(self) -> int | None:
        """The number of iterations where it is a constant."""
        start, stop = self.start, self.stop
        if isinstance(start, Const) and isinstance(stop, Const):  # nearly always
            return stop.value - start.value
        return constant_value(stop - start)

    def around(self, body: Body) -> For:
        """The same loop around another body, this one around its own; as `replace`, in a third of
        its time."""
        if body is self.body:
            return self
        return For(self.var, self.start, self.stop, self.kind, body)


@dataclass(frozen=True, slots=True)
class If(Compound, Printed):
    """`then` where the condition holds, else `orelse`."""

    condition: exprs.Condition
    then: Body
    orelse: Body = ()
    mark: str | None = field(default=None, compare=False, repr=False)
    """As of `Store`."""


@dataclass(frozen=True, slots=True)
class Allocate(Printed):
    """`buffer` exists from here to the end of the enclosing body; its contents start undefined."""

    buffer: exprs.Buffer


class BlockNote(StrEnum):
    """The key of an annotation of a block, as the text form spells it.

    Rewrites decide by these, so there are no others: a misspelt one would be no note at all.
    """

    PREPROC = "preproc"
    """The stage copies an input into a cache, and can be lifted out of the kernel."""
    POSTPROC = "postproc"
    """The stage copies a cache to an output, and can be lifted out of the kernel."""
    PADDING_OF = "padding_of"
    """The stage says where the padding of the named buffer lies."""
    PADDING = "padding"
    """What that padding holds."""
    STATES = "states"
    """The stage assumes something of the elements of the named input."""


@dataclass(frozen=True, slots=True)
class Block(Compound, Printed):
    """A name and annotations on statements; reads and writes are computed, never stored."""

    name: str
    body: Body
    annotations: tuple[tuple[BlockNote, str], ...] = ()

    def around(self, body: Body) -> Block:
        """The same block around another body, this one around its own."""
        return self if body is self.body else Block(self.name, body, self.annotations)

    def note(self, key: BlockNote) -> str | None:
        """The text of the annotation with this key, if the block has one."""
        return next((text for own, text in self.annotations if own is key), None)


@dataclass(frozen=True, slots=True)
class Assume(Printed):
    """States that `unless` holds or `claim` does; analyses and rewrites may rely on it.

    The claim `Comparison("eq", load, Undef)` states only that the element may be read;
    `Comparison("ne", load, Undef)` states that nothing may access it.
    """

    unless: exprs.Condition
    claim: exprs.Expr
    mark: str | None = field(default=None, compare=False, repr=False)
    """As of `Store`."""


@dataclass(frozen=True, slots=True)
class BufferWindow:
    """A part of `buffer`, `buffer[i, j:j + 8]`: what a call hands to a parameter, or what a
    `NamedWindow` names.

    The axis k of the parameter or name runs along the axis `kept[k]` of the buffer, from
    `starts[kept[k]]` on; every other axis stays at its start.  `kept` increases.
    """

    buffer: exprs.Buffer
    starts: tuple[IndexExpr, ...]
    kept: tuple[int, ...]

    def place(self, indices: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
        """The indices in the buffer of the element at `indices` of the window."""
        inner = dict(zip(self.kept, indices, strict=True))
        return tuple(
            start + inner[axis] if axis in inner else start
            for axis, start in enumerate(self.starts)
        )


@dataclass(frozen=True, slots=True)
class Call(Compound, Printed):
    """`definition(window, …, scalar, …)`: runs another kernel on windows of buffers.

    `graphflow.tir.performed(call)` is its meaning, the body of the definition with the arguments in
    place of the parameters.  Traversals go through that body, so a call is to every analysis what
    it does.
    """

    name: str
    """A place of the kernel: unique among loops, blocks and calls."""
    definition: PrimFunc
    windows: tuple[BufferWindow, ...]
    """One for each parameter of the definition."""
    scalars: tuple[IndexExpr, ...] = ()
    """One for each scalar of the definition."""


@dataclass(frozen=True, slots=True)
class Let(Compound, Printed):
    """`with let(value) as buffer: body`: names the value of an expression for the statements of
    `body`, which load it as the only element of `buffer` and write nothing to it.

    `graphflow.tir.performed(let)` is its meaning: the buffer is allocated, the value stored, then
    the body runs.  Traversals go through these statements, so a let is to every analysis what it
    does; a rewrite after which they are no let any more leaves them as they are.  The emitter
    keeps the value in a virtual register.
    """

    buffer: exprs.Buffer
    """Without axes, in registers, of the type of `value`; its name is a place of the kernel."""
    value: exprs.Expr
    body: Body


@dataclass(frozen=True, slots=True)
class NamedWindow(Compound, Printed):
    """`with x[i, j:j + 8] as name: body`: the body accesses the window as the buffer `name`.

    `graphflow.tir.performed(named)` is its meaning: the body with the elements of the window's
    buffer in place of those of the name.  Traversals go through that body.
    """

    buffer: exprs.Buffer
    """The name: of the window's shape, and of the type and scope of the buffer behind it; it has no
    memory of its own.  It is a place of the kernel."""
    window: BufferWindow
    body: Body


Stmt: TypeAlias = "Store | Reduce | For | If | Allocate | Block | Assume | Call | Let | NamedWindow"
Body: TypeAlias = "tuple[Stmt, ...]"


class Role(Enum):
    """How a kernel uses a parameter."""

    INPUT = "in"
    OUTPUT = "out"
    INOUT = "inout"
    """It reads what the caller wrote, and writes.  Lowered kernels have none."""


@dataclass(frozen=True, slots=True)
class Param:
    """A buffer handed in by the caller.

    With `strided` it may be any window of the caller's buffer, with the strides of that; otherwise
    its elements follow one another in memory.
    """

    buffer: exprs.Buffer
    role: Role
    strided: bool = False


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """The operation of LLVM that performs an instruction: its result is what the only parameter
    that the instruction writes holds afterwards."""

    name: str
    """In full, such as `llvm.x86.avx2.pavg.b`."""
    feature: str | None = None
    """The feature of the target that it needs, such as `avx2`; where a target lacks it, the body of
    the instruction is compiled."""
    operands: tuple[str, ...] = ()
    """Names of parameters and constants such as `i32 8`; empty for all that are read, in order."""


@dataclass(frozen=True, slots=True)
class PrimFunc(Hashed, Printed):
    """A kernel: named parameters and a body."""

    name: str
    params: tuple[Param, ...]
    body: Body
    callee: str | None = None
    """Who computes the outputs, where no statement does: then the body is empty, and all that is
    known is that each input may be read and each output is written whole."""
    scalars: tuple[Var, ...] = ()
    """Integers that the caller gives, usable in every index expression."""
    intrinsic: Intrinsic | None = None
    """Of a user's instruction: what performs it natively.  Its meaning is the body."""

    __hash__ = Hashed.__hash__

    def _compared(self) -> object:
        return self.name, self.params, self.body, self.callee, self.scalars, self.intrinsic

    def around(self, body: Body) -> PrimFunc:
        """The same kernel of another body, this one of its own."""
        if body is self.body:
            return self
        return PrimFunc(self.name, self.params, body, self.callee, self.scalars, self.intrinsic)

    @property
    def inputs(self) -> tuple[exprs.Buffer, ...]:
        """The parameters that the kernel reads."""
        return tuple(p.buffer for p in self.params if p.role is Role.INPUT)

    @property
    def outputs(self) -> tuple[exprs.Buffer, ...]:
        """The parameters that the kernel writes."""
        return tuple(p.buffer for p in self.params if p.role is not Role.INPUT)

    def describe(self) -> str:
        """How the kernel reads as an argument of a schedule step."""
        return f"<{self.name}>"

    def param(self, name: str) -> exprs.Buffer:
        """The parameter called `name`; `KeyError` names those there are."""
        for p in self.params:
            if p.buffer.name == name:
                return p.buffer
        names = ", ".join(p.buffer.name for p in self.params)
        raise KeyError(f"{self.name} has no parameter {name}; it has {names}")


def nest(loops: Sequence[tuple[Var, int]], body: Body) -> Body:
    """`body` inside serial loops from 0 to the given extents, the first one outermost."""
    for var, extent in reversed(loops):
        body = (For(var, const(0), const(extent), LoopKind.SERIAL, body),)
    return body
