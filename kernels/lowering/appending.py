"""Kernels for an input and an output that are one memory: what repeats the input, nothing does.

In: a lowered kernel that repeats elements of an input at the same places of an output.  Out: the
kernel without that:

    for r in serial(0, 96): y[r] = x[r]         →
    y[size] = new                                   y[size] = new

What always holds: where the output's memory holds the input before, it holds after the kernel what
the other kernel writes.  It is proven that the input is read only to be repeated, and that nothing
is written before it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace


class Repeated(Struct, frozen=True):
    """An input of a kernel, by name, that an output repeats; both lie in the same order of axes."""

    source: str
    target: str


def repeats(func: tir.PrimFunc, repeated: Repeated) -> bool:
    """Whether a kernel repeats some element of the source at its own indices."""
    source, target = func.param(repeated.source), func.param(repeated.target)
    return any(_repeats(stmt, source, target) for stmt in tir.walk(func.body))


def appending(func: tir.PrimFunc, repeated: Repeated) -> tir.PrimFunc:
    """The kernel for an output whose memory holds the input already; it does not read the input.

    Raises ScheduleError, with the reason, where that is not proven to be the same.
    """
    source, target = func.param(repeated.source), func.param(repeated.target)
    assert (source.dtype, len(source.shape)) == (target.dtype, len(target.shape))
    if any(load.buffer == target for load in tir.loads_in(func.body)):
        raise ScheduleError(f"it reads {target.name} besides writing it")
    copies = [s for s in tir.walk(func.body) if _repeats(s, source, target)]
    if len(copies) < sum(load.buffer == source for load in tir.loads_in(func.body)):
        raise ScheduleError(
            f"it does not only repeat elements of {source.name} at the same places of {target.name}"
        )
    if not _repeats_first(func.body, source, target):
        raise ScheduleError(f"it may write {target.name} before it repeats {source.name}")
    body = tir.map_body(func.body, lambda s: () if _repeats(s, source, target) else _kept(s))
    return replace(func, body=body)


def _repeats(stmt: tir.Stmt, source: tir.Buffer, target: tir.Buffer) -> bool:
    """Whether a statement stores an element of `source` at its own place in `target`."""
    return (
        isinstance(stmt, tir.Store)
        and stmt.buffer == target
        and stmt.value == tir.Load(source, stmt.indices)
    )


def _kept(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
    """The statement, or nothing where nothing is left in it."""
    if isinstance(stmt, tir.For | tir.If | tir.Block) and not any(tir.sub_bodies(stmt)):
        return ()
    return stmt


def _repeats_first(body: tir.Body, source: tir.Buffer, target: tir.Buffer) -> bool:
    """Whether each store to `target` that is not of `source` follows all that are.

    Iterations of a parallel loop do not write the same elements, so each is looked at alone.
    """
    is_written = False
    for stmt in body:
        stores = [s for s in tir.writes_in((stmt,)) if s.buffer == target]
        repeats = [s for s in stores if _repeats(s, source, target)]
        if repeats and is_written:
            return False
        if 0 < len(repeats) < len(stores):
            if isinstance(stmt, tir.For) and stmt.kind is not tir.LoopKind.PARALLEL:
                return False
            if not all(_repeats_first(part, source, target) for part in tir.sub_bodies(stmt)):
                return False
        is_written = is_written or len(repeats) < len(stores)
    return True


def writes_behind(
    func: tir.PrimFunc, repeated: Repeated, axis: int, count: str, sizes: Collection[str]
) -> bool:
    """Whether all rows of the output that a kernel writes are proven to be at or behind `count`.

    `count` is the input that holds how many rows of the source a run gives along `axis`; `sizes`
    are inputs that hold numbers which are not negative.
    """
    target, most = func.param(repeated.target), func.param(repeated.source).shape[axis]
    places = {loop.var: value for loop in tir.loops_of(func.body) for value in _value(loop)}
    for access in tir.accesses(func.body):
        if access.kind is tir.AccessKind.READ or access.buffer != target:
            continue
        row, ranges = access.indices[axis], access.domain.ranges()
        least = arith.bounds(row, ranges)[0]
        if least is not None and least >= most:
            continue
        value = places.get(row) if isinstance(row, arith.Var) else None
        if value is None or not _is_behind(value, count, sizes, ranges):
            return False
    return True


def _value(loop: tir.For) -> Iterator[tir.Expr]:
    """The value that the variable of a matched loop has."""
    value = tir.matched_value(loop)
    if value is not None:
        yield value


def _is_behind(
    value: tir.Expr,
    count: str,
    sizes: Collection[str],
    ranges: Mapping[arith.Var, arith.Interval],
) -> bool:
    """Whether a sum has `count` in it, and nothing that may be negative."""
    names: list[str] = []
    for term in _terms(value):
        match term:
            case tir.Load(buffer=buffer, indices=()):
                names.append(buffer.name)
            case tir.IndexValue():
                least = arith.bounds(term.index, ranges)[0]
                if least is None or least < 0:
                    return False
            case _:
                return False
    return count in names and set(names) <= {count, *sizes}


def _terms(value: tir.Expr) -> Iterator[tir.Expr]:
    if isinstance(value, tir.Binary) and value.op == "add":
        yield from _terms(value.left)
        yield from _terms(value.right)
    else:
        yield value
