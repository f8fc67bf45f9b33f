"""Models over the workers of a cluster that is there already: Dask, or Ray Data.

The engines are the extras `graphflow-compiler[distributed]` and `graphflow-compiler[ray]`;
importing this package imports neither, and no other part imports this one.
"""

from graphflow.distributed.batch_map import map_batches
from graphflow.distributed.batch_model import BatchModel
from graphflow.distributed.portable_model import portable_model

__all__ = ["BatchModel", "map_batches", "portable_model"]
