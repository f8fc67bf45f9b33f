"""A factor that all terms of a sum of products share, applied to the sum instead.

In: a kernel in which a stage scales weights that a later stage sums products of.  Out: the kernel
with the sum of the unscaled products, scaled at the end.

    before:  p[i, j] = e[i, j] · s[i];  y[i, c] = 0;  for j: y[i, c] += p[i, j] · v[j, c]
    after:   t[i, c] = 0;  for j: t[i, c] += e[i, j] · v[j, c];  y[i, c] = t[i, c] · s[i]

It is done where the s[i] are shares of a softmax: e[i, j] = exp(x[i, j] − max over j of x[i, j]),
and s[i] = 1 / Σ e[i, j].  Then no e is above 1, and each s is between 1/n and 1, or NaN, for n
terms: x − max is at most 0 or NaN, and 0 at the maximum, unless that is NaN or infinite, where the
differences are NaN.

Error bound.  Let u be half the distance from 1.0 to the next number, and nothing overflow or
underflow.  In both kernels a term e s v meets two products and at most n additions, so both return

    y + d  with  |d| ≤ γ · Σ |e s v|,  γ = m u / (1 - m u),  m = n + 2

(Higham, Accuracy and Stability of Numerical Algorithms, 3.1).  What differs: a sum may overflow
where an element of v is above 1/n of the largest number, and e · v is zero more rarely than
(e · s) · v, where e or e · s is denormal; with an infinite v that decides between NaN and infinity.
NaN in e, s or v come out as before: they are factors of a term of the same sum.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, constant_value, substitute, variables
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages


class _Scaling(Struct, frozen=True):
    """A stage that stores `weight · factor`, and the stage that sums products of what it stores."""

    stage: tir.Block
    weight: tir.Load
    factor: tir.Load
    product: tir.Block
    update: tir.Reduce
    scaled: tir.Load
    other: tir.Load


def with_factors_behind(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with shares of softmaxes applied to sums; the same where it has none."""
    found = _scaling(func)
    if found is None:
        return func
    taken = {buffer.name for buffer in tir.buffers_of(func)}
    total = replace(found.update.buffer, name=stages.fresh("weighted", taken))
    place = dict(zip(_axes(found.stage), found.scaled.indices, strict=True))

    def at_sum(load: tir.Load) -> tir.Load:
        return replace(load, indices=tuple(substitute(e, place) for e in load.indices))

    product = tir.Binary("mul", at_sum(found.weight), found.other)
    summed = _rewritten(found, total, product)
    loops = [(Var(f"{axis}_t"), n) for axis, n in _loops(found.product)]
    renamed: dict[Var, IndexExpr] = {
        axis: var for axis, (var, _) in zip(_axes(found.product), loops, strict=True)
    }
    factor = at_sum(found.factor)
    factor = replace(factor, indices=tuple(substitute(e, renamed) for e in factor.indices))
    value = tir.Binary("mul", stages.element(total, loops), factor)
    behind = stages.elementwise_stage(
        f"{found.product.name}_scaled", found.update.buffer, loops, value
    )
    body: list[tir.Stmt] = []
    for stmt in func.body:
        if stmt is found.product:
            body += [summed, behind]
        elif stmt is not found.stage and not isinstance(stmt, tir.Allocate):
            body.append(stmt)
    made = stages.kernel_of_stages(func.name, func.inputs, func.outputs, body)
    return replace(func, body=made.body)


def _scaling(func: tir.PrimFunc) -> _Scaling | None:
    blocks = [stmt for stmt in func.body if isinstance(stmt, tir.Block)]
    if len(blocks) + sum(isinstance(s, tir.Allocate) for s in func.body) != len(func.body):
        return None
    for stage in blocks:
        store = _only_store(stage)
        if store is None or not isinstance(store.value, tir.Binary) or store.value.op != "mul":
            continue
        pair = (store.value.left, store.value.right)
        for weight, factor in (pair, pair[::-1]):
            if not isinstance(weight, tir.Load) or not isinstance(factor, tir.Load):
                continue
            if weight.indices == store.indices and _is_share(blocks, weight, factor):
                for product in blocks:
                    found = _product_of(stage, store, weight, factor, product, func)
                    if found is not None:
                        return found
    return None


def _product_of(
    stage: tir.Block,
    store: tir.Store,
    weight: tir.Load,
    factor: tir.Load,
    product: tir.Block,
    func: tir.PrimFunc,
) -> _Scaling | None:
    """The scaling of what `product` alone reads, in a sum that begins with zero."""
    reads = [a for a in tir.accesses(func.body) if a.buffer == store.buffer and not a.writes]
    nest, body = tir.nest_of(product.body)
    if store.buffer in func.outputs or len(reads) != 1 or len(body) != 2:
        return None
    start, (update, reduced) = body[0], _update(body[1])
    if not isinstance(start, tir.Store) or start.value != stages.literal(0, start.buffer.dtype):
        return None
    if update is None or update.op is not tir.ReduceOp.ADD or update.indices != start.indices:
        return None
    if update.indices != tuple(loop.var for loop in nest) or update.buffer != start.buffer:
        return None
    match update.value:
        case tir.Binary(op="mul", left=tir.Load() as scaled, right=tir.Load() as other):
            if other.buffer == store.buffer:
                scaled, other = other, scaled
        case _:
            return None
    if scaled.buffer != store.buffer:
        return None
    place = dict(zip(_axes(stage), scaled.indices, strict=True))
    moved = {v for e in factor.indices for v in variables(substitute(e, place))}
    if moved & set(reduced) or store.indices != _axes(stage):
        return None
    return _Scaling(stage, weight, factor, product, update, scaled, other)


def _is_share(blocks: list[tir.Block], weight: tir.Load, factor: tir.Load) -> bool:
    """Whether `factor` is one over the sum of all weights of its row, each the exponential of a
    difference to the largest element of that row."""
    share, power = _stored(blocks, factor.buffer), _stored(blocks, weight.buffer)
    if share is None or power is None:
        return False
    match share.value, power.value:
        case (
            tir.Binary(op="div", left=tir.Literal(value=1.0), right=tir.Load() as t),
            tir.Unary(
                op="exp",
                operand=tir.Binary(op="sub", left=tir.Load() as x, right=tir.Load() as most),
            ),
        ) if x.indices == power.indices:
            pass
        case _:
            return False
    total, largest = _reduced(blocks, t.buffer), _reduced(blocks, most.buffer)
    if total is None or largest is None or t.indices != share.indices:
        return False
    return (
        (total.op, largest.op) == (tir.ReduceOp.ADD, tir.ReduceOp.MAX)
        and _is_element(total, weight.buffer)
        and _is_element(largest, x.buffer)
        and _kept(total) == _kept(largest) == _axes_of(power, most) == _positions(weight, factor)
    )


def _is_element(update: tir.Reduce, buffer: tir.Buffer) -> bool:
    return isinstance(update.value, tir.Load) and update.value.buffer == buffer


def _kept(update: tir.Reduce) -> tuple[int, ...] | None:
    """The axes of what is reduced that the result has, in order; None where an index is another."""
    assert isinstance(update.value, tir.Load)
    return _places(update.value.indices, update.indices)


def _axes_of(power: tir.Store, most: tir.Load) -> tuple[int, ...] | None:
    return _places(power.indices, most.indices)


def _positions(weight: tir.Load, factor: tir.Load) -> tuple[int, ...] | None:
    return _places(weight.indices, factor.indices)


def _places(
    indices: tuple[IndexExpr, ...], chosen: tuple[IndexExpr, ...]
) -> tuple[int, ...] | None:
    """The positions of the `chosen` indices among others; None where one is none of these."""
    if any(e not in indices for e in chosen):
        return None
    return tuple(indices.index(e) for e in chosen)


def _stored(blocks: list[tir.Block], buffer: tir.Buffer) -> tir.Store | None:
    """The only statement that writes a buffer, if it stores each element once."""
    writing = [b for b in blocks if any(x.buffer == buffer for x in tir.writes_in((b,)))]
    return _only_store(writing[0]) if len(writing) == 1 else None


def _reduced(blocks: list[tir.Block], buffer: tir.Buffer) -> tir.Reduce | None:
    """The reduction of whole rows into a buffer, from the neutral element on."""
    for block in blocks:
        nest, body = tir.nest_of(block.body)
        if len(body) != 2 or not isinstance(body[0], tir.Store) or body[0].buffer != buffer:
            continue
        update, reduced = _update(body[1])
        if update is None or update.buffer != buffer or not isinstance(update.value, tir.Load):
            return None
        start = stages.neutral(update.op, buffer.dtype)
        loops = (*nest, *tir.loops_of(body[1:]))
        whole = all(constant_value(loop.start) == 0 for loop in loops)
        extents: dict[IndexExpr, int | None] = {loop.var: loop.extent for loop in loops}
        element = update.value
        covers = [extents.get(e) for e in element.indices] == [*element.buffer.shape]
        used = {*update.indices, *reduced} == {*element.indices}
        return update if whole and covers and used and body[0].value == start else None
    return None


def _only_store(block: tir.Block) -> tir.Store | None:
    """The store of a stage that stores each element of a buffer, by its loops in order."""
    nest, body = tir.nest_of(block.body)
    only = body[0] if len(body) == 1 else None
    if not isinstance(only, tir.Store) or only.indices != tuple(loop.var for loop in nest):
        return None
    return only if [loop.extent for loop in nest] == [*only.buffer.shape] else None


def _update(stmt: tir.Stmt) -> tuple[tir.Reduce | None, tuple[Var, ...]]:
    """The reduction in a perfect nest of loops, and their variables."""
    nest, body = tir.nest_of((stmt,))
    only = body[0] if len(body) == 1 else None
    return (only if isinstance(only, tir.Reduce) else None), tuple(loop.var for loop in nest)


def _axes(block: tir.Block) -> tuple[Var, ...]:
    return tuple(loop.var for loop in tir.nest_of(block.body)[0])


def _loops(block: tir.Block) -> list[tuple[Var, int]]:
    return [(loop.var, loop.extent or 0) for loop in tir.nest_of(block.body)[0]]


def _rewritten(found: _Scaling, total: tir.Buffer, product: tir.Expr) -> tir.Block:
    """The stage of the sum, of these products and into another buffer."""

    def change(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.Reduce):
            return replace(stmt, buffer=total, value=product)
        return replace(stmt, buffer=total) if isinstance(stmt, tir.Store) else stmt

    return replace(found.product, body=tir.map_body(found.product.body, change))
