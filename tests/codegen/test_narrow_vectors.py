"""Bits of words put together as bytes and as integers of 16 bits."""

import ctypes

import numpy as np
import pytest

from graphflow.codegen import avx2_target
from graphflow.codegen.narrow_vectors import LANES, narrow_at
from graphflow.codegen.target_machine import object_code
from graphflow.llvm import IrBuilder, IrValue
from graphflow.runtime import link


def function(count: int, begin: int) -> str:
    """LLVM's text of a function that puts together the words at its second pointer."""
    b = IrBuilder()
    words = [b.load(IrValue(f"%x{k}", "ptr"), "i32", 4, LANES) for k in range(count)]
    found = narrow_at(b, words, begin)
    b.store(found, IrValue("%y", "ptr"), 1)
    places = [f"%x{k} = getelementptr i32, ptr %x, i64 {LANES * k}" for k in range(count)]
    lines = [*b.entry, *places, *b.lines, "ret void"]
    return "\n".join(["define void @f(ptr %y, ptr %x) {", "entry:", *lines, "}"])


@pytest.mark.parametrize("begin", [0, 6, 14, 16])
@pytest.mark.parametrize("count, kind", [(4, np.uint8), (2, np.uint16)])
def test_bits_of_each_word_in_order(count: int, kind: type, begin: int) -> None:
    code = link((("f", object_code(function(count, begin), avx2_target())),))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.addresses["f"])
    x = np.random.default_rng(begin).integers(0, 1 << 32, count * LANES, dtype=np.uint32)
    y = np.zeros(count * LANES, kind)
    run(y.ctypes.data, x.ctypes.data)
    np.testing.assert_array_equal(y, (x >> np.uint32(begin)).astype(kind))
