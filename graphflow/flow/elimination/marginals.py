"""Min-marginals: for each option of each variable, the price of the best assignment that has it.

In: the buckets that elimination made.  Out: for each variable a table of by how much the best
assignment with each option exceeds the best of all, exactly.  Elimination sent messages from the
first bucket to the last; here the least prices of everything outside a bucket are sent back, once
through the same tables.  A bucket whose message went into the search has no answer.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from graphflow.flow.elimination.elimination import Reduced, Scope, spread
from graphflow.flow.elimination.prices import NEVER, Table, but_one, plus


def extras(reduced: Reduced) -> dict[int, Table]:
    """By variable, for each option the price above the best; `NEVER` or more where no assignment
    has it.

    Variables are missing if they depend on a choice of the search.
    """
    outside = {root.bucket: np.zeros((), np.int64) for root in reduced.roots()}
    found: dict[int, Table] = {}
    for number in reversed(range(len(reduced.buckets))):
        beyond, bucket = outside.pop(number, None), reduced.buckets[number]
        if beyond is None:
            continue
        full_scope = bucket.full_scope
        tables = [spread(beyond, bucket.scope, full_scope)]
        tables.append(spread(reduced.own[bucket.variable], (bucket.variable,), full_scope))
        tables += [part.over(full_scope) for part in bucket.parts]
        prices = _least(reduce(plus, tables), full_scope, (bucket.variable,))
        found[bucket.variable] = np.where(prices < NEVER, prices - prices.min(), NEVER)
        for part, others in zip(bucket.parts, but_one(tables)[2:], strict=True):
            if part.bucket is not None:
                outside[part.bucket] = _least(others, full_scope, part.scope)
    return found


def _least(table: Table, full_scope: Scope, scope: Scope) -> Table:
    """The minimum over the variables of `full_scope` that are not in `scope`, which ascends.

    Where a price does not depend on a variable, the axis of that has length one, as in `table`.
    """
    return np.asarray(
        table.min(tuple(k for k, v in enumerate(full_scope) if v not in scope)), np.int64
    )
