"""Index arithmetic that may leave 64 bits is refused, and what fits computes as interpreted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import graphflow as gf
from graphflow.arith import (
    WORD,
    IndexExpr,
    Var,
    floor_div,
    floor_mod,
    largest_part,
    maximum,
    weighted,
)
from graphflow.base.errors import CodegenError, ScheduleError, VerifyError
from graphflow.codegen import avx2_target, emit_ir
from graphflow.schedule import Schedule, require_sound
from graphflow.tir import Buffer, interpret, parse
from support.strategies import NAMES, I, J, index_exprs

Draw = Callable[[st.SearchStrategy[Any]], Any]
Element = tuple[tuple[int, ...], tuple[IndexExpr, ...], tuple[tuple[int, int], ...]]
"""The shape of a buffer, an index for each axis, and starts and extents of loops."""


def conditional(condition: str, kind: str) -> str:
    return f"""
    def f(x: i32[16], y: out[i32[16]]):
        for o in serial(0, 4):
            for b in {kind}(0, 4):
                if {condition}:
                    y[4*o + b] = x[4*o + b]
                else:
                    y[4*o + b] = i32(0)
    """


TOO_LARGE = (
    f"o*{2**64} + b*{2**62} < {2**63}",
    f"o*{2**62} + b < {2**62 + 2}",
    f"(o*{2**63} + b*{2**62 + 1}) // {2**62} < 5",
    f"min(o*{2**62}, b) < 2",
    f"o // {2**64} < 1 and b < 2",
    f"o*{2**62} - b*{2**62} == 0",
)


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled"])
@pytest.mark.parametrize("condition", TOO_LARGE)
def test_numbers_beyond_64_bits_are_refused(condition: str, kind: str) -> None:
    with pytest.raises(VerifyError, match=r"f: .* may need numbers up to \d+, and native code"):
        gf.kernel(conditional(condition, kind))


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled"])
@pytest.mark.parametrize(
    "condition",
    (
        f"o*{2**60} + b*{2**60} < {2**61}",
        f"(o*{2**62} + b) % 3 == 1",
        f"(o*{2**60} - b*{2**60 + 1}) // {2**59} < 1",
        f"o*{2**61} - b < {2**61}",
    ),
)
def test_numbers_close_to_64_bits_are_exact(condition: str, kind: str) -> None:
    kernel = gf.kernel(conditional(condition, kind))
    x = np.arange(16, dtype="int32") + 1
    exe = gf.build(kernel, threads=1)
    np.testing.assert_array_equal(exe.run({"x": x})["y"], interpret(kernel, {"x": x})["y"])


def test_all_that_is_computed_counts() -> None:
    """Bounds of loops, indices, values of indices, selects; and offsets in bytes."""
    far = 2**62
    for body, what in (
        (f"for i in serial(0, 4):\n            y[i] = index({far}*i, i32)", f"{far}"),
        (f"for i in serial(0, 4):\n            y[i] = select({far}*i < 1, i32(1), i32(2))", "i"),
        (f"for i in serial(0, 4):\n            for k in serial({far}*i, {far}*i + 1):\n"
         "                y[i] = i32(1)", "i"),
        (f"for i in serial(0, 4):\n            y[min({far}*i, 3)] = i32(1)", "i"),
    ):  # fmt: skip
        with pytest.raises(VerifyError, match=rf"{what}.* may need numbers up to"):
            gf.kernel(f"\n    def f(y: out[i32[4]]):\n        {body}\n")
    wide = f"""
    @primfunc
    def f(x: i32[{2**32}, {2**30}], y: out[i32[4]]):
        for i in serial(0, 4):
            y[i] = x[i + {2**32 - 5}, 0] + x[0, i]
    """
    with pytest.raises(VerifyError, match=r"the offset of x\[i \+ 4294967291, 0\] in bytes"):
        require_sound(parse(wide))


@st.composite
def elements(draw: Draw) -> Element:
    """Elements whose indices share an expression, its quotients and rests, and powers of two, so
    that terms of several indices often add up or become one."""
    powers = st.sampled_from([1, 1, 2, 2**20, 2**40])
    shared = draw(index_exprs(depth=2))
    divisor = draw(st.sampled_from([2, 7, 2**20, 2**40]))
    quotient = floor_div(shared, divisor)
    shared_parts = (shared, quotient, floor_mod(shared, divisor), floor_mod(quotient, 2**20))
    indices = st.one_of(st.sampled_from(shared_parts), index_exprs(depth=2))
    scaled = st.builds(
        lambda index, k, sign: index * (k * sign), indices, powers, st.sampled_from([1, -1])
    )
    axes = draw(st.lists(st.tuples(powers, scaled), min_size=1, max_size=4))
    starts = st.sampled_from([0, 0, 1, 2**31, 2**40, 2**61])
    loops = st.tuples(starts, st.sampled_from([1, 1, 2, 100, 2**31, 2**61]))
    ranges = draw(st.tuples(*(loops for _ in NAMES)))
    return tuple(extent for extent, _ in axes), tuple(index for _, index in axes), ranges


ONCE, FOUR = (0, 1), (0, 4)


@given(elements())
@example(  # the variable is always 0, and its coefficient is 2**64
    ((2, 2**31, 2**31), (I, I, I), (ONCE, ONCE, ONCE))
)
@example(  # quotient and rest are small; together they are `2**20*i - 2**20*j`
    (
        (2**21, 2),
        (floor_div(I - J, 2) * 2**20, floor_mod(I - J, 2) * 2**20),
        ((2**43, 4), (2**43, 1), ONCE),
    )
)
@example(  # quotient and rest become `i % 2**80`
    (
        (2**40, 1),
        (floor_mod(floor_div(I, 2**40), 2**40) * 2**40, floor_mod(I, 2**40)),
        (FOUR, ONCE, ONCE),
    )
)
def test_elements_are_refused_where_an_index_or_the_offset_is_too_large(element: Element) -> None:
    """However the offset is bounded, the answer is that of its expression."""
    shape, indices, loops = element
    steps = zip(indices, Buffer("x", shape, "int32").strides, strict=True)
    offset = weighted((index, 4 * step) for index, step in steps)
    ranges = {
        var: (start, start + extent - 1) for var, (start, extent) in zip(NAMES, loops, strict=True)
    }
    parts = [largest_part(expr, ranges) for expr in (*indices, offset)]
    func = parse(
        f"""
        @primfunc
        def f(x: i32[{", ".join(map(str, shape))}], y: out[i32[1]]):
            for i in serial({loops[0][0]}, {sum(loops[0])}):
                for j in serial({loops[1][0]}, {sum(loops[1])}):
                    for k in serial({loops[2][0]}, {sum(loops[2])}):
                        y[0] = x[{", ".join(map(str, indices))}]
        """
    )
    if max(part for part in parts if part is not None) <= WORD:
        require_sound(func)
    else:
        with pytest.raises(VerifyError, match=r"f: .* may need numbers up to \d+, and native code"):
            require_sound(func)


def test_scalars_are_checked_within_their_limits() -> None:
    text = """
    def f(x: i32[16], y: out[i32[16]], n: index):
        assume(unless(n >= 0 and n <= {most}), bool(False))
        for i in serial(0, 16):
            if {factor}*n + i < {factor}:
                y[i] = x[i]
            else:
                y[i] = i32(0)
    """
    x = np.arange(16, dtype="int32")
    gf.build(text.format(most=7, factor=2**59), threads=1).run({"x": x, "n": np.int64(1)})
    with pytest.raises(VerifyError, match=r"n.* may need numbers up to"):
        gf.build(text.format(most=7, factor=2**61), threads=1)


def test_a_step_that_makes_numbers_too_large_is_no_build() -> None:
    """A loop that is divided and shifted has the same numbers; a wrong box is refused at once."""
    s = Schedule.of(gf.kernel(conditional(f"o*{2**60} + b < 5", "serial")))
    s = s.shift_loop("o", 3)
    with pytest.raises((ScheduleError, VerifyError), match="may need numbers up to"):
        s = s.shift_loop("o", 2**40)
        gf.build(s, threads=1)


def test_the_emitter_proves_each_sum_that_it_adds_up() -> None:
    """The offset is small where it is used, and its parts are not."""
    func = parse(
        f"""
        @primfunc
        def f(y: out[i32[16]]):
            for i in serial(0, 4):
                for j in serial(0, 4):
                    if i == j:
                        y[{2**62}*i - {2**62}*j + j] = i32(1)
        """
    )
    with pytest.raises(CodegenError, match=r"may need numbers up to \d+, and native code computes"):
        emit_ir(func, "f", avx2_target())


def test_the_largest_part_bounds_every_order_of_a_sum() -> None:
    ranges = {I: (-3, 5), J: (0, 9)}
    assert largest_part(2 * I - 4 * J + 7, ranges) == 6 + 36
    assert largest_part(2 * I - 4 * J + 37, ranges) == 10 + 37
    assert largest_part(floor_mod(6 * I + J, 7), ranges) == 39
    assert largest_part(floor_div(I, 1000), ranges) == 1000
    assert largest_part(maximum(3 * I, J), ranges) == 15
    assert largest_part(Var("n") + 1, ranges) is None
    assert np.iinfo(np.int64).max == WORD
