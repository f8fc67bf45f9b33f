"""Loads of lanes whose elements are known distances apart: the numbers, and in how many pieces."""

import ctypes
import mmap

import numpy as np
import pytest

from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, compile_object, emit_assembly, host_target
from graphflow.runtime import link
from graphflow.tir import PrimFunc, interpret, parse
from support.native import Array, Native

TARGETS = pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=lambda t: t.name)
DTYPES = {"u8": "uint8", "i8": "int8", "f16": "float16", "f32": "float32", "f64": "float64"}

APART = {
    "the first two of four": ("4*(v // 2) + v % 2", 4),
    "the last two of four": ("4*(v // 2) + v % 2 + 2", 4),
    "one of four": ("4*v + 3", 4),
    "three of four": ("4*(v // 3) + v % 3", 4),
    "each twice": ("v // 2", 1),
    "from the last to the first": ("127 - v", 0),
    "pairs from the last to the first": ("126 - 2*(v // 2) + v % 2", 0),
    "too far apart": ("8*v", 8),
}
ROWS = 4


def reading(dtype: str, index: str, lanes: int, size: int, step: int) -> PrimFunc:
    return parse(f"""
    @primfunc
    def k(x: {dtype}[{size}], y: out[{dtype}[{ROWS}, {lanes}]]):
        for i in serial(0, {ROWS}):
            for v in vectorized(0, {lanes}):
                y[i, v] = x[{step}*i + {index}]
    """)


def numbers(size: int, dtype: str) -> Array:
    return np.random.default_rng(0).integers(0, 127, size).astype(DTYPES[dtype])


def before_a_page_end(func: PrimFunc, target: Target, x: Array) -> Array:
    """The output for an input that ends where a page does that nobody may read."""
    code = link((("k", compile_object(func, "k", target)),))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    call = ctypes.CFUNCTYPE(None, pointer, number, number, pointer)(code.addresses["k"])
    (result,) = func.outputs
    y = np.zeros(result.shape, result.dtype)
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as pages:
        held = np.frombuffer(pages, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        behind = pointer(held.ctypes.data + mmap.PAGESIZE)
        assert libc.mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        view = held[mmap.PAGESIZE - x.nbytes : mmap.PAGESIZE].view(x.dtype)
        view[...] = x
        call((ctypes.c_void_p * 2)(view.ctypes.data, y.ctypes.data), 0, 1, None)
        del held, view
    return y


@TARGETS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [2, 5, 6, 8, 16])
@pytest.mark.parametrize("name", APART)
def test_lanes_apart(target: Target, dtype: str, lanes: int, name: str) -> None:
    """With room behind the last element, and without."""
    index, step = APART[name]
    last = max(eval(index, {"v": v}) for v in range(lanes)) + (ROWS - 1) * step * lanes
    for size in (last + 1, last + 3, last + 64):
        func = reading(dtype, index, lanes, size, step * lanes)
        x = numbers(size, dtype)
        np.testing.assert_array_equal(
            Native(func, target)({"x": x})["y"], interpret(func, {"x": x})["y"]
        )


@TARGETS
@pytest.mark.parametrize("lanes", [5, 6, 8])
@pytest.mark.parametrize("name", [name for name, (_, step) in APART.items() if step])
def test_nothing_behind_the_buffer_is_read(target: Target, lanes: int, name: str) -> None:
    """The page behind the buffer is of no use to anybody: a read there ends the process."""
    index, step = APART[name]
    last = max(eval(index, {"v": v}) for v in range(lanes)) + (ROWS - 1) * step * lanes
    func = reading("u8", index, lanes, last + 1, step * lanes)
    x = numbers(last + 1, "u8")
    y = before_a_page_end(func, target, x)
    np.testing.assert_array_equal(y, interpret(func, {"x": x})["y"])


@TARGETS
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("lanes", [6, 12])
@pytest.mark.parametrize("some", ["v % {half} >= {half} - 2", "v < {half}"])
def test_vectors_of_idle_lanes_are_not_loaded(
    target: Target, dtype: str, lanes: int, some: str
) -> None:
    """Two vectors or more, of which the later ones are known to be idle, and a run decides about
    lanes of the first one."""
    half = 4 * (lanes // 6)
    func = parse(f"""
    @primfunc
    def k(x: {dtype}[{3 * half}], y: out[{dtype}[3, {lanes}]]):
        for i in serial(0, 3):
            for w in serial(0, {lanes}):
                y[i, w] = x[0]
            for v in vectorized(0, {lanes}):
                if {some.format(half=half)}:
                    if (i + v) % 2 == 0:
                        y[i, v] = x[{half}*i + v] + x[{2 * half} - {half}*i + v]
    """)
    x = numbers(3 * half, dtype)
    expected = interpret(func, {"x": x})["y"]
    np.testing.assert_array_equal(before_a_page_end(func, target, x), expected)


@pytest.mark.parametrize("processor", ["zen3", "zen4"])
@pytest.mark.parametrize("name", [*APART][:6])
def test_bytes_apart_are_loaded_as_vectors(processor: str, name: str) -> None:
    index, _ = APART[name]
    text = emit_assembly(reading("u8", index, 8, 512, 32), "k", PROCESSORS[processor])
    assert "pinsr" not in text and "movzbl" not in text


@pytest.mark.parametrize("lanes", [3, 5, 6, 7])
def test_the_first_bytes_of_a_vector_are_loaded_without_a_mask(lanes: int) -> None:
    """AVX2 has no masks for bytes, so that each would be loaded by itself."""
    text = emit_assembly(reading("u8", "v", lanes, 512, 16), "k", PROCESSORS["zen3"])
    assert "pinsrb" not in text
