"""Helpers of the tests of primitives: kernels from short text, and comparison of their results."""

from typing import Any

import numpy as np

from graphflow.schedule import Rewrite, Schedule
from graphflow.tir import DTYPES, PrimFunc, Role, interpret, parse, to_text, verify

PARAMS = "x: i32[16], y: out[i32[16]]"


def kernel(body: str, params: str = PARAMS) -> PrimFunc:
    """The kernel `k` with these parameters and this body."""
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return parse(f"@primfunc\ndef k({params}):\n{lines}\n")


def inputs_of(func: PrimFunc) -> dict[str, Any]:
    """Different small whole numbers for every element that the caller gives."""
    arrays = {}
    given = (param.buffer for param in func.params if param.role is not Role.OUTPUT)
    for number, buffer in enumerate(given):
        values = (np.arange(buffer.size) * 7 + number) % 31 - 9
        arrays[buffer.name] = values.reshape(buffer.shape).astype(DTYPES[buffer.dtype])
    return arrays


def same(func: PrimFunc, done: Rewrite | Schedule) -> str:
    """The new kernel's text, after checking that it is valid and computes what `func` does."""
    verify(done.func, "scheduled")
    arrays = inputs_of(func)
    expected = interpret(func, arrays)
    for reverse in (False, True):
        got = interpret(done.func, arrays, reverse=reverse)
        for name, want in expected.items():
            np.testing.assert_array_equal(got[name], want, err_msg=to_text(done.func))
    if isinstance(done, Rewrite):
        assert all(proof.proven for proof in done.proofs)
    return to_text(done.func)
