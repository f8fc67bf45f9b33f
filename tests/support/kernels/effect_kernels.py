"""Small random kernels, and an enumeration of what they access, to compare analyses with.

In: a function that draws numbers.  Out: kernels with loops, conditions on indices and on data,
reductions and allocations, whose accesses are in bounds; of a run, every access with its instance,
its element and the write whose value it sees, and every store with the value that it overwrites.

Values are terms: a number where it is known, else what sum of the contents of inputs it is, which
are different unknowns.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, cast

from graphflow import arith, tir
from graphflow.arith import IndexExpr, Predicate, Var, evaluate, holds
from support.kernels.random_kernels import KernelOptions, Number, RandomKernel, random_index

Path: TypeAlias = "tuple[tuple[int, bool], ...]"
Element: TypeAlias = "tuple[tir.Buffer, int, tuple[int, ...]]"
"""The buffer, which of its allocations, and the indices."""


@dataclass(frozen=True)
class Event:
    """One access of a run."""

    path: Path
    instance: tuple[int, ...]
    element: Element
    is_write: bool
    op: tir.ReduceOp | None
    source: "Event | None"
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
    def __init__(self, func: tir.PrimFunc, decide: Callable[[], bool]) -> None:
        self.func, self.decide, self.trace = func, decide, Trace()
        self.values: dict[Element, Any] = {}
        self.copies: dict[tir.Buffer, int] = {}
        self.made = 0

    def body(self, body: tir.Body, path: Path, branch: bool, env: Mapping[Var, int]) -> None:
        for position, stmt in enumerate(body):
            self.stmt(stmt, _below(path, branch, position), env)

    def stmt(self, stmt: tir.Stmt, path: Path, env: Mapping[Var, int]) -> None:
        match stmt:
            case tir.For():
                for value in range(evaluate(stmt.start, env), evaluate(stmt.stop, env)):
                    self.body(stmt.body, path, False, {**env, stmt.var: value})
            case tir.Block():
                self.body(stmt.body, path, False, env)
            case tir.If():
                taken = self.condition(stmt.condition, path, env)
                self.body(stmt.then if taken else stmt.orelse, path, not taken, env)
            case tir.Allocate():
                self.made += 1
                self.copies[stmt.buffer] = self.made
            case tir.Store():
                element = self.element(stmt.buffer, stmt.indices, env)
                value = self.value(stmt.value, path, env)
                self.trace.stores.append((path, self.held(element), value))
                self.write(path, env, element, None, value)
            case tir.Reduce():
                element = self.element(stmt.buffer, stmt.indices, env)
                value = self.value(stmt.value, path, env)
                old = self.read(path, env, element, stmt.op)
                self.write(path, env, element, stmt.op, _applied("add", old, value))
            case tir.Assume():
                raise NotImplementedError("assumptions are tested one by one")

    def element(
        self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...], env: Mapping[Var, int]
    ) -> Element:
        place = tuple(evaluate(index, env) for index in indices)
        assert all(0 <= i < n for i, n in zip(place, buffer.shape, strict=True))
        return buffer, self.copies.get(buffer, 0), place

    def held(self, element: Element) -> Any:
        return self.values.get(element, ("before", element))

    def read(
        self, path: Path, env: Mapping[Var, int], element: Element, op: tir.ReduceOp | None
    ) -> Any:
        source = self.trace.left.get(element)
        self.trace.events.append(Event(path, tuple(env.values()), element, False, op, source))
        return self.held(element)

    def write(
        self,
        path: Path,
        env: Mapping[Var, int],
        element: Element,
        op: tir.ReduceOp | None,
        value: Any,
    ) -> None:
        event = Event(path, tuple(env.values()), element, True, op, None)
        self.trace.events.append(event)
        self.trace.left[element] = event
        self.values[element] = value

    def condition(self, condition: tir.Condition, path: Path, env: Mapping[Var, int]) -> bool:
        if tir.is_predicate(condition):
            return holds(cast(Predicate, condition), env)
        self.value(cast(tir.Expr, condition), path, env)
        return self.decide()

    def value(self, expr: tir.Expr, path: Path, env: Mapping[Var, int]) -> Any:
        match expr:
            case tir.Literal():
                return expr.value
            case tir.IndexValue():
                return evaluate(expr.index, env)
            case tir.Load():
                return self.read(path, env, self.element(expr.buffer, expr.indices, env), None)
            case tir.Binary():
                left, right = self.value(expr.left, path, env), self.value(expr.right, path, env)
                return _applied(expr.op, left, right)
            case tir.Comparison():
                left, right = self.value(expr.left, path, env), self.value(expr.right, path, env)
                return (expr.op, left, right)
            case tir.Select():
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


def traced(func: tir.PrimFunc, decide: Callable[[], bool]) -> Trace:
    """The accesses of one run, in which `decide` gives the outcome of each condition on data."""
    run = _Run(func, decide)
    run.body(func.body, (), False, {})
    return run.trace


@dataclass
class EffectKernel(RandomKernel):
    """Statements at any depth of serial loops, each on any element of any buffer."""

    @classmethod
    def of(cls, number: Number, data_conditions: bool, dtype: str = "int64") -> Self:
        """Sums, of which an enumeration knows the terms, with constants that are often equal."""
        return cls(
            number,
            KernelOptions(
                "definition",
                (dtype,),
                unary=(),
                binary=("add",),
                literals=(0, 1),
                casts=False,
                data_conditions=data_conditions,
                borders=False,
            ),
        )

    def func(self) -> tir.PrimFunc:
        x, y = (self.buffer(name) for name in "xy")
        self.readable = [x, y]
        body = self.allocated("t") if self.chance(50) else ()
        for _ in range(self.number(1, 3)):
            body += self.statements_in_loops()
        role = tir.Role.INOUT if self.chance(30) else tir.Role.OUTPUT
        params = (tir.Param(x, tir.Role.INPUT), tir.Param(y, role))
        return tir.PrimFunc("kernel", params, body)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.number(1, 5) for _ in range(self.number(1, 2)))

    def buffer(self, name: str) -> tir.Buffer:
        return tir.Buffer(name, self.shape(), self.options.dtypes[0])

    def allocated(self, name: str) -> tir.Body:
        self.readable.append(self.buffer(name))
        return (tir.Allocate(self.readable[-1]),)

    def index(self, extent: int) -> IndexExpr:
        """One that stays inside whatever the loops around run over."""
        around = tuple(self.ranges)
        if not around or self.chance(10):
            return arith.const(self.number(0, extent - 1))
        near = self.one_of(around) + self.number(-1, 1)
        return (near if self.chance(60) else random_index(self.number, around, 2)) % extent

    def statements_in_loops(self) -> tir.Body:
        body = self.loops(self.number(0, 3))
        return (tir.Block(self.fresh("b"), body),) if self.chance(30) else body

    def loops(self, count: int) -> tir.Body:
        """So many loops around statements, some of them between the loops."""
        if count == 0:
            return self.statements(self.number(1, 2))
        var, outer, known = arith.Var(self.fresh("i")), tuple(self.ranges), len(self.readable)
        start, stop = arith.const(self.number(0, 1)), arith.const(self.number(1, 4))
        self.ranges[var] = arith.evaluate(stop, {})
        if outer and self.chance(15):
            stop = outer[-1] + 1
            self.ranges[var] = self.ranges[outer[-1]]
        body = self.allocated(self.fresh("p")) if self.chance(15) else ()
        body += self.statements(1) if self.chance(25) else ()
        body += self.loops(count - 1)
        del self.ranges[var], self.readable[known:]
        return (tir.For(var, start, stop, tir.LoopKind.SERIAL, body),)

    def statements(self, count: int) -> tir.Body:
        return tuple(self.statement() for _ in range(count))

    def statement(self) -> tir.Stmt:
        write = self.write()
        if not self.chance(35):
            return write
        return tir.If(self.guard(), (write,), (self.write(),) if self.chance(30) else ())

    def write(self) -> tir.Stmt:
        target = self.load(self.one_of(self.readable[1:]))
        if self.chance(25):
            value = self.expr(target.dtype, 1)
            return tir.Reduce(tir.ReduceOp.ADD, target.buffer, target.indices, value)
        value = target if self.chance(10) else self.expr(target.dtype)
        return tir.Store(target.buffer, target.indices, value)


def each_path(
    body: tir.Body, path: Path = (), branch: bool = False
) -> Iterator[tuple[Path, tir.Stmt]]:
    """Every statement of a kernel with its path."""
    for position, stmt in enumerate(body):
        here = _below(path, branch, position)
        yield here, stmt
        match stmt:
            case tir.For() | tir.Block():
                yield from each_path(stmt.body, here)
            case tir.If():
                yield from each_path(stmt.then, here)
                yield from each_path(stmt.orelse, here, True)
            case _:
                pass
