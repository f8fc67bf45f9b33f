"""Translates kernels to Python source, which is how the reference interpreter runs them.

In: a `PrimFunc` that `verify` accepts.  Out: a Python function with one argument per parameter, a
flat list of numpy scalars.  numpy's scalar arithmetic is exact in each dtype, and element access is
faster in lists than in arrays.  What always holds: every access is checked against its buffer's
shape, except where an index is a constant, or a sum of loop variables, that is in range by the
bounds of the loops alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import CodeType
from typing import Any, assert_never, cast

import numpy as np

from graphflow import arith
from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.tir.meaning.operators import (
    BINARY_FUNCTIONS,
    UNARY_FUNCTIONS,
    cast_function,
    undefined_value,
)
from graphflow.tir.nodes import declared, exprs, printer, stmts
from graphflow.tir.traversal.matched import matched_value
from graphflow.tir.traversal.performed import performed

# CPython refuses more than 20 nested loops in one function; deeper ones go into an inner function.
_LOOPS_IN_ONE_FUNCTION = 15


def compile_to_python(
    func: stmts.PrimFunc,
    *,
    undefined: float = float("nan"),
    reverse: bool = False,
    free: Mapping[arith.Var, tuple[int, int]] | None = None,
) -> Callable[..., None]:
    """A Python function that takes a flat list of numpy scalars per parameter, in order.

    After them it takes one for each field of configuration state (`fields_of`).

    `free` are variables that no loop of `func` binds, each with its lowest and highest value; their
    values are the function's first arguments.
    """
    writer = _SourceWriter(func, undefined, reverse)
    source = writer.source({} if free is None else free)
    namespace = writer.namespace
    exec(_code(source, func.name), namespace)
    return cast(Callable[..., None], namespace["kernel"])


@lru_cache(maxsize=256)
def _code(source: str, name: str) -> CodeType:
    """Code of a source that does not depend on what is undefined: values are globals.  To make it
    takes longer than writing the source."""
    return compile(source, f"<kernel {name}>", "exec")


class _SourceWriter:
    """Generates the Python source of one kernel, with names that cannot clash with the kernel's."""

    def __init__(self, func: stmts.PrimFunc, undefined: float, reverse: bool) -> None:
        self.func = func
        self.undefined = undefined
        self.reverse = reverse
        self.namespace: dict[str, Any] = {}
        self.buffers: dict[exprs.Buffer, str] = {}
        self.loops: dict[arith.Var, tuple[int, int] | None] = {}
        """Variables in scope, each with a range of its values where the loops around show one."""
        self.variables: dict[arith.Var, str] = {}
        self.levels: dict[arith.Var, int] = {}
        """In how many of `ahead` each variable is in scope: those of the loops inside its own."""
        self.ahead: list[dict[str, str]] = []
        """For each loop around, outermost first, what is computed before it: names by text."""
        self.windows: dict[exprs.Buffer, stmts.BufferWindow] = {}
        """The windows that names in scope stand for."""
        self.temporaries = 0
        self.stmt: stmts.Stmt = stmts.Block("", ())
        """The statement being written, for messages."""

    def source(self, free: Mapping[arith.Var, tuple[int, int]]) -> str:
        for var, interval in free.items():
            self.variables[var], self.loops[var] = self.temporary(), interval
            self.levels[var] = 0
        names = [self.variables[var] for var in free]
        buffers = (*(p.buffer for p in self.func.params), *declared.fields_of(self.func))
        names += [self.buffer(buffer) for buffer in buffers]
        lines = (f"def kernel({', '.join(names)}):", *self.body(self.func.body, 1, 0))
        return "\n".join(lines) + "\n"

    # -- names and constants

    def buffer(self, buffer: exprs.Buffer) -> str:
        return self.buffers.setdefault(buffer, f"b{len(self.buffers)}")

    def memory(self, buffer: exprs.Buffer) -> str:
        while buffer in self.windows:
            buffer = self.windows[buffer].buffer
        if buffer not in self.buffers:
            raise VerifyError(f"{self.func.name}: {buffer.name} is used before it is allocated")
        return self.buffers[buffer]

    def constant(self, value: object) -> str:
        """The name of a global of the generated function that is bound to `value`."""
        name = f"c{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def temporary(self) -> str:
        self.temporaries += 1
        return f"t{self.temporaries}"

    # -- statements

    def body(self, body: stmts.Body, depth: int, loops: int) -> Iterator[str]:
        indent = "    " * depth
        if not body:
            yield indent + "pass"
        for stmt in body:
            self.stmt = stmt
            match stmt:
                case stmts.Store() | stmts.Reduce():
                    yield indent + self.write(stmt)
                case stmts.Allocate():
                    fill = self.constant(undefined_value(stmt.buffer.dtype, self.undefined))
                    yield f"{indent}{self.buffer(stmt.buffer)} = [{fill}] * {stmt.buffer.size}"
                case stmts.Assume():
                    yield from (indent + line for line in self.assume(stmt))
                case stmts.Block():
                    yield from self.body(stmt.body, depth, loops)
                case stmts.NamedWindow():
                    self.windows[stmt.buffer] = stmt.window
                    yield from self.body(stmt.body, depth, loops)
                case stmts.Call() | stmts.Let():
                    yield from self.body(performed(stmt), depth, loops)
                case stmts.If():
                    yield f"{indent}if {self.condition(stmt.condition)}:"
                    yield from self.body(stmt.then, depth + 1, loops)
                    yield f"{indent}else:"
                    yield from self.body(stmt.orelse, depth + 1, loops)
                case stmts.For():
                    yield from self.loop(stmt, depth, loops)
                case _:
                    assert_never(stmt)

    def loop(self, stmt: stmts.For, depth: int, loops: int) -> Iterator[str]:
        indent = "    " * depth
        if loops == _LOOPS_IN_ONE_FUNCTION:
            name = self.temporary()
            yield f"{indent}def {name}():"
            yield from self.loop(stmt, depth + 1, 0)
            yield f"{indent}{name}()"
            return
        start, stop = self.index(stmt.start), self.index(stmt.stop)
        value = matched_value(stmt)
        if value is not None:
            yield from self.matched(stmt, value, depth, loops)
            return
        values = f"range({start}, {stop})"
        if self.reverse and stmt.kind in stmts.AT_ONCE:
            values = f"reversed({values})"
        self.ahead.append({})
        variable = self.bind(stmt)
        inside = [*self.body(stmt.body, depth + 1, loops + 1)]
        for text, name in self.ahead.pop().items():
            yield f"{indent}{name} = {text}"
        yield f"{indent}for {variable} in {values}:"
        yield from inside
        del self.loops[stmt.var]

    def matched(self, stmt: stmts.For, value: exprs.Expr, depth: int, loops: int) -> Iterator[str]:
        """The one iteration that a matched loop can have, if it is in range."""
        indent = "    " * depth
        start, stop = self.index(stmt.start), self.index(stmt.stop)
        wanted = self.expr(value)
        variable = self.bind(stmt)
        # Without iterations nothing may be evaluated, so the bounds are looked at first.
        yield f"{indent}if {start} < {stop} and {start} <= ({variable} := int({wanted})) < {stop}:"
        yield from self.body(cast(stmts.If, stmt.body[0]).then, depth + 1, loops)
        del self.loops[stmt.var]

    def bind(self, stmt: stmts.For) -> str:
        """The name of a loop's variable, which is in scope from here on."""
        variable = self.variables[stmt.var] = self.temporary()
        self.levels[stmt.var] = len(self.ahead)
        start, stop = self.interval(stmt.start), self.interval(stmt.stop)
        self.loops[stmt.var] = None if start is None or stop is None else (start[0], stop[1] - 1)
        return variable

    def write(self, stmt: stmts.Store | stmts.Reduce) -> str:
        memory, value = self.memory(stmt.buffer), self.expr(stmt.value)
        position = self.position(stmt.buffer, stmt.indices)
        if isinstance(stmt, stmts.Store):
            return f"{memory}[{position}] = {value}"
        named = position.isidentifier() or position.isdecimal()
        place = position if named else self.temporary()
        new = self.binary(stmt.op.value, stmt.buffer.dtype, f"{memory}[{place}]", value)
        found = f"{memory}[{place}] = {new}"
        return found if named else f"{place} = {position}; {found}"

    def assume(self, stmt: stmts.Assume) -> Iterator[str]:
        claim = stmt.claim
        if isinstance(claim, exprs.Comparison) and isinstance(claim.right, exprs.Undef):
            if claim.op == "ne":  # nothing may access the element, and so this does not either
                yield "pass"
                return
            # Only says that the element may be read: so read it, for the check of its place.
            test = f"({self.expr(claim.left)},)"
        else:
            test = self.expr(claim)
        fail = self.constant(_false_assumption(self.func, stmt, tuple(self.loops)))
        yield f"if not ({self.condition(stmt.unless)}) and not {test}:"
        yield f"    {fail}(({self.loop_values()}))"

    # -- accesses

    def loop_values(self) -> str:
        return "".join(f"{self.variables[var]}, " for var in self.loops)

    def position(self, buffer: exprs.Buffer, indices: Sequence[arith.IndexExpr]) -> str:
        """The flat position of an element, each index checked unless its loop's bounds show it;
        those of a named window in the window first."""
        if buffer in self.windows:
            window = self.windows[buffer]
            inner, behind = list(indices), window.place(tuple(indices))
            flat = self.position(window.buffer, behind)
            sides = zip(inner, buffer.shape, strict=True)
            if all(self.surely_inside(index, extent) for index, extent in sides):
                return flat
            own = self.position(replace(buffer, name=f"window {buffer.name}"), inner)
            return f"(({own}), {flat})[1]"
        factors: dict[arith.Var, int] = {}
        terms: list[str] = []
        checks: list[str] = []
        fixed = 0
        for index, extent, stride in zip(indices, buffer.shape, buffer.strides, strict=True):
            if self.surely_inside(index, extent):
                fixed += _add_scaled(factors, index, stride)
                continue
            value = self.temporary()
            checks.append(f"0 <= ({value} := {self.index(index)}) < {extent}")
            terms.append(_scaled(value, stride))
        terms = [*self.linear(factors), *terms]
        if fixed or not terms:
            terms.append(str(fixed))
        flat = " + ".join(terms)
        if not checks:
            return flat
        fail = _out_of_bounds(self.func, self.stmt, buffer, indices, tuple(self.loops))
        failed = f"{self.constant(fail)}(({self.loop_values()}))"
        return f"{flat} if {' and '.join(checks)} else {failed}"

    def linear(self, factors: Mapping[arith.Var, int]) -> list[str]:
        """The terms of a sum of variables; what the loops around decide of it is computed ahead of
        the loops inside these.  That saves a quarter of a convolution's time."""
        terms: list[str] = []
        for level in range(len(self.ahead) + 1):
            terms += [
                _scaled(self.variables[var], factors[var])
                for var in self.loops
                if factors.get(var) and self.levels[var] == level
            ]
            text = " + ".join(terms)
            if level < len(self.ahead) and terms and not text.isidentifier():
                known = self.ahead[level]
                if text not in known:
                    known[text] = self.temporary()
                terms = [known[text]]
        return terms

    def surely_inside(self, index: arith.IndexExpr, extent: int) -> bool:
        known = self.interval(index)
        return known is not None and known[0] >= 0 and known[1] < extent

    def interval(self, index: arith.IndexExpr) -> tuple[int, int] | None:
        """A range that has the values of a linear index, by those of its loops alone; None where
        they do not give one.  The prover of the schedules is not asked, as this checks its work.
        """
        match index:
            case arith.Const():
                return index.value, index.value
            case arith.Var():
                return self.loops.get(index)
            case arith.Sum():
                low = high = index.constant
                for atom, factor in index.terms:
                    known = self.interval(atom)
                    if known is None:
                        return None
                    ends = factor * known[0], factor * known[1]
                    low, high = low + min(ends), high + max(ends)
                return low, high
        return None

    # -- indices and conditions

    def index(self, expr: arith.IndexExpr) -> str:
        match expr:
            case arith.Const():
                return f"({expr.value})" if expr.value < 0 else str(expr.value)
            case arith.Var():
                if expr not in self.loops:
                    raise VerifyError(f"{self.func.name}: no loop around the use binds {expr}")
                return self.variables[expr]
            case arith.Sum():
                terms = [_scaled(self.index(atom), k) for atom, k in expr.terms]
                if expr.constant:
                    terms.append(str(expr.constant))
                return f"({' + '.join(terms)})"
            case arith.FloorDiv():
                return f"({self.index(expr.numerator)} // {expr.divisor})"
            case arith.FloorMod():
                return f"({self.index(expr.numerator)} % {expr.divisor})"
            case arith.Extremum():
                return f"{expr.kind}({', '.join(map(self.index, expr.operands))})"
        raise TypeError(f"not an index expression: {expr!r}")

    def predicate(self, predicate: arith.Predicate) -> str:
        match predicate:
            case arith.Truth():
                return str(predicate.value)
            case arith.AtLeastZero():
                return self.compared(predicate.expr, ">=")
            case arith.IsZero():
                return self.compared(predicate.expr, "==")
            case arith.Not():
                return self.compared(predicate.member.expr, "!=")
            case arith.And():
                return self.joined(predicate.members, " and ")
            case arith.Or():
                return self.joined(predicate.members, " or ")
        assert_never(predicate)

    def compared(self, expr: arith.IndexExpr, sign: str) -> str:
        """An index compared with zero; terms of a sum with negative factors stand on the right."""
        if not isinstance(expr, arith.Sum):
            return f"{self.index(expr)} {sign} 0"
        signed = [*((self.index(atom), k) for atom, k in expr.terms), ("", expr.constant)]
        left, right = (
            [_scaled(text, s * k) if text else str(s * k) for text, k in signed if s * k > 0]
            for s in (1, -1)
        )
        return f"{' + '.join(left) or 0} {sign} {' + '.join(right) or 0}"

    def joined(self, members: Iterable[arith.Predicate], word: str) -> str:
        return word.join(f"({self.predicate(member)})" for member in members)

    def condition(self, condition: exprs.Condition) -> str:
        if exprs.is_predicate(condition):
            return self.predicate(cast(arith.Predicate, condition))
        return self.expr(cast(exprs.Expr, condition))

    # -- scalar expressions

    def expr(self, expr: exprs.Expr) -> str:
        """Python that gives a numpy scalar of the expression's dtype."""
        match expr:
            case exprs.Literal():
                return self.constant(np.asarray(expr.value, DTYPES[expr.dtype])[()])
            case exprs.Load():
                return f"{self.memory(expr.buffer)}[{self.position(expr.buffer, expr.indices)}]"
            case exprs.IndexValue():
                convert = self.constant(_index_converter(expr.dtype))
                return f"{convert}({self.index(expr.index)})"
            case exprs.Unary():
                function = self.constant(UNARY_FUNCTIONS[expr.op])
                return f"{function}({self.expr(expr.operand)})"
            case exprs.Binary():
                return self.binary(expr.op, expr.dtype, self.expr(expr.left), self.expr(expr.right))
            case exprs.Comparison():
                sign = printer.COMPARISON_SIGNS[expr.op]
                return f"({self.expr(expr.left)} {sign} {self.expr(expr.right)})"
            case exprs.Select():
                test, if_true = self.condition(expr.condition), self.expr(expr.if_true)
                return f"({if_true} if {test} else {self.expr(expr.if_false)})"
            case exprs.Cast():
                convert = self.constant(cast_function(expr.operand.dtype, expr.dtype))
                return f"{convert}({self.expr(expr.operand)})"
            case exprs.Undef():
                return self.constant(undefined_value(expr.dtype, self.undefined))
        assert_never(expr)

    def binary(self, op: str, dtype: str, left: str, right: str) -> str:
        """Python's operator where it has our semantics on numpy's scalars, else a function call."""
        exact = op in ("add", "sub", "mul", "and", "or", "xor", "shl", "shr") or (
            op == "div" and dtype in ("float32", "float64")
        )
        if exact:
            return f"({left} {printer.BINARY_SIGNS[op]} {right})"
        return f"{self.constant(BINARY_FUNCTIONS[op])}({left}, {right})"


def _add_scaled(factors: dict[arith.Var, int], index: arith.IndexExpr, scale: int) -> int:
    """Adds `scale` times a linear index to the factors of its variables; returns its constant."""
    match index:
        case arith.Const():
            return scale * index.value
        case arith.Var():
            factors[index] = factors.get(index, 0) + scale
            return 0
        case arith.Sum():
            inside = (_add_scaled(factors, atom, scale * k) for atom, k in index.terms)
            return scale * index.constant + sum(inside)
    raise TypeError(f"not a linear index: {index!r}")


def _scaled(text: str, factor: int) -> str:
    return text if factor == 1 else f"{factor} * {text}"


@cache
def _index_converter(dtype: str) -> Callable[[int], Any]:
    """An index as a scalar; most indices come again, and to convert one takes two microseconds."""
    target = DTYPES[dtype]
    return lru_cache(maxsize=4096)(lambda value: np.int64(value).astype(target))


def _false_assumption(
    func: stmts.PrimFunc, stmt: stmts.Assume, loops: tuple[arith.Var, ...]
) -> Callable[[Sequence[int]], None]:
    def fail(loop_values: Sequence[int]) -> None:
        raise VerifyError(
            f"{func.name}: {printer.stmt_text(stmt)} is false{_at(loops, loop_values)}"
        )

    return fail


def _out_of_bounds(
    func: stmts.PrimFunc,
    stmt: stmts.Stmt,
    buffer: exprs.Buffer,
    indices: Iterable[arith.IndexExpr],
    loops: tuple[arith.Var, ...],
) -> Callable[[Sequence[int]], None]:
    def fail(loop_values: Sequence[int]) -> None:
        access = printer.element_text(buffer, indices)
        line = printer.stmt_text(stmt).splitlines()[0]
        at = dict(zip(loops, loop_values, strict=True))
        values = [arith.evaluate(index, at) for index in indices]
        raise VerifyError(
            f"{func.name}: {access} reaches index {values}, outside {buffer.name}'s shape "
            f"{list(buffer.shape)}{_at(loops, loop_values)}, in `{line}`"
        )

    return fail


def _at(loops: Sequence[arith.Var], values: Sequence[int]) -> str:
    places = ", ".join(f"{var}={n}" for var, n in zip(loops, values, strict=True))
    return f" at {places}" if places else ""
