"""Zero points taken out of a sum of products of bytes.

In: a kernel that adds up `(x − zx) · (w − zw)` in int32, x and w being bytes.  Out: the kernel that
adds up `x · w` and begins with what the zero points contribute, and the kernels of the sums that
this first value is made of.

    before:  t[i] = b[i]; for k in K(i): t[i] += (x[…] − zx) · (w[…] − zw)
    after:   t[i] = b[i] − zx · Σ w − zw · Σ (x − zx); for k in K(i): t[i] += x[…] · w[…]

Both sums run over the same terms K(i) as the product: at the border of a convolution over those
taps that lie inside the image.  The results are the same bit for bit: integers of 32 bits add and
multiply modulo 2³², where the law of distribution holds, and x, w and their products are exact.

What always holds: zero points are constant along the loops that add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow import tir
from graphflow.arith import (
    TRUE,
    IndexExpr,
    Predicate,
    Var,
    conjunction,
    conjuncts,
    const,
    constant_value,
    holds,
    maximum,
    minimum,
    predicate_variables,
    variables,
)
from graphflow.base.dtypes import BYTES
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.linear_algebra.unscaled_sum import TOTAL, SumOfProducts
from graphflow.kernels.definitions.stages import Loop


class NotSeparable(Exception):
    """Why the zero points of a product stay in its sum."""


class ByteFactor(Struct, frozen=True):
    """A factor `cast(i32, load) − zero`; `zero` is an int32 expression, None for 0."""

    load: tir.Load
    zero: tir.Expr | None

    @property
    def name(self) -> str:
        """The parameter that holds the bytes."""
        return self.load.buffer.name

    @property
    def used(self) -> frozenset[Var]:
        """The loops that the byte depends on."""
        return frozenset(v for e in self.load.indices for v in variables(e))

    @property
    def uniform_zero(self) -> int | None:
        """The zero point, where it is one known integer."""
        if self.zero is None:
            return 0
        return int(self.zero.value) if isinstance(self.zero, tir.Literal) else None


class ByteProduct(Struct, frozen=True):
    """A sum of products of two bytes less their zero points, and the loops of its stage.

    `outer` are the loops over the elements of the sum, `inner` those that add up.
    """

    product: SumOfProducts
    left: ByteFactor
    right: ByteFactor
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    where: tuple[Predicate, ...]

    def swapped(self) -> ByteProduct:
        """The same with its factors exchanged."""
        return replace(self, left=self.right, right=self.left)


def byte_product(product: SumOfProducts) -> ByteProduct | None:
    """The parts of a sum of products of bytes; None where it is none.

    Raises NotSeparable where a zero point varies along the sum.
    """
    factors = [_factor(operand) for operand in product.operands]
    if product.target.dtype != TOTAL or None in factors:
        return None
    left, right = (f for f in factors if f is not None)
    if left.load.buffer == right.load.buffer:
        return None
    over = {v for e in product.update.indices for v in variables(e)}
    loops = [
        (x.var, constant_value(x.stop - x.start) or 0) for x in tir.loops_of(product.block.body)
    ]
    outer = tuple(loop for loop in loops if loop[0] in over)
    inner = tuple(loop for loop in loops if loop[0] not in over)
    for factor in (left, right):
        zero = () if factor.zero is None else (factor.zero,)
        if {v for e in zero for v in tir.expression_variables(e)} - over:
            raise NotSeparable(f"the zero point of {factor.name} varies along the sum")
    return ByteProduct(product, left, right, outer, inner, tuple(_conditions(product.block)))


def _factor(operand: tir.Expr) -> ByteFactor | None:
    match operand:
        case tir.Binary("sub", tir.Cast(tir.Load() as load, "int32"), zero):
            known = load.dtype in BYTES and not any(
                isinstance(e, tir.Load) and e.buffer == load.buffer for e in tir.walk_expr(zero)
            )
            return ByteFactor(load, zero) if known else None
        case tir.Cast(tir.Load() as load, "int32") if load.dtype in BYTES:
            return ByteFactor(load, None)
        case _:
            return None


def _conditions(block: tir.Block) -> list[Predicate]:
    """The conditions under which a term is added."""
    found: list[Predicate] = []
    for stmt in tir.walk(block.body):
        if isinstance(stmt, tir.If):
            if stmt.orelse or not tir.is_predicate(stmt.condition):
                raise NotSeparable(
                    "terms are added under a condition that is no condition on indices"
                )
            found += conjuncts(stmt.condition)  # type: ignore[arg-type]
    return found


class Border(Struct, frozen=True):
    """An axis of the sum along which the first and the last positions meet fewer terms.

    `axis` is that of the sum, `var` its loop, of `extent` iterations.  All positions from number
    `low` to the `high` ones at the end meet the same terms, so there are low + 1 + high classes.
    `taps` are the loops of which a class meets some iterations: `mask[class, taps]` is 1 for those.
    """

    axis: int
    var: Var
    extent: int
    low: int
    high: int
    taps: tuple[Loop, ...]
    mask: NDArray[np.int8]

    @property
    def classes(self) -> int:
        """The number of classes of positions."""
        return self.low + 1 + self.high

    def class_of(self, position: IndexExpr) -> IndexExpr:
        """The class of a position: it itself, up to `low`; the last ones follow."""
        first = minimum(position, const(self.low))
        return maximum(first, position - (self.extent - self.classes)) if self.high else first


def borders_of(found: ByteProduct) -> tuple[Border, ...]:
    """The axes along which terms are left out; raises NotSeparable where these are not known one
    axis at a time."""
    axes = {e: axis for axis, e in enumerate(found.product.update.indices)}
    inner = dict(found.inner)
    by_axis: dict[Var, list[Predicate]] = {}
    for condition in found.where:
        used = predicate_variables(condition)
        outside = [v for v in used if v not in inner]
        if len(outside) != 1 or outside[0] not in axes:
            raise NotSeparable(f"the condition {condition} is not one on an axis of the sum")
        by_axis.setdefault(outside[0], []).append(condition)
    extents = dict(found.outer)
    return tuple(
        _border(axes[var], var, extents[var], conditions, found.inner)
        for var, conditions in sorted(by_axis.items(), key=lambda item: axes[item[0]])
    )


def _border(
    axis: int, var: Var, extent: int, conditions: Sequence[Predicate], inner: Sequence[Loop]
) -> Border:
    used = frozenset(v for c in conditions for v in predicate_variables(c))
    taps = tuple(loop for loop in inner if loop[0] in used)
    shape = tuple(n for _, n in taps)

    def is_met(position: int, tap: tuple[int, ...]) -> bool:
        values = {var: position, **dict(zip((v for v, _ in taps), tap, strict=True))}
        return all(holds(condition, values) for condition in conditions)

    rows = np.array(
        [[is_met(position, tap) for tap in np.ndindex(*shape)] for position in range(extent)],
        dtype=np.int8,
    )
    begin, end = _longest_run(rows)
    kept = np.concatenate([rows[: begin + 1], rows[end:]])
    return Border(axis, var, extent, begin, extent - end, taps, kept.reshape(-1, *shape))


def _longest_run(rows: NDArray[np.int8]) -> tuple[int, int]:
    """The longest run of equal rows: its first one, and the one behind it."""
    changes = [at for at in range(1, len(rows)) if (rows[at] != rows[at - 1]).any()]
    cuts = [0, *changes, len(rows)]
    return max(pairwise(cuts), key=lambda run: run[1] - run[0])


class Sums(Struct, frozen=True):
    """A kernel of sums over the terms of a product, and where the product reads them.

    `masks` has by input the terms that classes of positions meet.  `result` is the element for an
    element of the product.
    """

    func: tir.PrimFunc
    masks: Mapping[str, NDArray[np.int8]]
    result: tir.Load


def sums_of(
    found: ByteProduct,
    term: tir.Expr,
    start: tir.Expr,
    borders: tuple[Border, ...] | None,
    name: str,
) -> Sums:
    """`name[…] = start; for all terms: name[…] += term`, along the axes that both depend on.

    Along the axes in `borders` there is one element for each class of positions.  Without them
    there is one for each position, and the conditions of the product are those of the sum.
    """
    update = found.product.update
    where = conjunction(found.where) if borders is None else TRUE
    at_border = {border.axis: border for border in borders or ()}
    used = tir.expression_variables(term) | tir.expression_variables(start)
    used |= predicate_variables(where)
    axes = [
        axis
        for axis, e in enumerate(update.indices)
        if axis not in at_border and used & variables(e)
    ]
    masks = {
        axis: tir.Buffer(f"mask{axis}", border.mask.shape, "int8")
        for axis, border in at_border.items()
    }
    value = term
    for axis, border in at_border.items():
        met = tir.Load(masks[axis], (border.var, *(v for v, _ in border.taps)))
        value = tir.Binary("mul", value, tir.Cast(met, TOTAL))
    own = {v for axis in axes for v in variables(update.indices[axis])}
    loops = [(border.var, border.classes) for border in at_border.values()]
    loops += [loop for loop in found.outer if loop[0] in own]
    indices: list[IndexExpr] = [border.var for border in at_border.values()]
    shape = [border.classes for border in at_border.values()]
    reads = [border.class_of(border.var) for border in at_border.values()]
    for axis in axes:
        indices.append(update.indices[axis])
        reads.append(update.indices[axis])
        shape.append(found.product.target.shape[axis])
    out = tir.Buffer(name, tuple(shape), TOTAL)
    stage = stages.reduction_stage(
        name, tir.ReduceOp.ADD, out, loops, found.inner, value,
        indices=indices, init=start, where=where,
    )  # fmt: skip
    read = [e.buffer for x in (term, start) for e in tir.walk_expr(x) if isinstance(e, tir.Load)]
    inputs = [*dict.fromkeys(read), *masks.values()]
    func = stages.kernel_of_stages(name, inputs, (out,), (stage,))
    known = {mask.name: at_border[axis].mask for axis, mask in masks.items()}
    return Sums(func, known, tir.Load(out, tuple(reads)))


def axes_in_place(func: tir.PrimFunc, found: ByteProduct, sums: Sums) -> dict[int, int]:
    """The axes of sums along which each element is read for elements of the kernel's output at the
    same place, with these axes of the output."""
    update = found.product.update
    if not _keeps_places(func, update.buffer):
        return {}
    axes = {e: axis for axis, e in enumerate(update.indices)}
    return {k: axes[e] for k, e in enumerate(sums.result.indices) if e in axes}


def _keeps_places(func: tir.PrimFunc, total: tir.Buffer) -> bool:
    """Whether an element of the output is computed from that of `total` at the same indices."""
    if total in func.outputs:
        return True
    in_place = [
        load
        for write in tir.writes_in(func.body)
        for load in tir.loads_in((write,))
        if write.buffer in func.outputs and load.buffer == total and load.indices == write.indices
    ]
    return len(in_place) == sum(load.buffer == total for load in tir.loads_in(func.body))


def with_plain_products(func: tir.PrimFunc, found: ByteProduct, first: tir.Expr) -> tir.PrimFunc:
    """The kernel `func` that adds up the products of the bytes, the left one first, beginning with
    the value `first`."""
    product = found.product
    value = tir.Binary("mul", tir.Cast(found.left.load, TOTAL), tir.Cast(found.right.load, TOTAL))

    def change(stmt: tir.Stmt) -> tir.Stmt:
        if stmt is product.update:
            return replace(product.update, value=value)
        return replace(product.start, value=first) if stmt is product.start else stmt

    body = tir.map_body(func.body, change)
    read = dict.fromkeys(load.buffer for load in tir.loads_in(body))
    written = {write.buffer for write in tir.writes_in(body)}
    kept = [buffer for buffer in func.inputs if buffer in read]
    added = [buffer for buffer in read if buffer not in kept and buffer not in written]
    return stages.with_inputs(func, (*kept, *added), body)
