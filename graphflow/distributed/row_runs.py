"""Many rows through a model, in as many runs as it takes.

In: a model and arrays with rows along their first axis.  Out: the outputs of all rows.  What always
holds: rows are divided among runs only where it is proven that each row of the outputs is computed
from the same row of the inputs; else the arrays are one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.api.row_batches import RowBatches
from graphflow.base.errors import InvalidModel
from graphflow.distributed.portable_model import PortableModel, worker_model


def run_rows(model: PortableModel, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs for arrays by input name, which have equally many rows.

    Raises InvalidModel for arrays that do not fit the model.
    """
    known = worker_model(model)
    if known.rows.refusal:
        return known.exe.run(arrays)
    counts = {len(array) if array.ndim else -1 for array in arrays.values()}
    if len(counts) != 1:
        raise InvalidModel(f"the arrays have different numbers of rows: {sorted(counts)}")
    results: dict[str, list[NDArray[Any]]] = {}
    for begin, end in row_pieces(counts.pop(), known.rows):
        part = {name: array[begin:end] for name, array in arrays.items()}
        for name, array in known.exe.run(part).items():
            results.setdefault(name, []).append(array)
    return {
        name: parts[0] if len(parts) == 1 else np.concatenate(parts)
        for name, parts in results.items()
    }


def row_pieces(count: int, rows: RowBatches) -> Iterator[tuple[int, int]]:
    """Where the runs of so many rows begin and end; they are as equal as may be."""
    runs = max(1, -(-count // rows.most))
    ends = [count * k // runs for k in range(runs + 1)]
    return pairwise(ends)


def only_input(model: PortableModel) -> str:
    """The name of the input of a model that has one; InvalidModel for others."""
    names = worker_model(model).exe.required
    if len(names) != 1:
        raise InvalidModel(f"the model takes the inputs {', '.join(names)}; give them by name")
    return names[0]


def empty_results(model: PortableModel) -> dict[str, NDArray[Any]]:
    """The outputs for no rows at all."""
    return {
        tensor.name: np.empty(
            (0, *(n for n in (tensor.shape or ())[1:] if isinstance(n, int))), tensor.dtype
        )
        for tensor in worker_model(model).exe.specializations[0].outputs
    }
