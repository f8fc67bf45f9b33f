"""A model over a distributed collection: the engine is that of the collection.

In: a collection of Dask or of Ray Data, and a model.  Out: a collection of the results, of the same
engine.  What always holds: an engine is imported only for a collection of its own; nothing is
computed before the engine is asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from graphflow.base.extras import require_extra
from graphflow.distributed.portable_model import PortableModel, portable_model
from graphflow.distributed.row_runs import require_divisible


def map_batches(
    collection: Any,
    model: PortableModel | str | Path,
    *,
    output: str | None = None,
    columns: Sequence[str] | None = None,
) -> Any:
    """Run a model over a collection of Dask or Ray Data, lazily.

    A Dask array has rows along its first axis, and the result has the rows of the output; each
    block is a batch, and has all of the other axes.  A bag has arrays, each one row without the
    axis of rows, or mappings of these by input name.  A data frame gives one row for each of its
    rows, from its `columns` (None: all) in their order; the result has the columns `NAME_0`,
    `NAME_1`, … and the index of the frame.  These have one output, by default the first.

    A Ray dataset has the inputs as columns, as `BatchModel` takes them, and the result has a column
    for each output, or for `output` alone, beside the columns that are no inputs.

    The model is a saved file, an ONNX file, or a `portable_model` of several.  This process loads
    it too, for the names and shapes of its outputs.  Raises TypeError for other collections,
    InvalidModel for models that do not fit, and where rows may not be divided among runs, and
    GraphflowError where an extra is not installed.
    """
    match type(collection).__module__.partition(".")[0]:
        case "dask" | "dask_expr":
            extra, engine = "distributed", "dask_collections"
        case "ray":
            extra, engine = "ray", "ray_datasets"
        case _:
            raise TypeError(
                "map_batches takes a Dask array, bag or data frame, or a Ray dataset, not "
                f"{type(collection).__name__}"
            )
    require_extra(extra, "graphflow.distributed.map_batches")
    known = model if isinstance(model, PortableModel) else portable_model(model)
    require_divisible(known)
    module = import_module(f"graphflow.distributed.{engine}")
    mapped = module.mapped_dataset if extra == "ray" else module.mapped_collection
    return mapped(collection, known, output, columns)
