"""Products of dequantized tensors as sums of integers.

In: a graph in which products read what other kernels dequantize, or shift by a zero point.  Out:
the products read the stored integers themselves, and add up in int32.

    before:  x = f32(i32(q) − zx) · sx; w likewise; y = b + Σ x · w
    after:   n = Σ (i32(q) − zx) · (i32(p) − zw); y = f32(n) · (sx · sw) + b

`kernels/definitions/linear_algebra/unscaled_sum.py` has the kernels, and the error of the sum of
scaled numbers; a sum of numbers that are only shifted stays bit for bit what it was.  What must be
proven: the scales are constant along the loops that add up, and no sum of terms leaves int32.
"""

from __future__ import annotations

from math import prod

import numpy as np

from graphflow import tir
from graphflow.arith import Var
from graphflow.base.dtypes import BYTES, integer_limits
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.quantized.dequantized import (
    EXACT,
    Dequantized,
    Floats,
    dequantized,
    known_elements,
    known_floats,
    uniform_integer,
    with_inlined,
)
from graphflow.kernels.definitions.linear_algebra.unscaled_sum import (
    NotUnscalable,
    ScaledProduct,
    SumOfProducts,
    scaled_product,
    sum_of_products,
    unscaled,
)

SCALE_ERROR = 2.0**-22
"""How far the scale of a bias may be from the product of the operands' scales, relatively.

Quantizers compute it in double precision or as a quotient, so that it is off by a rounding or two.
A bias is then off by as much as one that meets that many roundings in a sum of floats."""


def with_integer_products(graph: OperatorGraph, scaled: bool) -> int:
    """Let products in `graph` read stored integers; returns how many do.

    Without `scaled`, only those of numbers that are shifted by a zero point.  The results, and the
    reasons where a product of dequantized numbers stays one of floats, are noted in
    `graph.integer_products`.
    """
    changes = 0
    for node in graph.topological():
        try:
            product = sum_of_products(node.func) if node.has_definition else None
        except NotUnscalable:
            continue
        if product is None or graph.is_constant(node.outputs[0]):
            continue
        operands = _operands(graph, node, product)
        if not operands:
            continue
        changes += _rewritten(graph, node, product, operands, scaled)
    return changes


def _operands(graph: OperatorGraph, node: Node, product: SumOfProducts) -> list[Dequantized]:
    """The operands of a product that are dequantized or shifted."""
    found = []
    for operand in product.operands:
        if isinstance(operand, tir.Load) and operand.buffer.name in node.bound:
            known = dequantized(graph, node.bound[operand.buffer.name])
            found += [] if known is None else [known]
    return found


def _rewritten(
    graph: OperatorGraph,
    node: Node,
    product: SumOfProducts,
    operands: list[Dequantized],
    scaled: bool,
) -> bool:
    """Exchange the kernel of a node, or note why it stays."""
    value = node.outputs[0]
    if product.target.dtype == EXACT:
        values = [known.maker.outputs[0] for known in operands]
        graph.replace(node.name, with_inlined(graph, node, values))
        return True
    if not scaled:
        return False
    try:
        made = _unscaled(graph, node, product, operands)
    except NotUnscalable as error:
        graph.integer_products[value] = str(error)
        return False
    graph.replace(node.name, made)
    graph.integer_products[value] = ""
    return True


def _unscaled(
    graph: OperatorGraph, node: Node, product: SumOfProducts, operands: list[Dequantized]
) -> Node:
    """The node with a sum of integers; raises NotUnscalable with the reason if it has none."""
    if len(operands) < 2:
        (known,) = operands
        raise NotUnscalable(
            f"only one operand of the product is dequantized, {known.maker.outputs[0]}"
        )
    for known in operands:
        if known.stored.dtype not in BYTES:
            raise NotUnscalable(f"{known.source} is of {known.stored.dtype}, and not of bytes")
    values = [known.maker.outputs[0] for known in operands]
    start = product.start.value
    first = None
    if isinstance(start, tir.Load):
        first = dequantized(graph, node.bound.get(start.buffer.name, ""))
        if first is not None and first.stored.dtype == EXACT:
            values.append(first.maker.outputs[0])
    wide = with_inlined(graph, node, values)
    found = scaled_product(wide.func)
    begins = _begins_with_integers(graph, wide, found)
    _require_fits(graph, operands, found, first if begins else None)
    func = unscaled(wide.func, found, begins)
    bound = wide.bound
    inputs = tuple(bound[buffer.name] for buffer in func.inputs)
    return Node(wide.name, wide.op, func, inputs, wide.outputs, wide.origins)


def _begins_with_integers(graph: OperatorGraph, node: Node, found: ScaledProduct) -> bool:
    """Whether the first value is an integer whose scale is the product of the operands' ones, in
    float32, and known to be."""
    if found.start_factors is None or found.scale is None:
        return False
    shape = found.product.target.shape
    own = elements_of(graph, node, found.start_factors[1], shape)
    scale = elements_of(graph, node, found.scale, shape)
    if own is None or scale is None:
        return False
    return bool(np.allclose(own, scale, rtol=SCALE_ERROR, atol=0.0))


def elements_of(
    graph: OperatorGraph, node: Node, expr: tir.Expr, shape: tuple[int, ...]
) -> Floats | None:
    """The elements of a product of constants over the axes of `shape`, broadcast along the others;
    None where an element is not known."""
    match expr:
        case tir.Binary("mul", left, right):
            sides = (elements_of(graph, node, side, shape) for side in (left, right))
            one, other = sides
            return None if one is None or other is None else one * other
        case tir.Load(buffer, indices):
            array = known_floats(graph, node.bound.get(buffer.name))
            if array is None:
                return None
            return _broadcast(array, indices, len(shape))
    return None


def _broadcast(array: Floats, indices: tuple[object, ...], rank: int) -> Floats | None:
    """The elements of a constant that is indexed by at most one axis's variable."""
    if array.size == 1:
        return array.reshape((1,) * rank)
    place = [
        (k, index)
        for k, index in enumerate(indices)
        if isinstance(index, Var) and array.shape[k] == array.size
    ]
    if len(place) != 1:
        return None
    ((_, var),) = place
    axis = int(var.name[1:])
    return array.reshape([-1 if k == axis else 1 for k in range(rank)])


def _require_fits(
    graph: OperatorGraph,
    operands: list[Dequantized],
    found: ScaledProduct,
    first: Dequantized | None,
) -> None:
    """Raise NotUnscalable where a sum of terms, in any order, may leave int32."""
    most = [_magnitude(graph, known) for known in operands]
    start = 0
    if first is not None:
        start = _magnitude(graph, first)
    bound = prod(most) * found.product.terms + start
    if bound >= 2**31:
        raise NotUnscalable(
            f"{found.product.terms} products of up to {most[0]} and {most[1]} may leave int32: "
            f"their sum is proven to be at most {bound}"
        )


def _magnitude(graph: OperatorGraph, known: Dequantized) -> int:
    """The most that an integer less its zero point is in magnitude."""
    lowest, highest = integer_limits(known.stored.dtype)
    array = known_elements(graph, known.source)
    if array is not None and array.size:
        lowest, highest = int(array.min()), int(array.max())
    zero = uniform_integer(graph, known.zero_value)
    least, greatest = (zero, zero) if zero is not None else integer_limits(known.stored.dtype)
    if zero is None:
        zeros = known_elements(graph, known.zero_value)
        if zeros is not None and zeros.size:
            least, greatest = int(zeros.min()), int(zeros.max())
    return max(abs(highest - least), abs(lowest - greatest))
