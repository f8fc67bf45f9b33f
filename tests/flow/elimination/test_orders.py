"""Tests of orders of elimination: they are complete, within limits, and of several the cheapest."""

import itertools
from math import prod

import numpy as np
import pytest

from graphflow.flow.elimination.elimination import Factor, eliminate
from graphflow.flow.elimination.orders import best_order
from support.seeds import seeds


def entries(sizes: list[int], scopes: list[tuple[int, ...]], order: tuple[int, ...]) -> list[int]:
    """The entries of each table, from the definition."""
    left, found = [set(scope) for scope in scopes], []
    for variable in order:
        over = [scope for scope in left if variable in scope]
        around = set().union({variable}, *over)
        found.append(prod(sizes[v] for v in around))
        left = [scope for scope in left if variable not in scope] + [around - {variable}]
    return found


def drawn(seed: int) -> tuple[list[int], list[tuple[int, ...]]]:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 7))
    pairs = list(itertools.combinations(range(count), 2))
    scopes = [pair for pair in pairs if rng.random() < 0.5]
    return [int(n) for n in rng.integers(1, 12, count)], scopes


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_an_order_has_every_variable_and_states_its_entries(seed: int) -> None:
    sizes, scopes = drawn(seed)
    order = best_order(sizes, range(len(sizes)), scopes, 1 << 30, 1 << 30)
    assert order is not None
    assert sorted(order.variables) == list(range(len(sizes)))
    tables = entries(sizes, scopes, order.variables)
    assert order.entries == sum(tables)
    orders = itertools.permutations(range(len(sizes)))
    least = min(sum(entries(sizes, scopes, order)) for order in orders)
    assert least <= order.entries
    assert best_order(sizes, range(len(sizes)), scopes, 1 << 30, order.entries) == order
    assert best_order(sizes, range(len(sizes)), scopes, 1 << 30, order.entries - 1) is None
    assert best_order(sizes, range(len(sizes)), scopes, max(sizes) - 1, 1 << 30) is None


def test_the_smallest_table_first_is_not_always_the_cheapest() -> None:
    """A variable with few options goes first by its table, but links two that have many."""
    better = 0
    for seed in range(200):
        sizes, scopes = drawn(seed)
        order = best_order(sizes, range(len(sizes)), scopes, 1 << 30, 1 << 30)
        assert order is not None
        left, first = list(range(len(sizes))), []
        while left:
            tables = {v: entries(sizes, scopes, (*first, v))[-1] for v in left}
            first.append(min(left, key=lambda v: (tables[v], v)))
            left.remove(first[-1])
        spent = sum(entries(sizes, scopes, tuple(first)))
        assert order.entries <= spent
        better += order.entries < spent
    assert better > 0


def test_variables_alone_need_tables_of_their_own() -> None:
    order = best_order([3, 5], [0, 1], [], 5, 8)
    assert order is not None and order.entries == 8
    assert best_order([3, 5], [0, 1], [(0, 1)], 14, 100) is None, "their table has fifteen entries"


def test_a_core_beyond_the_limit_leaves_others_alone() -> None:
    """Two parts: a clique whose tables are too large, and a ring that is eliminated."""
    rng = np.random.default_rng(0)
    ring, clique = range(4), range(4, 8)
    own = [rng.integers(0, 9, 40) for _ in range(8)]
    links = [(k, (k + 1) % 4) for k in ring] + list(itertools.combinations(clique, 2))

    def factor(scope: tuple[int, ...]) -> Factor:
        table = rng.integers(0, 9, [40] * len(scope))
        return Factor(scope, lambda: table)

    factors = [factor(tuple(sorted(link))) for link in links]
    reduced = eliminate(own, factors, 40**3)
    assert reduced.left() == set(clique)
    assert not eliminate(own, factors, 40**4).left()
