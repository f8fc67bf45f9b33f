"""Random cost tables over few variables."""

from functools import partial

import numpy as np

from graphflow.flow.elimination.elimination import Factor, Scope
from graphflow.flow.elimination.prices import NEVER, Table


def random_factors(rng: np.random.Generator) -> tuple[list[Table], list[Factor]]:
    sizes = rng.integers(1, 4, rng.integers(2, 7))
    own = [rng.integers(0, 20, n).astype(np.int64) for n in sizes]
    factors = []
    for _ in range(int(rng.integers(1, 8))):
        arity = int(rng.integers(0, min(3, len(sizes)) + 1))
        scope = tuple(sorted(int(v) for v in rng.choice(len(sizes), arity, replace=False)))
        table = rng.integers(0, 20, [sizes[v] for v in scope]).astype(np.int64)
        table = np.where(rng.random(table.shape) < 0.15, NEVER, table)
        factors.append(Factor(scope, partial(np.asarray, table)))
    return own, factors


def at(table: Table, scope: Scope, chosen: tuple[int, ...]) -> int:
    return int(table[tuple(chosen[v] for v in scope)])


def total(own: list[Table], factors: list[Factor], chosen: tuple[int, ...]) -> int:
    price = sum(int(prices[k]) for prices, k in zip(own, chosen, strict=True))
    return min(price + sum(at(f.load(), f.scope, chosen) for f in factors), NEVER)
