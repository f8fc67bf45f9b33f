"""Predicates on kernels: elementwise, identity, fill, decided from access relations.

In: a PrimFunc.  Out: whether it has the property.  What always holds: operator names play no part,
so two kernels with the same body get the same answer.
"""

from __future__ import annotations

from graphflow.arith import Var
from graphflow.base.fields import replace
from graphflow.tir import (
    AccessKind,
    Allocate,
    Buffer,
    Expr,
    Load,
    PrimFunc,
    Store,
    accesses,
    in_order_store,
    map_expr,
    only_moves,
    substitute_body,
    walk,
    writes_in,
)


def elementwise_store(func: PrimFunc) -> Store | None:
    """The one store of an elementwise kernel; None for any other kernel.

    Elementwise: one output, one perfect loop nest over its axes, each from 0 to the extent, and in
    it a single store whose indices are the loop variables in order.
    """
    if len(func.outputs) != 1:
        return None
    return in_order_store(func.body, func.outputs[0].shape)


def composed_store(func: PrimFunc) -> Store | None:
    """The one store of an elementwise kernel of one or several stages, with what earlier stages
    store of an element in the place of its loads; None for any other kernel.
    """
    made: dict[Buffer, Store] = {}

    def element(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or (store := made.get(expr.buffer)) is None:
            return expr
        names = dict(zip(store.indices, expr.indices, strict=True))
        (placed,) = substitute_body(
            (store,), {v: at for v, at in names.items() if isinstance(v, Var)}
        )
        assert isinstance(placed, Store)
        return placed.value

    for stage in func.body:
        if isinstance(stage, Allocate):
            continue
        written = {write.buffer for write in writes_in((stage,))}
        buffer = written.pop() if len(written) == 1 else None
        store = None if buffer is None else in_order_store((stage,), buffer.shape)
        if store is None or store.buffer in made:
            return None
        made[store.buffer] = replace(store, value=map_expr(store.value, element))
    return made.get(func.outputs[0]) if len(func.outputs) == 1 else None


def reads_in_place(func: PrimFunc, position: int) -> bool:
    """Whether an elementwise kernel reads its input `position` only at the element that it writes.

    Then the access relation to that input is the identity on the whole shape.
    """
    store = elementwise_store(func)
    buffer = func.inputs[position]
    if store is None or buffer.shape != func.outputs[0].shape:
        return False
    reads = [a for a in accesses(func.body) if a.buffer == buffer and a.kind is AccessKind.READ]
    return bool(reads) and all(read.indices == store.indices for read in reads)


def only_fills(func: PrimFunc) -> bool:
    """Whether the kernel has no inputs, so that it can only write constants."""
    return not func.inputs


def is_identity(func: PrimFunc) -> bool:
    """Whether the kernel copies its single input to its output, element by element."""
    if len(func.inputs) != 1 or not only_moves(func) or not reads_in_place(func, 0):
        return False
    return func.inputs[0].dtype == func.outputs[0].dtype


def elements_touched(func: PrimFunc) -> int:
    """The largest size, in elements, of the kernel's parameters and intermediate buffers."""
    allocated = (s.buffer for s in walk(func.body) if isinstance(s, Allocate))
    return max((b.size for b in (*(p.buffer for p in func.params), *allocated)), default=0)
