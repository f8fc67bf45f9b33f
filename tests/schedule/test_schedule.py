"""Tests of random primitives on random kernels: an accepted step keeps what the kernel computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.arith import constant_value
from graphflow.base.errors import ScheduleError
from graphflow.layout import IndexMap, Layout
from graphflow.schedule import (
    Rewrite,
    Schedule,
    absorb_padding,
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
    mult_loops,
    parallelize_loop,
    remove_branching_through_overcompute,
    reorder_loops,
    replay,
    restrict_loop,
    sequential_buffer_access,
    shift_loop,
    simplify,
    stage_mem,
    transform_layout,
    vectorize_loop,
)
from support.strategies import KernelOptions, input_arrays, primfuncs

Array = npt.NDArray[Any]
Choice = tuple[Callable[..., Rewrite], tuple[Any, ...]]

OPTIONS = KernelOptions(
    stage="definition",
    dtypes=("float64", "int32", "bool"),
    unary=("neg", "abs", "not"),
    binary=("add", "sub", "mul", "max", "min", "and", "or"),
)
EXACT_BELOW = 2.0**50
"""Floats are small integers, so that sums are exact in any order, as long as they stay below."""


def _whole(expr: tir.Expr) -> tir.Expr:
    """Float constants as small integers; infinities and NaN stay."""
    if not isinstance(expr, tir.Literal) or expr.dtype != "float64" or isnan(expr.value):
        return expr
    if abs(expr.value) == float("inf"):
        return expr
    return tir.Literal(float(round(expr.value)) if abs(expr.value) < 9 else 2.0, expr.dtype)


def _whole_kernel(func: tir.PrimFunc) -> tir.PrimFunc:
    return replace(func, body=tir.map_expressions(func.body, _whole))


@dataclass
class Trial:
    """A schedule that grows by random steps, and where its parameters live."""

    data: Any
    schedule: Schedule
    placed: dict[str, tuple[Layout, Any]] = field(default_factory=dict)
    fresh: int = 0

    def one_of(self, items: Any) -> Any:
        return self.data.draw(st.sampled_from(list(items)))

    def number(self, low: int, high: int) -> int:
        return int(self.data.draw(st.integers(low, high)))

    def name(self) -> str:
        self.fresh += 1
        return f"n{self.fresh}"

    # -- arguments

    @property
    def func(self) -> tir.PrimFunc:
        return self.schedule.func

    def loops(self) -> list[str]:
        return [loop.var.name for loop in tir.loops_of(self.func.body)]

    def blocks(self) -> list[str]:
        return [s.name for s in tir.walk(self.func.body) if isinstance(s, tir.Block)]

    def buffers(self) -> list[str]:
        return [b.name for b in tir.buffers_of(self.func)]

    def touched(self, loop: str) -> list[str]:
        stmt = next(s for s in tir.loops_of(self.func.body) if s.var.name == loop)
        return list(dict.fromkeys(a.buffer.name for a in tir.accesses(stmt.body)))

    def inside(self, loop: str) -> list[str]:
        stmt = next(s for s in tir.loops_of(self.func.body) if s.var.name == loop)
        return [s.var.name for s in tir.loops_of(stmt.body)]

    def layout(self, shape: tuple[int, ...]) -> Layout:
        rank = len(shape)
        axis = self.number(0, rank - 1)
        chain = IndexMap.identity(rank)
        if self.number(0, 3) == 0:
            chain = chain.then(IndexMap.offset(rank, axis, self.number(1, 2)))
        if self.number(0, 3):
            last = bool(self.number(0, 1))
            chain = chain.then(IndexMap.split(rank, axis, self.number(2, 4), last))
        order = self.data.draw(st.permutations(range(chain.physical_rank)))
        return Layout.of(chain.then(IndexMap.permute(order)), shape)

    def choice(self) -> Choice | None:
        kinds = [*LOOP_CHOICES, *KERNEL_CHOICES] if self.loops() else [*KERNEL_CHOICES]
        return (LOOP_CHOICES | KERNEL_CHOICES)[self.one_of(kinds)](self)

    # -- steps

    def step(self, choice: Choice) -> bool:
        primitive, arguments = choice
        before = self.schedule
        try:
            self.schedule = before.apply(primitive, *arguments)
        except ScheduleError as error:
            assert tir.to_text(before.func) in str(error)
            return False
        tir.verify(self.func, "scheduled")
        if primitive is transform_layout:
            name, layout, pad = arguments
            if any(p.buffer.name == name for p in self.func.params):
                assert name not in self.placed
                self.placed[name] = (layout, pad)
        return True

    def guard_and_restrict(self) -> None:
        """A loop divided under a guard, which becomes a bound of the inner one."""
        loops = [loop for loop in tir.loops_of(self.func.body) if (loop.extent or 0) > 2]
        if loops:
            loop, names = self.one_of(loops), (self.name(), self.name())
            factor = (loop.extent or 0) - 1
            if self.step((divide_loop, (loop.var.name, factor, names, "guard"))):
                self.step((restrict_loop, (names[1],)))

    def pad_and_run_over(self) -> None:
        """The steps that lead to overcompute, one after another."""
        blocks = [b for b in self.blocks() if b.startswith("block")]
        if not blocks:
            return
        block = self.one_of(blocks)
        stmt = next(
            s for s in tir.walk(self.func.body) if isinstance(s, tir.Block) and s.name == block
        )
        names = list(
            dict.fromkeys(a.buffer.name for a in tir.accesses(stmt.body) if a.buffer.shape)
        )
        names = [n for n in names if n not in self.placed]
        if not names:
            return
        name = self.one_of(names)
        buffer = next(b for b in tir.buffers_of(self.func) if b.name == name)
        layout = self.layout(buffer.shape)
        if not self.step((transform_layout, (name, layout, self.one_of((None, "undef", 0, 1))))):
            return
        axes = tuple(self.name() for _ in layout.physical_shape)
        if self.step((sequential_buffer_access, (block, name, axes))):
            self.step((absorb_padding, (block, name)))
            self.step((remove_branching_through_overcompute, (block,)))


def _pairs(trial: Trial) -> list[tuple[str, str]]:
    """Loops that are the whole body of another one."""
    return [
        (loop.var.name, loop.body[0].var.name)
        for loop in tir.loops_of(trial.func.body)
        if len(loop.body) == 1 and isinstance(loop.body[0], tir.For)
    ]


def _mult(trial: Trial) -> Choice | None:
    pairs = _pairs(trial)
    return (mult_loops, (*trial.one_of(pairs), trial.name())) if pairs else None


def _reorder(trial: Trial) -> Choice | None:
    pairs = _pairs(trial)
    return (reorder_loops, (trial.one_of(pairs)[::-1],)) if pairs else None


def _cut(trial: Trial) -> Choice:
    loop = trial.one_of(tir.loops_of(trial.func.body))
    start = constant_value(loop.start) or 0
    return cut_loop, (loop.var.name, start + trial.number(0, loop.extent or 0), "_" + trial.name())


def _fission(trial: Trial) -> Choice | None:
    loops = [loop for loop in tir.loops_of(trial.func.body) if len(loop.body) > 1]
    if not loops:
        return None
    loop = trial.one_of(loops)
    at = trial.number(1, len(loop.body) - 1)
    return fission, (loop.var.name, at, "_" + trial.name(), trial.number(1, 2))


def _fuse(trial: Trial) -> Choice | None:
    """Two loops that follow each other in one body, where there are some."""
    bodies = [
        trial.func.body,
        *(s.body for s in tir.walk(trial.func.body) if isinstance(s, tir.Block | tir.For)),
    ]
    pairs: list[tuple[str, str]] = []
    for body in bodies:
        loops = [s.var.name for s in body if isinstance(s, tir.For)]
        pairs += pairwise(loops)
    return (fuse, trial.one_of(pairs)) if pairs else None


def _stage(trial: Trial) -> Choice | None:
    loop = trial.one_of(trial.loops())
    touched, inner = trial.touched(loop), trial.inside(loop)
    if not touched:
        return None
    count = trial.number(0, min(2, len(inner)))
    return stage_mem, (loop, trial.one_of(touched), trial.name(), tuple(inner[:count]))


def _bind(trial: Trial) -> Choice | None:
    """A buffer that some loop only reads, in one element."""
    found: list[tuple[str, str]] = []
    for loop in tir.loops_of(trial.func.body):
        touched = tir.accesses(loop.body)
        for name in dict.fromkeys(a.buffer.name for a in touched):
            uses = {(a.kind, a.indices) for a in touched if a.buffer.name == name}
            if len(uses) == 1 and next(iter(uses))[0] is tir.AccessKind.READ:
                found.append((loop.var.name, name))
    return (bind_expr, (*trial.one_of(found), trial.name())) if found else None


def _guarded(trial: Trial) -> list[str]:
    """Loops with an index condition somewhere inside, the innermost first."""
    found = [
        loop.var.name
        for loop in tir.loops_of(trial.func.body)
        if any(isinstance(s, tir.If) and tir.is_predicate(s.condition) for s in tir.walk(loop.body))
    ]
    return found[::-1]


def _about_conditions(primitive: Callable[..., Rewrite]) -> Callable[[Trial], Choice | None]:
    def choose(trial: Trial) -> Choice | None:
        loops = _guarded(trial)
        return (primitive, (trial.one_of(loops),)) if loops else None

    return choose


def _restrict(trial: Trial) -> Choice | None:
    loops = [
        loop.var.name
        for loop in tir.loops_of(trial.func.body)
        if len(loop.body) == 1 and isinstance(loop.body[0], tir.If) and not loop.body[0].orelse
    ]
    return (restrict_loop, (trial.one_of(loops),)) if loops else None


def _transform(trial: Trial) -> Choice | None:
    names = [b for b in tir.buffers_of(trial.func) if b.shape and b.name not in trial.placed]
    if not names:
        return None
    buffer = trial.one_of(names)
    pad = trial.one_of((None, "undef", 0, 1))
    return transform_layout, (buffer.name, trial.layout(buffer.shape), pad)


LOOP_CHOICES: Mapping[str, Callable[[Trial], Choice | None]] = {
    "divide_loop": lambda t: (
        divide_loop,
        (
            t.one_of(t.loops()),
            t.number(1, 4),
            (t.name(), t.name()),
            t.one_of(("perfect", "guard", "cut", "cut_and_guard")),
        ),
    ),
    "mult_loops": lambda t: _mult(t),
    "reorder_loops": lambda t: _reorder(t),
    "fission": lambda t: _fission(t),
    "fuse": lambda t: _fuse(t),
    "cut_loop": lambda t: _cut(t),
    "shift_loop": lambda t: (shift_loop, (t.one_of(t.loops()), t.number(0, 5))),
    "mark_unrolled": lambda t: (mark_unrolled, (t.one_of(t.loops()),)),
    "vectorize_loop": lambda t: (vectorize_loop, (t.one_of(t.loops()),)),
    "parallelize_loop": lambda t: (parallelize_loop, (t.one_of(t.loops()),)),
    "restrict_loop": lambda t: _restrict(t),
    "lift_conditions": _about_conditions(lift_conditions),
    "overcompute": _about_conditions(remove_branching_through_overcompute),
    "stage_mem": lambda t: _stage(t),
    "bind_expr": lambda t: _bind(t),
}
KERNEL_CHOICES: Mapping[str, Callable[[Trial], Choice | None]] = {
    "lift_alloc": lambda t: (lift_alloc, (t.one_of(reversed(t.buffers())),)),
    "cache_read": lambda t: (cache_read, (t.one_of(t.func.inputs).name, t.name())),
    "cache_write": lambda t: (cache_write, (t.one_of(t.func.outputs).name, t.name())),
    "transform_layout": lambda t: _transform(t),
    "simplify": lambda t: (simplify, ()),
    "eliminate_dead_code": lambda t: (eliminate_dead_code, ()),
    "fuse blocks": lambda t: (fuse, tuple(t.blocks()[:2])) if len(t.blocks()) > 1 else None,
}


# -- comparing


def _packed(array: Array, layout: Layout, pad: Any) -> Array:
    """The array in its layout; padding that nobody may rely on holds what does most harm."""
    free = pad is None or pad == "undef"
    poison: Any = np.nan if array.dtype.kind == "f" else (-(2**31) if array.dtype == "int32" else 1)
    packed = np.full(layout.physical_shape, poison if free else pad, array.dtype)
    for index in np.ndindex(array.shape):
        packed[_place(layout, index)] = array[index]
    return packed


def _place(layout: Layout, index: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(str(e)) for e in layout.physical_index(index))


def _same(trial: Trial, inputs: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    placed = {
        name: _packed(array, *trial.placed[name]) if name in trial.placed else array
        for name, array in inputs.items()
    }
    for reverse in (False, True):
        got = tir.interpret(trial.func, placed, reverse=reverse)
        for name, want in expected.items():
            have, pad = got[name], None
            if name in trial.placed:
                layout, pad = trial.placed[name]
                if isinstance(pad, int):
                    _holds_padding(have, layout, pad)
                logical = np.empty(layout.logical_shape, have.dtype)
                for index in np.ndindex(layout.logical_shape):
                    logical[index] = have[_place(layout, index)]
                have = logical
            context = (
                f"{name}, reverse={reverse}\n{trial.schedule.trace()}\n{tir.to_text(trial.func)}"
            )
            with np.errstate(all="ignore"):
                large = want.dtype.kind == "f" and (np.abs(want) > EXACT_BELOW).any()
            if large:
                np.testing.assert_allclose(have, want, rtol=1e-6, err_msg=context)
            else:
                np.testing.assert_array_equal(have, want, err_msg=context)


def _holds_padding(have: Array, layout: Layout, pad: int) -> None:
    rest = np.ones(have.shape, dtype=bool)
    for index in np.ndindex(layout.logical_shape):
        rest[_place(layout, index)] = False
    assert (have[rest] == pad).all()


REACHED = (
    *("divide_loop", "mult_loops", "reorder_loops", "fission", "cut_loop", "shift_loop"),
    *("mark_unrolled", "vectorize_loop", "parallelize_loop", "stage_mem", "bind_expr"),
    *("cache_read", "cache_write", "transform_layout", "sequential_buffer_access"),
    *("simplify", "eliminate_dead_code", "fuse", "restrict_loop"),
)


def test_what_primitives_accept_computes_the_same() -> None:
    """A step that the frame keeps has changed the kernel; every kind of step must occur."""
    accepted: Counter[str] = Counter()

    @settings(max_examples=150, phases=(Phase.generate,))
    @given(primfuncs(OPTIONS), st.data())
    def search(func: tir.PrimFunc, data: Any) -> None:
        definition = _whole_kernel(func)
        inputs = {
            name: np.rint(3 * array) if array.dtype.kind == "f" else array
            for name, array in input_arrays(definition).items()
        }
        expected = tir.interpret(definition, inputs)
        trial = Trial(data, Schedule.of(definition))
        if trial.number(0, 2) == 0:
            trial.pad_and_run_over()
        if trial.number(0, 3) == 0:
            trial.guard_and_restrict()
        for _ in range(trial.number(4, 12)):
            choice = trial.choice()
            if choice is not None:
                trial.step(choice)
        accepted.update(step.primitive.__name__ for step in trial.schedule.steps)
        _same(trial, inputs, expected)
        assert replay(definition, trial.schedule.steps) == trial.func

    search()
    assert [name for name in REACHED if not accepted[name]] == [], accepted
