"""Generated values of scalars: inputs of one integer that matched loops look for.

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
)
from graphflow.tir import Buffer, For, If, Load, PrimFunc, is_predicate, matched_value, walk

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
    if not found:
        return {}
    needed = conjunction(c for c in conditions if predicate_variables(c) <= found.keys())
    rng = np.random.default_rng(seed)
    tries = [
        {var: int(rng.integers(low, high)) for var, (_, low, high) in found.items()}
        for _ in range(MOST_TRIES if predicate_variables(needed) else 1)
    ]
    chosen = next((values for values in tries if holds(needed, values)), tries[0])
    return {buffer: chosen[var] for var, (buffer, _, _) in found.items()}


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
