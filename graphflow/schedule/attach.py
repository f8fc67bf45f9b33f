"""Computing one stage inside the loops of another one.

In: a kernel with two stages, where each iteration of the second reads only what the same iteration
of the first computes.  Out: the kernel with their loops joined, so that a later step can keep the
intermediate in registers.
"""

from __future__ import annotations

from dataclasses import replace

from graphflow.arith import Proof
from graphflow.base.errors import ScheduleError
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.parts import fuse
from graphflow.schedule.places import find, rewrite_at
from graphflow.tir import Block, BlockNote, For, PrimFunc, Stmt


def compute_at(func: PrimFunc, tail: str, block: str) -> Rewrite:
    """`block: for i: for j: S1` and `tail: for k: for l: S2` → `block: for i: for j: {S1; S2}`.

    The tail must follow the block, and each of its iterations may read only what the same iteration
    of the block computes.  Loops are joined from the outside in, each under the conditions of
    `fuse`, until one of the two has no single loop left.  The tail's annotations go, for it is no
    stage of its own any more.  ScheduleError where not even the outermost loops can be joined, and
    where one of the two states padding.

    Makes the block and the joined loops in it, from the outermost in, in the role `joined`.
    """
    done = fuse(_unmarked(func, tail, block), block, tail)
    proofs: list[Proof] = list(done.proofs)
    places: dict[str, tuple[str, ...]] = {tail: (block,)}
    new = done.func
    stmt, _ = find(new, block)
    assert isinstance(stmt, Block)
    if len(stmt.body) < 2:
        raise ScheduleError(f"one of {tail} and {block} does nothing, so there is nothing to join")
    pair = stmt.body[-2:]
    while (names := _both_loops(pair)) is not None:
        joined = fuse(new, *names)
        new, proofs = joined.func, [*proofs, *joined.proofs]
        places[names[1]] = (names[0],)
        loop, _ = find(new, names[0])
        assert isinstance(loop, For)
        if len(loop.body) != 2:
            break
        pair = loop.body
    if len(places) == 1:
        raise ScheduleError(f"{tail} and {block} do not both begin with a loop")
    joint = tuple(dict.fromkeys(name for names in places.values() for name in names))
    return Rewrite(new, tuple(dict.fromkeys(proofs)), places, {"joined": joint})


def _unmarked(func: PrimFunc, tail: str, block: str) -> PrimFunc:
    kept, _ = find(func, block)
    stmt, _ = find(func, tail)
    if not isinstance(kept, Block) or not isinstance(stmt, Block):
        raise ScheduleError(f"{tail} and {block} must both be blocks")
    if any(block.note(BlockNote.PADDING_OF) for block in (kept, stmt)):
        raise ScheduleError(f"one of {tail} and {block} states where padding lies, and must stay")
    return rewrite_at(func, tail, lambda _s, _d: (replace(stmt, annotations=kept.annotations),))


def _both_loops(pair: tuple[Stmt, ...]) -> tuple[str, str] | None:
    first, second = pair
    if isinstance(first, For) and isinstance(second, For):
        return first.var.name, second.var.name
    return None
