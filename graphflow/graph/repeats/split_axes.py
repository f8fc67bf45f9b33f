"""An axis of a kernel as two: each loop over n elements becomes an outer and an inner one.

In: a kernel, one of its buffers, an axis of that, and how many neighbours stay together.  Out: the
kernel of which that axis, and each that the same loops index, is two.

    before:  for h in 0..8: y[h, i] += a[h, i, k] · b[h, k]
    after:   for o in 0..2: for g in 0..4: y[o, g, i] += a[o, g, i, k] · b[o, g, k]

What always holds: element h of such an axis is element (h // n, h % n) of the two, so a reshape
stands between the old and the new tensor, and every number is computed as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages


class SplitKernel(Struct, frozen=True):
    """The kernel, and the axis of each buffer of the old one that is another in it."""

    func: tir.PrimFunc
    axes: Mapping[tir.Buffer, int]


def split_shape(shape: tuple[int, ...], axis: int, times: int) -> tuple[int, ...]:
    """`shape` with an axis of n elements as two, of n // `times` and `times` elements."""
    return (*shape[:axis], shape[axis] // times, times, *shape[axis + 1 :])


def split_axis(func: tir.PrimFunc, buffer: tir.Buffer, axis: int, times: int) -> SplitKernel | None:
    """`func` with `axis` of `buffer` as two, the inner one of `times` elements.

    None where an index of such an axis is not the variable of a loop over all of it, or where the
    variable has another use.
    """
    found = _axes_together(func.body, buffer, axis)
    if found is None:
        return None
    axes, variables = found
    count = buffer.shape[axis]
    loops = [loop for loop in tir.loops_of(func.body) if loop.var in variables]
    whole = all(arith.constant_value(loop.start) == 0 and loop.extent == count for loop in loops)
    if count % times or not whole or any(b.shape[k] != count for b, k in axes.items()):
        return None
    taken = {buffer.name for buffer in tir.buffers_of(func)}
    taken |= {loop.var.name for loop in tir.loops_of(func.body)}
    pairs: dict[arith.IndexExpr, tuple[arith.Var, ...]] = {}
    for var in sorted(variables, key=lambda var: var.name):
        names = [stages.fresh(f"{var.name}{part}", taken) for part in ("o", "i")]
        taken.update(names)
        pairs[var] = tuple(map(arith.Var, names))
    return _split(func, axes, pairs, count, times)


def shortened_axis(
    func: tir.PrimFunc, buffer: tir.Buffer, axis: int, count: int
) -> SplitKernel | None:
    """`func` for `count` elements along `axis` of `buffer`, and along each that goes with it; None
    where `split_axis` gives none."""
    found = _axes_together(func.body, buffer, axis)
    if found is None or split_axis(func, buffer, axis, buffer.shape[axis]) is None:
        return None
    axes, variables = found
    new = {b: replace(b, shape=(*b.shape[:k], count, *b.shape[k + 1 :])) for b, k in axes.items()}

    def on_stmt(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.For) and stmt.var in variables:
            return replace(stmt, stop=arith.const(count))
        return stmt

    body = tir.rename_buffers(tir.map_body(func.body, on_stmt), new)
    params = tuple(replace(p, buffer=new.get(p.buffer, p.buffer)) for p in func.params)
    return SplitKernel(replace(func, params=params, body=body), axes)


def _axes_together(
    body: tir.Body, buffer: tir.Buffer, axis: int
) -> tuple[dict[tir.Buffer, int], set[arith.Var]] | None:
    """The axes that the same variables index as `axis` of `buffer`, and these variables."""
    axes, variables = {buffer: axis}, set[arith.IndexExpr]()
    accesses = [(access.buffer, access.indices) for access in tir.accesses(body)]
    while True:
        before = len(axes), len(variables)
        for accessed, indices in accesses:
            if accessed in axes:
                variables.add(indices[axes[accessed]])
            places = [place for place, index in enumerate(indices) if index in variables]
            if places and (len(places) > 1 or axes.setdefault(accessed, places[0]) != places[0]):
                return None
        if before == (len(axes), len(variables)):
            break
    found = {index for index in variables if isinstance(index, arith.Var)}
    return (axes, found) if len(found) == len(variables) else None


def _split(
    func: tir.PrimFunc,
    axes: Mapping[tir.Buffer, int],
    pairs: Mapping[arith.IndexExpr, tuple[arith.Var, ...]],
    count: int,
    times: int,
) -> SplitKernel | None:
    """The kernel with a pair of loops for each variable; None where a variable is left over."""
    new = {b: replace(b, shape=split_shape(b.shape, axis, times)) for b, axis in axes.items()}
    body = func.body
    for old, axis in axes.items():
        body = tir.redirect_accesses(body, old, new[old], partial(_place, axis=axis, pairs=pairs))

    def on_stmt(stmt: tir.Stmt) -> tir.Stmt:
        match stmt:
            case tir.Allocate(buffer):
                return tir.Allocate(new.get(buffer, buffer))
            case tir.For(var, start, _, kind, body) if var in pairs:
                outer, inner = pairs[var]
                below = tir.For(inner, start, arith.const(times), kind, body)
                return tir.For(outer, start, arith.const(count // times), kind, (below,))
            case _:
                return stmt

    body = tir.map_body(body, on_stmt)
    params = tuple(replace(p, buffer=new.get(p.buffer, p.buffer)) for p in func.params)
    done = replace(func, params=params, body=body)
    return None if _mentions(body, pairs) else SplitKernel(done, dict(axes))


def _place(
    indices: tuple[arith.IndexExpr, ...],
    axis: int,
    pairs: Mapping[arith.IndexExpr, tuple[arith.Var, ...]],
) -> tuple[arith.IndexExpr, ...]:
    return (*indices[:axis], *pairs[indices[axis]], *indices[axis + 1 :])


def _mentions(body: tir.Body, pairs: Mapping[arith.IndexExpr, tuple[arith.Var, ...]]) -> bool:
    """Whether an index, a bound of a loop or a condition mentions one of some variables."""
    met = set[arith.Var]()

    def on_index(index: arith.IndexExpr) -> arith.IndexExpr:
        met.update(arith.variables(index))
        return index

    def on_predicate(predicate: arith.Predicate) -> arith.Predicate:
        met.update(arith.predicate_variables(predicate))
        return predicate

    tir.map_indices(body, on_index, on_predicate)
    return any(var in pairs for var in met)
