"""The interface to HiGHS, the integer programming solver in scipy, imported on first use.

In: the costs of columns between 0 and 1, and rows.  Out: what `scipy.optimize.milp` returns.  The
import is deferred because scipy's optimizers take half a second to import, as long as compiling a
network whose kernels are cached, and most networks need no integer program.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = Any
"""A `scipy.optimize.LinearConstraint`."""


def constraints(
    values: Sequence[float],
    columns: Sequence[int],
    starts: Sequence[int],
    shape: tuple[int, int],
    lower: Sequence[float],
    upper: Sequence[float],
) -> Rows:
    """Rows in compressed form (row k is `starts[k]:starts[k + 1]` of `values` and `columns`),
    bounded.
    """
    matrix = import_module("scipy.sparse").csr_array((values, columns, starts), shape=shape)
    return import_module("scipy.optimize").LinearConstraint(matrix, lower, upper)


def minimize(
    costs: NDArray[np.float64], rows: Rows, integral: bool, seconds: float, gap: float
) -> Any:
    """The result of `scipy.optimize.milp` for columns between 0 and 1, integral if `integral`.

    `seconds` limits the time, `gap` is the relative gap at which the solver may stop.
    """
    optimize = import_module("scipy.optimize")
    return optimize.milp(
        costs,
        integrality=np.full(len(costs), integral),
        bounds=optimize.Bounds(0, 1),
        constraints=rows,
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
