"""Tests of what kernels in phases may be: `graphflow/tir/checks/parallel_phases.py`."""

import pytest

from graphflow.tir import fault_in_phases, in_phases, parse, replicated

PARAMS = "x: f32[4, 8], n: i64[1], y: out[f32[4, 8]], h: out[f32[2, 8]]"

LAYER = """
for p in parallel(0, 8):
    h[0, p] = f32(0.0)
for t in serial(0, 4):
    s = alloc(f32[1], scratch)
    s[0] = h[t % 2, 0]
    for q in parallel(0, 8):
        h[(t + 1) % 2, q] = h[t % 2, 7 - q] + s[0] + x[t, q]
        y[t, q] = h[(t + 1) % 2, q]
"""

WHOLE = """
with block("all"):
    for i in parallel(0, 4):
        for j in serial(0, 8):
            y[i, j] = x[i, j]
"""


def kernel(body: str):  # type: ignore[no-untyped-def]
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return parse(f"@primfunc\ndef k({PARAMS}):\n{lines}\n")


def test_a_layer_is_in_phases_and_each_thread_has_the_memory_beside_them() -> None:
    func = kernel(LAYER)
    assert in_phases(func) and fault_in_phases(func) is None
    assert {buffer.name for buffer in replicated(func)} == {"s"}


@pytest.mark.parametrize("body", [WHOLE, "for i in serial(0, 4):\n    y[i, 0] = x[i, 0]"])
def test_other_kernels_are_not(body: str) -> None:
    func = kernel(body)
    assert not in_phases(func) and fault_in_phases(func) is None


def test_memory_of_an_iteration_is_no_threads() -> None:
    func = kernel("""
for t in serial(0, 4):
    for q in parallel(0, 8):
        s = alloc(f32[1], scratch)
        s[0] = x[t, q]
        y[t, q] = s[0]
""")
    assert in_phases(func) and fault_in_phases(func) is None and not replicated(func)


@pytest.mark.parametrize(
    ("body", "reason", "where"),
    [
        ("for p in parallel(0, 8):\n    y[0, p] = x[0, p]\nh[0, 0] = x[0, 0]",
         "every thread writes h, beside the parallel loops", "h"),
        ("s = alloc(f32[1], scratch)\nfor t in serial(0, 4):\n    for p in parallel(0, 8):\n"
         "        s[0] = x[t, p]\n        y[t, p] = s[0]",
         "one thread writes s, of which each has its own", "s"),
        ("for p in parallel(0, 8):\n    y[0, p] = x[0, p]\n"
         "for q in parallel(0, 4):\n    y[1, q] = x[1, q]",
         "the parallel loops over p and q differ in their extents", "q"),
        ("for t in serial(0, 4):\n    for q in parallel(0, 8):\n        for r in parallel(0, 8):\n"
         "            y[t, q] = x[t, q]",
         "a parallel loop is inside another one", "q"),
        ("for t in unrolled(0, 4):\n    for q in parallel(0, 8):\n        y[t, q] = x[t, q]",
         "not in serial loops and conditions alone", "t"),
        ("for t in serial(0, 4):\n    if data(h[0, 0] < f32(1.0)):\n"
         "        for q in parallel(0, 8):\n            h[1, q] = x[t, q]",
         "threads may read another h in the condition", None),
    ],
)  # fmt: skip
def test_what_threads_cannot_share_is_said(body: str, reason: str, where: str | None) -> None:
    fault = fault_in_phases(kernel(body))
    assert fault is not None
    message, stmt = fault
    assert reason in message
    name = getattr(getattr(stmt, "buffer", None), "name", None)
    assert where in (None, name, getattr(getattr(stmt, "var", None), "name", None))


def test_a_condition_on_what_nobody_writes_is_decided_alike() -> None:
    func = kernel("""
for t in serial(0, 4):
    if data(n[0] > i64(2)):
        for q in parallel(0, 8):
            y[t, q] = x[t, q]
""")
    assert in_phases(func) and fault_in_phases(func) is None
