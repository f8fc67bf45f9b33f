"""Every primitive on random kernels: applied or refused, never a changed meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from graphflow.tir import PrimFunc, parse
from support.all_cases import ALL_CASES, SEQUENCE_CASES
from support.config_cases import with_state
from support.let_cases import let_kernel
from support.primitive_cases import (
    Outcome,
    PrimitiveCase,
    apply_sequence,
    effect_kernel,
    outcomes,
    share,
)
from support.random_kernels import Number
from support.window_cases import with_windows

SEEDS = 12
STATE_SEEDS = 4
SLOW_SEEDS = 600


def report(case: PrimitiveCase, seeds: range) -> float:
    """The share of safe cases that were applied; printed, with the counts behind it."""
    found = outcomes(case, seeds)
    counts = ", ".join(f"{outcome}: {found[outcome]}" for outcome in Outcome)
    print(f"{case.name:24} {share(found):6.1%} of the safe cases ({counts})")
    assert found[Outcome.APPLIED], f"{case.name} never applied"
    return share(found)


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_primitive_on_random_kernels(case: PrimitiveCase) -> None:
    report(case, range(SEEDS))


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_primitive_on_random_kernels_with_state(case: PrimitiveCase) -> None:
    stateful = replace(case, kernel=lambda number: with_state(case.kernel(number), number))
    outcomes(stateful, range(STATE_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_primitive_on_many_random_kernels(case: PrimitiveCase) -> None:
    assert report(case, range(SLOW_SEEDS)) >= 1 / 3


# Sequences ----------------------------------------------------------------------------------------

KERNELS = {
    "matmul": parse("""
@primfunc
def matmul(a: i64[4, 3], b: i64[3, 5], c: out[i64[4, 5]]):
    for i in serial(0, 4):
        for j in serial(0, 5):
            c[i, j] = i64(0)
            for k in serial(0, 3):
                c[i, j] += a[i, k] * b[k, j]
"""),
    "blur": parse("""
@primfunc
def blur(x: i64[14], y: out[i64[10]]):
    t = alloc(i64[12])
    for i in serial(0, 12):
        t[i] = x[i] + x[i + 1] + x[i + 2]
    for j in serial(0, 10):
        y[j] = t[j] + t[j + 1] + t[j + 2]
"""),
    "lets": parse("""
@primfunc
def lets(x: i64[12], w: i64[4], y: out[i64[12]]):
    for i in serial(0, 3):
        with let(w[i] * w[3]) as u:
            for j in serial(0, 4):
                with let(x[4*i + j] * u[()]) as t:
                    with let(t[()] < i64(9)) as c:
                        if data(c[()]):
                            y[4*i + j] = t[()]
                        else:
                            y[4*i + j] = t[()] + u[()]
                y[4*i + j] += w[j]
"""),
    "windows": parse("""
@primfunc
def windows(x: i64[4, 6], y: out[i64[4, 4]]):
    t = alloc(i64[4, 6])
    for a in serial(0, 4):
        with t[a, 0:6] as w:
            for b in serial(0, 6):
                w[b] = x[a, b] * x[a, 0]
    for i in serial(0, 4):
        with t[i, 1:5] as v:
            with y[i, 0:4] as u:
                for j in serial(0, 4):
                    u[j] = v[j]
                    u[j] += v[3 - j]
"""),
    "prefetches": parse("""
@instruction
def prefetch16(line: f32[16]):
    pass

@primfunc
def prefetches(x: f32[2, 3], w: f32[2, 3, 16], y: out[f32[2, 2, 16]]):
    u = alloc(f32[2, 3, 16])
    for a in serial(0, 2):
        for b in serial(0, 3):
            for d in serial(0, 16):
                u[a, b, d] = w[a, b, d] + f32(1.0)
    for p in serial(0, 2):
        for r in serial(0, 2):
            for z in serial(0, 16):
                y[p, r, z] = f32(0.0)
            for k in serial(0, 3):
                for c in serial(0, 16):
                    y[p, r, c] += x[r, k] * u[p, k, c]
                prefetch16(u[min(p + 1, 1), k, 0:16])
            prefetch16(w[p, r, 0:16], name="later")
"""),
    "pool": parse("""
@primfunc
def pool(x: i64[6, 6], y: out[i64[3, 3]]):
    for i in serial(0, 3):
        for j in serial(0, 3):
            y[i, j] = x[2*i, 2*j]
            for r in serial(0, 2):
                for s in serial(0, 3):
                    if 2*j + s < 6:
                        reduce_max(y[i, j], x[2*i + r, 2*j + s])
"""),
}
STEPS = 12

RANDOM_KERNELS: dict[str, Callable[[Number], PrimFunc]] = {
    "random": effect_kernel,
    "lets and windows": lambda number: with_windows(let_kernel(number), number),
}


def run_sequences(kernel: str, seeds: range) -> float:
    """The mean number of primitives that apply, printed too."""
    found = []
    for seed in seeds:
        number = Random(seed).randint
        func: PrimFunc = KERNELS.get(kernel) or RANDOM_KERNELS[kernel](number)
        found.append(apply_sequence(func, SEQUENCE_CASES, seed, STEPS))
    mean = sum(found) / len(found)
    print(f"{kernel}: {mean:.1f} of {STEPS} primitives apply")
    return mean


@pytest.mark.parametrize("kernel", [*KERNELS, *RANDOM_KERNELS])
def test_sequences_of_primitives(kernel: str) -> None:
    assert run_sequences(kernel, range(8)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [*KERNELS, *RANDOM_KERNELS])
def test_many_sequences_of_primitives(kernel: str) -> None:
    assert run_sequences(kernel, range(8, 300)) > 3
