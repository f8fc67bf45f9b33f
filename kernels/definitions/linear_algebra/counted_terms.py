"""Sums of products both of whose factors are zero from a count on, as sums up to the count.

In: a kernel that multiplies an input that has zeros from a count on with another factor that has:
an input, or what a stage stores.  Out: the kernel whose products have the condition themselves:

    before:  p[i, j] = select(j < count, e[i, j], 0);  for j: y[i, c] += p[i, j] · v[j, c]
    after:   …                      for j: y[i, c] += select(j < count, p[i, j] · v[j, c], 0)

What always holds: both sum the same terms, and the latter does not depend on what the input holds
from the count on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from graphflow import tir
from graphflow.arith import IndexExpr
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages


def with_counted_terms(
    func: tir.PrimFunc,
    zeroed: tir.Buffer,
    axis: int,
    count: tir.Buffer,
    zeros: Mapping[tir.Buffer, Collection[int]] = MappingProxyType({}),
) -> tir.PrimFunc | None:
    """The kernel with conditions on products with the input `zeroed`, which is zero from `count` on
    along its `axis`; None where another statement reads it, or the other factor is not zero there.

    `zeros` are the axes along which other inputs are zero from the count on.
    """
    reads = [load for load in tir.loads_in(func.body) if load.buffer == zeroed]
    sums = [s for s in tir.walk(func.body) if isinstance(s, tir.Reduce) and _reads(s, zeroed)]
    if len(reads) != 1 or len(sums) != 1 or sums[0].op is not tir.ReduceOp.ADD:
        return None
    (update,), (read,) = sums, reads
    key = read.indices[axis]
    if zero_from(update.value, count) == key:
        return func  # the terms have the condition already
    match update.value:
        case tir.Binary(op="mul", left=tir.Load() as left, right=tir.Load() as right):
            other = right if left == read else left
        case _:
            return None
    axes = (*zeros.get(other.buffer, ()), *zeroed_axes(func, other.buffer, count))
    if not any(other.indices[k] == key for k in axes):
        return None
    below = tir.Comparison("lt", tir.IndexValue(key), tir.Load(count, ()))
    value = tir.Select(below, update.value, stages.literal(0, update.buffer.dtype))
    made = replace(update, value=value)
    body = tir.map_body(func.body, lambda stmt: made if stmt is update else stmt)
    return replace(func, body=body)


def _reads(stmt: tir.Stmt, buffer: tir.Buffer) -> bool:
    return any(load.buffer == buffer for load in tir.loads_in((stmt,)))


def zeroed_axes(func: tir.PrimFunc, buffer: tir.Buffer, count: tir.Buffer) -> Iterator[int]:
    """The axes of a buffer along which all that a kernel stores is zero from a count on."""
    writes = [write for write in tir.writes_in(func.body) if write.buffer == buffer]
    if len(writes) != 1 or not isinstance(writes[0], tir.Store):
        return
    key = zero_from(writes[0].value, count)
    yield from (k for k, index in enumerate(writes[0].indices) if index == key)


def zero_from(value: tir.Expr, count: tir.Buffer) -> IndexExpr | None:
    """The index from which on, where it reaches `count`, a value is zero; None if it has none."""
    match value:
        case tir.Select(
            tir.Comparison("lt", tir.IndexValue(index), tir.Load(held, ())), _, tir.Literal(0)
        ) if held == count:
            return index
    return None
