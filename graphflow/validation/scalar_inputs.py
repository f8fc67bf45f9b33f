"""Generated values of scalars: inputs of one integer that matched loops look for, or that count.

In: a definition.  Out: for each such input a value for which the kernel does its work.  What always
holds: the same definition and seed give the same values.  A kernel with a scalar writes nothing
where it is out of range, so that any other value would compare nothing.
"""

from __future__ import annotations

import numpy as np

from graphflow.arith import (
    Predicate,
    Var,
    conjunction,
    constant_value,
    holds,
    predicate_variables,
    substitute,
)
from graphflow.tir import (
    Buffer,
    For,
    If,
    Load,
    PrimFunc,
    index_below_count,
    is_predicate,
    loops_of,
    matched_value,
    walk,
    writes_in,
)

MOST_TRIES = 1000
"""Values that are tried for conditions on the scalars, such as `n % 4 == 0`."""


def scalar_inputs(func: PrimFunc, seed: int) -> dict[Buffer, int]:
    """A value for each scalar of `func` within the bounds of its loop; where some of the first
    `MOST_TRIES` ones satisfy the conditions right inside the loops, the first of them."""
    found: dict[Var, tuple[Buffer, int, int]] = {}
    conditions: list[Predicate] = []
    for loop in walk(func.body):
        if isinstance(loop, For) and (buffer := _scalar(func, loop)) is not None:
            low, high = constant_value(loop.start), constant_value(loop.stop)
            if low is not None and high is not None and low < high:
                found[loop.var] = buffer, low, high
                conditions += _condition_inside(loop)
    counts = _whole_counts(func)
    if not found:
        return counts
    needed = conjunction(c for c in conditions if predicate_variables(c) <= found.keys())
    rng = np.random.default_rng(seed)
    tries = [
        {var: int(rng.integers(low, high)) for var, (_, low, high) in found.items()}
        for _ in range(MOST_TRIES if predicate_variables(needed) else 1)
    ]
    chosen = next((values for values in tries if holds(needed, values)), tries[0])
    return counts | {buffer: chosen[var] for var, (buffer, _, _) in found.items()}


def _whole_counts(func: PrimFunc) -> dict[Buffer, int]:
    """A value for each input without axes that counts the iterations in which an output is written:
    all of them, as what a smaller count leaves alone cannot be compared."""
    found: dict[Buffer, int] = {}
    written = [write.buffer for write in writes_in(func.body)]
    for loop in loops_of(func.body):
        counted = index_below_count(loop)
        if counted is None or counted[1].indices or counted[1].buffer not in func.inputs:
            continue
        index, count = counted[0], counted[1].buffer
        ends = [substitute(index, {loop.var: end}) for end in (loop.start, loop.stop - 1)]
        numbers = [constant_value(end) for end in ends]
        inside = [write.buffer for write in writes_in(loop.body)]
        if any(inside.count(y) == written.count(y) > 0 for y in func.outputs):
            found[count] = max(found.get(count, 0), *(n + 1 for n in numbers if n is not None), 0)
    return found


def _scalar(func: PrimFunc, loop: For) -> Buffer | None:
    """The input without axes that a matched loop looks for."""
    value = matched_value(loop)
    if isinstance(value, Load) and value.buffer in func.inputs and not value.buffer.shape:
        return value.buffer
    return None


def _condition_inside(loop: For) -> tuple[Predicate, ...]:
    """The condition on indices under which a matched loop does all of its work."""
    (test,) = loop.body
    assert isinstance(test, If)
    match test.then:
        case (If(condition=condition, orelse=()),) if is_predicate(condition):
            return (condition,)  # type: ignore[return-value]
        case _:
            return ()
