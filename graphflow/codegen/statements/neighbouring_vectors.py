"""Vectors of several iterations that are stored as one: their indices, and where they lie.

In: iterations of unrolled loops, each of which stores one vector, and the vectorized loop that they
execute.  Out: the context in which the statements of one iteration have its indices in lanes, and
whether vectors are neighbours in memory.  What always holds: all lanes of a vector are executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from graphflow import tir
from graphflow.arith import Var, const
from graphflow.base.fields import replace
from graphflow.codegen.emit_index import Indices, Lanes
from graphflow.codegen.memory import Address


@contextmanager
def iteration_in_lanes(
    indices: Indices, point: Mapping[Var, int], lanes: tir.For, width: int
) -> Iterator[None]:
    """Within it the variables of unrolled loops are the numbers of `point`, and that of `lanes` is
    a vector of so many lanes."""
    with ExitStack() as bound:
        for var, value in point.items():
            bound.enter_context(indices.bound(var, const(value)))
        own = Lanes(Var(f"{lanes.var}.lane"), width, width)
        bound.enter_context(indices.vectorized(lanes.var, lanes.start, own))
        yield


def follow_one_another(places: Sequence[Address], width: int) -> bool:
    """Whether vectors of so many elements, which begin at `places`, lie one behind the other."""
    first = places[0]
    return all(
        place == replace(first, constant=first.constant + number * width)
        for number, place in enumerate(places)
    )
