"""Taking scales out of a sum of products, so that integers are added up.

In: a kernel that adds up products of integers which are each converted to float32 and scaled.  Out:
the kernel that adds up the integers in int32, and scales the result once.

    before:  t[i] = b[i]; for k: t[i] += (f32(A) · s) · (f32(B) · u)
    after:   n[i] = 0;    for k: n[i] += A · B
             t[i] = f32(n[i]) · (s · u) + b[i]

A and B are int32 expressions, such as an element less its zero point; s and u are constant along
the loops that add up.  If the first value is an integer in units of s · u, the sum begins with it:

    before:  t[i] = f32(c[i]) · v
    after:   n[i] = c[i]; ...; t[i] = f32(n[i]) · (s · u)

Error.  The caller proves that no partial sum leaves int32, and, where the sum begins with an
integer, that v is the product of s and u but for a few roundings.  Then n is exact, and t meets
three roundings (of n, of s · u and of their product), four with a float as first value.  The sum of
floats meets as many roundings as it has terms and more.  Both differ from the exact number by no
more than their roundings: after a QuantizeLinear, t is at most one step from the exact number, and
from the sum of floats too where that one's roundings come to less than half a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce as fold

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, constant_value, substitute, variables
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.linear_algebra.scaled_sum import axis_variable
from graphflow.kernels.definitions.stages import Loop

TOTAL = "int32"
WIDE = "float32"


class NotUnscalable(Exception):
    """Why no scale can be taken out of the sum of a kernel."""


class SumOfProducts(Struct, frozen=True):
    """The stage of a sum of products of two loads: `block` stores `start` and adds `update`."""

    block: tir.Block
    start: tir.Store
    update: tir.Reduce
    terms: int

    @property
    def target(self) -> tir.Buffer:
        return self.update.buffer

    @property
    def operands(self) -> tuple[tir.Expr, tir.Expr]:
        """What is multiplied."""
        assert isinstance(self.update.value, tir.Binary), "a product is one of two operands"
        return self.update.value.left, self.update.value.right


class ScaledProduct(Struct, frozen=True):
    """A product whose operands are integers, converted and scaled.

    `factors` are the integers, in int32.  `scale` is the product of the scales, over the variables
    of `axis_variable`; None for 1.  `start` is the first value over these variables, None for 0.
    """

    product: SumOfProducts
    factors: tuple[tir.Expr, tir.Expr]
    scale: tir.Expr | None
    start: tir.Expr | None

    @property
    def start_factors(self) -> tuple[tir.Expr, tir.Expr] | None:
        """The first value as an int32 and its scale; None where it is none."""
        if self.start is None:
            return None
        integers, scales = _integers_and_scales(self.start)
        if len(integers) != 1 or len(scales) != 1 or self.scale is None:
            return None
        return integers[0], scales[0]


def sum_of_products(func: tir.PrimFunc) -> SumOfProducts:
    """The sum of products of a kernel; raises NotUnscalable where it has none, or several."""
    updates = [s for s in tir.walk(func.body) if isinstance(s, tir.Reduce)]
    if len(updates) != 1 or len(func.outputs) != 1:
        raise NotUnscalable(f"{func.name} has {len(updates)} sums, and not one")
    (update,) = updates
    value, target = update.value, update.buffer
    if update.op is not tir.ReduceOp.ADD or not (
        isinstance(value, tir.Binary) and value.op == "mul"
    ):
        raise NotUnscalable(f"{func.name} adds up no products of two operands")
    blocks = [
        s
        for s in func.body
        if isinstance(s, tir.Block) and any(w.buffer == target for w in tir.writes_in(s.body))
    ]
    if len(blocks) != 1:
        raise NotUnscalable(f"{target.name} is not computed by one stage")
    (block,) = blocks
    writes = list(tir.writes_in(block.body))
    start = writes[0]
    if len(writes) != 2 or not isinstance(start, tir.Store) or writes[1] is not update:
        raise NotUnscalable(f"the stage of {target.name} does more than store a value and add")
    if start.indices != update.indices or any(
        load.buffer == target for load in tir.loads_in((block,))
    ):
        raise NotUnscalable(f"the stage of {target.name} reads other sums")
    return SumOfProducts(block, start, update, _terms(block, update))


def _terms(block: tir.Block, update: tir.Reduce) -> int:
    """The most products that one element of the sum has."""
    used = {v for index in update.indices for v in variables(index)}
    extents = (
        constant_value(loop.stop - loop.start)
        for loop in tir.loops_of(block.body)
        if loop.var not in used
    )
    count = 1
    for extent in extents:
        if extent is None:
            raise NotUnscalable(f"{update.buffer.name} adds up a number of terms that varies")
        count *= extent
    return count


def scaled_product(func: tir.PrimFunc) -> ScaledProduct:
    """The parts of a sum of scaled integers.

    Raises NotUnscalable where an operand is no such integer, or where a scale varies along the
    loops that add up.
    """
    product = sum_of_products(func)
    target = product.target
    if target.dtype != WIDE:
        raise NotUnscalable(f"{target.name} is a sum of {target.dtype}")
    factors: list[tir.Expr] = []
    scales: list[tir.Expr] = []
    for operand in product.operands:
        integers, factors_of_it = _integers_and_scales(operand)
        if len(integers) != 1:
            raise NotUnscalable(f"an operand of {target.name} is no integer times a scale")
        factors += integers
        scales += [_over_axes(scale, product.update.indices, target) for scale in factors_of_it]
    return ScaledProduct(
        product,
        (factors[0], factors[1]),
        fold(lambda a, b: tir.Binary("mul", a, b), scales) if scales else None,
        _start(product),
    )


def _start(product: SumOfProducts) -> tir.Expr | None:
    value = product.start.value
    if isinstance(value, tir.Literal) and value.value == 0:
        return None
    return _over_axes(value, product.start.indices, product.target)


def _integers_and_scales(expr: tir.Expr) -> tuple[list[tir.Expr], list[tir.Expr]]:
    """The factors of a product that are converted from int32, without the conversion, and the other
    ones."""
    integers, scales = list[tir.Expr](), list[tir.Expr]()
    for factor in _factors(expr):
        if isinstance(factor, tir.Cast) and factor.operand.dtype == TOTAL:
            integers.append(factor.operand)
        else:
            scales.append(factor)
    return integers, scales


def _factors(expr: tir.Expr) -> Iterator[tir.Expr]:
    if isinstance(expr, tir.Binary) and expr.op == "mul":
        yield from _factors(expr.left)
        yield from _factors(expr.right)
    else:
        yield expr


def _over_axes(expr: tir.Expr, target: Sequence[IndexExpr], total: tir.Buffer) -> tir.Expr:
    """An expression in the loops of a sum as one over the axes of what it writes."""
    plain: dict[Var, IndexExpr] = {
        index: axis_variable(axis) for axis, index in enumerate(target) if isinstance(index, Var)
    }

    def moved(index: IndexExpr) -> IndexExpr:
        axis = next((axis for axis, own in enumerate(target) if own is index), None)
        if axis is not None:
            return axis_variable(axis)
        unknown = set(variables(index)) - plain.keys()
        if unknown:
            names = ", ".join(sorted(var.name for var in unknown))
            raise NotUnscalable(
                f"a scale or first value of {total.name} varies along its loop {names}"
            )
        return substitute(index, plain)

    def placed(e: tir.Expr) -> tir.Expr:
        match e:
            case tir.Load():
                return tir.Load(e.buffer, tuple(map(moved, e.indices)))
            case tir.Literal() | tir.Binary() | tir.Unary() | tir.Cast():
                return e
        raise NotUnscalable(f"a scale or first value of {total.name} depends on its loops")

    return tir.map_expr(expr, placed)


def unscaled(func: tir.PrimFunc, found: ScaledProduct, begins: bool) -> tir.PrimFunc:
    """The kernel that adds up integers; with `begins` the sum begins with the integer first value,
    which is then in units of the scale."""
    product, target = found.product, found.product.target
    names = {buffer.name for buffer in tir.buffers_of(func)}
    total = replace(target, name=stages.fresh("total", names), dtype=TOTAL, scope="global")
    first: tir.Expr = stages.literal(0, TOTAL)
    if begins:
        first = tir.map_expr(_integers_and_scales(product.start.value)[0][0], lambda e: e)
    multiplied = tir.Binary("mul", *found.factors)
    exchanged: dict[tir.Stmt, tir.Stmt] = {
        product.start: tir.Store(total, product.start.indices, first),
        product.update: replace(product.update, buffer=total, value=multiplied),
    }
    summed = tir.map_body(product.block.body, lambda stmt: exchanged.get(stmt, stmt))
    scaling = _scaling_stage(func, found, total, begins)
    body: list[tir.Stmt] = []
    for stmt in func.body:
        if stmt is product.block:
            body += [tir.Allocate(total), replace(product.block, body=summed), scaling]
        else:
            body.append(stmt)
    read = {load.buffer for load in tir.loads_in(tuple(body))}
    return stages.with_inputs(func, (b for b in func.inputs if b in read), tuple(body))


def _scaling_stage(
    func: tir.PrimFunc, found: ScaledProduct, total: tir.Buffer, begins: bool
) -> tir.Block:
    """`t[i] = f32(n[i]) · scale + start`, with the first value where the sum has not begun with
    it."""
    taken = {loop.var.name for loop in tir.loops_of(func.body)}
    blocks = {s.name for s in tir.walk(func.body) if isinstance(s, tir.Block)}
    target = found.product.target
    loops: tuple[Loop, ...] = tuple(
        (Var(stages.fresh(f"s{axis}", taken)), extent) for axis, extent in enumerate(target.shape)
    )
    at: dict[Var, IndexExpr] = {axis_variable(k): var for k, (var, _) in enumerate(loops)}

    def placed(e: tir.Expr) -> tir.Expr:
        if isinstance(e, tir.Load):
            return tir.Load(e.buffer, tuple(substitute(index, at) for index in e.indices))
        return e

    value: tir.Expr = tir.Cast(stages.element(total, loops), WIDE)
    if found.scale is not None:
        value = tir.Binary("mul", value, tir.map_expr(found.scale, placed))
    if found.start is not None and not begins:
        value = tir.Binary("add", value, tir.map_expr(found.start, placed))
    name = stages.fresh(f"{found.product.block.name}_scale", blocks)
    return stages.elementwise_stage(name, target, loops, value)
