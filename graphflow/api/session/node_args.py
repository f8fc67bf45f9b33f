"""The inputs and outputs of a session whose model is an executable.

In: the interface of an executable, and what its file declares.  Out: `NodeArg`s.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphflow.base.declaration import NodeArg
from graphflow.base.element_types import type_string
from graphflow.program import OpenTensor, TensorSpec


def node_args(
    tensors: Iterable[TensorSpec | OpenTensor], declared: Iterable[NodeArg] = ()
) -> tuple[NodeArg, ...]:
    """The inputs or outputs of an executable; of those whose types are open, what is `declared`."""
    known = {arg.name: arg for arg in declared}
    return tuple(
        known[t.name]
        if not isinstance(t, TensorSpec) and not t.is_number and t.name in known
        else NodeArg(t.name, type_string(t.dtype), _extents(t.shape))
        for t in tensors
    )


def _extents(shape: Iterable[int | str] | None) -> list[int | str | None]:
    return [None if extent == "?" else extent for extent in shape or ()]
