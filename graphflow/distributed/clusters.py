"""Clients of Dask clusters, and the model on a cluster.

In: an address, or `local` for worker processes on this machine.  Out: a client; and the model as a
value on the cluster.  What always holds: each worker gets the model once, from the scheduler or
from another worker, and if all that have it are lost, it comes from the scheduler again.
"""

from __future__ import annotations

import warnings
from typing import Any

import distributed

from graphflow.base.errors import GraphflowError
from graphflow.distributed.portable_model import PortableModel

LOCAL = "local"


def client_of(address: str) -> Any:
    """A client of the scheduler at an address; `local` stands for a cluster on this machine, with a
    process of one thread for each processor, which ends with the client.

    Raises GraphflowError if nobody answers there.
    """
    if address == LOCAL:
        return distributed.Client(processes=True, threads_per_worker=1)
    try:
        return distributed.Client(address)
    except (OSError, ValueError) as error:
        raise GraphflowError(
            f"there is no scheduler at {address}: {error}; give its address, such as "
            f"tcp://host:8786, or `{LOCAL}`"
        ) from error


def model_on(client: Any, model: PortableModel) -> Any:
    """The model as the result of a task, which each worker gets once."""
    return submit_large(client, _given, model)


def submit_large(client: Any, function: Any, *arguments: Any, **options: Any) -> Any:
    """The future of a task whose arguments are large, and which the scheduler is to keep: should a
    worker be lost, another one gets them from there."""
    with warnings.catch_warnings():  # that they are large
        warnings.simplefilter("ignore", UserWarning)
        return client.submit(function, *arguments, pure=False, **options)


def _given(model: PortableModel) -> PortableModel:
    return model
