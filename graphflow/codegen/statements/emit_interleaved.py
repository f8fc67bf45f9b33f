"""Stores by turns: several stores of a vectorized loop that fill whole vectors together.

In: consecutive stores whose lanes write every k-th element, k stores one element apart each.  Out:
one vector of all values in the order of memory, stored as it is.

    before:  for c in vectorized(0, 16): y[2*c] = a[c]; y[2*c + 1] = b[c]
    after:   y[0:32] = (a[0], b[0], a[1], b[1], …)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.emit_memory import Memory
from graphflow.llvm import IrBuilder, IrValue
from graphflow.tir import Load, Stmt, Store, walk_expr


def stores_by_turns(body: Sequence[Stmt], mask: Mask, memory: Memory) -> tuple[Store, ...]:
    """The stores with which `body` begins that write neighbouring elements by turns, in the order
    of the elements in memory; empty if it begins with something else.

    Between the stores nothing that they write is read.  The lanes are the first ones of a vector.
    """
    first = body[0]
    if not isinstance(first, Store) or not any(isinstance(s, Store) for s in body[1:2]):
        return ()
    if not mask.is_prefix or mask.count < 2:
        return ()
    address = memory.address(first.buffer, first.indices)
    step = address.stride
    if step is None or not 2 <= step <= len(body):
        return ()
    placed: dict[int, Store] = {}
    for stmt in body[:step]:
        if not isinstance(stmt, Store) or stmt.buffer != first.buffer:
            return ()
        if stmt is not first and _loads(stmt, first.buffer.name):
            return ()
        other = memory.address(stmt.buffer, stmt.indices)
        if replace(other, constant=address.constant) != address:
            return ()
        placed[other.constant] = stmt
    lowest = min(placed)
    if sorted(placed) != [*range(lowest, lowest + step)]:
        return ()
    return tuple(placed[lowest + k] for k in range(step))


def _loads(stmt: Store, name: str) -> bool:
    return any(isinstance(e, Load) and e.buffer.name == name for e in walk_expr(stmt.value))


def store_by_turns(
    stores: Sequence[Store], values: Sequence[IrValue], mask: Mask, memory: Memory
) -> None:
    """Store the lanes of the values, one value for each of `stores`."""
    address = memory.address(stores[0].buffer, stores[0].indices)
    builder = memory.builder
    raw = [builder.splat(memory.stored(address, value), mask.width) for value in values]
    in_order = _by_turns(builder, raw)
    count = len(stores) * mask.count
    for start, lanes in Mask((True,) * count).pieces():
        piece = replace(address, constant=address.constant + start)
        memory.store_window(piece, builder.part(in_order, start, lanes))


def _by_turns(builder: IrBuilder, parts: Sequence[IrValue]) -> IrValue:
    """The first lanes of all the vectors, then the second ones, and so on.

    An even number of vectors goes through shuffles of two, each the turns of half of them, which
    takes `n log n` instructions.
    """
    count, width = len(parts), parts[0].lanes
    if count == 1:
        return parts[0]
    if count % 2:
        joined = builder.joined(parts)
        none = IrValue("poison", joined.element, joined.lanes)
        places = [k % count * width + k // count for k in range(count * width)]
        return builder.shuffled(joined, none, places)
    even, odd = (_by_turns(builder, parts[k::2]) for k in range(2))
    places = [k % 2 * even.lanes + k // 2 for k in range(2 * even.lanes)]
    return builder.shuffled(even, odd, places)
