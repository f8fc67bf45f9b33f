"""Schedules of kernels of which a run gives a part, compared for several extents of the part.

In: a seed.  Out: an `Outcome`.  Of every three kernels two have scalars: extents of which buffers
have room for the most (support/kernels/schedule_kernels.py).  Their schedules are those of the
schedule fuzzer, and tiles of the loops over these extents.  The third kernel has none; its schedule
is lowered with conditions on sizes, as kernels are of which a run gives the first rows of an
output.  All rows before a size must be what they are without conditions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import numpy as np

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.lowering import axes_with_sizes, size_conditions, with_size_conditions
from graphflow.layout import IndexMap, Layout, row_major
from graphflow.lower.run_portions import portion_of
from graphflow.program import BufferRef, Portion
from graphflow.schedule import (
    Schedule,
    divide_loop,
    mark_unrolled,
    parallelize_loop,
    remove_branching_through_overcompute,
    transform_layout,
)
from graphflow.tir.meaning.operators import undefined_value
from support.fuzz.fuzz_test import Failure
from support.kernels.schedule_kernels import Dice, Kernel, random_kernel
from support.kernels.schedule_rows import NEVER
from support.primitives.choices import MOST_PLACES
from support.schedules.schedule_cases import (
    UNDEFINED,
    Focus,
    Outcome,
    ScheduleCase,
    applied,
    compared,
    drawn,
    expected_of,
    interpreted,
    lowered_of,
    natively_too,
    run_case,
)
from support.schedules.schedule_inputs import (
    chains,
    inputs_for,
    inputs_of,
    packed,
    unpacked,
    unpromised,
)
from support.schedules.schedule_trial import Trial
from support.schedules.schedule_ways import WAYS, random_schedule

MOST_SIZES = 6
"""Sizes of a kernel with conditions that are tried."""


TILES = "tiles_of_sizes"

SCALARS = (Focus(sized=2), Focus(way=TILES, sized=2))
"""Schedules that go any way, and those that make tiles."""


def run_sized_case(seed: int) -> Outcome:
    """The random schedule of a seed, checked."""
    number, kind = divmod(seed, 3)
    if kind < len(SCALARS):
        return run_case(number, SCALARS[kind])
    return run_rows(number)


def check_sized_case(case: ScheduleCase) -> Failure | None:
    """What is wrong with steps on a kernel."""
    return applied(case, natively_too if case.kernel.sizes else rows_are_right)


# Tiles of extents that are scalars ----------------------------------------------------------------


def tiles_of_sizes(t: Trial) -> None:
    """Loops over extents that are scalars in tiles, buffers in blocks of them, no conditions."""
    scalars = set(t.func.scalars)
    for _ in range(t.dice.between(1, 2)):
        found = [loop for loop in t.loops() if scalars & arith.variables(loop.stop)]
        found += [loop for loop in t.loops() if _tests(loop, scalars)]
        if not found:
            return
        loop, factor = t.dice.among(found), t.dice.between(2, 8)
        tail = t.dice.weighted({"guard": 5, "cut": 1, "cut_and_guard": 1})
        t.step(divide_loop, loop.var.name, factor, (t.name(), t.name()), tail)
        for access in t.dice.shuffled(tir.accesses((loop,)))[: t.dice.between(0, 2)]:
            _in_blocks(t, access.buffer, factor)
        places = [block.name for block in t.blocks(stages=False)]
        places += [loop.var.name for loop in t.loops()]
        if places:
            t.step(remove_branching_through_overcompute, t.dice.among(places))


def _tests(loop: tir.For, scalars: set[arith.Var]) -> bool:
    """Whether a condition in a loop is about scalars."""
    return any(
        isinstance(stmt, tir.If)
        and tir.is_predicate(stmt.condition)
        and scalars & arith.predicate_variables(stmt.condition)
        for stmt in tir.walk(loop.body)
    )


def _in_blocks(t: Trial, buffer: tir.Buffer, factor: int) -> None:
    """A buffer whose box has whole blocks along an axis, if it is still there."""
    if not buffer.shape or buffer not in t.buffers():
        return
    axis = t.dice.between(0, len(buffer.shape) - 1)
    if t.dice.chance(0.5):
        index_map = IndexMap.split(len(buffer.shape), axis, factor, t.dice.chance(0.5))
        layout = Layout.of(index_map, buffer.shape)
    else:
        box = [-(-n // factor) * factor if k == axis else n for k, n in enumerate(buffer.shape)]
        layout = Layout.of(IndexMap.identity(len(buffer.shape)), buffer.shape, box)
    if np.prod(layout.physical_shape) > MOST_PLACES:
        return
    written = any(stmt.buffer == buffer for stmt in tir.writes_in(t.func.body))
    pad = "undef" if written else t.pad(buffer, layout, t.reduced_by(buffer))
    t.step(transform_layout, buffer.name, layout, pad)


WAYS[TILES] = (NEVER, tiles_of_sizes)


# Conditions on sizes ------------------------------------------------------------------------------


def run_rows(seed: int) -> Outcome:
    """A kernel without scalars, lowered with conditions on the sizes of its outputs."""
    kernel = random_kernel(seed)
    trial = Trial(kernel.func, Dice(seed, 2))
    made, schedule = drawn(kernel, trial, lambda: _in_rows(trial))
    if schedule is None:
        return made
    wrong, kind = rows_are_right(kernel, schedule, seed)
    return replace(made, wrong=wrong, kind=kind)


def _in_rows(t: Trial) -> None:
    """Any schedule, or a tile of rows in an unrolled loop, and often a parallel loop around."""
    if t.dice.chance(0.5):
        random_schedule(t)
    elif t.loops():
        names, loop = (t.name(), t.name()), t.dice.among(t.loops())
        tail = t.dice.among(("perfect", "guard", "cut"))
        t.step(divide_loop, loop.var.name, t.dice.between(2, 5), names, tail)
        for inner in t.loops()[1:]:
            if t.dice.chance(0.5):
                t.step(mark_unrolled, inner.var.name)
    if t.loops() and t.dice.chance(0.7):
        t.step(parallelize_loop, t.loops()[0].var.name)


def rows_are_right(kernel: Kernel, schedule: Schedule, seed: int) -> tuple[str, str]:
    """What is wrong with the rows before sizes, and of which kind; empty if nothing is."""
    try:
        _compare_rows(kernel, schedule, Dice(seed, 4))
    except Failure as failure:
        return failure.text, failure.kind
    except Exception as error:
        return f"{type(error).__name__}: {error}", type(error).__name__
    return "", ""


def _compare_rows(kernel: Kernel, schedule: Schedule, dice: Dice) -> None:
    lowered, chain = lowered_of(schedule), chains(kernel.func, schedule.steps)
    names = [buffer.name for buffer in kernel.func.outputs]
    if lowered is None or any(len(chain[name]) > 1 for name in names):
        return
    layouts = {
        b.name: chain[b.name][0][0] if chain[b.name] else row_major(b.shape)
        for b in kernel.func.outputs
    }
    counted = {n: {k: f"size of {k}" for k in range(len(layouts[n].logical_shape))} for n in names}
    sized = axes_with_sizes(layouts, counted)
    with any_work():
        func, params = with_size_conditions(lowered.func, sized)
    tir.verify(func, "lowered")
    made = replace(lowered, func=func, sizes=params, task=replace(lowered.task, sized=sized))
    portion = portion_of(made, {axis.size: BufferRef("input", k) for k, axis in enumerate(sized)})
    inputs = inputs_of(kernel, schedule.steps, dice)
    inputs = inputs_for(kernel, schedule.steps, inputs, {}, 0)
    want = expected_of(kernel.func, inputs)
    placed = {name: packed(array, chain[name], 0) for name, array in inputs.items()}
    stored = {name: unpromised(chain[name]) for name in names}
    for k in range(MOST_SIZES if sized else 0):
        values = [dice.between(0, a.room) if k > 1 else (1, a.room)[k] for a in sized]
        sizes = {axis.size: value for axis, value in zip(sized, values, strict=True)}
        held = {p.buffer.name: (np.array(sizes[p.size]), np.zeros(0, bool)) for p in params}
        given = func if portion is None else _executed(func, portion, values)
        found = interpreted(given, placed | held, {}, 0, False)
        for name in names:
            fill = undefined_value(want.outputs[name].dtype.name, UNDEFINED[0])
            have = unpacked(found[name], stored[name], fill, name)
            rows = np.zeros(have.shape, bool)
            axes = {int(size.rpartition(" ")[2]): n for size, n in sizes.items()}
            rows[tuple(slice(axes.get(k)) for k in range(have.ndim))] = True
            defined = want.defined[name] & rows
            compared(have, want.outputs[name], defined, not kernel.rounded, name, f"{sizes}")


@contextmanager
def any_work() -> Iterator[None]:
    """While it lasts, conditions are made and tiles are cut for however little work."""
    with (
        mock.patch.object(size_conditions, "LEAST_WORK", 1),
        mock.patch.object(size_conditions, "LEAST_TILE", 2),
    ):
        yield


def _executed(func: tir.PrimFunc, portion: Portion, values: Sequence[int]) -> tir.PrimFunc:
    """The kernel with the iterations of its parallel loop that a run of these sizes executes."""

    def change(stmt: tir.Stmt) -> tir.Stmt:
        if not isinstance(stmt, tir.For) or stmt.kind is not tir.LoopKind.PARALLEL:
            return stmt
        unit, tests = 1, []
        for digit in reversed(portion.digits):
            number = arith.floor_mod(arith.floor_div(stmt.var - stmt.start, unit), digit.count)
            tests.append(arith.less_than(number, digit.executed(dict(enumerate(values)))))
            unit *= digit.count
        return stmt.around((tir.If(arith.conjunction(tests), stmt.body),))

    return replace(func, body=tir.map_body(func.body, change))
