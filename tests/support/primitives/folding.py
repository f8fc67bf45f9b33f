"""A buffer made circular without any condition, and the writes that reads see in a run."""

from random import Random

from graphflow.arith import IndexExpr, floor_mod
from graphflow.base.fields import replace
from graphflow.tir import Allocate, Buffer, PrimFunc, Stmt, map_body, redirect_accesses, walk
from support.kernels.effect_kernels import Event, traced


def folded(func: PrimFunc, size: int) -> tuple[PrimFunc, Buffer, Buffer]:
    """The kernel with the first axis of its first temporary buffer modulo `size`, and the buffer
    before and after."""
    old = next(stmt.buffer for stmt in walk(func.body) if isinstance(stmt, Allocate))
    new = replace(old, shape=(size, *old.shape[1:]))

    def place(indices: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
        return (floor_mod(indices[0], size), *indices[1:])

    def allocated(stmt: Stmt) -> Stmt:
        return Allocate(new) if stmt == Allocate(old) else stmt

    body = map_body(redirect_accesses(func.body, old, new, place), allocated)
    return replace(func, body=body), old, new


def sources(func: PrimFunc, buffer: Buffer, decide: Random) -> list[tuple[object, object]]:
    """For each read of a buffer in a run, in order, the number of the write whose value it sees."""
    events = traced(func, lambda: decide.random() < 0.5).events
    numbers = {id(event): number for number, event in enumerate(events)}

    def written(event: Event) -> int | None:
        return None if event.source is None else numbers[id(event.source)]

    return [
        (number, written(event))
        for number, event in enumerate(events)
        if event.element[0] == buffer and not event.is_write
    ]
