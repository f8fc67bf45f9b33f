"""Small random kernels, and an enumeration of what they access, to compare analyses with.

In: a function that draws numbers.  Out: kernels with loops, conditions on indices and on data,
reductions and allocations, whose accesses are in bounds; of a run, every access with its instance,
its element and the write whose value it sees, and every store with the value that it overwrites.

Values are terms: a number where it is known, else what sum of the contents of inputs it is, which
are different unknowns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from graphflow.arith import TRUE, IndexExpr, Predicate, Var, const, evaluate, holds
from graphflow.tir import (
    Allocate,
    Assume,
    Binary,
    Block,
    Body,
    Buffer,
    Comparison,
    Condition,
    Expr,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    LoopKind,
    Param,
    PrimFunc,
    Reduce,
    ReduceOp,
    Role,
    Select,
    Stmt,
    Store,
    is_predicate,
)
from support.random_kernels import Number, random_index, random_predicate

Path: TypeAlias = "tuple[tuple[int, bool], ...]"
Element: TypeAlias = "tuple[Buffer, int, tuple[int, ...]]"
"""The buffer, which of its allocations, and the indices."""


@dataclass(frozen=True)
class Event:
    """One access of a run."""

    path: Path
    instance: tuple[int, ...]
    element: Element
    is_write: bool
    op: ReduceOp | None
    source: Event | None
    """The write whose value a read sees; None for the contents before."""


@dataclass
class Trace:
    """What a run accessed, in order."""

    events: list[Event] = field(default_factory=list)
    stores: list[tuple[Path, Any, Any]] = field(default_factory=list)
    """Of each execution of a store: its path, the term before, and the term that it stores."""
    left: dict[Element, Event] = field(default_factory=dict)
    """The last write to each element."""


def inside(outer: Path, path: Path) -> bool:
    """Whether the statement at `path` is that at `outer`, or inside it."""
    last = len(outer) - 1
    return path[:last] == outer[:last] and path[last : last + 1] in (
        ((outer[last][0], False),),
        ((outer[last][0], True),),
    )


def _below(path: Path, branch: bool, position: int) -> Path:
    """The path to a statement in a body of the statement at `path`."""
    return (*path[:-1], *((at, branch) for at, _ in path[-1:]), (position, False))


class _Run:
    def __init__(self, func: PrimFunc, decide: Callable[[], bool]) -> None:
        self.func, self.decide, self.trace = func, decide, Trace()
        self.values: dict[Element, Any] = {}
        self.copies: dict[Buffer, int] = {}
        self.made = 0

    def body(self, body: Body, path: Path, branch: bool, env: Mapping[Var, int]) -> None:
        for position, stmt in enumerate(body):
            self.stmt(stmt, _below(path, branch, position), env)

    def stmt(self, stmt: Stmt, path: Path, env: Mapping[Var, int]) -> None:
        match stmt:
            case For():
                for value in range(evaluate(stmt.start, env), evaluate(stmt.stop, env)):
                    self.body(stmt.body, path, False, {**env, stmt.var: value})
            case Block():
                self.body(stmt.body, path, False, env)
            case If():
                taken = self.condition(stmt.condition, path, env)
                self.body(stmt.then if taken else stmt.orelse, path, not taken, env)
            case Allocate():
                self.made += 1
                self.copies[stmt.buffer] = self.made
            case Store():
                element = self.element(stmt.buffer, stmt.indices, env)
                value = self.value(stmt.value, path, env)
                self.trace.stores.append((path, self.held(element), value))
                self.write(path, env, element, None, value)
            case Reduce():
                element = self.element(stmt.buffer, stmt.indices, env)
                value = self.value(stmt.value, path, env)
                old = self.read(path, env, element, stmt.op)
                self.write(path, env, element, stmt.op, _applied("add", old, value))
            case Assume():
                raise NotImplementedError("assumptions are tested one by one")

    def element(
        self, buffer: Buffer, indices: tuple[IndexExpr, ...], env: Mapping[Var, int]
    ) -> Element:
        place = tuple(evaluate(index, env) for index in indices)
        assert all(0 <= i < n for i, n in zip(place, buffer.shape, strict=True))
        return buffer, self.copies.get(buffer, 0), place

    def held(self, element: Element) -> Any:
        return self.values.get(element, ("before", element))

    def read(
        self, path: Path, env: Mapping[Var, int], element: Element, op: ReduceOp | None
    ) -> Any:
        source = self.trace.left.get(element)
        self.trace.events.append(Event(path, tuple(env.values()), element, False, op, source))
        return self.held(element)

    def write(
        self,
        path: Path,
        env: Mapping[Var, int],
        element: Element,
        op: ReduceOp | None,
        value: Any,
    ) -> None:
        event = Event(path, tuple(env.values()), element, True, op, None)
        self.trace.events.append(event)
        self.trace.left[element] = event
        self.values[element] = value

    def condition(self, condition: Condition, path: Path, env: Mapping[Var, int]) -> bool:
        if is_predicate(condition):
            return holds(cast(Predicate, condition), env)
        self.value(cast(Expr, condition), path, env)
        return self.decide()

    def value(self, expr: Expr, path: Path, env: Mapping[Var, int]) -> Any:
        match expr:
            case Literal():
                return expr.value
            case IndexValue():
                return evaluate(expr.index, env)
            case Load():
                return self.read(path, env, self.element(expr.buffer, expr.indices, env), None)
            case Binary():
                left, right = self.value(expr.left, path, env), self.value(expr.right, path, env)
                return _applied(expr.op, left, right)
            case Comparison():
                left, right = self.value(expr.left, path, env), self.value(expr.right, path, env)
                return (expr.op, left, right)
            case Select():
                taken = self.condition(expr.condition, path, env)
                return self.value(expr.if_true if taken else expr.if_false, path, env)
        raise NotImplementedError(type(expr).__name__)


def _applied(op: str, left: Any, right: Any) -> Any:
    """A sum of numbers and unknowns: a number, or `("sum", constant, {(unknown, count), …})`."""
    assert op == "add"
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    constant = 0
    counts: Counter[Any] = Counter()
    for term in (left, right):
        match term:
            case int():
                constant += term
            case ("sum", own, parts):
                constant += own
                counts.update(dict(parts))
            case _:
                counts[term] += 1
    if constant == 0 and list(counts.values()) == [1]:
        return next(iter(counts))
    return ("sum", constant, frozenset(counts.items()))


def traced(func: PrimFunc, decide: Callable[[], bool]) -> Trace:
    """The accesses of one run, in which `decide` gives the outcome of each condition on data."""
    run = _Run(func, decide)
    run.body(func.body, (), False, {})
    return run.trace


@dataclass
class EffectKernel:
    """A random kernel in the making."""

    number: Number
    data_conditions: bool
    names: int = 0

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) < percent

    def func(self) -> PrimFunc:
        inputs = [Buffer("x", self.shape(), "int64")]
        output = Buffer("y", self.shape(), "int64")
        body: list[Stmt] = []
        buffers = [*inputs, output]
        if self.chance(50):
            temporary = Buffer("t", self.shape(), "int64")
            body.append(Allocate(temporary))
            buffers.append(temporary)
        for _ in range(self.number(1, 3)):
            body += self.stage(buffers)
        role = Role.INOUT if self.chance(30) else Role.OUTPUT
        params = (Param(inputs[0], Role.INPUT), Param(output, role))
        return PrimFunc("kernel", params, tuple(body))

    def shape(self) -> tuple[int, ...]:
        return tuple(self.number(1, 5) for _ in range(self.number(1, 2)))

    def stage(self, buffers: list[Buffer]) -> Body:
        count = self.number(0, 3)
        body = self.loops(count, [], buffers)
        return (Block(self.fresh("b"), body),) if self.chance(30) else body

    def loops(self, count: int, around: list[Var], buffers: list[Buffer]) -> Body:
        if count == 0:
            return self.statements(around, buffers, self.number(1, 2))
        var = Var(self.fresh("i"))
        start: IndexExpr = const(self.number(0, 1))
        stop: IndexExpr = const(self.number(1, 4))
        if around and self.chance(15):
            stop = around[-1] + 1
        own = list(buffers)
        head: Body = ()
        if self.chance(15):
            private = Buffer(self.fresh("p"), self.shape(), "int64")
            head, own = (Allocate(private),), [*own, private]
        before = self.statements([*around, var], own, 1) if self.chance(25) else ()
        body = (*head, *before, *self.loops(count - 1, [*around, var], own))
        return (For(var, start, stop, LoopKind.SERIAL, body),)

    def statements(self, around: list[Var], buffers: list[Buffer], count: int) -> Body:
        found: list[Stmt] = []
        for _ in range(count):
            write = self.write(around, buffers)
            if self.chance(35):
                other = (self.write(around, buffers),) if self.chance(30) else ()
                write = If(self.condition(around, buffers), (write,), other)
            found.append(write)
        return tuple(found)

    def condition(self, around: list[Var], buffers: list[Buffer]) -> Condition:
        if self.data_conditions and self.chance(50):
            return Comparison("lt", self.load(around, buffers), Literal(3, "int64"))
        if not around:
            return TRUE
        return random_predicate(self.number, around, 1)

    def write(self, around: list[Var], buffers: list[Buffer]) -> Stmt:
        buffer = buffers[self.number(1, len(buffers) - 1)]
        indices = self.indices(around, buffer)
        if self.chance(25):
            return Reduce(ReduceOp.ADD, buffer, indices, self.value(around, buffers, 1))
        if self.chance(10):
            return Store(buffer, indices, Load(buffer, indices))
        return Store(buffer, indices, self.value(around, buffers, 2))

    def value(self, around: list[Var], buffers: list[Buffer], depth: int) -> Expr:
        kind = self.number(0, 9)
        if kind < 4:
            return self.load(around, buffers)
        if kind < 7 or depth == 0:
            return Literal(self.number(0, 1), "int64")
        if kind == 7 and around:
            return IndexValue(self.index(around, 4))
        one, other = self.value(around, buffers, depth - 1), self.value(around, buffers, depth - 1)
        if kind == 8 and around:
            return Select(self.condition(around, buffers), one, other)
        return Binary("add", one, other)

    def load(self, around: list[Var], buffers: list[Buffer]) -> Load:
        buffer = buffers[self.number(0, len(buffers) - 1)]
        return Load(buffer, self.indices(around, buffer))

    def indices(self, around: list[Var], buffer: Buffer) -> tuple[IndexExpr, ...]:
        return tuple(self.index(around, extent) for extent in buffer.shape)

    def index(self, around: list[Var], extent: int) -> IndexExpr:
        if not around or self.chance(10):
            return const(self.number(0, extent - 1))
        if self.chance(60):
            index = around[self.number(0, len(around) - 1)] + self.number(-1, 1)
        else:
            index = random_index(self.number, around, 2)
        return index % extent


def each_path(body: Body, path: Path = (), branch: bool = False) -> Iterator[tuple[Path, Stmt]]:
    """Every statement of a kernel with its path."""
    for position, stmt in enumerate(body):
        here = _below(path, branch, position)
        yield here, stmt
        match stmt:
            case For() | Block():
                yield from each_path(stmt.body, here)
            case If():
                yield from each_path(stmt.then, here)
                yield from each_path(stmt.orelse, here, True)
            case _:
                pass
