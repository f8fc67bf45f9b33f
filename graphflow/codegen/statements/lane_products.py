"""Products of bytes in lanes that are added to the same sums, up to four in one dot product.

In: the calls of an unrolled nest that adds products of bytes in lanes to sums which are kept in the
order of `transposed_sums`.  Out: their instructions.  A dot product adds up four bytes for each
lane, of which a product alone needs one.  So the 16 bytes of up to four products lie one after
another in a vector, and one shuffle (vpermb) puts the four bytes of a lane next to each other:

    before:  dot(c, a0 a0 a0 a0, w0 where chosen); dot(c, a1 …); dot(c, a2 …)
    after:   dot(c, lanes of (a0 a1 a2 0), lanes of (w0 w1 w2 0))

Neighbouring sums over windows one element apart meet the same bytes one term later, so that four
places serve two sums: the weights of one are those of the other a byte further, and a weight of 0
meets the place that a sum does not.

What always holds: sums of integers do not depend on the order of their terms.  The calls of a nest
write sums in registers alone, which no call of it reads as an operand, so all operands may be
loaded before any sum is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from graphflow import tir
from graphflow.codegen.avx512 import ordered_bytes
from graphflow.codegen.call_operands import CallOperands
from graphflow.codegen.memory import Address, Memory
from graphflow.codegen.transposed_sums import LANE_ORDER, LANES, SIDE
from graphflow.codegen.x86_instructions import dot_product
from graphflow.llvm import IrBuilder, IrValue, int_constant

Products: TypeAlias = "list[CallOperands]"
"""Products that are added to the same sums."""

BY_LANES = [LANES * tap + element for element in LANE_ORDER for tap in range(SIDE)]
"""By the bytes of a vector whose lanes have those of `SIDE` products each, in the order of sums:
where they are in the vector that has these products one after another."""

NO_BYTES = IrValue("zeroinitializer", "i8", LANES)


def adds_products(stmt: tir.Stmt, product: tir.PrimFunc) -> bool:
    """Whether an unrolled nest consists of calls of `product`, some of them under a condition."""
    match stmt:
        case tir.For(kind=tir.LoopKind.UNROLLED, body=body):
            return all(adds_products(inner, product) for inner in body)
        case tir.If(then=body, orelse=()) if tir.is_predicate(stmt.condition):
            return all(adds_products(inner, product) for inner in body)
        case tir.Call(definition=definition):
            return definition == product
        case _:
            return False


def emit_together(calls: Sequence[CallOperands], builder: IrBuilder, memory: Memory) -> Products:
    """Emit the products that are added together; what is left are products to be emitted alone."""
    by_sum: dict[Address, Products] = {}
    for call in calls:
        by_sum.setdefault(call.addresses["c"], []).append(call)
    alone: Products = []
    groups: list[Products] = []
    for products in by_sum.values():
        for begin in range(0, len(products), SIDE):
            group = products[begin : begin + SIDE]
            if len({call.addresses["a"] for call in group}) < max(2, len(group)):
                alone += group
            else:
                groups.append(group)
    while groups:
        group = groups.pop(0)
        places = _places(group)
        together = [group]
        for other in groups:
            joint = [*places, *(place for place in _places(other) if place not in places)]
            if len(joint) <= SIDE:
                places, together = joint, [*together, other]
        groups = [other for other in groups if not any(other is one for one in together)]
        data = _in_lanes(places, builder, memory)
        for one in together:
            weights = _weights(one, places, builder, memory)
            one[0].store("c", dot_product(one[0], LANES, data, weights))
    return alone


def _places(group: Products) -> list[Address]:
    return [call.addresses["a"] for call in group]


def _weights(group: Products, places: list[Address], builder: IrBuilder, memory: Memory) -> IrValue:
    """The weights of a group in lanes, each where the byte that it meets has its place."""
    found = [places.index(place) for place in _places(group)]
    weights = [call.addresses["b"] for call in group]
    first = found[0]
    if found != [*range(first, first + len(found))]:
        by_place = dict(zip(found, weights, strict=True))
        return _in_lanes([by_place.get(k) for k in range(len(places))], builder, memory)
    if all(at.place.read_only for at in weights):
        packed = builder.remembered_in_block(
            ("weights in lanes", *weights), lambda: _in_lanes(weights, builder, memory)
        )
    else:  # others may lie there since
        packed = _in_lanes(weights, builder, memory)
    if first == 0:
        return packed
    words = builder.emit(f"bitcast {packed.type} {packed.text} to <{LANES} x i32>", "i32", LANES)
    moved = builder.binary("shl", words, builder.splat(int_constant(8 * first, "i32"), LANES))
    return builder.emit(
        f"bitcast {moved.type} {moved.text} to {packed.type}", packed.element, packed.lanes
    )


def _in_lanes(places: Sequence[Address | None], builder: IrBuilder, memory: Memory) -> IrValue:
    """The bytes at up to four places, those of a lane next to each other; 0 for None."""
    parts = [NO_BYTES if at is None else memory.load_window(at, LANES) for at in places]
    parts += [NO_BYTES] * (SIDE - len(parts))
    return ordered_bytes(builder, builder.joined(parts), BY_LANES)
