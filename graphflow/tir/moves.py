"""Movement: kernels that store what they load, and compute nothing.

In: a kernel.  Out: its stores, each with the load that it stores and the iterations that do it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from graphflow.arith import Domain
from graphflow.tir.expr import Load
from graphflow.tir.stmt import Assume, PrimFunc, Reduce, Store
from graphflow.tir.visit import sites

Move: TypeAlias = tuple[Store, Load, Domain]
"""A store, the bare load that it stores, and its domain."""


def only_moves(func: PrimFunc) -> bool:
    """Whether each statement that writes stores a bare load: elements move, none is computed.

    Which element moves where must be known: under a condition on data it is not.
    """
    if func.callee is not None:
        return False
    writes = (site for site in sites(func.body) if isinstance(site.stmt, Store | Reduce))
    return all(
        isinstance(site.stmt, Store) and isinstance(site.stmt.value, Load) and not site.guards
        for site in writes
    )


@lru_cache(maxsize=4096)
def moves_of(definition: PrimFunc) -> tuple[Move, ...] | None:
    """All that a kernel moves; None if it computes or assumes anything, or has intermediates."""
    if not only_moves(definition):
        return None
    found: list[Move] = []
    outputs = set(definition.outputs)
    for site in sites(definition.body):
        stmt = site.stmt
        if isinstance(stmt, Assume):
            return None
        if isinstance(stmt, Store) and isinstance(stmt.value, Load):
            if stmt.buffer not in outputs:
                return None
            found.append((stmt, stmt.value, site.domain))
    return tuple(found)
