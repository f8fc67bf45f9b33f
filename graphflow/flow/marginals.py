"""Min-marginals: for each option of each variable, the price of the best assignment that has it.

In: the buckets that elimination made.  Out: for each variable a table of by how much the best
assignment with each option exceeds the best of all, exactly.  Elimination sent messages from the
first bucket to the last; here the least prices of everything outside a bucket are sent back, once
through the same tables.  A bucket whose message went into the integer program has no answer.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from graphflow.flow.elimination import Bucket, Reduced, Scope, spread
from graphflow.flow.prices import NEVER, Table, plus


def extras(reduced: Reduced) -> dict[int, Table]:
    """By variable, for each option the price above the best; `NEVER` or more where no assignment
    has it.

    Variables are missing if they depend on a choice of the integer program.
    """
    outside = {root.bucket: np.zeros((), np.int64) for root in reduced.roots()}
    found: dict[int, Table] = {}
    for number in reversed(range(len(reduced.buckets))):
        beyond, bucket = outside.pop(number, None), reduced.buckets[number]
        if beyond is None:
            continue
        whole = bucket.whole
        tables = [spread(beyond, bucket.scope, whole)]
        tables.append(spread(reduced.own[bucket.variable], (bucket.variable,), whole))
        tables += [part.over(whole) for part in bucket.parts]
        prices = _least(_full(reduced, bucket, tables), whole, (bucket.variable,))
        found[bucket.variable] = np.where(prices < NEVER, prices - prices.min(), NEVER)
        for part, others in zip(bucket.parts, _but_one(tables)[2:], strict=True):
            if part.bucket is not None:
                others = _full(reduced, bucket, [others])
                outside[part.bucket] = _least(others, whole, part.scope)
    return found


def _full(reduced: Reduced, bucket: Bucket, tables: list[Table]) -> Table:
    """The sum of the tables, with an axis of full length for each variable of the bucket."""
    total = np.zeros([len(reduced.own[v]) for v in bucket.whole], np.int64)
    for table in tables:
        total = plus(total, table)
    return total


def _least(table: Table, whole: Scope, scope: Scope) -> Table:
    """The minimum over all variables of `whole` that are not in `scope`; `scope` is ascending."""
    return np.asarray(table.min(tuple(k for k, v in enumerate(whole) if v not in scope)), np.int64)


def _but_one(tables: list[Table]) -> list[Table]:
    """For each table the sum of all others."""
    zero = np.zeros((1,) * tables[0].ndim, np.int64)
    before = list(accumulate(tables[:-1], plus, initial=zero))
    behind = list(accumulate(tables[:0:-1], plus, initial=zero))[::-1]
    return [plus(a, b) for a, b in zip(before, behind, strict=True)]
