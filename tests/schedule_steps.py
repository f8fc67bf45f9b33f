"""Random steps of a schedule: arguments that a primitive often accepts, and ways to overcompute.

In: a `Trial`, a schedule that grows.  Each entry of `STEPS` draws the arguments of one primitive;
each way of `WAYS` applies several primitives one after another.  Whether a step is accepted is the
primitive's decision: what is drawn here may be nonsense.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

from schedule_kernels import CLASHING, Dice

from graphflow.arith import bounds, constant_value, floor_mod, variables
from graphflow.errors import ScheduleError
from graphflow.layout import IndexMap, Layout, dtype_limits, physical_vars
from graphflow.schedule import (
    PadFunction,
    PadValue,
    Schedule,
    Step,
    absorb_padding,
    assume_finite,
    assume_reciprocal,
    bind_expr,
    cache_read,
    cache_write,
    compute_at,
    cut_loop,
    divide_loop,
    eliminate_dead_code,
    fission,
    fuse,
    lift_alloc,
    lift_conditions,
    mult_loops,
    parallelize_loop,
    remove_branching_through_overcompute,
    reorder_loops,
    restrict_loop,
    sequential_buffer_access,
    shift_loop,
    simplify_kernel,
    split_condition,
    stage_mem,
    state_padding,
    stride_loop,
    transform_layout,
    unroll_loop,
    vectorize_loop,
)
from graphflow.tir import (
    FLOATS,
    Allocate,
    Block,
    Body,
    Buffer,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    PrimFunc,
    Reduce,
    ReduceOp,
    Undef,
    accesses,
    buffers_of,
    is_predicate,
    loops_of,
    verify,
    walk,
)

OVERCOMPUTE = remove_branching_through_overcompute.__name__

MOST_PLACES = 400
"""Elements of a box: a larger one takes longer than it shows."""


class Crashed(Exception):
    """A primitive raised something else than a refusal; the note is the step."""


class Trial:
    """A schedule that grows by random steps; counts what was tried and what was taken."""

    def __init__(self, definition: PrimFunc, dice: Dice) -> None:
        self.schedule = Schedule.of(definition)
        self.dice = dice
        self.tried: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.fresh = 0

    @property
    def func(self) -> PrimFunc:
        return self.schedule.func

    def step(self, primitive: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
        """Whether the primitive accepted and changed something; `Crashed` where it did worse."""
        name = primitive.__name__
        before = self.schedule
        self.tried[name] += 1
        try:
            self.schedule = before.apply(primitive, *arguments, **options)
            if self.schedule is not before:
                verify(self.func, "scheduled")
        except ScheduleError:
            return False
        except Exception as error:
            named = tuple(options.items())
            raise Crashed(Step(primitive, arguments, named, (), {})) from error
        changed = self.schedule is not before
        self.taken[name] += changed
        return changed

    # -- names

    def name(self, pool: tuple[str, ...] = CLASHING) -> str:
        self.fresh += 1
        return self.dice.among(pool) if self.dice.chance(0.2) else f"n{self.fresh}"

    def suffix(self) -> str:
        self.fresh += 1
        return str(self.dice.among((f"_{self.fresh}", f"_s{self.fresh}", "_tail", "_in", "_0")))

    # -- places

    def loops(self) -> list[For]:
        return list(loops_of(self.func.body))

    def computing(self) -> list[For]:
        """The loops outside the stages that copy and pad; all loops where there are none."""
        aside = {
            loop.var
            for block in self.blocks()
            if block.annotations
            for loop in loops_of(block.body)
        }
        return [loop for loop in self.loops() if loop.var not in aside] or self.loops()

    def blocks(self, stages: bool = True) -> list[Block]:
        """The stages that compute; with `stages` those that copy and pad too."""
        found = [s for s in walk(self.func.body) if isinstance(s, Block)]
        return found if stages else [b for b in found if not b.annotations]

    def buffers(self) -> list[Buffer]:
        return list(buffers_of(self.func))

    def guarded(self) -> list[str]:
        """Loops and stages with an index condition inside."""
        return [
            s.var.name if isinstance(s, For) else s.name
            for s in walk(self.func.body)
            if isinstance(s, For | Block)
            and any(isinstance(t, If) and is_predicate(t.condition) for t in walk(s.body))
            and (self.dice.chance(0.1) or not _pads(s))
        ]

    def bodies(self) -> list[Body]:
        return [self.func.body, *(s.body for s in walk(self.func.body) if isinstance(s, Block | For))]

    # -- layouts and padding

    def layout(self, shape: tuple[int, ...], padded: bool = False) -> Layout | None:
        """A random layout whose box is not too large; with `padded` one that has padding."""
        for _ in range(6):
            found = self._layout(shape)
            if prod(found.physical_shape) <= MOST_PLACES and (found.is_padded or not padded):
                return found
        return None

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        dice, rank = self.dice, len(shape)
        chain = IndexMap.identity(rank)
        if dice.chance(0.3):
            chain = chain.then(IndexMap.offset(rank, dice.between(0, rank - 1), dice.between(1, 3)))
        for _ in range(dice.weighted({0: 2, 1: 6, 2: 1})):
            now = chain.physical_rank
            axis, factor = dice.between(0, now - 1), dice.among((2, 3, 4, 4, 5, 8))
            chain = chain.then(IndexMap.split(now, axis, factor, dice.chance(0.5)))
        if dice.chance(0.4):
            chain = chain.then(IndexMap.permute(dice.shuffled(range(chain.physical_rank))))
        found = Layout.of(chain, shape)
        if dice.chance(0.3):
            more = [n + dice.weighted({0: 3, 1: 1, 2: 1}) for n in found.physical_shape]
            found = found.boxed(more)
        return found

    def number(self, buffer: Buffer, op: ReduceOp | None = None) -> float | int:
        """A constant for padding, often what `op` does not change anything by."""
        usual: float | int = 0
        floats = buffer.dtype in FLOATS
        if op is not None:
            low, high = (-float("inf"), float("inf")) if floats else dtype_limits(buffer.dtype)
            usual = {ReduceOp.ADD: 0, ReduceOp.MUL: 1, ReduceOp.MAX: low, ReduceOp.MIN: high}[op]
        if self.dice.chance(0.6):
            return float(usual) if floats else int(usual)
        if floats:
            odd = (0.0, 0.0, 1.0, 1.0, -0.0, 2.0, float("inf"), float("-inf"), 1e-40, float("nan"))
            return float(self.dice.among(odd))
        if buffer.dtype == "bool":
            return int(self.dice.chance(0.5))
        return int(self.dice.among((0, 1, 1, 2, *dtype_limits(buffer.dtype))))

    def pad(self, buffer: Buffer, layout: Layout, op: ReduceOp | None = None) -> PadValue:
        kind = self.dice.weighted({"none": 1, "undef": 3, "number": 5, "function": 0.6})
        if kind == "number":
            return self.number(buffer, op)
        if kind == "function":
            return self.pad_function(buffer, layout, op)
        return "undef" if kind == "undef" else None

    def pad_function(self, buffer: Buffer, layout: Layout, op: ReduceOp | None) -> PadFunction:
        """Nothing, anything, a number, the position, or the tensor wrapped around."""
        names = physical_vars(len(layout.physical_shape))
        kind = self.dice.among(("none", "undef", "literal", "position", "wrap", "wrap"))
        if kind == "wrap":
            logical = zip(layout.logical_index(names), layout.logical_shape, strict=True)
            inside = layout.physical_index(tuple(floor_mod(e, n) for e, n in logical))
            return PadFunction(names, Load(layout.buffer(buffer.name, buffer.dtype, buffer.scope), inside))
        if kind == "position" and buffer.dtype != "bool":
            return PadFunction(names, IndexValue(names[-1], buffer.dtype))
        if kind == "literal" and buffer.dtype != "bool":
            return PadFunction(names, Literal(self.number(buffer, op), buffer.dtype))
        return PadFunction(names, Undef(buffer.dtype) if kind == "undef" else None)

    def reduced_by(self, buffer: Buffer | None = None) -> ReduceOp | None:
        """The operator of a reduction that loads `buffer`."""
        for stmt in walk(self.func.body):
            if isinstance(stmt, Reduce) and (
                buffer is None or any(a.buffer == buffer and a.kind == "read" for a in accesses((stmt,)))
            ):
                return stmt.op
        return None


def _pads(stmt: For | Block) -> bool:
    """Whether a stage, or the loop of one, states where padding lies."""
    return isinstance(stmt, Block) and "padding_of" in dict(stmt.annotations) or (
        isinstance(stmt, For) and "_padding" in stmt.var.name
    )


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
    return cut_loop, (loop.var.name, start + t.dice.between(0, loop.extent or 3), t.suffix())


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
    return (compute_at, pair[::-1]) if pair else None


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
        if {a.kind for a in accesses(loop.body) if a.buffer.name == name} == {"read"}
    ]
    return (bind_expr, (*t.dice.among(found), t.name())) if found else None


def _lift(t: Trial) -> Chosen:
    inner = [s.buffer.name for loop in t.loops() for s in loop.body if isinstance(s, Allocate)]
    return (lift_alloc, (t.dice.among(inner), t.dice.weighted({1: 3, 2: 1}))) if inner else None


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
    return remove_branching_through_overcompute, (t.dice.among(places), about)


def _absorb(t: Trial) -> Chosen:
    padded = [dict(b.annotations)["padding_of"] for b in t.blocks() if "padding_of" in dict(b.annotations)]
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
    "compute_at": (1.2, _compute_at),
    "cache_read": (1.5, lambda t: (cache_read, (t.dice.among(t.func.inputs).name, t.name()))),
    "cache_write": (1.5, lambda t: (cache_write, (t.dice.among(t.func.outputs).name, t.name()))),
    "transform_layout": (3, _transform),
    "sequential_buffer_access": (2.5, _sequential),
    "overcompute": (2.5, _overcompute),
    "absorb_padding": (1.5, _absorb),
    "stage_mem": (2.5, _stage),
    "bind_expr": (1, _bind),
    "lift_alloc": (1, _lift),
    "simplify_kernel": (1, lambda t: (simplify_kernel, ())),
    "eliminate_dead_code": (1, lambda t: (eliminate_dead_code, ())),
    "lift_conditions": (1, on_guarded(lift_conditions)),
    "restrict_loop": (1.2, on_guarded(restrict_loop)),
    "stride_loop": (0.7, on_guarded(stride_loop)),
    "split_condition": (0.7, on_guarded(split_condition)),
    "assume_finite": (0.5, _input(assume_finite)),
    "assume_reciprocal": (0.3, _input(assume_reciprocal)),
    "state_padding": (0.3, _state),
    "parallelize_loop": (1, on_loop(parallelize_loop)),
    "vectorize_loop": (1.2, on_loop(vectorize_loop)),
    "unroll_loop": (0.6, on_loop(unroll_loop)),
}
NEEDS_NO_LOOP = ("cache_read", "cache_write", "transform_layout", "simplify_kernel", "compute_at",
                 "eliminate_dead_code", "absorb_padding", "assume_finite", "state_padding")  # fmt: skip


def random_step(t: Trial) -> bool:
    """One step with drawn arguments; False where it does not apply or is refused."""
    names = list(STEPS) if t.loops() else list(NEEDS_NO_LOOP)
    chosen = STEPS[t.dice.weighted({name: STEPS[name][0] for name in names})][1](t)
    return chosen is not None and t.step(chosen[0], *chosen[1])


# Ways to overcompute ------------------------------------------------------------------------------


def _run_over(t: Trial, block: str, buffer: str) -> None:
    """Loops in the order of a buffer, its padding absorbed, and no conditions any more."""
    shape = next((b.shape for b in t.buffers() if b.name == buffer), ())
    names = tuple(t.name() for _ in shape)
    if not t.step(sequential_buffer_access, block, buffer, names, t.dice.chance(0.4)):
        divide_under_guard(t, block)
    if t.dice.chance(0.25):
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
    target = next((a.buffer for a in touched if a.kind != "read" and a.buffer.shape), None)
    layout = t.layout(target.shape, padded=True) if target else None
    if target is None or layout is None:
        return
    for buffer in dict.fromkeys(a.buffer for a in touched):
        if buffer.shape == target.shape and (buffer == target or t.dice.chance(0.8)):
            free = t.dice.chance(0.8 if buffer == target else 0.6)
            t.step(transform_layout, buffer.name, layout, "undef" if free else t.pad(buffer, layout))
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
    loads = [a.buffer for a in accesses((stmt,)) if a.kind == "read" and a.buffer.shape]
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
    for buffer in dict.fromkeys(a.buffer for a in accesses(block.body) if a.kind == "read"):
        layout = reached(buffer, block)
        if buffer == stmt.buffer or layout is None or not layout.is_padded:
            continue
        if t.dice.chance(0.3):
            rank = len(layout.physical_shape)
            more = IndexMap.split(rank, t.dice.between(0, rank - 1), t.dice.among((2, 4)))
            layout = layout.transformed(more)
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
    written = {a.buffer for a in accesses(block.body) if a.kind != "read"}
    for buffer in dict.fromkeys(a.buffer for a in accesses(block.body) if a.buffer.shape):
        layout = reached(buffer, block)
        if layout is None or not (layout.is_padded or t.dice.chance(0.3)):
            continue
        if t.dice.chance(0.4):
            rank = len(layout.physical_shape)
            more = IndexMap.split(rank, t.dice.between(0, rank - 1), t.dice.among((2, 4, 8)))
            layout = layout.transformed(more)
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
        name = t.dice.among(("reorder_loops", "parallelize_loop", "vectorize_loop", "reorder_loops",
                             "fission", "stage_mem", "sequential_buffer_access"))  # fmt: skip
        chosen = STEPS[name][1](t) if t.loops() else None
        if chosen is not None:
            t.step(chosen[0], *chosen[1])


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

