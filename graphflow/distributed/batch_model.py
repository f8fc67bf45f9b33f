"""A model as a callable class over batches of columns, as Ray Data calls one in each worker.

In: a batch, which is an array with one row for each row of the batch, by column name.  Out: a batch
of the outputs, beside the columns that are no inputs.  What always holds: the results are those of
the executable, row by row; no engine is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.distributed.portable_model import PortableModel, portable_model, worker_model
from graphflow.distributed.row_runs import chosen_outputs, only_input, require_divisible, run_rows

InputColumns: TypeAlias = Mapping[str, Sequence[str]]
"""The columns of each input."""


class BatchModel:
    """A model as a class for `ray.data.Dataset.map_batches`:

        dataset.map_batches(BatchModel, fn_constructor_args=(model,), compute=…)

    `model` is a saved file, an ONNX file, or a `portable_model` of several.  Each input is the
    column of its name; of a model with one input it may also be the only column, or the `columns`,
    which are numbers that are put side by side.  The result has all outputs, or `output` alone, and
    the columns that are no inputs.

    Raises InvalidModel for a model whose rows may not be divided among runs, and in a call for
    columns that do not fit the model.
    """

    def __init__(
        self,
        model: PortableModel | str | Path,
        columns: Sequence[str] | None = None,
        output: str | None = None,
    ) -> None:
        self._model = model if isinstance(model, PortableModel) else portable_model(model)
        self._columns = columns
        require_divisible(self._model)
        self._outputs = chosen_outputs(self._model, output)

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs for one batch."""
        taken = input_columns(self._model, batch, self._columns)
        kept = kept_columns(batch, taken, self._outputs)
        given = {
            name: input_of_columns(self._model, name, [batch[column] for column in columns])
            for name, columns in taken.items()
        }
        results = run_rows(self._model, given)
        return {name: batch[name] for name in kept} | {n: results[n] for n in self._outputs}


def input_columns(
    model: PortableModel, names: Iterable[str], columns: Sequence[str] | None
) -> InputColumns:
    """Which of the named columns are the inputs; InvalidModel if that is not known."""
    known = list(names)
    if columns is not None:
        missing = [column for column in columns if column not in known]
        if missing:
            raise InvalidModel(f"there is no column {missing[0]!r}; there are {', '.join(known)}")
        return {only_input(model): tuple(columns)}
    exe = worker_model(model).exe
    found = {tensor.name: (tensor.name,) for tensor in exe.inputs if tensor.name in known}
    missing = [name for name in exe.required if name not in found]
    if missing and len(exe.required) == len(known) == 1:
        return {exe.required[0]: (known[0],)}
    if missing:
        raise InvalidModel(
            f"no column is named as the input {missing[0]}; the columns are {', '.join(known)}; "
            "rename one, or name the columns of a model with one input"
        )
    return found


def kept_columns(
    names: Iterable[str], taken: InputColumns, outputs: Iterable[str]
) -> tuple[str, ...]:
    """The columns that are no inputs; InvalidModel if one has the name of an output."""
    used = {column for columns in taken.values() for column in columns}
    kept = tuple(name for name in names if name not in used)
    for name in outputs:
        if name in kept:
            raise InvalidModel(f"the column {name} has the name of an output; rename it")
    return kept


def input_of_columns(
    model: PortableModel, name: str, columns: Sequence[NDArray[Any]]
) -> NDArray[Any]:
    """An input, of one column with its rows, or of several with one number in each row.

    Numbers are converted to the element type of the input, where that changes no kind of number;
    flat rows get the shape of the input's rows.  Raises InvalidModel for others.
    """
    columns = [_of_lists(name, column) for column in columns]
    (tensor,) = (t for t in worker_model(model).exe.inputs if t.name == name)
    if len(columns) > 1 and any(column.ndim != 1 for column in columns):
        raise InvalidModel(f"columns that are input {name} together have one number in each row")
    is_whole = len(columns) == 1 and (columns[0].ndim > 1 or len(tensor.shape or ()) == 1)
    rows = columns[0] if is_whole else np.stack(columns, axis=1)
    try:
        found = rows.astype(tensor.dtype, casting="same_kind", copy=False)
    except TypeError as error:
        raise InvalidModel(
            f"input {name} is {tensor.dtype}, and its columns are {rows.dtype}: {error}"
        ) from error
    row = (tensor.shape or ())[1:]
    extents = [extent for extent in row if isinstance(extent, int)]
    if found.ndim == 2 and len(extents) == len(row) > 1 and prod(extents) == found.shape[1]:
        return found.reshape(len(found), *extents)
    return found


def _of_lists(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """A column whose cells are lists, as one array; other columns as they are."""
    if column.dtype != object or not len(column):
        return column
    try:
        return np.stack([np.asarray(cell) for cell in column])
    except ValueError as error:
        raise InvalidModel(f"input {name}: the cells of its column differ in shape") from error
