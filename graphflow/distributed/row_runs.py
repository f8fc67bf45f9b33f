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
    if counts == {0}:
        return empty_results(model)
    results: dict[str, list[NDArray[Any]]] = {}
    for begin, end in row_pieces(counts.pop(), known.rows):
        part = {
            name: _at_least(array[begin:end], known.rows.least) for name, array in arrays.items()
        }
        for name, array in known.exe.run(part).items():
            results.setdefault(name, []).append(array[: end - begin])
    return {
        name: parts[0] if len(parts) == 1 else np.concatenate(parts)
        for name, parts in results.items()
    }


def _at_least(rows: NDArray[Any], least: int) -> NDArray[Any]:
    """As many rows as a run has to have: the last one is repeated, whose results are not wanted."""
    missing = least - len(rows)
    return rows if missing <= 0 else np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])


def row_pieces(count: int, rows: RowBatches) -> Iterator[tuple[int, int]]:
    """Where the runs of so many rows begin and end; they are as equal as may be."""
    runs = max(1, -(-count // rows.most))
    ends = [count * k // runs for k in range(runs + 1)]
    return pairwise(ends)


def require_divisible(model: PortableModel) -> None:
    """Raise InvalidModel if the rows of a batch may not be divided among runs."""
    refusal = worker_model(model).rows.refusal
    if refusal:
        raise InvalidModel(f"the rows of a batch cannot be divided among runs: {refusal}")


def chosen_outputs(model: PortableModel, output: str | None) -> tuple[str, ...]:
    """The names of all outputs, or the one that is wanted; InvalidModel for an unknown one."""
    names = tuple(tensor.name for tensor in worker_model(model).exe.outputs)
    if output is None:
        return names
    if output not in names:
        raise InvalidModel(f"there is no output {output!r}; the outputs are {', '.join(names)}")
    return (output,)


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
