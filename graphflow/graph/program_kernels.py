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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from graphflow.arith import (
    TRUE,
    AtLeastZero,
    Axis,
    Domain,
    IndexExpr,
    Interval,
    IsZero,
    Predicate,
    Var,
    at_least_zero,
    at_most,
    bounds,
    conjunction,
    conjuncts,
    const,
    less_than,
    predicate_variables,
    prove,
    terms_of,
    variables,
)
from graphflow.base.errors import VerifyError
from graphflow.schedule import fresh_name, names_in
from graphflow.tir import (
    Allocate,
    Assume,
    Block,
    Body,
    Buffer,
    Comparison,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    LoopKind,
    Param,
    PrimFunc,
    Role,
    Stmt,
    Store,
    accesses,
    buffers_of,
    expressions_of,
    is_predicate,
    map_body,
    nest,
    rename_buffers,
    stmt_text,
    substitute_body,
    walk,
    walk_expr,
)

WIDEST = (-(2**31), 2**31 - 1)
"""The values that a scalar may have at most: products of them and of strides are exact in the 64
bits of an address."""


def program_kernel(func: PrimFunc) -> PrimFunc:
    """The kernel that a program calls for `func`; `func` itself where it needs no change.

    A scalar becomes an input of one int64, and its value the variable of a matched loop over the
    values that the kernel's assumptions permit.  An `inout` parameter becomes an input and an
    output (`output_names`), which begins as a copy of it.  A window becomes a dense array.

    Raises VerifyError where the iterations of a parallel loop are not proven to access separate
    parts of an `inout` parameter along one axis, and where what the kernel assumes of the elements
    of an input depends on a scalar.
    """
    func = _dense(func)
    return _with_copies(_with_values(func) if func.scalars else func)


def output_names(func: PrimFunc) -> dict[str, str]:
    """The name of the output that `program_kernel` makes of each `inout` parameter, by its name."""
    taken = {buffer.name for buffer in buffers_of(func)} | {var.name for var in func.scalars}
    taken |= set(names_in(func.body))
    return {
        p.buffer.name: fresh_name(f"{p.buffer.name}_out", taken.__contains__)
        for p in func.params
        if p.role is Role.INOUT
    }


def scalar_conditions(func: PrimFunc) -> tuple[Predicate, ...]:
    """What a run has to check of the scalars: what the kernel assumes of them wherever it runs, and
    the limits of `WIDEST` where they do not follow."""
    found = tuple(part for a in _assumed(func.body, func) for part in conjuncts(_claim(a)))
    free = _limits(found, dict.fromkeys(func.scalars, (None, None)))
    wide = []
    for var, (low, high) in free.items():
        wide += [at_most(const(WIDEST[0]), var)] if low is None or low < WIDEST[0] else []
        wide += [at_most(var, const(WIDEST[1]))] if high is None or high > WIDEST[1] else []
    return tuple(dict.fromkeys((*found, *wide)))


# ---- windows


def _dense(func: PrimFunc) -> PrimFunc:
    if not any(param.strided for param in func.params):
        return func
    return replace(func, params=tuple(replace(param, strided=False) for param in func.params))


# ---- parameters that are read and written


def _with_copies(func: PrimFunc) -> PrimFunc:
    names = output_names(func)
    if not names:
        return func
    made = {b: replace(b, name=names[b.name]) for b in func.outputs if b.name in names}
    params: list[Param] = []
    for param in func.params:
        if param.role is Role.INOUT:
            params.append(replace(param, role=Role.INPUT))
            params.append(Param(made[param.buffer], Role.OUTPUT))
        else:
            params.append(param)
    new = replace(func, params=tuple(params), body=rename_buffers(func.body, made))
    for before, after in made.items():
        new = replace(new, body=_copied(new, before, after))
    return new


def _copied(func: PrimFunc, before: Buffer, after: Buffer) -> Body:
    """The body of `func` behind a copy of `before` to `after`.

    Where the work is a parallel loop, each iteration copies the part that it accesses.
    """
    used = {*names_in(func.body), *(var.name for var in func.scalars)}
    wanted = (f"{after.name}_{axis}" for axis in range(len(after.shape)))
    index = [Var(fresh_name(name, used.__contains__)) for name in wanted]
    loops = list(zip(index, after.shape, strict=True))
    store = Store(after, tuple(index), Load(before, tuple(index)))
    loop = _parallel_loop(func.body)
    if loop is None:
        name = fresh_name(f"{before.name}_copy", used.__contains__)
        return (Block(name, nest(loops, (store,))), *func.body)
    axis, part = _separate_part(func, loop, after)
    own = loops[axis][0]
    copy: Body = nest(loops[axis + 1 :], (store,))
    start = (loop.var - loop.start) * part
    copy = (For(own, start, start + part, LoopKind.SERIAL, copy),)
    copy = nest(loops[:axis], copy)
    return _inside_parallel(func.body, lambda body: (*copy, *body))


def _separate_part(func: PrimFunc, loop: For, buffer: Buffer) -> tuple[int, int]:
    """An axis of `buffer`, and the extent of the part along it that each iteration accesses: `part`
    elements from `part` times the number of the iteration on."""
    count = loop.extent
    touched = [a for a in accesses(func.body) if a.buffer == buffer]
    for axis, extent in enumerate(buffer.shape):
        if not count or extent % count:
            continue
        start = (loop.var - loop.start) * (extent // count)
        if all(
            prove(
                conjunction(
                    (
                        at_least_zero(a.indices[axis] - start),
                        less_than(a.indices[axis], start + extent // count),
                    )
                ),
                a.domain,
            ).proven
            for a in touched
        ):
            return axis, extent // count
    raise VerifyError(
        f"{func.name}: the iterations of the parallel loop {loop.var} are not proven to access "
        f"separate equal parts of {buffer.name}, which begins as a copy of an inout parameter, "
        "along one of its axes; make the loop serial"
    )


def _parallel_loop(body: Body) -> For | None:
    return next((s for s in walk(body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL), None)


def _inside_parallel(body: Body, change: Callable[[Body], Body]) -> Body:
    """`body` with the body of its parallel loop changed."""

    def at(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
            return replace(stmt, body=change(stmt.body))
        return stmt

    return map_body(body, at)


# ---- scalars


def _with_values(func: PrimFunc) -> PrimFunc:
    """The kernel with an input for each scalar, and its work inside a matched loop over each."""
    conditions = scalar_conditions(func)
    limits = _limits(conditions, dict.fromkeys(func.scalars, WIDEST))
    domain = Domain(
        tuple(Axis(v, const(low or 0), const((high or 0) + 1)) for v, (low, high) in limits.items())
    )
    needed = conjunction(c for c in conditions if not prove(c, domain).proven)
    inputs = {var: Buffer(var.name, (), "int64") for var in func.scalars}
    for var in inputs:
        if any(b.name == var.name for b in buffers_of(func)):
            raise VerifyError(f"{func.name} has a scalar and a buffer called {var}; rename one")
    head, body = _split_head(func, _without(func.body, set(_assumed(func.body, func))))
    loop = _parallel_loop(body)

    def matched(inner: Body) -> Body:
        made = [s for s in inner if isinstance(s, Allocate)]
        work = tuple(s for s in inner if not isinstance(s, Allocate))
        if needed != TRUE:
            work = (If(needed, work),)
        for var, (low, high) in reversed(limits.items()):
            assert low is not None and high is not None
            test = Comparison("eq", IndexValue(var, "int64"), Load(inputs[var], ()))
            found = (If(test, work),)
            work = (For(var, const(low), const(high + 1), LoopKind.SERIAL, found),)
        return (*made, *work)

    if loop is None:
        body = matched(body)
    else:
        body = _inside_parallel(_with_constant_bounds(body, limits), matched)
    params = (*func.params, *(Param(inputs[var], Role.INPUT) for var in func.scalars))
    return replace(func, params=params, body=(*head, *body), scalars=())


def _with_constant_bounds(body: Body, limits: Mapping[Var, Interval]) -> Body:
    """`body` with constant bounds of its parallel loop, and a condition where they were none."""

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.kind is not LoopKind.PARALLEL:
            return stmt
        if not variables(stmt.start) | variables(stmt.stop):
            return stmt
        low, high = bounds(stmt.start, limits)[0], bounds(stmt.stop, limits)[1]
        assert low is not None and high is not None
        runs = conjunction((at_most(stmt.start, stmt.var), less_than(stmt.var, stmt.stop)))
        return replace(
            stmt, start=const(low), stop=const(max(low, high)), body=(If(runs, stmt.body),)
        )

    return map_body(body, change)


def _assumed(body: Body, func: PrimFunc) -> Iterator[Assume]:
    """The assumptions about scalars alone that are made whenever `body` runs."""
    for stmt in body:
        match stmt:
            case Block():
                yield from _assumed(stmt.body, func)
            case Assume(unless=unless, claim=Literal(value=False)) if is_predicate(unless):
                if predicate_variables(unless) <= set(func.scalars):  # type: ignore[arg-type]
                    yield stmt
            case _:
                pass


def _claim(stmt: Assume) -> Predicate:
    assert is_predicate(stmt.unless)
    return stmt.unless  # type: ignore[return-value]


def _without(body: Body, gone: set[Assume]) -> Body:
    def change(stmt: Stmt) -> Body:
        match stmt:
            case Assume() if stmt in gone:
                return ()
            case Block() if not stmt.body:
                return ()
            case _:
                return (stmt,)

    return map_body(body, change)


def _split_head(func: PrimFunc, body: Body) -> tuple[Body, Body]:
    """The stages that only assume something of elements, in front of all others, and the rest.

    They stay outside the matched loops, because the compiler runs their loops to find the elements.
    """
    count = 0
    while count < len(body) and _only_assumes(func, body[count]):
        count += 1
    head, rest = body[:count], body[count:]
    for stmt in walk(rest):
        loads = _claimed(stmt) if isinstance(stmt, Assume) else []
        if loads and all(load.buffer in func.inputs for load in loads):
            raise VerifyError(
                f"{func.name}: `{stmt_text(stmt)}` is about the elements of an input, and stands "
                "behind other statements or depends on a scalar; put it in front, without scalars"
            )
    return head, rest


def _claimed(stmt: Assume) -> list[Load]:
    return [e for claim in expressions_of(stmt) for e in walk_expr(claim) if isinstance(e, Load)]


def _only_assumes(func: PrimFunc, stmt: Stmt) -> bool:
    kinds = (Assume, Block, For, If)
    if not all(isinstance(inner, kinds) for inner in walk((stmt,))):
        return False
    return substitute_body((stmt,), dict.fromkeys(func.scalars, const(0))) == (stmt,)


def _limits(conditions: Iterable[Predicate], known: Mapping[Var, Interval]) -> dict[Var, Interval]:
    """The interval of each variable that linear conditions leave of the `known` ones."""
    found = dict(known)
    sides = [side for condition in conditions for side in _sides(condition)]
    for _ in range(len(found) + 1):
        for side in sides:
            for atom, k in terms_of(side)[0]:
                if isinstance(atom, Var) and atom in found:
                    most = bounds(side - atom * k, found)[1]
                    if most is not None:
                        found[atom] = _cut(found[atom], -most, k)
    return found


def _sides(condition: Predicate) -> tuple[IndexExpr, ...]:
    """The expressions that are at least zero where a condition holds."""
    match condition:
        case AtLeastZero(expr=expr):
            return (expr,)
        case IsZero(expr=expr):
            return (expr, -expr)
        case _:
            return ()


def _cut(interval: Interval, least: int, k: int) -> Interval:
    """The part of an interval in which `k` times a number is at least `least`."""
    low, high = interval
    if k > 0:
        end = -(-least // k)
        return (end if low is None else max(low, end)), high
    end = least // k
    return low, (end if high is None else min(high, end))
