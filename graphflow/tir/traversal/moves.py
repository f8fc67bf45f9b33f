"""Stores: kernels that store what they load and compute nothing, nests of one store in order.

In: a kernel, or a nest.  Out: its stores, with the load that each stores and the iterations that do
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from graphflow.arith import Domain, constant_value
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal.accesses import sites

Move: TypeAlias = tuple[stmts.Store, exprs.Load, Domain]
"""A store, the bare load that it stores, and its domain."""


def only_moves(func: stmts.PrimFunc) -> bool:
    """Whether each statement that writes stores a bare load: elements move, none is computed.

    Which element moves where must be known: under a condition on data it is not.
    """
    if func.callee is not None:
        return False
    writes = (
        site for site in sites(func.body) if isinstance(site.stmt, stmts.Store | stmts.Reduce)
    )
    return all(
        isinstance(site.stmt, stmts.Store)
        and isinstance(site.stmt.value, exprs.Load)
        and not site.guards
        for site in writes
    )


@lru_cache(maxsize=4096)
def moves_of(definition: stmts.PrimFunc) -> tuple[Move, ...] | None:
    """All that a kernel moves; None if it computes or assumes anything, or has intermediates."""
    if not only_moves(definition):
        return None
    found: list[Move] = []
    outputs = set(definition.outputs)
    for site in sites(definition.body):
        stmt = site.stmt
        if isinstance(stmt, stmts.Assume):
            return None
        if isinstance(stmt, stmts.Store) and isinstance(stmt.value, exprs.Load):
            if stmt.buffer not in outputs:
                return None
            found.append((stmt, stmt.value, site.domain))
    return tuple(found)


def in_order_store(body: stmts.Body, shape: Sequence[int]) -> stmts.Store | None:
    """The one store of a perfect loop nest over all of `shape`, its indices the loop variables in
    order; None where the body is anything else.
    """
    variables = []
    for extent in shape:
        loop = _only(body)
        if not isinstance(loop, stmts.For) or constant_value(loop.start) != 0:
            return None
        if constant_value(loop.stop) != extent:
            return None
        variables.append(loop.var)
        body = loop.body
    store = _only(body)
    if not isinstance(store, stmts.Store) or store.indices != tuple(variables):
        return None
    return store


def _only(body: stmts.Body) -> object:
    """The only statement of a body, blocks around it left out; None if there are more."""
    while len(body) == 1 and isinstance(body[0], stmts.Block):
        body = body[0].body
    return body[0] if len(body) == 1 else None
