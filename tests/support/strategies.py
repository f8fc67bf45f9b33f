"""Hypothesis strategies for random index expressions, predicates and kernels, and their inputs.

How they are made stands in support/kernels/random_kernels.py.  The same seed gives the same arrays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from graphflow.arith import IndexExpr, Predicate, Var
from graphflow.layout import IndexMap, Layout, smallest_box
from graphflow.tir import DTYPES, PrimFunc, Role
from support.kernels.random_kernels import (
    EXACT_UNARY,
    SPECIAL_FLOATS,
    KernelOptions,
    Number,
    RandomKernel,
    extremes,
    random_index,
    random_predicate,
)

__all__ = [
    "EXACT_UNARY",
    "NAMES",
    "SPECIAL_FLOATS",
    "I",
    "J",
    "K",
    "KernelOptions",
    "index_exprs",
    "input_arrays",
    "predicates",
    "primfuncs",
]

Draw = Callable[[st.SearchStrategy[Any]], Any]

I, J, K = Var("i"), Var("j"), Var("k")
NAMES = (I, J, K)

ANYTHING = KernelOptions()


def numbers(draw: Draw) -> Number:
    """Whole numbers that hypothesis draws, as random kernels ask for them."""
    return lambda low, high: int(draw(st.integers(low, high)))


@st.composite
def index_exprs(draw: Draw, names: Sequence[Var] = NAMES, depth: int = 3) -> IndexExpr:
    """Expressions of every kind over `names`, with small constants."""
    return random_index(numbers(draw), names, depth)


@st.composite
def predicates(draw: Draw, names: Sequence[Var] = NAMES) -> Predicate:
    """Comparisons of index expressions, and their conjunctions, disjunctions and negations."""
    return random_predicate(numbers(draw), names)


@st.composite
def primfuncs(draw: Draw, options: KernelOptions = ANYTHING) -> PrimFunc:
    """Kernels of one to three loop nests that are valid at `options.stage`."""
    return RandomKernel(numbers(draw), options).func()


def input_arrays(
    func: PrimFunc, seed: int = 0, special: bool = False, floats: Sequence[float] = SPECIAL_FLOATS
) -> dict[str, Any]:
    """Small random numbers for each parameter that the kernel reads.

    With `special`, three of ten floats are one of `floats` (inf, NaN, −0.0, denormals), and as many
    integers are extremes of their type or next to them.
    """
    generator = np.random.default_rng(seed)
    arrays = {}
    for buffer in (param.buffer for param in func.params if param.role is not Role.OUTPUT):
        dtype = DTYPES[buffer.dtype]
        chosen = generator.random(buffer.shape) < (0.3 if special else 0.0)
        if dtype.kind == "V":
            # Any bits; of integers of few bits the others are not looked at.  ml_dtypes takes the
            # sign of a float of four bits from the highest bit of its byte, which is no number.
            codes = generator.integers(0, 256**dtype.itemsize, buffer.shape)
            if buffer.dtype == "float4_e2m1fn":
                codes %= 16
            arrays[buffer.name] = codes.astype(f"u{dtype.itemsize}").view(dtype)
            continue
        if dtype.kind == "f":
            array = generator.normal(size=buffer.shape).astype(dtype)
            array = np.where(chosen, generator.choice(floats, buffer.shape), array)
        elif dtype.kind == "b":
            array = generator.integers(0, 2, buffer.shape)
        else:
            array = generator.integers(0 if dtype.kind == "u" else -9, 10, buffer.shape)
            array = np.where(chosen, generator.choice(extremes(buffer.dtype), buffer.shape), array)
        with np.errstate(all="ignore"):
            arrays[buffer.name] = np.asarray(array).astype(dtype)
    return arrays


def transformed(layout: Layout, index_map: IndexMap) -> Layout:
    """`layout` with its physical indices sent through another map, in the smallest box."""
    box = smallest_box(index_map, layout.physical_shape)
    return Layout.of(layout.index_map.then(index_map), layout.logical_shape, box)


FLOAT_KERNELS = KernelOptions(
    dtypes=("float32", "bool"), unary=EXACT_UNARY, binary=("add", "sub", "max", "min", "and", "or")
)


INTEGER_KERNELS = KernelOptions(
    dtypes=("int8", "uint8", "int32", "int64", "bool"),
    unary=("neg", "abs", "not"),
    binary=("add", "sub", "mul", "div", "max", "min", "pow", "and", "or"),
)
