"""Files of arrays and tables: what a model takes from them, and what it writes.

In: the content of a file `.npy`, `.npz` or `.parquet`.  Out: arrays by input name; and the content
of a file `.npz`, or `.parquet` for a table, with the outputs.  What always holds: nothing is read
that needs pickle, and no missing value becomes a number.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.distributed.batch_model import input_columns, input_of_columns, kept_columns
from graphflow.distributed.portable_model import PortableModel
from graphflow.distributed.row_runs import chosen_outputs, only_input, run_rows
from graphflow.program import arrays_of_file

SUFFIXES = {".npy": ".npz", ".npz": ".npz", ".parquet": ".parquet"}
"""The suffix of an output by that of its input."""


def mapped_content(
    model: PortableModel, suffix: str, content: bytes, columns: Sequence[str] | None
) -> bytes:
    """The content of the output for that of an input.

    Raises InvalidModel for content that does not fit the model, and what numpy and pyarrow raise
    for content that they cannot read.
    """
    if suffix == ".parquet":
        return _mapped_table(model, content, columns)
    if columns is not None:
        raise InvalidModel(f"a file {suffix} has no columns; these are of files .parquet")
    written = io.BytesIO()
    results = run_rows(model, _arrays(model, suffix, content))
    np.savez(written, **results)  # type: ignore[arg-type]  # names of arrays, not of options
    return written.getvalue()


def _arrays(model: PortableModel, suffix: str, content: bytes) -> dict[str, NDArray[Any]]:
    if suffix not in SUFFIXES:
        raise InvalidModel(
            "it is no array; give files .npy, .npz with an array for each input, or .parquet"
        )
    return arrays_of_file(io.BytesIO(content), lambda: only_input(model))


# Tables -------------------------------------------------------------------------------------------


class _Table(Struct, frozen=True):
    """A table of Parquet, with the columns that are inputs as arrays."""

    kept: pa.Table
    inputs: Mapping[str, NDArray[Any]]


def _mapped_table(model: PortableModel, content: bytes, columns: Sequence[str] | None) -> bytes:
    """The table with a column for each output, in place of the columns that are inputs."""
    table = _table(model, content, columns)
    found = table.kept
    for name, array in run_rows(model, table.inputs).items():
        found = found.append_column(name, _column(name, array, table.kept.num_rows))
    written = io.BytesIO()
    pq.write_table(found, written)
    return written.getvalue()


def _table(model: PortableModel, content: bytes, columns: Sequence[str] | None) -> _Table:
    table = pq.read_table(io.BytesIO(content))
    taken = input_columns(model, table.column_names, columns)
    kept = kept_columns(table.column_names, taken, chosen_outputs(model, None))
    inputs = {
        name: input_of_columns(model, name, [_array(column, table[column]) for column in own])
        for name, own in taken.items()
    }
    return _Table(table.select(kept), inputs)


def _array(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """The cells of a column, which are numbers, or tensors or lists of one length."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of no chunks, or of more than one can hold
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    if isinstance(whole.type, pa.FixedShapeTensorType):
        _require_values(name, whole.storage)
        shape, flat = whole.type.shape, whole.storage.flatten()
    elif pa.types.is_fixed_size_list(whole.type):
        _require_values(name, whole)
        shape, flat = [whole.type.list_size], whole.flatten()
    elif pa.types.is_list(whole.type) or pa.types.is_large_list(whole.type):
        _require_values(name, whole)
        shape, flat = [_only_length(name, whole)], whole.flatten()
    else:
        shape, flat = [], whole
    _require_values(name, flat)
    found: NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    return found.reshape(len(whole), *shape)


def _require_values(name: str, cells: pa.Array) -> None:
    if cells.null_count:
        raise InvalidModel(f"column {name} has {cells.null_count} missing values")


def _only_length(name: str, lists: pa.Array) -> int:
    lengths = np.unique(lists.value_lengths().to_numpy())
    if len(lengths) > 1:
        raise InvalidModel(
            f"the lists in column {name} have {lengths[0]} to {lengths[-1]} numbers, and have to "
            "have one length"
        )
    return int(lengths[0]) if len(lengths) else 0


def _column(name: str, array: NDArray[Any], rows: int) -> pa.Array:
    """An output as a column: numbers, or tensors of Arrow's type `fixed_shape_tensor`."""
    if array.ndim == 0 or len(array) != rows:
        raise InvalidModel(
            f"output {name} has the shape {list(array.shape)}, no row for each of the {rows} of "
            "the table"
        )
    flat = pa.array(array.reshape(-1))
    if array.ndim == 1:
        return flat
    shape = array.shape[1:]
    storage = pa.FixedSizeListArray.from_arrays(flat, prod(shape))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(flat.type, shape), storage)
