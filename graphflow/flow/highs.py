"""HiGHS, the solver of integer programs, and what it takes; imported when it is first needed.

In: costs of columns between 0 and 1, and rows.  Out: the cheapest columns.  Importing scipy's
optimizers takes half a second, as long as compiling a network whose kernels are cached, and most
networks need no integer program.
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
    """Rows with these `values` in these `columns`, each row from its start, and their bounds."""
    matrix = import_module("scipy.sparse").csr_array((values, columns, starts), shape=shape)
    return import_module("scipy.optimize").LinearConstraint(matrix, lower, upper)


def minimize(
    costs: NDArray[np.float64], rows: Rows, whole: bool, seconds: float, gap: float
) -> Any:
    """What `scipy.optimize.milp` finds for columns between 0 and 1, `whole` or not."""
    optimize = import_module("scipy.optimize")
    return optimize.milp(
        costs,
        integrality=np.full(len(costs), whole),
        bounds=optimize.Bounds(0, 1),
        constraints=rows,
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
