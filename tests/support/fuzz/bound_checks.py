"""Bounds and attached stages of random graphs of stages, beside an enumeration.

In: a seed.  Out: counts; AssertionError where the analysis, or an attached stage, is wrong.
"""

from random import Random

import islpy as isl

from graphflow.arith import IntegerSet, evaluate
from graphflow.base.errors import ScheduleError
from graphflow.schedule import LoopRange, Requirement, compute_at, infer_bounds
from graphflow.tir import loops_of
from support.kernels.stage_graphs import Enumerated, Env, enumerate_bounds, scheduled, stage_graph
from support.schedule_checks import same


def values_of(points: IntegerSet) -> set[tuple[int, ...]]:
    """The points of a set as tuples."""
    found: set[tuple[int, ...]] = set()
    count = len(points.variables)

    def add(point) -> None:
        values = (point.get_coordinate_val(isl.dim_type.set, k) for k in range(count))
        found.add(tuple(value.to_python() for value in values))

    points.points.foreach_point(add)
    return found


def by_path(found: Enumerated, one: Requirement) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """The needed elements of a buffer for each value of the path, by enumeration."""
    path = [var.name for var in one.path]
    needed: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for env, element in found.reads.get(one.buffer, ()):
        assert [name for name, _ in env[: len(path)]] == path
        needed.setdefault(tuple(v for _, v in env[: len(path)]), set()).add(element)
    return needed


def hull_of(elements: set[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Start and extent of the smallest box, along each axis."""
    return [(min(axis), max(axis) - min(axis) + 1) for axis in zip(*elements, strict=True)]


def compare_bounds(seed: int) -> tuple[int, int]:
    """Compares the bounds of a random graph with enumeration; exact ranges, and all ranges."""
    dice = Random(seed)
    func = stage_graph(seed)
    func = scheduled(func, seed, steps=4, attach=dice.random() < 0.5).func
    attached: dict[str, str] = {}
    bounds = infer_bounds(func)
    buffers = [one.buffer.name for one in bounds.requirements if one.buffer not in func.outputs]
    for _ in range(3):
        if not buffers:
            break
        wanted = attached | {dice.choice(buffers): dice.choice([*loops_of(func.body)]).var.name}
        try:
            bounds = infer_bounds(func, wanted)
            attached = wanted
        except ScheduleError as error:
            if "is read outside" not in str(error):
                raise
    bounds = infer_bounds(func, attached)
    found = enumerate_bounds(func, attached)
    exact = total = 0
    for one in bounds.requirements:
        if one.buffer in func.outputs:
            continue
        needed = by_path(found, one)
        assert values_of(one.needed) == {(*p, *e) for p, es in needed.items() for e in es}
        boxes = {p: hull_of(es) for p, es in needed.items()}
        extents = [
            max((box[k][1] for box in boxes.values()), default=0) for k in range(len(one.element))
        ]
        assert one.shape() == tuple(extents)
        for axis, one_range in enumerate(one.box):
            for path, box in boxes.items():
                values = dict(zip(one.path, path, strict=True))
                got = evaluate(one_range.start, values), evaluate(one_range.extent, values)
                if one_range.exact:
                    assert got == box[axis]
                assert got[0] <= box[axis][0] and sum(box[axis]) <= sum(got)
                exact, total = exact + one_range.exact, total + 1
        parts = [values_of(part.needed) for part in one.boxes()]
        assert sum(map(len, parts)) == len(values_of(one.needed)) == len(set().union(*parts))
        if needed:
            check_loops(bounds.loops[one.buffer], found.instances.get(one.buffer, set()))
    return exact, total


def check_loops(loops: tuple[LoopRange, ...], instances: set[Env]) -> None:
    """Compares the ranges of loops with the instances that enumeration found to be needed."""
    for loop in loops:
        names = [*(var.name for var in loop.path), loop.var.name]
        values: dict[tuple[int, ...], set[int]] = {}
        for env in instances:
            if [name for name, _ in env[: len(names)]] == names:
                *path, last = (value for _, value in env[: len(names)])
                values.setdefault(tuple(path), set()).add(last)
        assert values or str(loop.range) == "[0, 0]"
        for path, taken in values.items():
            at = dict(zip(loop.path, path, strict=True))
            start, stop = evaluate(loop.range.start, at), evaluate(loop.range.stop, at)
            if loop.range.exact:
                assert (start, stop) == (min(taken), max(taken) + 1)
            assert start <= min(taken) and max(taken) < stop


def check_steps(seed: int) -> int:
    """Random steps on a random graph compute the same; how often a stage was attached."""
    s = scheduled(stage_graph(seed), seed)
    same(s.definition, s)
    return sum(step.primitive is compute_at for step in s.steps)
