"""Stores by turns: several stores of a vectorized loop that fill whole vectors together.

In: consecutive stores whose lanes write every k-th element, k stores one element apart each.  Out:
one vector of all values in the order of memory, stored as it is.

    before:  for c in vectorized(0, 16): y[2*c] = a[c]; y[2*c + 1] = b[c]
    after:   y[0:32] = (a[0], b[0], a[1], b[1], …)

Lanes that a condition excludes are left out: of `if 2*c + 1 < 31: y[2*c + 1] = b[c]` the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from graphflow.arith import Predicate
from graphflow.base.fields import replace
from graphflow.codegen.emit_mask import Mask, lanes_where
from graphflow.codegen.memory import Memory
from graphflow.llvm import IrBuilder, IrValue
from graphflow.tir import If, Load, Stmt, Store, is_predicate, walk_expr

MaskedStore: TypeAlias = tuple[Store, Mask]
"""A store, and the lanes that execute it."""


def stores_by_turns(body: Sequence[Stmt], mask: Mask, memory: Memory) -> tuple[MaskedStore, ...]:
    """The stores with which `body` begins that write neighbouring elements by turns, in the order
    of the elements in memory; empty if it begins with something else.

    Between the stores nothing that they write is read.  The lanes are the first ones of a vector;
    conditions by which some stores leave out the last of them are decided by the lane alone.
    """
    if len(body) < 2 or not isinstance(body[0], Store | If) or not isinstance(body[1], Store | If):
        return ()
    found = _store_of(body[0], mask, memory)
    if found is None or not mask.is_prefix or mask.count < 2:
        return ()
    first = found[0]
    address = memory.address(first.buffer, first.indices)
    step = address.stride
    if step is None or not 2 <= step <= len(body):
        return ()
    placed: dict[int, MaskedStore] = {}
    for stmt in body[:step]:
        found = _store_of(stmt, mask, memory)
        if found is None or found[0].buffer != first.buffer:
            return ()
        store = found[0]
        if store is not first and _loads(store, first.buffer.name):
            return ()
        other = memory.address(store.buffer, store.indices)
        if replace(other, constant=address.constant) != address:
            return ()
        placed[other.constant] = found
    lowest = min(placed)
    if sorted(placed) != [*range(lowest, lowest + step)]:
        return ()
    return tuple(placed[lowest + k] for k in range(step))


def _store_of(stmt: Stmt, mask: Mask, memory: Memory) -> MaskedStore | None:
    """A store with the lanes that execute it, where a condition around it is decided for each."""
    match stmt:
        case Store():
            return stmt, mask
        case If(then=(Store() as store,), orelse=()) if is_predicate(stmt.condition):
            predicate = memory.indices.resolved_predicate(cast(Predicate, stmt.condition))
            known = memory.indices.decided(predicate)
            return None if known is None else (store, lanes_where(memory.builder, mask, known))
    return None


def _loads(stmt: Store, name: str) -> bool:
    return any(isinstance(e, Load) and e.buffer.name == name for e in walk_expr(stmt.value))


def store_by_turns(
    stores: Sequence[MaskedStore], values: Sequence[IrValue], memory: Memory
) -> None:
    """Store the lanes of the values, one value for each of `stores`."""
    first, mask = stores[0]
    address = memory.address(first.buffer, first.indices)
    builder = memory.builder
    raw = [builder.splat(memory.stored(address, value), mask.width) for value in values]
    in_order = _by_turns(builder, raw)
    active = tuple(own.active[lane] for lane in range(mask.width) for _, own in stores)
    for start, lanes in Mask(active).pieces():
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
