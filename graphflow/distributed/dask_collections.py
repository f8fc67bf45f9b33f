"""A model over the collections of Dask: arrays, bags and data frames.

In: a collection and a model.  Out: a collection of the results, computed when Dask computes it.
What always holds: the model is one value of the graph, named by its digest, so it travels once to
each worker; the results are those of the executable, in the order of the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import dask
import dask.array
import dask.bag
import distributed
import numpy as np
from numpy.typing import NDArray

from graphflow.distributed.batch_model import input_columns, input_of_columns
from graphflow.distributed.clusters import model_on
from graphflow.distributed.portable_model import PortableModel
from graphflow.distributed.row_runs import chosen_outputs, empty_results, only_input, run_rows


def mapped_collection(
    collection: Any, model: PortableModel, output: str | None, columns: Sequence[str] | None
) -> Any:
    """The collection of the results; TypeError for what is no array, bag or data frame."""
    chosen = chosen_outputs(model, output)[0]
    if isinstance(collection, dask.array.Array):
        return _over_array(collection, model, chosen)
    if isinstance(collection, dask.bag.Bag):
        return collection.map_partitions(_over_items, shipped(model), chosen)
    if hasattr(collection, "map_partitions") and hasattr(collection, "columns"):
        meta = _over_frame(collection._meta, model, chosen, columns)
        given = shipped(model)
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
    names = list(frame.columns) if columns is None else columns
    (name, taken), *_ = input_columns(model, frame.columns, names).items()
    rows = input_of_columns(model, name, [frame[column].to_numpy() for column in taken])
    found = run_rows(model, {name: rows})[output]
    flat = found.reshape(len(found), prod(found.shape[1:]))
    titles = [f"{output}_{k}" for k in range(flat.shape[1])]
    return type(frame)(flat, index=frame.index, columns=titles)
