"""Tests of linking: kernels of LLVM IR in memory of this process."""

import ctypes
import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.base.errors import CodegenError, GraphflowError
from graphflow.runtime import LinkedCode, link
from support.programs import compiled

NUMBERS = """
@numbers = internal constant [4 x i64] [i64 3, i64 5, i64 7, i64 11]
@count = internal global i64 0
@kept = internal global [3000 x i64] zeroinitializer
@tables = internal constant [2 x ptr] [ptr @numbers, ptr @kept]

define i64 @a(i64 %i) {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  %table = load ptr, ptr @tables
  %place = getelementptr i64, ptr %table, i64 %i
  %number = load i64, ptr %place
  %last = getelementptr i64, ptr @kept, i64 2999
  %zero = load i64, ptr %last
  store i64 %new, ptr %last
  %sum = mul i64 %number, 1000
  %both = add i64 %sum, %zero
  ret i64 %both
}
"""

CALLER = """
declare i64 @a(i64)
declare i64 @labs(i64)
define i64 @b(i64 %i) {
  %positive = call i64 @labs(i64 %i)
  %found = call i64 @a(i64 %positive)
  ret i64 %found
}
"""

OBJECTS = (("b", compiled(CALLER)), ("a", compiled(NUMBERS)))


def function(code: LinkedCode, name: str) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.addresses[name])


def protection(address: int) -> str | None:
    """Of the memory at an address; None if nothing is there."""
    for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        low, _, high = line.split()[0].partition("-")
        if int(low, 16) <= address < int(high, 16):
            return line.split()[1]
    return None


def test_code_reaches_constants_variables_other_kernels_and_the_c_library() -> None:
    code = link(OBJECTS)
    call = function(code, "b")
    assert [call(-1), call(2), call(-3), call(0)] == [5000, 7001, 11002, 3003]
    other = link(OBJECTS)
    assert function(other, "b")(0) == 3000  # variables of its own
    assert call(0) == 3004


def test_memory_is_never_writable_and_executable() -> None:
    code = link(OBJECTS)
    base = int(code.memory.ctypes.data)
    pages = {protection(base + at) for at in range(0, code.memory.size, 4096)}
    assert pages == {"r-xp", "r--p", "rw-p"}
    assert protection(code.addresses["a"]) == "r-xp"


def test_memory_is_given_back() -> None:
    code = link(OBJECTS)
    address = code.addresses["a"]
    assert protection(address)
    del code
    gc.collect()
    assert protection(address) != "r-xp"


def test_variables_of_threads_are_refused() -> None:
    text = """
@own = internal thread_local global i64 1
define i64 @a(i64 %i) {
  %old = load i64, ptr @own
  store i64 %i, ptr @own
  ret i64 %old
}
"""
    with pytest.raises(CodegenError, match="needs more than memory"):
        link((("a", compiled(text)),))


def test_code_that_is_cut_off_is_refused() -> None:
    code = compiled(NUMBERS)
    for length in range(len(code)):
        with pytest.raises(CodegenError, match=r"'a'"):
            link((("a", code[:length]),))


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_code_is_linked_or_refused(changes: list[tuple[int, int]]) -> None:
    code = bytearray(compiled(NUMBERS))
    for place, value in changes:
        code[place % len(code)] = value
    try:
        link((("a", bytes(code)),))
    except GraphflowError as error:
        assert "'a'" in str(error) or "memory ran out" in str(error)
