"""Flattening: a buffer with one axis for each group of axes between its separators.

In: a kernel and a buffer.  Out: the kernel with the buffer flattened, as `transform_layout` does
it.  What always holds: a flattened buffer has one axis more than the buffer has separators, and
flattening it again changes nothing.
"""

from __future__ import annotations

from itertools import pairwise

from graphflow import arith, tir
from graphflow.layout import IndexMap, Layout
from graphflow.schedule.buffers.layouts import transform_layout
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import Rewrite


def flatten_buffer(func: tir.PrimFunc, buffer: str) -> Rewrite:
    """`a[i, j, k]`, separated behind axis 0 → `a[i, K·j + k]`: an axis for each group of axes.

    Safe where every access is in bounds along each axis: an index that leaves its own axis would
    reach another element of the flat one, and no check would see it.  The interface changes, as by
    `transform_layout`.
    """
    old = places.find_buffer(func, buffer)
    groups = list(pairwise((0, *old.separators, len(old.shape))))
    if all(stop - start <= 1 for start, stop in groups):
        return Rewrite(func)
    proofs = []
    for access in tir.accesses(func.body):
        if access.buffer == old:
            sides = zip(access.indices, old.shape, strict=True)
            inside = arith.conjunction(
                side for e, n in sides for side in (arith.at_least_zero(e), arith.less_than(e, n))
            )
            text = tir.element_text(old, access.indices)
            proofs.append(
                obligations.require(arith.prove(inside, access.domain), f"{text} is in bounds")
            )
    parts = [tir.Buffer(f"axis{k}", old.shape[slice(*group)]) for k, group in enumerate(groups)]

    def flat(*indices: arith.Var) -> tuple[arith.IndexExpr, ...]:
        return tuple(
            arith.weighted(zip(indices[slice(*group)], part.strides, strict=True))
            for group, part in zip(groups, parts, strict=True)
        )

    index_map = IndexMap.from_function(len(old.shape), flat, old.shape)
    separators = tuple(range(1, len(parts)))
    layout = Layout.of(index_map, old.shape, tuple(part.size for part in parts), separators)
    done = transform_layout(func, buffer, layout)
    return Rewrite(done.func, (*dict.fromkeys(proofs), *done.proofs), done.places, done.made)
