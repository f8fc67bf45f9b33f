"""The largest magnitude of an element of a block of keys, for bounds of products with them.

In: an element of a key, and the loops over these elements.  Out: statements that find the maximum,
in vectors along the keys or along the elements of one, whichever are contiguous in memory.

    along the keys:                         along the elements of a key:
        sizes[chain, key] max= |element|        sizes[chain, lane] max= |element|
        most = maximum of sizes                 most = maximum of sizes

What always holds: vectors are several side by side, as a maximum waits for the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, variables
from graphflow.kernels.recipes.analysis.masked_scores import KEY, KEY_BLOCK, ZERO, with_names
from graphflow.kernels.recipes.schedules.band_code import MOST_CHAINS, BandCode, Loop, nested


class KeyElements(Struct, frozen=True):
    """The `element` of a key, `KEY`, in terms of loops: the `inner` one and those `around` it.

    `key_at` is the key at a place of the block.
    """

    element: tir.Load
    around: tuple[tir.For, ...]
    inner: tir.For
    key_at: Callable[[IndexExpr], IndexExpr]

    def reduced(self, sizes: tir.Load, names: Mapping[Var, IndexExpr], place: Var) -> tir.Body:
        """One of the `sizes` takes in an element of the key at a place."""
        value = tir.Unary("abs", with_names(self.element, {**names, KEY: self.key_at(place)}))
        return (tir.Reduce(tir.ReduceOp.MAX, sizes.buffer, sizes.indices, value),)


def largest_element(code: BandCode, most: tir.Buffer, keys: KeyElements) -> tir.Body:
    """The statements that store the largest magnitude in `most`."""
    around = [code.loop("sized", x.extent or 1) for x in keys.around]
    names: dict[Var, IndexExpr] = {
        x.var: loop[0] for x, loop in zip(keys.around, around, strict=True)
    }
    place = code.loop("sized_key", KEY_BLOCK)
    if KEY in variables(keys.element.indices[-1]):
        sizes, loop, body = _along_keys(code, keys, names)
    else:
        sizes, body = _along_elements(code, keys, names, place[0])
        loop = place
    chains, lanes = sizes.shape
    every = [
        (code.unrolled(name, chains), code.vector(f"{name}_v", lanes))
        for name in ("cleared", "folded")
    ]
    clear, fold = (tuple(x[0] for x in loops) for loops in every)
    largest = tir.Reduce(tir.ReduceOp.MAX, most, (), tir.Load(sizes, fold))
    return (
        *nested(every[0], (tir.Store(sizes, clear, ZERO),)),
        *nested((*around, loop), body),
        tir.Store(most, (), ZERO),
        *nested(every[1], (largest,)),
    )


def _along_keys(
    code: BandCode, keys: KeyElements, names: Mapping[Var, IndexExpr]
) -> tuple[tir.Buffer, Loop, tir.Body]:
    """The sizes of the keys of a block, in a vector for each of some elements; the loop over the
    groups of these, and its statements."""
    extent = keys.inner.extent or 1
    chains = max(n for n in range(1, MOST_CHAINS + 1) if extent % n == 0)
    group = code.loop("sized_term", extent // chains)
    place = code.vector("sized_key_v", KEY_BLOCK)
    sizes = code.buffer("key_sizes", (chains, KEY_BLOCK))
    chain = code.unrolled("sized_u", chains)
    at = {**names, keys.inner.var: group[0] * chains + chain[0]}
    body = keys.reduced(tir.Load(sizes, (chain[0], place[0])), at, place[0])
    return sizes, group, nested((chain, place), body)


def _along_elements(
    code: BandCode, keys: KeyElements, names: Mapping[Var, IndexExpr], place: Var
) -> tuple[tir.Buffer, tir.Body]:
    """The sizes of the elements of the key at a place of the block in vectors, the last of which
    may be shorter, and the statements for one key."""
    extent = keys.inner.extent or 1
    chains, tail = divmod(extent, code.lanes)
    sizes = code.buffer("key_sizes", (chains + bool(tail), code.lanes))
    body: list[tir.Stmt] = []
    if chains:
        lane, chain = code.vector("sized_v", code.lanes), code.unrolled("sized_u", chains)
        at = {**names, keys.inner.var: chain[0] * code.lanes + lane[0]}
        body += nested((chain, lane), keys.reduced(tir.Load(sizes, (chain[0], lane[0])), at, place))
    if tail:
        lane = code.vector("sized_tail", tail)
        at = {**names, keys.inner.var: lane[0] + (extent - tail)}
        last = tir.Load(sizes, (const(chains), lane[0]))
        body += nested((lane,), keys.reduced(last, at, place))
    return sizes, tuple(body)
