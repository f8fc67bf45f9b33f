"""The interface to HiGHS, the solver of linear programs in scipy, imported on first use.

In: the costs of columns between 0 and 1, and rows.  Out: the optimum of the relaxation, with a
bound and reduced costs that are computed here from the dual values, so that they hold whatever
HiGHS's tolerances are.  Its integer programming is not used: it takes seconds where bounds from the
relaxation and elimination take none, and it prints from native code.  The import is deferred
because scipy's optimizers take half a second to import, as long as compiling a network whose
kernels are cached, and most networks need no linear program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


DUAL_TOLERANCE = 1e-10
"""The tightest that HiGHS has: dual values within its default of 1e-7 give a bound that is lower by
as much for each column.
"""


class OutOfTime(Exception):
    """No assignment was found in the time given, which does not prove that there is none."""


@dataclass(frozen=True)
class Relaxed:
    """The optimum of a relaxation: columns between 0 and 1.

    No solution costs less than `bound`.  `reduced` are the reduced costs: one in which a column is
    not at its lower bound but k above it costs at least `bound + k * reduced`, where that is
    positive.
    """

    columns: Floats
    bound: float
    reduced: Floats


class Relaxation:
    """A linear program in columns between 0 and 1, for many choices of their bounds.

    Rows are in compressed form: row k has the entries `starts[k]:starts[k + 1]` of `values` and
    `columns`, and its sum is between `lower[k]` and `upper[k]`.
    """

    def __init__(
        self,
        costs: Sequence[float],
        values: Sequence[float],
        columns: Sequence[int],
        starts: Sequence[int],
        lower: Sequence[float],
        upper: Sequence[float],
    ) -> None:
        sparse = import_module("scipy.sparse")
        shape = len(lower), len(costs)
        self.costs = np.array(costs, np.float64)
        rows = sparse.csr_array((values, columns, starts), shape=shape)
        low, high = np.array(lower, np.float64), np.array(upper, np.float64)
        exact = low == high
        above, below = ~exact & np.isfinite(low), ~exact & np.isfinite(high)
        self._equal, self._equals = rows[exact], low[exact]
        self._under = sparse.vstack([rows[below], -rows[above]], format="csr")
        self._most = np.concatenate([high[below], -low[above]])

    def solve(self, lower: Floats, upper: Floats, seconds: float) -> Relaxed | None:
        """The optimum with these bounds of the columns; None if they are infeasible.

        Raises OutOfTime where it was not found in `seconds`.
        """
        found = minimize(
            self.costs, self._under, self._most, self._equal, self._equals, lower, upper, seconds
        )
        if found.status == 2:
            return None
        if found.status != 0 or found.x is None:
            raise OutOfTime
        under, equal = np.minimum(found.ineqlin.marginals, 0.0), np.array(found.eqlin.marginals)
        reduced = self.costs - self._under.T @ under - self._equal.T @ equal
        corner = np.where(reduced > 0, lower, upper)
        bound = float(under @ self._most + equal @ self._equals + reduced @ corner)
        return Relaxed(np.array(found.x), bound, np.asarray(reduced, np.float64))


def minimize(
    costs: Floats, under: Any, most: Floats, equal: Any, equals: Floats, lower: Floats,
    upper: Floats, seconds: float,
) -> Any:  # fmt: skip
    """The result of `scipy.optimize.linprog` for `under @ x <= most` and `equal @ x = equals`."""
    return import_module("scipy.optimize").linprog(
        costs,
        under,
        most,
        equal,
        equals,
        bounds=np.stack([lower, upper], axis=1),
        method="highs-ds",
        options={"time_limit": seconds, "dual_feasibility_tolerance": DUAL_TOLERANCE},
    )
