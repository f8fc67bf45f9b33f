"""A definition as one nest over the axes of its output, by steps of a schedule.

In: the schedule of a definition of one or several stages.  Out: the schedule in which they are one
nest, with one loop for each axis.  Roles are read off that nest, and tiles are made of it.
"""

from __future__ import annotations

from graphflow import arith, tir
from graphflow.schedule import Schedule, mult_loops, reverse_compute_at


def merge_stages(s: Schedule) -> Schedule:
    """`A: nest of S1; B: nest of S2; …` → `A: nest of {S1; S2; …}`.

    StepRefused where a later stage reads of an earlier one another element than its own.
    """
    s = join_axes(s)
    blocks = s.handles(stmt for stmt in s.func.body if isinstance(stmt, tir.Block))
    for block in blocks[1:]:
        s = s.apply(reverse_compute_at, s[block], s[blocks[0]])
    return s


def join_axes(s: Schedule) -> Schedule:
    """`for i: for j in (0, k): b[k·i + j] = …` → `for c: b[c] = …`, for each such stored axis.

    The definition of a grouped convolution has such loops, over groups and over the channels in
    one; the recipes work with one loop for each axis of the output.
    """
    pair = _two_of_one_axis(s.func)
    if pair is None:
        return s
    outer, inner = s.handles(pair)
    return join_axes(s.apply(mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner)))


def _two_of_one_axis(func: tir.PrimFunc) -> tuple[tir.For, tir.For] | None:
    """The first loop, and the loop that is its body, that run along one stored axis together."""
    for access in tir.accesses(func.body):
        if access.kind is not tir.AccessKind.WRITE:
            continue
        for index in access.indices:
            terms, offset = arith.terms_of(index)
            if len(terms) != 2 or offset or terms[1][1] != 1:
                continue
            loops = {stmt.var: stmt for stmt in tir.loops_of(func.body)}
            outer, inner = (loops.get(atom) for atom, _ in terms)  # type: ignore[call-overload]
            if outer is None or inner is None or inner.extent != terms[0][1]:
                continue
            if outer.body == (inner,):
                return outer, inner
    return None
