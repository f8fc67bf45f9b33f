"""Tests of the answer from the outer loops whether reads see the same writes after a move."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

import pytest

from graphflow.arith import IndexExpr, IslBudget, Var, Verdict
from graphflow.base.fields import replace
from graphflow.effects import same_sources
from graphflow.effects.outer_loop_order import keeps_sources
from graphflow.effects.relations import relations_of
from graphflow.schedule.buffers.relocation import relocated
from graphflow.tir import Allocate, PrimFunc, loops_of, walk
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.folding import folded, sources
from support.schedule_checks import kernel

BANDS = """
t = alloc(i32[18])
for i in serial(0, 2):
    t[i] = x[i]
for b in serial(0, 4):
    for j in serial(0, 4):
        t[4*b + j + 2] = x[4*b + j]
    for k in serial(0, 4):
        y[4*b + k] = t[4*b + k] + t[4*b + k + 2]
"""
"""Bands of four elements, which need the last two of the band before."""


def keeps(func: PrimFunc, size: int) -> bool:
    """Whether the outer loops show that a circular buffer of this size is enough."""
    after, old, new = folded(func, size)
    with IslBudget() as context:
        return keeps_sources(relations_of(func), relations_of(after), context, old, new)


@pytest.mark.parametrize("size", [5, 6, 7, 18])
def test_a_circular_buffer_of_a_band_and_what_it_needs_of_the_last(size: int) -> None:
    after, old, new = folded(kernel(BANDS), size)
    enough = size >= 6
    assert keeps(kernel(BANDS), size) is enough
    assert same_sources(kernel(BANDS), after, (old,), (new,)).proven is enough


def test_a_store_that_data_decide_ends_nothing() -> None:
    text = "        t[4*b + j + 2] = x[4*b + j]"
    decided = "        if data(x[4*b + j] < i32(3)):\n    " + text
    assert not keeps(kernel(BANDS.replace(text, decided)), 6)


def test_the_order_inside_an_outer_iteration_is_unknown() -> None:
    """Element i + 1 takes the place of i behind its read, in the same iteration of b."""
    func = kernel("""
t = alloc(i32[16])
for b in serial(0, 4):
    for i in serial(0, 4):
        t[4*b + i] = x[i]
        y[4*b + i] = t[4*b + i]
    y[0] = t[4*b + 3]
""")
    assert keeps(func, 1)  # b and i are both in loops around a store and a read
    func = kernel("""
t = alloc(i32[16])
for b in serial(0, 4):
    for i in serial(0, 4):
        t[4*b + i] = x[i]
    for i2 in serial(0, 1):
        y[4*b] = t[4*b + 3]
""")
    after, old, new = folded(func, 1)
    assert not keeps(func, 1), "the stores of one loop are in an unknown order"
    assert same_sources(func, after, (old,), (new,)).verdict is Verdict.PROVEN


def test_one_element_in_several_places() -> None:
    """Each iteration has its own place for an element, and one reads what another one stored."""
    func = kernel("""
t = alloc(i32[16])
for i in serial(0, 16):
    t[i] = x[i]
    y[i] = t[max(0, i - 2)]
""")
    assert not moved_keeps(func, lambda loops, indices: (loops["i"], *indices))
    assert moved_keeps(func, lambda loops, indices: (loops["i"] - loops["i"], *indices))
    own = """
t = alloc(i32[16])
for i in serial(0, 16):
    for j in serial(0, 16):
        t[j] = x[i]
    for k in serial(0, 16):
        y[i] = t[k]
"""
    assert moved_keeps(kernel(own), lambda loops, indices: (loops["i"], *indices))
    late = own.replace("for j in serial(0, 16)", "for j in serial(i, 16)")
    assert not moved_keeps(kernel(late), lambda loops, indices: (loops["i"], *indices))


def moved_keeps(
    func: PrimFunc, place: Callable[[Mapping[str, Var], Sequence[IndexExpr]], Sequence[IndexExpr]]
) -> bool:
    """Whether the outer loops show that reads see the same writes with elements in other places.

    `place` gets the loops of the kernel by name.
    """
    old = next(stmt.buffer for stmt in walk(func.body) if isinstance(stmt, Allocate))
    loops = {loop.var.name: loop.var for loop in loops_of(func.body)}
    new = replace(old, shape=(16, *old.shape))
    body = relocated(func.body, old, new, lambda indices: tuple(place(loops, indices)))
    relations = relations_of(func), relations_of(replace(func, body=body))
    with IslBudget() as context:
        return keeps_sources(*relations, context, old, new)


REDUCED = """
t = alloc(i32[8])
for i in serial(0, 8):
    for z in serial(0, 1):
        t[i] = i32(0)
        for r in serial(0, 2):
            t[i] += x[2*i + r]
    for a in serial(0, 1):
        y[i] = t[i]
"""


def test_a_reduction_sees_its_start_value_in_every_place() -> None:
    assert keeps(kernel(REDUCED), 1)
    assert keeps(kernel(REDUCED.replace("for a in serial(0, 1)", "if i >= 2")), 1)


@pytest.mark.parametrize(
    "start",
    [
        "if r >= 1:\n            t[i] = i32(0)\n        for r in serial(0, 2)",
        "if data(x[i] < i32(3)):\n            t[i] = i32(0)\n        for r in serial(0, 2)",
        "t[i] = i32(0)\n        t[(i + 1) % 8] = i32(1)\n        for r in serial(0, 2)",
    ],
)
def test_a_start_value_that_is_not_certain_or_not_alone_decides_nothing(start: str) -> None:
    text = REDUCED.replace("t[i] = i32(0)\n        for r in serial(0, 2)", start)
    text = text.replace("if r >= 1", "if i >= 1")
    assert not keeps(kernel(text), 1)


def test_what_nothing_has_stored_stays_unknown() -> None:
    """An element that is never stored would hold what was stored for another one."""
    func = kernel("""
t = alloc(i32[8])
for i in serial(0, 4):
    t[i] = x[i]
for j in serial(4, 8):
    y[j] = t[j]
""")
    assert not keeps(func, 4)


def test_answers_agree_with_runs_of_random_kernels() -> None:
    kept = 0
    for seed in range(120):
        random = Random(seed)
        func = buffer_kernel(random.randint)
        if not any(isinstance(stmt, Allocate) for stmt in walk(func.body)):
            continue
        size = random.randint(1, 5)
        if keeps(func, size):
            after, old, new = folded(func, size)
            for run in range(6):
                assert sources(func, old, Random(run)) == sources(after, new, Random(run)), seed
            kept += 1
    assert kept > 20
