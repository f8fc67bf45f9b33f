"""Kernels as programs call them: each parameter is a dense array, and either read or written.

In: a kernel that a user wrote, with scalars, and with parameters that are `inout` or windows.  Out:
a kernel without these that computes the same.  What always holds: where the scalars of a run do not
satisfy what the kernel assumes of them, nothing but the copies of `inout` parameters is executed,
so no access leaves its buffer.

    def f(a: inout[f32[8]], n: index):        def f(a: f32[8], a_out: out[f32[8]], n: i64[()]):
        assume(unless(n >= 0 and n <= 8),         with block("a_copy"):
               bool(False))                           for c0 in serial(0, 8):
        for i in serial(0, n):            →               a_out[c0] = a[c0]
            a[i] = f32(0.0)                       for n in serial(0, 9):
                                                      if data(index(n, i64) == n[()]):
                                                          for i in serial(0, n):
                                                              a_out[i] = f32(0.0)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphflow import arith, tir
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.graph.inout_copies import output_names, with_inout_copies
from graphflow.kernels.conversion import narrowed
from graphflow.kernels.recipes import shared_loop

WIDEST = (-(2**31), 2**31 - 1)
"""The values that a scalar may have at most: products of them and of strides are exact in the 64
bits of an address."""


def program_kernel(func: tir.PrimFunc, outputs: Mapping[str, str] | None = None) -> tir.PrimFunc:
    """The kernel that a program calls for `func`; `func` itself where it needs no change.

    A scalar becomes an input of one int64, and its value the variable of a matched loop over the
    values that the kernel's assumptions permit.  An `inout` parameter becomes an input and an
    output, called as `outputs` says or as `output_names(func)`, which begins as a copy of it.  A
    window becomes a dense array.

    Raises VerifyError where what the kernel assumes of the elements of an input depends on a
    scalar.
    """
    names = output_names(func) if outputs is None else outputs
    func = _dense(func)
    return with_inout_copies(_with_values(func) if func.scalars else func, names)


def scalar_conditions(func: tir.PrimFunc) -> tuple[arith.Predicate, ...]:
    """What a run has to check of the scalars: what the kernel assumes of them wherever it runs, and
    the limits of `WIDEST` where they do not follow."""
    found = tuple(part for a in _assumed(func.body, func) for part in arith.conjuncts(_claim(a)))
    free = narrowed(found, dict.fromkeys(func.scalars, (None, None)))
    wide = []
    for var, (low, high) in free.items():
        if low is None or low < WIDEST[0]:
            wide.append(arith.at_most(arith.const(WIDEST[0]), var))
        if high is None or high > WIDEST[1]:
            wide.append(arith.at_most(var, arith.const(WIDEST[1])))
    return tuple(dict.fromkeys((*found, *wide)))


# ---- windows


def _dense(func: tir.PrimFunc) -> tir.PrimFunc:
    if not any(param.strided for param in func.params):
        return func
    return replace(func, params=tuple(replace(param, strided=False) for param in func.params))


# ---- scalars


def _with_values(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with an input for each scalar, and its work inside a matched loop over each."""
    conditions = scalar_conditions(func)
    limits = narrowed(conditions, dict.fromkeys(func.scalars, WIDEST))
    domain = arith.Domain(
        tuple(
            arith.Axis(v, arith.const(low or 0), arith.const((high or 0) + 1))
            for v, (low, high) in limits.items()
        )
    )
    needed = arith.conjunction(c for c in conditions if not arith.prove(c, domain).proven)
    inputs = {var: tir.Buffer(var.name, (), "int64") for var in func.scalars}
    for var in inputs:
        if any(b.name == var.name for b in tir.buffers_of(func)):
            raise VerifyError(f"{func.name} has a scalar and a buffer called {var}; rename one")
    head, body = _split_head(func, _without(func.body, set(_assumed(func.body, func))))
    loop = shared_loop(replace(func, body=body))

    def matched(inner: tir.Body) -> tir.Body:
        made = [s for s in inner if isinstance(s, tir.Allocate)]
        work = tuple(s for s in inner if not isinstance(s, tir.Allocate))
        if needed != arith.TRUE:
            work = (tir.If(needed, work),)
        for var, (low, high) in reversed(limits.items()):
            assert low is not None and high is not None
            test = tir.Comparison("eq", tir.IndexValue(var, "int64"), tir.Load(inputs[var], ()))
            found = (tir.If(test, work),)
            work = (
                tir.For(var, arith.const(low), arith.const(high + 1), tir.LoopKind.SERIAL, found),
            )
        return (*made, *work)

    def shared(stmt: tir.Stmt) -> tir.Stmt:
        if not isinstance(stmt, tir.For) or loop is None or stmt.var != loop.var:
            return stmt
        stmt = _with_constant_bounds(stmt, limits)
        return replace(stmt, body=matched(stmt.body))

    body = matched(body) if loop is None else tir.map_body(body, shared)
    params = (*func.params, *(tir.Param(inputs[var], tir.Role.INPUT) for var in func.scalars))
    return replace(func, params=params, body=(*head, *body), scalars=())


def _with_constant_bounds(loop: tir.For, limits: Mapping[arith.Var, arith.Interval]) -> tir.For:
    """`loop` with constant bounds, and a condition in it where they were none."""
    if not arith.variables(loop.start) | arith.variables(loop.stop):
        return loop
    low, high = arith.bounds(loop.start, limits)[0], arith.bounds(loop.stop, limits)[1]
    assert low is not None and high is not None
    runs = arith.conjunction(
        (arith.at_most(loop.start, loop.var), arith.less_than(loop.var, loop.stop))
    )
    stop = arith.const(max(low, high))
    return replace(loop, start=arith.const(low), stop=stop, body=(tir.If(runs, loop.body),))


def _assumed(body: tir.Body, func: tir.PrimFunc) -> Iterator[tir.Assume]:
    """The assumptions about scalars alone that are made whenever `body` runs."""
    for stmt in body:
        match stmt:
            case tir.Block():
                yield from _assumed(stmt.body, func)
            case tir.Assume(unless=unless, claim=tir.Literal(value=False)) if tir.is_predicate(
                unless
            ):
                if arith.predicate_variables(unless) <= set(func.scalars):  # type: ignore[arg-type]
                    yield stmt
            case _:
                pass


def _claim(stmt: tir.Assume) -> arith.Predicate:
    assert tir.is_predicate(stmt.unless)
    return stmt.unless  # type: ignore[return-value]


def _without(body: tir.Body, gone: set[tir.Assume]) -> tir.Body:
    def change(stmt: tir.Stmt) -> tir.Body:
        match stmt:
            case tir.Assume() if stmt in gone:
                return ()
            case tir.Block() if not stmt.body:
                return ()
            case _:
                return (stmt,)

    return tir.map_body(body, change)


def _split_head(func: tir.PrimFunc, body: tir.Body) -> tuple[tir.Body, tir.Body]:
    """The stages that only assume something of elements, in front of all others, and the rest.

    They stay outside the matched loops, because the compiler runs their loops to find the elements.
    """
    count = 0
    while count < len(body) and _only_assumes(func, body[count]):
        count += 1
    head, rest = body[:count], body[count:]
    for stmt in tir.walk(rest):
        loads = list(tir.loads_in((stmt,))) if isinstance(stmt, tir.Assume) else []
        if loads and all(load.buffer in func.inputs for load in loads):
            raise VerifyError(
                f"{func.name}: `{tir.stmt_text(stmt)}` is about the elements of an input, and "
                "stands behind other statements or depends on a scalar; put it in front, without "
                "scalars"
            )
    return head, rest


def _only_assumes(func: tir.PrimFunc, stmt: tir.Stmt) -> bool:
    kinds = (tir.Assume, tir.Block, tir.For, tir.If)
    if not all(isinstance(inner, kinds) for inner in tir.walk((stmt,))):
        return False
    return tir.substitute_body((stmt,), dict.fromkeys(func.scalars, arith.const(0))) == (stmt,)
