"""Scheduled kernels as users run them: interpreted, and natively as `gf.build` compiles them."""

from typing import Any

import numpy as np

import graphflow as gf
from graphflow.tir import PrimFunc, interpret, verify

Array = np.ndarray[Any, Any]


def outputs(func: PrimFunc, **arrays: Array) -> dict[str, Array]:
    """The outputs of a scheduled kernel by the interpreter, which the native ones equal.

    NaN in an output of the interpreter may be an element that nothing writes, and is not compared.
    """
    verify(func, "scheduled")
    expected = interpret(func, arrays)
    found = gf.build(func, threads=1).run(dict(arrays))
    for name, wanted in expected.items():
        compared = ~np.isnan(wanted) if wanted.dtype.kind == "f" else np.full(wanted.shape, True)
        np.testing.assert_allclose(found[name][compared], wanted[compared], rtol=1e-6)
    return expected
