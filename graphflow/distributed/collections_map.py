"""A model over the collections of Dask: arrays, bags and data frames.

In: a collection and a model.  Out: a collection of the results, computed when Dask computes it.
What always holds: the model is one value of the graph, named by its digest, so it travels once to
each worker; the results are those of the executable, in the order of the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array
import dask.bag
import distributed
import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.distributed.clusters import model_on
from graphflow.distributed.portable_model import PortableModel, portable_model, worker_model
from graphflow.distributed.row_runs import empty_results, only_input, run_rows


def map_batches(
    collection: Any,
    model: PortableModel | str | Path,
    *,
    output: str | None = None,
    columns: Sequence[str] | None = None,
) -> Any:
    """Run a model over a Dask collection, lazily; the result has one output, by default the first.

    An array has rows along its first axis, and the result has the rows of the output; each block is
    a batch, and has all of the other axes.  A bag has arrays, each one row without the axis of
    rows, or mappings of these by input name.  A data frame gives one row for each of its rows, from
    its `columns` (None: all) in their order; the result has the columns `NAME_0`, `NAME_1`, … and
    the index of the frame.

    The model is a saved file, an ONNX file, or a `portable_model` of several.  This process loads
    it too, for the shapes of its outputs.  Raises TypeError for other collections, InvalidModel for
    models that do not fit, and where rows may not be divided among runs.
    """
    known = model if isinstance(model, PortableModel) else portable_model(model)
    chosen = _chosen_output(known, output)
    if isinstance(collection, dask.array.Array):
        return _over_array(collection, known, chosen)
    if isinstance(collection, dask.bag.Bag):
        return collection.map_partitions(_over_items, shipped(known), chosen)
    if hasattr(collection, "map_partitions") and hasattr(collection, "columns"):
        meta = _over_frame(collection._meta, known, chosen, columns)
        given = shipped(known)
        return collection.map_partitions(_over_frame, given, chosen, columns, meta=meta)
    raise TypeError(
        f"map_batches takes a Dask array, bag or data frame, not {type(collection).__name__}"
    )


def shipped(model: PortableModel) -> Any:
    """The model as a value of a graph, which goes to each worker once: of the current client's
    cluster, or else a part of the graph."""
    try:
        return model_on(distributed.default_client(), model)
    except ValueError:  # there is no client
        return dask.delayed(model, name=f"graphflow-{model.digest}", traverse=False)


def _chosen_output(model: PortableModel, output: str | None) -> str:
    """The output that is wanted; InvalidModel for rows that may not be divided among runs."""
    known = worker_model(model)
    if known.rows.refusal:
        raise InvalidModel(
            f"the rows of a batch cannot be divided among runs: {known.rows.refusal}"
        )
    names = [tensor.name for tensor in known.exe.outputs]
    if output is not None and output not in names:
        raise InvalidModel(f"there is no output {output!r}; the outputs are {', '.join(names)}")
    return names[0] if output is None else output


def _over_array(array: Any, model: PortableModel, output: str) -> Any:
    whole = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
    blocks = whole.to_delayed().reshape(-1)
    given, run = shipped(model), dask.delayed(_over_block, pure=True)
    tail = empty_results(model)[output]
    parts = [
        dask.array.from_delayed(run(block, given, output), (rows, *tail.shape[1:]), tail.dtype)
        for block, rows in zip(blocks, whole.chunks[0], strict=True)
    ]
    return dask.array.concatenate(parts)


def _over_block(block: NDArray[Any], model: PortableModel, output: str) -> NDArray[Any]:
    if not len(block):
        return empty_results(model)[output]
    return run_rows(model, {only_input(model): np.asarray(block)})[output]


def _over_items(items: Iterable[Any], model: PortableModel, output: str) -> list[NDArray[Any]]:
    listed = list(items)
    if not listed:
        return []
    if isinstance(listed[0], Mapping):
        given = {name: np.stack([item[name] for item in listed]) for name in listed[0]}
    else:
        given = {only_input(model): np.stack(listed)}
    return list(run_rows(model, given)[output])


def _over_frame(
    frame: Any, model: PortableModel, output: str, columns: Sequence[str] | None
) -> Any:
    """A pandas data frame of the results for one."""
    name = only_input(model)
    (tensor,) = (t for t in worker_model(model).exe.inputs if t.name == name)
    wanted = frame if columns is None else frame[list(columns)]
    rows = np.ascontiguousarray(wanted.to_numpy(tensor.dtype))
    found = run_rows(model, {name: rows})[output] if len(rows) else empty_results(model)[output]
    flat = found.reshape(len(found), -1) if len(found) else found.reshape(0, _width(found))
    names = [f"{output}_{k}" for k in range(flat.shape[1])]
    return type(frame)(flat, index=frame.index, columns=names)


def _width(empty: NDArray[Any]) -> int:
    return int(np.prod(empty.shape[1:], dtype=np.int64))
