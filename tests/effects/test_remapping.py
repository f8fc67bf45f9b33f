"""Tests of the question whether reads see the same writes after elements moved."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from graphflow.arith import IndexExpr, Verdict, floor_mod
from graphflow.effects import same_sources
from graphflow.tir import Allocate, Buffer, PrimFunc, Stmt, map_body, redirect_accesses, walk
from support.buffer_cases import buffer_kernel
from support.effect_kernels import Event, traced
from support.schedule_checks import kernel

LAG = """
t = alloc(i32[8])
for i in serial(0, 8):
    t[i] = x[i]
    if i >= 2:
        y[i] = t[i - 2]
"""


def folded(func: PrimFunc, size: int) -> tuple[PrimFunc, Buffer, Buffer]:
    """The kernel with the first axis of its first temporary buffer modulo `size`, and the buffer
    before and after."""
    old = next(stmt.buffer for stmt in walk(func.body) if isinstance(stmt, Allocate))
    new = replace(old, shape=(size, *old.shape[1:]))

    def place(indices: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
        return (floor_mod(indices[0], size), *indices[1:])

    def allocated(stmt: Stmt) -> Stmt:
        return Allocate(new) if stmt == Allocate(old) else stmt

    body = map_body(redirect_accesses(func.body, old, new, place), allocated)
    return replace(func, body=body), old, new


@pytest.mark.parametrize(("size", "verdict"), [(3, Verdict.PROVEN), (2, Verdict.REFUTED)])
def test_a_circular_buffer(size: int, verdict: Verdict) -> None:
    func = kernel(LAG)
    after, old, new = folded(func, size)
    proof = same_sources(func, after, (old,), (new,))
    assert proof.verdict is verdict
    if verdict is Verdict.REFUTED:
        point = dict(proof.witness)
        assert point["i"] == point["i'"], "the store of this iteration takes the element"


def test_where_data_decide_nothing_is_proven() -> None:
    func = kernel(
        LAG.replace("    t[i] = x[i]", "    if data(x[i] < i32(3)):\n        t[i] = x[i]")
    )
    after, old, new = folded(func, 2)
    assert same_sources(func, after, (old,), (new,)).verdict is Verdict.UNKNOWN
    after, old, new = folded(func, 3)
    # An element that was not stored is undefined before, and after holds what was there earlier.
    assert same_sources(func, after, (old,), (new,)).verdict is Verdict.UNKNOWN


def test_kernels_with_other_accesses_are_an_error() -> None:
    func = kernel(LAG)
    with pytest.raises(ValueError, match="do not make the same accesses"):
        same_sources(func, kernel("y[0] = x[0]"), (), ())


def sources(func: PrimFunc, buffer: Buffer, decide: Random) -> list[tuple[object, object]]:
    """For each read of a buffer in a run, in order, the number of the write whose value it sees."""
    events = traced(func, lambda: decide.random() < 0.5).events
    numbers = {id(event): number for number, event in enumerate(events)}

    def written(event: Event) -> int | None:
        return None if event.source is None else numbers[id(event.source)]

    return [
        (number, written(event))
        for number, event in enumerate(events)
        if event.element[0] == buffer and not event.is_write
    ]


def test_answers_agree_with_runs_of_random_kernels() -> None:
    """Proven means equal sources in every run, refuted other ones in some run."""
    decided = 0
    for seed in range(60):
        random = Random(seed)
        func = buffer_kernel(random.randint)
        if not any(isinstance(stmt, Allocate) for stmt in walk(func.body)):
            continue
        after, old, new = folded(func, random.randint(1, 5))
        proof = same_sources(func, after, (old,), (new,))
        runs = [
            sources(func, old, Random(run)) == sources(after, new, Random(run)) for run in range(6)
        ]
        if proof.verdict is Verdict.PROVEN:
            assert all(runs), seed
        if proof.verdict is Verdict.REFUTED:
            assert not all(runs), seed
        decided += proof.verdict is not Verdict.UNKNOWN
    assert decided > 30
