"""A model over datasets of Ray Data.

In: a dataset and a model.  Out: a dataset of the results, computed when Ray computes it.  What
always holds: the model is one object of Ray's store, which each machine fetches once; an actor that
is lost is started again by Ray, which does its batches again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
import ray.data

from graphflow.distributed.batch_model import BatchModel
from graphflow.distributed.portable_model import PortableModel, worker_model
from graphflow.distributed.row_runs import chosen_outputs

_ROWS = 64
"""About the least rows of a batch: a batch costs Ray a millisecond."""


def mapped_dataset(
    dataset: Any, model: PortableModel, output: str | None, columns: Sequence[str] | None
) -> Any:
    """The dataset of the results, by as many actors as the cluster has room for."""
    if not isinstance(dataset, ray.data.Dataset):
        raise TypeError(f"map_batches takes a Ray dataset, not {type(dataset).__name__}")
    chosen_outputs(model, output)  # raises here what would be raised by every actor
    most = worker_model(model).rows.most
    return dataset.map_batches(
        BatchModel,
        fn_constructor_args=(model, columns, output),
        batch_size=most * max(1, _ROWS // most),
        batch_format="numpy",
        num_cpus=model.threads or 1,
        compute=ray.data.ActorPoolStrategy(min_size=1),
    )
