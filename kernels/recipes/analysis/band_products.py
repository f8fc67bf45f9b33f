"""Kernels of several stages, two of which sum products for the same rows.

In: a definition whose stages follow each other, such as the scores of an attention, their softmax,
and the sums of values.  Out: its `RowBands`: the schedule in which the stages meet at the loops
that all of them share, and the sums of products among them; else the refusal.

What always holds: the innermost shared loop runs over the rows of a band, which become lanes.  What
varies with the row is in vectors, and of what does not an element serves a whole band.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var, variables
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.roles import counted_factors, roles_of
from graphflow.kernels.recipes.analysis.shared_loops import joined_stages
from graphflow.schedule import Handle, Refusal, Schedule

ONE_PASS = "one pass over bands of rows"
"""The name of variants that compute all sums of products of a band before those of the next one."""


class BandProduct(Struct, frozen=True):
    """A stage that sums products.

    `update` is the reduction.  Of the loops behind those that are shared, `outer` and `own` run
    over what it sums, `own` the innermost, and `reduction` over what it reduces.  `other` is the
    factor that does not vary with the row.
    """

    update: tir.Reduce
    own: tir.For
    outer: tuple[tir.For, ...]
    reduction: tuple[tir.For, ...]
    other: tir.Load


class RowBands(Struct, frozen=True):
    """The stages met at the `shared` loops, the innermost last, and what sums products in them.

    `across` are the parameters whose elements lie in rows: indexed by the loop over rows.
    """

    schedule: Schedule
    shared: tuple[Handle, ...]
    row: Var
    products: tuple[BandProduct, ...]
    across: tuple[str, ...]


def summed_operands(definition: tir.PrimFunc) -> frozenset[str]:
    """The inputs of a definition that sums products of two of them, and does nothing else but to
    compute with each sum; empty for others."""
    roles = roles_of(definition)
    return frozenset() if roles is None or len(roles.nests) != 1 else roles.factors


@lru_cache(maxsize=1024)
def row_bands_of(definition: tir.PrimFunc) -> RowBands | Refusal:
    """The bands of a definition, or why it has none."""
    try:
        if len({update.buffer for update in _sums(definition)}) < 2:
            raise ScheduleError(f"{definition.name} has no two sums of products")
        return _row_bands_of(definition)
    except ScheduleError as error:
        return Refusal.of(error)


def refused_row_bands(definition: tir.PrimFunc) -> Refusal | None:
    """Why a definition is not computed in bands of rows; None where it can be."""
    found = row_bands_of(definition)
    return found if isinstance(found, Refusal) else None


def rows_of_bands(definition: tir.PrimFunc) -> frozenset[int]:
    """The axes of the outputs that the loop over the rows of bands indexes; none without bands."""
    bands = row_bands_of(definition)
    if isinstance(bands, Refusal):
        return frozenset()
    written = {param.buffer for param in definition.params if param.role is tir.Role.OUTPUT}
    return frozenset(
        axis
        for write in tir.writes_in(bands.schedule.func.body)
        if write.buffer in written
        for axis, index in enumerate(write.indices)
        if index is bands.row
    )


def _row_bands_of(definition: tir.PrimFunc) -> RowBands:
    s, shared = joined_stages(definition)
    if not shared:
        raise ScheduleError(f"no loop is shared by all stages of {definition.name}")
    row = s.loop(shared[-1]).var
    products = tuple(
        product
        for stmt in s.loop(shared[-1]).body
        if isinstance(stmt, tir.For) and (product := _product(stmt, row)) is not None
    )
    if len(products) < 2 or len(products) != len(_sums(s.func)):
        count = len(products)
        raise ScheduleError(
            f"{definition.name} has {count} sums of products in which several rows share a factor"
        )
    params = {param.buffer for param in s.func.params}
    across = (
        access.buffer.name
        for access in tir.accesses(s.func.body)
        if access.buffer in params and any(row in variables(e) for e in access.indices)
    )
    return RowBands(s, shared, row, products, tuple(dict.fromkeys(across)))


def _product(loop: tir.For, row: Var) -> BandProduct | None:
    """The sum of products that a stage is; None where it is none, or its factors both vary with the
    row, or both do not."""
    nest, body = tir.nest_of((loop,))
    reduction, inner = tir.nest_of(tuple(stmt for stmt in body if isinstance(stmt, tir.For)))
    update = inner[0] if len(inner) == 1 else None
    factors = None if update is None else counted_factors(update)
    if not reduction or not isinstance(update, tir.Reduce) or factors is None:
        return None
    varying = [f for f in factors if any(row in variables(e) for e in f.indices)]
    if len(varying) != 1:
        return None
    (other,) = (f for f in factors if f is not varying[0])
    *outer, own = nest
    return BandProduct(update, own, tuple(outer), reduction, other)


def _sums(func: tir.PrimFunc) -> list[tir.Reduce]:
    """The statements of a kernel that sum products."""
    return [x for x in tir.walk(func.body) if isinstance(x, tir.Reduce) and counted_factors(x)]
