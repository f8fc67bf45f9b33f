"""Index arithmetic that may leave 64 bits is refused, and what fits computes as interpreted."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.arith import WORD, Var, floor_div, floor_mod, largest_part, maximum
from graphflow.base.errors import CodegenError, ScheduleError, VerifyError
from graphflow.codegen import avx2_target, emit_ir
from graphflow.schedule import Schedule, require_sound
from graphflow.tir import interpret, parse

I, J = Var("i"), Var("j")


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
