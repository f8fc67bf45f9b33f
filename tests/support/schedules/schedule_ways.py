"""Sequences of primitives that lead a random schedule to overcompute, or to another loop order.

In: a `Trial`.  Out: the same, further on.  A step that is refused is left out.
"""

from collections.abc import Callable
from math import prod

from graphflow.arith import bounds, variables
from graphflow.layout import IndexMap, Layout
from graphflow.schedule import (
    absorb_padding,
    assume_finite,
    cache_read,
    cache_write,
    divide_loop,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.tir import FLOATS, AccessKind, Block, Buffer, Reduce, accesses, loops_of, walk
from support.primitives.choices import MOST_PLACES
from support.schedules.schedule_steps import BY_NAME, random_step, step_of
from support.schedules.schedule_trial import OVERCOMPUTE, Trial
from support.strategies import transformed


def _run_over(t: Trial, block: str, buffer: str) -> None:
    """Loops in the order of a buffer, its padding absorbed, and no conditions any more."""
    shape = next((b.shape for b in t.buffers() if b.name == buffer), ())
    names = tuple(t.name() for _ in shape)
    if not t.step(sequential_buffer_access, block, buffer, names, t.dice.chance(0.4)):
        divide_under_guard(t, block)
    if t.dice.chance(0.4):
        t.step(absorb_padding, block, buffer)
    t.step(remove_branching_through_overcompute, block)


def divide_under_guard(t: Trial, block: str) -> None:
    """A loop of a stage divided by what does not divide it."""
    stmt = next(b for b in t.blocks() if b.name == block)
    loops = [loop for loop in loops_of(stmt.body) if (loop.extent or 0) > 2]
    if loops:
        loop = t.dice.among(loops)
        factor = t.dice.among([f for f in range(2, 9) if (loop.extent or 1) % f] or [2])
        t.step(divide_loop, loop.var.name, factor, (t.name(), t.name()), "guard")


def _cached(t: Trial) -> dict[str, str]:
    """Some parameters in caches; from the old name to that which the stages use now."""
    names: dict[str, str] = {}
    for param in t.func.params:
        old, new = param.buffer.name, t.name(("xc", "yc", "i.c", "v_x"))
        primitive = cache_read if param.buffer in t.func.inputs else cache_write
        if t.dice.chance(0.35) and t.step(primitive, old, new):
            names[old] = new
    return names


def box_of_elements(t: Trial) -> None:
    """Input and output in one layout, padded; all of the box is computed."""
    _cached(t)
    blocks = t.blocks(stages=False)
    if not blocks:
        return
    block = t.dice.among(blocks)
    touched = accesses(block.body)
    target = next((a.buffer for a in touched if a.writes and a.buffer.shape), None)
    layout = t.layout(target.shape, padded=True) if target else None
    if target is None or layout is None:
        return
    for buffer in dict.fromkeys(a.buffer for a in touched):
        if buffer.shape == target.shape and (buffer == target or t.dice.chance(0.8)):
            free = t.dice.chance(0.8 if buffer == target else 0.6)
            t.step(
                transform_layout, buffer.name, layout, "undef" if free else t.pad(buffer, layout)
            )
    _run_over(t, block.name, target.name)


def box_of_terms(t: Trial) -> None:
    """What a reduction takes in, padded with what changes nothing, and all of it is taken in."""
    if t.dice.chance(0.4):
        _cached(t)
    found = [
        (block, stmt)
        for block in t.blocks(stages=False)
        for stmt in walk(block.body)
        if isinstance(stmt, Reduce)
    ]
    if not found:
        return
    block, stmt = t.dice.among(found)
    loads = [a.buffer for a in accesses((stmt,)) if a.kind is AccessKind.READ and a.buffer.shape]
    loads = [b for b in dict.fromkeys(loads) if b != stmt.buffer]
    if not loads:
        return
    _finite(t)
    first = t.dice.among(loads)
    for buffer in loads:
        layout = t.layout(buffer.shape, padded=True)
        if layout is not None and (buffer == first or t.dice.chance(0.5)):
            t.step(transform_layout, buffer.name, layout, t.pad(buffer, layout, stmt.op))
    if t.dice.chance(0.4) and stmt.buffer.shape:
        layout = t.layout(stmt.buffer.shape)
        if layout is not None:
            t.step(transform_layout, stmt.buffer.name, layout, "undef")
    _run_over(t, block.name, first.name)


def more_terms(t: Trial) -> None:
    """A loop of a reduction divided under a guard, what it takes in padded as far as it reaches."""
    if t.dice.chance(0.3):
        _cached(t)
    found = [
        (block, loop, stmt)
        for block in t.blocks(stages=False)
        for loop in loops_of(block.body)
        for stmt in walk(loop.body)
        if isinstance(stmt, Reduce) and all(loop.var not in variables(e) for e in stmt.indices)
    ]
    if not found:
        return box_of_terms(t)
    block, loop, stmt = t.dice.among(found)
    if t.dice.chance(0.8):
        _finite(t)
    factor = t.dice.among([f for f in range(2, 9) if (loop.extent or 1) % f] or [2])
    t.step(divide_loop, loop.var.name, factor, (t.name(), t.name()), "guard")
    block = next(b for b in t.blocks() if b.name == block.name)
    for buffer in dict.fromkeys(
        a.buffer for a in accesses(block.body) if a.kind is AccessKind.READ
    ):
        layout = reached(buffer, block)
        if buffer == stmt.buffer or layout is None or not layout.is_padded:
            continue
        if t.dice.chance(0.3):
            rank = len(layout.physical_shape)
            more = IndexMap.split(rank, t.dice.between(0, rank - 1), t.dice.among((2, 4)))
            layout = transformed(layout, more)
        pad = t.number(buffer, stmt.op) if t.dice.chance(0.8) else t.pad(buffer, layout, stmt.op)
        t.step(transform_layout, buffer.name, layout, pad)
    t.step(remove_branching_through_overcompute, block.name)
    return None


def _finite(t: Trial) -> None:
    for buffer in t.func.inputs:
        if buffer.dtype in FLOATS and t.dice.chance(0.6):
            t.step(assume_finite, buffer.name, "the test makes it so")


def border_of_reads(t: Trial) -> None:
    """Each buffer that a stage reads padded as far as its loops reach, then without conditions."""
    _cached(t)
    blocks = [b for b in t.blocks(stages=False) if b.name in t.guarded()]
    if not blocks:
        return
    block = t.dice.among(blocks)
    _finite(t)
    written = {a.buffer for a in accesses(block.body) if a.writes}
    for buffer in dict.fromkeys(a.buffer for a in accesses(block.body) if a.buffer.shape):
        layout = reached(buffer, block)
        if layout is None or not (layout.is_padded or t.dice.chance(0.3)):
            continue
        if t.dice.chance(0.4):
            rank = len(layout.physical_shape)
            more = IndexMap.split(rank, t.dice.between(0, rank - 1), t.dice.among((2, 4, 8)))
            layout = transformed(layout, more)
        pad = "undef" if buffer in written else t.pad(buffer, layout, t.reduced_by(buffer))
        if layout.is_padded:
            t.step(transform_layout, buffer.name, layout, pad)
    places = [s.var.name for s in loops_of(block.body)][::-1]
    place = block.name if t.dice.chance(0.5) or not places else places[0]
    t.step(remove_branching_through_overcompute, place)


def reached(buffer: Buffer, block: Block) -> Layout | None:
    """The buffer in a box that holds all that the loops of a stage reach, conditions aside."""
    low, high = [0] * len(buffer.shape), [n - 1 for n in buffer.shape]
    for access in accesses(block.body):
        if access.buffer != buffer:
            continue
        for k, index in enumerate(access.indices):
            least, most = bounds(index, access.domain.ranges())
            if least is None or most is None:
                return None
            low[k], high[k] = min(low[k], least), max(high[k], most)
    box = [h - a + 1 for a, h in zip(low, high, strict=True)]
    if prod(box) > MOST_PLACES:
        return None
    return Layout.of(IndexMap.shift([-a for a in low]), buffer.shape, box)


def divided_and_run_over(t: Trial) -> None:
    """A loop divided under a guard, and the buffers that it then reaches made longer."""
    if t.blocks(stages=False):
        divide_under_guard(t, t.dice.among(t.blocks(stages=False)).name)
        border_of_reads(t)


def another_order(t: Trial) -> None:
    """Iterations that change their order, or run at once."""
    for _ in range(t.dice.between(1, 3)):
        name = t.dice.among(
            (
                "reorder_loops",
                "parallelize_loop",
                "vectorize_loop",
                "reorder_loops",
                "fission",
                "stage_mem",
                "sequential_buffer_access",
            )
        )
        step_of(t, BY_NAME[name])


WAYS: dict[str, tuple[float, Callable[[Trial], None]]] = {
    "box_of_elements": (3, box_of_elements),
    "box_of_terms": (3, box_of_terms),
    "more_terms": (3, more_terms),
    "border_of_reads": (2.5, border_of_reads),
    "divided_and_run_over": (1.5, divided_and_run_over),
    "another_order": (2, another_order),
}


def random_schedule(t: Trial, way: str | None = None) -> None:
    """Mostly ways to overcompute, or the `way` that is named, and one to ten steps around them."""
    steps = t.dice.between(1, 10)
    shares = {name: weight for name, (weight, _) in WAYS.items() if way in (None, name)}
    at = t.dice.among((0, 0, 0, 1, 2, 4)) if t.dice.chance(0.85) else steps
    for k in range(steps):
        if at <= k < at + 2 and not t.taken[OVERCOMPUTE]:
            WAYS[t.dice.weighted(shares)][1](t)
        random_step(t)
