"""Tests of branch and bound: the optimum of small programs, true bounds, and nothing printed."""

from __future__ import annotations

import itertools
from math import inf

import numpy as np
import pytest

from graphflow.flow import branch_and_bound, highs
from graphflow.flow.branch_and_bound import BranchAndBound, Solved
from graphflow.flow.highs import Floats, OutOfTime, Relaxation

Rows = list[tuple[dict[int, float], float, float]]


def relaxation(costs: list[float], rows: Rows) -> Relaxation:
    starts = list(itertools.accumulate((len(row) for row, _, _ in rows), initial=0))
    return Relaxation(
        costs,
        [value for row, _, _ in rows for value in row.values()],
        [column for row, _, _ in rows for column in row],
        starts,
        [low for _, low, _ in rows],
        [high for _, _, high in rows],
    )


def cover(rng: np.random.Generator) -> tuple[list[float], Rows]:
    """Rows of all kinds; odd cycles to cover, so that relaxations are seldom integral."""
    width = int(rng.integers(4, 10))
    costs = [float(c) for c in rng.integers(1, 20, width)]
    rows: Rows = []
    for _ in range(int(rng.integers(3, 9))):
        columns = rng.choice(width, int(rng.integers(2, 4)), replace=False)
        row = {int(c): 1.0 for c in columns}
        kind = rng.integers(6)
        low, high = ((1, inf), (-inf, 1), (1, 1))[0 if kind < 4 else kind - 3]
        rows.append((row, low, high))
    return costs, rows


def cheapest(costs: list[float], rows: Rows, fixed: Floats | None = None) -> float:
    best = inf
    for taken in itertools.product((0, 1), repeat=len(costs)):
        sums = [(sum(v * taken[c] for c, v in row.items()), low, high) for row, low, high in rows]
        if all(low <= total <= high for total, low, high in sums):
            best = min(best, float(np.dot(costs, taken)))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_columns_are_found(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    costs, rows = cover(np.random.default_rng(seed))
    found = BranchAndBound(relaxation(costs, rows), 60.0, len(costs) // 2).run()
    best = cheapest(costs, rows)
    assert found.price == pytest.approx(best)
    assert found.bound <= found.price * (1 + 1e-9)
    if best == inf:
        assert found.solution is None
        return
    assert isinstance(found.solution, np.ndarray)
    assert float(np.dot(costs, found.solution)) == pytest.approx(best)
    assert found.bound == pytest.approx(best, rel=1e-5)
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


def odd_cycles(count: int) -> tuple[list[float], Rows]:
    """Triangles of which two corners each are taken; the relaxation takes half of all."""
    edges = [(3 * k + a, 3 * k + b) for k in range(count) for a, b in ((0, 1), (1, 2), (0, 2))]
    return [1.0] * (3 * count), [({a: 1.0, b: 1.0}, 1, inf) for a, b in edges]


def test_a_relaxation_bounds_every_solution() -> None:
    for seed in range(40):
        costs, rows = cover(np.random.default_rng(seed))
        width = len(costs)
        found = relaxation(costs, rows).solve(np.zeros(width), np.ones(width), 60.0)
        if found is None:
            assert cheapest(costs, rows) == inf
            continue
        assert found.bound <= cheapest(costs, rows) + 1e-9
        for column in range(width):
            if found.reduced[column] > 0:
                with_it = cheapest(costs, [*rows, ({column: 1.0}, 1, 1)])
                assert found.bound + found.reduced[column] <= with_it + 1e-9


def test_a_known_solution_ends_the_search_if_nothing_is_cheaper() -> None:
    costs, rows = odd_cycles(2)
    known: Solved = (4.0, "known")
    found = BranchAndBound(relaxation(costs, rows), 60.0, 6, lambda: known).run()
    assert (found.price, found.solution) == (4.0, "known")
    dearer: Solved = (5.0, "known")
    found = BranchAndBound(relaxation(costs, rows), 60.0, 6, lambda: dearer).run()
    assert found.price == 4.0 and isinstance(found.solution, np.ndarray)


def test_what_closes_a_node_is_asked_with_the_columns_that_may_be_cheaper() -> None:
    costs, rows = odd_cycles(1)
    costs.append(7.0)
    rows.append(({3: 1.0, 0: 1.0}, -inf, 2))
    asked: list[Floats] = []

    def close(lower: Floats, upper: Floats) -> Solved | None:
        asked.append(upper)
        return (2.0, "closed")

    found = BranchAndBound(relaxation(costs, rows), 60.0, 4, lambda: (3.0, "known"), close).run()
    assert (found.price, found.bound, found.solution) == (2.0, 2.0, "closed")
    assert [upper.tolist() for upper in asked] == [[1, 1, 1, 0]], "column 3 costs more than is left"


def test_narrowing_that_finds_a_solution_is_no_proof_alone() -> None:
    """Of few columns `close` gives a solution; that it is the best is shown by the search."""
    costs, rows = odd_cycles(3)
    costs = [1.0, 1.1, 1.3] * 3

    def close(lower: Floats, upper: Floats) -> Solved | None:
        if upper.all():
            raise OutOfTime
        return (8.0, "narrowed")

    found = BranchAndBound(relaxation(costs, rows), 60.0, 9, lambda: (50.0, "known"), close).run()
    best = cheapest(costs, rows)
    assert found.bound <= best * (1 + 1e-9)
    assert found.price <= 8.0


def test_out_of_time_the_bound_is_that_of_the_open_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    costs, rows = odd_cycles(5)
    solved = highs.minimize
    left = 0

    def some(*arguments: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise OutOfTime
        return solved(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(branch_and_bound, "PATIENCE", inf)
    monkeypatch.setattr(highs, "minimize", some)
    for limit in (0, 1):
        left = limit
        with pytest.raises(OutOfTime):
            BranchAndBound(relaxation(costs, rows), 60.0, 15).run()
    for limit in (1, 2, 5, 9):
        left = limit
        found = BranchAndBound(relaxation(costs, rows), 60.0, 15, lambda: (12.0, "known")).run()
        assert found.bound + 1e-9 >= 7.5 and found.bound <= 10.0 <= found.price
