"""Find blocks of nodes that repeat, such as the layers of a network.

In: a key for each node of the imported model, in its order.  Out: `ShownBlock`s that do not
overlap, in that order; and for a program that was compiled from the model, its nodes that compute
these blocks.  What always holds: the repetitions of a block follow each other without a gap and
have equal keys in the model.  As nodes stand behind those that they depend on, no path leaves a
block and comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphflow.inspect.page.page_data import ShownBlock

LEAST_PERIOD = 2
"""One operator that repeats is shown as it is."""

LEAST_FOLDED = 6
"""The fewest nodes, of all repetitions together, that are worth a fold."""


class _Repeated(NamedTuple):
    """`times` repetitions of `period` nodes; they may begin at node `first`, or as many as `slack`
    nodes later."""

    first: int
    period: int
    times: int
    slack: int

    def block(self) -> ShownBlock:
        after = self.first + self.period * self.times
        return ShownBlock(tuple(range(self.first, after, self.period)), after)


def repeated_blocks(keys: Sequence[str], widths: Sequence[int]) -> tuple[ShownBlock, ...]:
    """The blocks: first the one of the greatest use, then those of what is left on both sides.

    A fold replaces `period * count` nodes by one.  Its use is the number of nodes saved, `period *
    (count - 1)`, times the share of them that is saved, so that seven repetitions of a layer
    are preferred to two of half the network.  Of equal uses the shorter period is taken, then the
    first place.

    `widths` counts for each node the tensors that pass from nodes before it to it and later ones.
    Where repetitions can begin at several nodes, they begin where the fewest tensors pass from one
    to the next, so that a layer begins with the tensor that the layer before it returns; of several
    such nodes the last is taken.
    """
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    codes = np.array([numbers[key] for key in keys], dtype=np.int64)
    return tuple(_blocks(codes, widths))


def _blocks(codes: NDArray[np.int64], widths: Sequence[int]) -> Iterator[ShownBlock]:
    """The blocks in order; the parts on both sides of one are searched when their turn comes."""
    waiting: list[tuple[int, int] | ShownBlock] = [(0, len(codes))]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ShownBlock):
            yield part
            continue
        first, after = part
        found = _most_useful(codes[first:after])
        if found is not None:
            block = _moved(found._replace(first=first + found.first), widths).block()
            waiting += [(block.after, after), block, (first, block.starts[0])]


def _most_useful(codes: NDArray[np.int64]) -> _Repeated | None:
    """The block of the greatest use in these keys; None if there is none.

    Where keys equal those `period` places before for a run of n places, n // period + 1
    repetitions begin with that run.
    """
    best, greatest = None, 0.0
    for period in range(LEAST_PERIOD, len(codes) // 2 + 1):
        starts, lengths = _runs(codes[period:] == codes[:-period])
        if not lengths.size:
            continue
        place = int(lengths.argmax())
        count, slack = int(lengths[place]) // period + 1, int(lengths[place]) % period
        use = period * (count - 1) ** 2 / count
        if period * count >= LEAST_FOLDED and use > greatest:
            best, greatest = _Repeated(int(starts[place]), period, count, slack), use
    return best


def _moved(found: _Repeated, widths: Sequence[int]) -> _Repeated:
    """The same repetitions, from the node on where the fewest tensors pass between them."""

    def passing(shift: int) -> tuple[int, int]:
        _, *later = found._replace(first=found.first + shift).block().starts
        return sum(widths[start] for start in later), -shift

    return found._replace(first=found.first + min(range(found.slack + 1), key=passing))


def _runs(flags: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The beginnings and the lengths of the runs of true flags."""
    edges = np.diff(np.concatenate(([False], flags, [False])).astype(np.int8))
    starts = np.flatnonzero(edges == 1)
    return starts, np.flatnonzero(edges == -1) - starts


def widths_before(arrows: Sequence[tuple[int, int, str]], count: int) -> list[int]:
    """For each of `count` nodes, how many tensors pass from nodes before it to it and later ones;
    an arrow is a tensor on its way from one node to a later one."""
    reach: dict[str, tuple[int, int]] = {}
    for start, end, tensor in arrows:
        first, last = reach.get(tensor, (start, end))
        reach[tensor] = (min(first, start), max(last, end))
    changes = np.zeros(count + 1, dtype=np.int64)
    for first, last in reach.values():
        changes[first + 1] += 1
        changes[last + 1] -= 1
    return [int(width) for width in np.cumsum(changes[:count])]


def blocks_of_program(
    blocks: Sequence[ShownBlock], program_nodes: Sequence[Sequence[int]], count: int
) -> tuple[ShownBlock, ...]:
    """The blocks of the imported model in the program, which has `count` nodes.

    `program_nodes` are for each node of the model the numbers of the program's nodes that compute
    it.  A repetition in the program has these nodes and the copies between them, so repetitions may
    differ there.  A node that computes several of the model's counts for the last one.  For example
    the model is two layers of two nodes, and node 2 of the program is a copy:

        model      0  1 │ 2  3        a block from 0, again from 2, up to 4
        program    0  1   2   3  4    program_nodes = ((0,), (1,), (3,), (4,)):
                   ── ──     ── ──    a block from 0, again from 3, up to 5

    A block is left out where the program mixes the nodes of several repetitions, has none for one,
    or too few to be worth a fold.
    """
    model_nodes: list[int | None] = [None] * count
    for number, computing in enumerate(program_nodes):
        for node in computing:
            model_nodes[node] = number
    found = (_block_of_program(block, model_nodes) for block in blocks)
    return tuple(block for block in found if block is not None)


def _block_of_program(block: ShownBlock, model_nodes: Sequence[int | None]) -> ShownBlock | None:
    """A block of the model in the program, each of whose nodes computes one of `model_nodes`."""
    bounds = [*block.starts, block.after]
    starts, after = [], 0
    for first, last in pairwise(bounds):
        nodes = [k for k, n in enumerate(model_nodes) if n is not None and first <= n < last]
        if not nodes or nodes[0] < after:
            return None
        starts.append(nodes[0])
        after = nodes[-1] + 1
    inside = (n for n in model_nodes[starts[0] : after] if n is not None)
    is_whole = all(bounds[0] <= n < bounds[-1] for n in inside)
    is_large = after - starts[0] >= max(LEAST_FOLDED, LEAST_PERIOD * len(starts))
    return ShownBlock(tuple(starts), after) if is_whole and is_large else None
