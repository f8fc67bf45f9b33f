"""Random steps of a schedule, with arguments that their primitive often accepts.

In: a `Trial`, a schedule that grows.  Each entry of `STEPS` draws the arguments of one primitive.
Whether a step is accepted is the primitive's decision: what is drawn here may be nonsense.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from graphflow.arith import constant_value
from graphflow.schedule import (
    absorb_padding,
    assume_finite,
    assume_reciprocal,
    bind_expr,
    cache_read,
    cache_write,
    cut_loop,
    divide_loop,
    eliminate_dead_code,
    fission,
    fuse,
    lift_alloc,
    lift_conditions,
    mark_unrolled,
    merge_conditions,
    mult_loops,
    parallelize_loop,
    partition_loop,
    remove_branching_through_overcompute,
    remove_no_op,
    reorder_loops,
    replace_known_loads,
    restrict_loop,
    reverse_compute_at,
    rfactor,
    sequential_buffer_access,
    shift_loop,
    simplify,
    sink_alloc,
    split_condition,
    stage_mem,
    state_padding,
    stride_loop,
    transform_layout,
    vectorize_loop,
)
from graphflow.tir import (
    FLOATS,
    AccessKind,
    Allocate,
    Block,
    For,
    accesses,
    loops_of,
)
from support.schedules.schedule_trial import Trial

Chosen = tuple[Callable[..., Any], tuple[Any, ...]] | None


# One step -----------------------------------------------------------------------------------------


def _pair(t: Trial) -> tuple[str, str] | None:
    """A loop that is the whole body of another one, outer first."""
    found = [
        (loop.var.name, loop.body[0].var.name)
        for loop in (t.computing() if t.dice.chance(0.75) else t.loops())
        if len(loop.body) == 1 and isinstance(loop.body[0], For)
    ]
    return t.dice.among(found) if found else None


def _neighbours(t: Trial, kind: type) -> tuple[str, str] | None:
    """Two loops or blocks that follow each other, with nothing but allocations between."""
    found = []
    for body in t.bodies():
        working = [s for s in body if not isinstance(s, Allocate)]
        for a, b in pairwise(working):
            if isinstance(a, kind) and isinstance(b, kind):
                found.append((_place(a), _place(b)))
    return t.dice.among(found) if found else None


def _place(stmt: For | Block) -> str:
    return stmt.var.name if isinstance(stmt, For) else stmt.name


def _loop(t: Trial) -> For:
    return t.dice.among(t.computing() if t.dice.chance(0.75) else t.loops())


def _divide(t: Trial) -> Chosen:
    tail = t.dice.among(("perfect", "guard", "guard", "cut", "cut_and_guard"))
    loop = _loop(t)
    factors = [f for f in range(2, 9) if tail != "perfect" or (loop.extent or 1) % f == 0]
    return divide_loop, (loop.var.name, t.dice.among(factors or [1]), (t.name(), t.name()), tail)


def _mult(t: Trial) -> Chosen:
    pair = _pair(t)
    return (mult_loops, (*pair, t.name())) if pair else None


def _reorder(t: Trial) -> Chosen:
    pair = _pair(t)
    if not pair:
        return None
    inner = next(loop for loop in t.loops() if loop.var.name == pair[1])
    third = inner.body[0] if len(inner.body) == 1 else None
    if isinstance(third, For) and t.dice.chance(0.4):
        return reorder_loops, (t.dice.shuffled([*pair, third.var.name]),)
    return reorder_loops, (pair[::-1],)


def _cut(t: Trial) -> Chosen:
    loop = _loop(t)
    start = constant_value(loop.start) or 0
    most = max(loop.extent or 3, 0)  # its stop may be below its start
    return cut_loop, (loop.var.name, start + t.dice.between(0, most), t.suffix())


def _fission(t: Trial) -> Chosen:
    loops = [loop for loop in t.loops() if len(loop.body) > 1]
    if not loops:
        return None
    loop = t.dice.among(loops)
    at = t.dice.between(1, len(loop.body) - 1)
    return fission, (loop.var.name, at, t.suffix(), t.dice.weighted({1: 3, 2: 1}))


def _fuse(t: Trial) -> Chosen:
    pair = _neighbours(t, For if t.dice.chance(0.6) else Block)
    return (fuse, pair) if pair else None


def _compute_at(t: Trial) -> Chosen:
    pair = _neighbours(t, Block)
    return (reverse_compute_at, pair[::-1]) if pair else None


def _stage(t: Trial) -> Chosen:
    loop = _loop(t)
    touched = list(dict.fromkeys(a.buffer.name for a in accesses(loop.body)))
    if not touched:
        return None
    buffer = t.dice.among(touched)
    used = {v for a in accesses(loop.body) if a.buffer.name == buffer for v in map(str, a.indices)}
    inner = [s.var.name for s in loops_of(loop.body)]
    dims = [n for n in inner if any(n in text for text in used)]
    if t.dice.chance(0.2):
        dims = inner[: t.dice.between(0, 2)]
    scope = t.dice.among(("register", "scratch", "global"))
    return stage_mem, (loop.var.name, buffer, t.name(), tuple(dims), scope)


def _bind(t: Trial) -> Chosen:
    found = [
        (loop.var.name, name)
        for loop in t.loops()
        for name in dict.fromkeys(a.buffer.name for a in accesses(loop.body))
        if {a.kind for a in accesses(loop.body) if a.buffer.name == name} == {AccessKind.READ}
    ]
    return (bind_expr, (*t.dice.among(found), t.name())) if found else None


def _lift(t: Trial) -> Chosen:
    inner = [s.buffer.name for loop in t.loops() for s in loop.body if isinstance(s, Allocate)]
    return (lift_alloc, (t.dice.among(inner), t.dice.weighted({1: 3, 2: 1}))) if inner else None


def _sink(t: Trial) -> Chosen:
    found = [s.buffer.name for body in t.bodies() for s in body if isinstance(s, Allocate)]
    scope = t.dice.among(("register", "scratch", "global"))
    return (sink_alloc, (t.dice.among(found), _loop(t).var.name, scope)) if found else None


def _rfactor(t: Trial) -> Chosen:
    reducing = [
        (loop, access.buffer.name)
        for loop in t.loops()
        for access in accesses(loop.body)
        if access.op is not None
    ]
    if not reducing:
        return None
    loop, buffer = t.dice.among(reducing)
    along = t.dice.among([x.var.name for x in loops_of((loop,))])
    return rfactor, (loop.var.name, along, buffer, t.dice.between(1, 5), t.name())


def _transform(t: Trial) -> Chosen:
    buffers = [b for b in t.buffers() if b.shape]
    if not buffers:
        return None
    buffer = t.dice.among(buffers)
    layout = t.layout(buffer.shape)
    pad = t.pad(buffer, layout, t.reduced_by(buffer)) if layout else None
    return (transform_layout, (buffer.name, layout, pad)) if layout else None


def _sequential(t: Trial) -> Chosen:
    blocks = t.blocks()
    if not blocks:
        return None
    block = t.dice.among(blocks)
    touched = list(dict.fromkeys(a.buffer for a in accesses(block.body) if a.buffer.shape))
    if not touched:
        return None
    buffer = t.dice.among(touched)
    names = tuple(t.name() for _ in buffer.shape)
    return sequential_buffer_access, (block.name, buffer.name, names, t.dice.chance(0.4))


def _overcompute(t: Trial) -> Chosen:
    places = t.guarded()
    if not places:
        return None
    about = _loop(t).var.name if t.dice.chance(0.15) else None
    outside = t.dice.chance(0.2), t.dice.chance(0.5)
    return remove_branching_through_overcompute, (t.dice.among(places), about, *outside)


def _absorb(t: Trial) -> Chosen:
    padded = [
        dict(b.annotations)["padding_of"] for b in t.blocks() if "padding_of" in dict(b.annotations)
    ]
    blocks = t.blocks()
    return (absorb_padding, (t.dice.among(blocks).name, t.dice.among(padded))) if padded else None


def _input(primitive: Callable[..., Any]) -> Callable[[Trial], Chosen]:
    """Stating something of an input of floats."""

    def choose(t: Trial) -> Chosen:
        names = [b.name for b in t.func.inputs if b.dtype in FLOATS]
        return (primitive, (t.dice.among(names), "the test makes it so")) if names else None

    return choose


def _state(t: Trial) -> Chosen:
    output = t.dice.among(t.func.outputs)
    value = "undef" if t.dice.chance(0.3) else t.number(output)
    return state_padding, (output.name, value)


def on_loop(primitive: Callable[..., Any]) -> Callable[[Trial], Chosen]:
    return lambda t: (primitive, (_loop(t).var.name,))


def on_guarded(primitive: Callable[..., Any]) -> Callable[[Trial], Chosen]:
    def choose(t: Trial) -> Chosen:
        loops = [name for name in t.guarded() if any(s.var.name == name for s in t.loops())]
        return (primitive, (t.dice.among(loops),)) if loops else None

    return choose


STEPS: dict[str, tuple[float, Callable[[Trial], Chosen]]] = {
    "divide_loop": (3, _divide),
    "mult_loops": (1.5, _mult),
    "reorder_loops": (2.5, _reorder),
    "cut_loop": (1, _cut),
    "shift_loop": (1.5, lambda t: (shift_loop, (_loop(t).var.name, t.dice.between(0, 5)))),
    "fission": (2, _fission),
    "fuse": (1.5, _fuse),
    "reverse_compute_at": (1.2, _compute_at),
    "cache_read": (1.5, lambda t: (cache_read, (t.dice.among(t.func.inputs).name, t.name()))),
    "cache_write": (1.5, lambda t: (cache_write, (t.dice.among(t.func.outputs).name, t.name()))),
    "transform_layout": (3, _transform),
    "sequential_buffer_access": (2.5, _sequential),
    "overcompute": (2.5, _overcompute),
    "absorb_padding": (1.5, _absorb),
    "stage_mem": (2.5, _stage),
    "bind_expr": (1, _bind),
    "lift_alloc": (1, _lift),
    "sink_alloc": (1.5, _sink),
    "rfactor": (1.5, _rfactor),
    "simplify": (1, lambda t: (simplify, ())),
    "eliminate_dead_code": (1, lambda t: (eliminate_dead_code, ())),
    "remove_no_op": (0.5, lambda t: (remove_no_op, ())),
    "merge_conditions": (0.5, lambda t: (merge_conditions, ())),
    "replace_known_loads": (0.5, lambda t: (replace_known_loads, ())),
    "partition_loop": (0.7, on_guarded(partition_loop)),
    "lift_conditions": (1, on_guarded(lift_conditions)),
    "restrict_loop": (1.2, on_guarded(restrict_loop)),
    "stride_loop": (0.7, on_guarded(stride_loop)),
    "split_condition": (0.7, on_guarded(split_condition)),
    "assume_finite": (0.5, _input(assume_finite)),
    "assume_reciprocal": (0.3, _input(assume_reciprocal)),
    "state_padding": (0.3, _state),
    "parallelize_loop": (1, on_loop(parallelize_loop)),
    "vectorize_loop": (1.2, on_loop(vectorize_loop)),
    "mark_unrolled": (0.6, on_loop(mark_unrolled)),
}
NEEDS_NO_LOOP = (
    "cache_read",
    "cache_write",
    "transform_layout",
    "simplify",
    "reverse_compute_at",
    "eliminate_dead_code",
    "absorb_padding",
    "assume_finite",
    "state_padding",
)


def random_step(t: Trial) -> bool:
    """One step with drawn arguments; False where it does not apply or is refused."""
    names = list(STEPS) if t.loops() else list(NEEDS_NO_LOOP)
    chosen = STEPS[t.dice.weighted({name: STEPS[name][0] for name in names})][1](t)
    return chosen is not None and t.step(chosen[0], *chosen[1])
