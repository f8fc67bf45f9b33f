"""Min-marginals: for each option of each variable, the price of the best assignment that has it.

In: the buckets that elimination made.  Out: for each variable a table of by how much the best
assignment with each option exceeds the best of all, exactly.  Elimination sent messages from the
first bucket to the last; here the least prices of everything outside a bucket are sent back, once
through the same tables.  A bucket whose message went into the search has no answer.
"""

from __future__ import annotations

import numpy as np

from graphflow.flow.elimination.elimination import Bucket, Reduced, Scope, spread
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
        prices = _least(_full(reduced, bucket, tables), full_scope, (bucket.variable,))
        found[bucket.variable] = np.where(prices < NEVER, prices - prices.min(), NEVER)
        for part, others in zip(bucket.parts, but_one(tables)[2:], strict=True):
            if part.bucket is not None:
                others = _full(reduced, bucket, [others])
                outside[part.bucket] = _least(others, full_scope, part.scope)
    return found


def _full(reduced: Reduced, bucket: Bucket, tables: list[Table]) -> Table:
    """The sum of the tables, with an axis of full length for each variable of the bucket."""
    total = np.zeros([len(reduced.own[v]) for v in bucket.full_scope], np.int64)
    for table in tables:
        total = plus(total, table)
    return total


def _least(table: Table, full_scope: Scope, scope: Scope) -> Table:
    """The minimum over the variables of `full_scope` that are not in `scope`, which ascends."""
    return np.asarray(
        table.min(tuple(k for k, v in enumerate(full_scope) if v not in scope)), np.int64
    )
