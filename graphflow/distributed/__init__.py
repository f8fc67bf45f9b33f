"""Models over the workers of a cluster that is there already: Dask.

It needs the extra `graphflow-compiler[distributed]`; no other part imports this one.
"""

from graphflow.base.extras import require_extra

require_extra("distributed", "graphflow.distributed")

from graphflow.distributed.collections_map import map_batches  # noqa: E402
from graphflow.distributed.portable_model import portable_model  # noqa: E402

__all__ = ["map_batches", "portable_model"]
