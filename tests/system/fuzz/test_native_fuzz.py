"""Fuzzing of native code: random kernels give what the interpreter gives, on AVX-512 and on AVX2.

In support/kernels, native_kernels.py makes lowered kernels, random_kernels.py kernels as users
write them, which are built; support/fuzz/native_fuzz.py compares their results.  By default 181 and
100 of them run, each on one of the targets.
"""

import subprocess
import sys

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import constant_value
from graphflow.kernels.recipes import shared_loop
from graphflow.tir.traversal.visit import expressions_of
from support.fuzz.native_fuzz import (
    BUILT,
    ORDINARY,
    TARGETS,
    built_case,
    built_difference,
    difference,
)
from support.kernels.native_kernels import FAMILIES, is_rounded, native_case
from support.mutants.native_mutants import MUTANTS, NOTICED
from support.native import flushed_denormals
from support.paths import TESTS


@pytest.mark.parametrize("first", range(0, len(ORDINARY), 25))
def test_random_kernels(first: int) -> None:
    for seed in ORDINARY[first : first + 25]:
        wrong = difference(native_case(seed), TARGETS[seed % len(TARGETS)])
        assert not wrong, wrong


@pytest.mark.parametrize("first", range(0, len(BUILT), 25))
def test_random_kernels_as_users_write_them(first: int) -> None:
    for seed in BUILT[first : first + 25]:
        wrong = built_difference(built_case(seed), TARGETS[seed % len(TARGETS)])
        assert not wrong, wrong


# The cases themselves ----------------------------------------------------------------------------


def test_a_case_does_not_depend_on_order_or_undefined_memory() -> None:
    """Else a difference would say nothing about native code."""
    for seed in ORDINARY[:120]:
        case = native_case(seed)
        tir.verify(case.func, "lowered")
        plain = tir.interpret(case.func, case.arrays, undefined=7.0)
        other = tir.interpret(case.func, case.arrays, undefined=-3.0, reverse=True)
        for name, array in plain.items():
            if not is_rounded(name):
                pair = [_readable(found) for found in (array, other[name])]
                np.testing.assert_array_equal(*pair, err_msg=f"seed {seed}")


def _readable(array: np.ndarray) -> np.ndarray:
    """In float64 where numpy does not know the type, and cannot tell its NaN."""
    return array.astype("float64") if array.dtype.kind == "V" else array


def test_the_same_seed_is_the_same_case() -> None:
    one, two = native_case(7), native_case(7)
    assert (one.func, one.slices, one.flush) == (two.func, two.slices, two.flush)
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes()


def test_ordinary_cases_hold_what_they_are_for() -> None:
    cases = [native_case(seed) for seed in ORDINARY]
    statements = [stmt for case in cases for stmt in tir.walk(case.func.body)]
    loops = [loop for case in cases for loop in tir.loops_of(case.func.body)]
    assert {case.family for case in cases} == set(FAMILIES)
    assert {p.buffer.dtype for case in cases for p in case.func.params} == set(tir.DTYPES)
    assert {loop.kind for loop in loops} == set(tir.LoopKind)
    lanes = {loop.extent for loop in loops if loop.kind is tir.LoopKind.VECTORIZED}
    assert lanes >= set(range(1, 18))
    assert any(constant_value(loop.stop) is None for loop in loops)
    assert any(isinstance(s, tir.If) and not tir.is_predicate(s.condition) for s in statements)
    for owner in (tir.For, tir.If):
        assert any(owns_memory(s) for s in statements if isinstance(s, owner))
    assert any(is_rounded(b.name) for case in cases for b in case.func.outputs)
    assert any(len(case.slices) > 1 and case.slices[0][0] for case in cases)
    assert sum(case.flush for case in cases) > 20


def test_built_cases_hold_what_they_are_for() -> None:
    """Parallel loops that threads share and others, around what the caller gave."""
    cases = [built_case(seed).func for seed in BUILT]
    given = [[p for p in func.params if p.role is tir.Role.INOUT] for func in cases]
    parallel = [
        any(loop.kind is tir.LoopKind.PARALLEL for loop in tir.loops_of(func.body))
        for func in cases
    ]
    shared = [shared_loop(func) is not None for func in cases]
    assert sum(len(changed) > 1 for changed in given) > 20
    assert sum(any(p.strided for p in changed) for changed in given) > 10
    assert sum(bool(func.scalars) for func in cases) > 40
    assert sum(bool(changed) and one for changed, one in zip(given, shared, strict=True)) > 10
    others = zip(given, parallel, shared, strict=True)
    assert sum(bool(changed) and par and not one for changed, par, one in others) > 10


def owns_memory(stmt: tir.For | tir.If) -> bool:
    body = stmt.body if isinstance(stmt, tir.For) else (*stmt.then, *stmt.orelse)
    return any(isinstance(inner, tir.Allocate) for inner in body)


@pytest.mark.parametrize("op", ["div", "pow"])
def test_divisors_and_exponents_vary(op: str) -> None:
    def varies(stmt: tir.Stmt) -> bool:
        nodes = (node for expr in expressions_of(stmt) for node in tir.walk_expr(expr))
        return any(
            isinstance(n, tir.Binary) and n.op == op and not isinstance(n.right, tir.Literal)
            for n in nodes
            if n.dtype.startswith(("int", "uint"))
        )

    found = [varies(s) for seed in ORDINARY for s in tir.walk(native_case(seed).func.body)]
    assert sum(found) > 10


def test_denormals_are_flushed_and_kept_again() -> None:
    tiny = np.finfo(np.float32).tiny
    half = np.float32(0.5)
    with flushed_denormals():
        assert tiny * half == 0
    assert tiny * half != 0


# Mutants -----------------------------------------------------------------------------------------


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str) -> None:
    """By one of the ordinary seeds; in a process of its own, which it may crash."""
    likely = MUTANTS[name].likely
    assert likely in ORDINARY
    seeds = sorted(ORDINARY, key=lambda seed: seed != likely)
    script = [sys.executable, "-m", "support.mutants.native_mutants", name, *map(str, seeds)]
    done = subprocess.run(
        script, cwd=TESTS, capture_output=True, text=True, timeout=280, check=False
    )
    noticed = done.returncode == NOTICED or done.returncode < 0
    assert noticed, f"exit code {done.returncode}: {done.stdout[-200:]}{done.stderr[-2000:]}"
