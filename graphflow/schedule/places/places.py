"""Places of a kernel (loops, blocks, calls, buffers): finding and replacing them.

In: a kernel and a place, which is a name, or the address of a statement without one.  Out: the
statement with its domain, or the kernel with it replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.places import addresses
from graphflow.schedule.places.step_arguments import IndexGiven, index_of


def rewrite_around(func: tir.PrimFunc, place: str, change: effects.Change) -> tir.PrimFunc:
    """`func` with the body around the statement at `place` replaced by what `change` gives."""
    return effects.rewrite_path(func, addresses.path_of(func, place), change)


def rewrite_at(
    func: tir.PrimFunc, place: str, change: Callable[[tir.Stmt, arith.Domain], tir.Body]
) -> tir.PrimFunc:
    """`func` with the statement at `place` replaced by what `change` gives."""

    def around(body: tir.Body, position: int, domain: arith.Domain) -> tir.Body:
        new = change(body[position], domain)
        if len(new) == 1 and new[0] is body[position]:
            return body
        return (*body[:position], *new, *body[position + 1 :])

    return rewrite_around(func, place, around)


def exchange_at(func: tir.PrimFunc, place: str, new: tir.Body) -> tir.PrimFunc:
    """`func` with the statement at `place` replaced by others."""
    path = addresses.path_of(func, place)
    if len(new) == 1 and new[0] is effects.statement_at(func, path):
        return func
    return effects.exchange_path(func, path, new)


def loops_around(func: tir.PrimFunc, place: str) -> tuple[tir.For, ...]:
    """The loops around a statement, from the outermost in."""
    path = addresses.path_of(func, place)
    stmts = (effects.statement_at(func, path[:depth]) for depth in range(1, len(path)))
    return tuple(stmt for stmt in stmts if isinstance(stmt, tir.For))


def stmt_at(func: tir.PrimFunc, place: str) -> tir.Stmt:
    """The statement at `place`; ScheduleError where there is none."""
    return effects.statement_at(func, addresses.path_of(func, place))


def find(func: tir.PrimFunc, place: str) -> tuple[tir.Stmt, arith.Domain]:
    """The statement at `place`, and the domain around it; ScheduleError where there is none."""
    path = addresses.path_of(func, place)
    return effects.statement_at(func, path), effects.domain_at(func, path)


def find_loop(func: tir.PrimFunc, place: str) -> tuple[tir.For, arith.Domain]:
    """The loop over the variable `place`, and the domain around it; else ScheduleError."""
    path = addresses.path_of(func, place)
    return _loop(func, place, path), effects.domain_at(func, path)


def loop_at(func: tir.PrimFunc, place: str) -> tir.For:
    """The loop over the variable `place`; else ScheduleError."""
    return _loop(func, place, addresses.path_of(func, place))


def _loop(func: tir.PrimFunc, place: str, path: effects.Path) -> tir.For:
    stmt = effects.statement_at(func, path)
    if not isinstance(stmt, tir.For):
        what = "a block" if isinstance(stmt, tir.Block) else "no loop"
        raise ScheduleError(f"{place} is {what}, and a loop is needed")
    return stmt


def find_buffer(func: tir.PrimFunc, name: str) -> tir.Buffer:
    """The parameter or allocated buffer called `name`; ScheduleError where there is none."""
    for param in func.params:
        if param.buffer.name == name:
            return param.buffer
    for buffer in tir.buffers_of(replace(func, params=())):
        if buffer.name == name:
            return buffer
    names = ", ".join(buffer.name for buffer in tir.buffers_of(func))
    raise ScheduleError(f"{func.name} has no buffer {name}; it has {names}")


def constant_extent(stmt: tir.For) -> int:
    """The number of iterations of a loop; ScheduleError where that is not a constant."""
    if stmt.extent is None:
        raise ScheduleError(
            f"the loop {stmt.var} runs over ({stmt.start}, {stmt.stop}), not a constant extent"
        )
    return max(stmt.extent, 0)


def in_scope(value: IndexGiven, domain: arith.Domain) -> arith.IndexExpr:
    """An index expression over the variables of a domain; ScheduleError where it uses others."""
    index = index_of(value)
    known = {axis.var for axis in domain.axes}
    strange = sorted(var.name for var in arith.variables(index) if var not in known)
    if strange:
        raise ScheduleError(f"{index} uses {strange[0]}, and no loop around the place binds it")
    return index


def first_in_lanes(func: tir.PrimFunc, place: str, around: Iterable[arith.Var]) -> arith.Var | None:
    """The first of the loops over `around`, those around a place, that is vectorized, or None."""
    holding = func.body[addresses.path_of(func, place)[0][0]]
    kinds = {loop.var: loop.kind for loop in tir.loops_of((holding,))}
    return next((var for var in around if kinds[var] is tir.LoopKind.VECTORIZED), None)
