"""Movement: kernels that store what they load, and compute nothing.

In: a kernel.  Out: its stores, each with the load that it stores and the iterations that do it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from graphflow.arith import Domain
from graphflow.tir.expr import Load
from graphflow.tir.stmt import PrimFunc, Store
from graphflow.tir.visit import sites

Move: TypeAlias = tuple[Store, Load, Domain]
"""A store, the bare load that it stores, and its domain."""


@lru_cache(maxsize=4096)
def moves_of(definition: PrimFunc) -> tuple[Move, ...] | None:
    """All that a kernel moves; None if it computes anything."""
    if definition.callee is not None:
        return None
    found: list[Move] = []
    for site in sites(definition.body):
        stmt = site.stmt
        if isinstance(stmt, Store):
            if not isinstance(stmt.value, Load) or site.guards:
                return None
            found.append((stmt, stmt.value, site.domain))
        elif hasattr(stmt, "op") or hasattr(stmt, "claim"):
            return None
    outputs = set(definition.outputs)
    if any(store.buffer not in outputs for store, _, _ in found):
        return None
    return tuple(found)
