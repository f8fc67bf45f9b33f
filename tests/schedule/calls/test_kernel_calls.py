"""Primitives on calls: each where it applies, refused for each condition, and on random kernels."""

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.codegen import instruction
from graphflow.schedule import (
    Rewrite,
    Schedule,
    call_eqv,
    compute_at,
    divide_loop,
    extract_subproc,
    inline,
    mark_unrolled,
    reorder_loops,
    replace,
    simplify,
    transform_layout,
    vectorize_loop,
)
from graphflow.tir import PrimFunc, calls_in, interpret, parse, to_text
from support.primitives.extracted_parts import check_round_trip
from support.schedule_checks import inputs_of, kernel, same

MATMUL = """
for i in serial(0, 4):
    for j in serial(0, 16):
        y[i, j] = f32(0.0)
for i2 in serial(0, 4):
    for r in serial(0, 5):
        for jo in serial(0, 2):
            for ji in serial(0, 8):
                y[i2, 8*jo + ji] += x[i2, r] * w[r, 8*jo + ji]
"""
PARAMS = "x: f32[4, 5], w: f32[5, 16], y: out[f32[4, 16]]"
COPY = parse("@primfunc\ndef copy(c: out[i32[4]], a: i32[4]):\n"
             "    for l in vectorized(0, 4):\n        c[l] = a[l]\n")  # fmt: skip
SERIAL = parse(to_text(COPY).replace("vectorized", "serial"))


def matmul() -> Schedule:
    return Schedule.of(kernel(MATMUL, PARAMS))


def last_lines(func: PrimFunc, count: int) -> str:
    return "\n".join(to_text(func).splitlines()[-count:])


def refusal(step: object) -> str:
    assert callable(step)
    with pytest.raises(ScheduleError) as error:
        step()
    return str(error.value).splitlines()[0]


def test_a_loop_is_replaced_by_an_instruction() -> None:
    s = matmul()
    loop = s.handle("ji")
    done = s.apply(replace, "ji", instruction("fma8"))
    assert last_lines(done.func, 1).strip() == (
        "fma8(y[i2, 8*jo:8*jo + 8], x[i2, r], w[r, 8*jo:8*jo + 8])"
    )
    same(s.func, done)
    assert done.names(done.forward(loop)) == done.names(done.made["call"]) == ("fma8",)


def test_the_body_of_a_block_is_replaced() -> None:
    func = kernel('with block("b"):\n    for i in serial(0, 4):\n        y[i + 2] = x[i]')
    done = Schedule.of(func).apply(replace, "b", COPY)
    assert last_lines(done.func, 1) == "    copy(y[2:6], x[0:4])"


def test_a_second_call_gets_a_name_of_its_own() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    y[i + 2] = x[i]\nfor j in serial(0, 4):\n    y[j + 9] = x[j]"
    )
    done = Schedule.of(func).apply(replace, "i", COPY).apply(replace, "j", COPY)
    assert last_lines(done.func, 1) == '    copy(y[9:13], x[0:4], name="copy_2")'
    assert same(func, done).count("def copy") == 1


def test_what_does_not_unify_is_refused_with_the_first_difference() -> None:
    fma16 = instruction("fma16")
    assert "`for lane in vectorized(0, 16):` where the statement has `for ji" in refusal(
        lambda: replace(matmul().func, "ji", fma16)
    )
    assert "where the statement has `y[i, j] = f32(0.0)`" in refusal(
        lambda: replace(matmul().func, "j", fma16)
    )
    assert "has no loop or block z" in refusal(lambda: replace(matmul().func, "z", fma16))


SHIFT = "for i in serial(0, 4):\n    y[i + 1] = y[i]"


def test_lanes_of_an_instruction_may_not_depend_on_one_another() -> None:
    """Serial iterations fill the buffer with its first element, lanes would shift it."""
    assert "fma" not in refusal(lambda: replace(kernel(SHIFT), "i", COPY))
    assert "the iterations of copy.l are independent" in refusal(
        lambda: replace(kernel(SHIFT), "i", COPY)
    )
    same(kernel("y[0] = i32(3)\n" + SHIFT), replace(kernel("y[0] = i32(3)\n" + SHIFT), "i", SERIAL))


def test_lanes_do_not_stand_in_lanes() -> None:
    func = kernel("for o in vectorized(0, 4):\n  for i in serial(0, 4):\n    y[4*o + i] = x[i]")
    assert "stands inside o" in refusal(lambda: replace(func, "i", COPY))
    same(func, replace(func, "i", SERIAL))


def test_two_definitions_do_not_have_one_name() -> None:
    func = kernel(
        "for i in serial(0, 4):\n  y[i] = x[i]\nfor j in serial(0, 4):\n  y[j + 4] = x[j]"
    )
    done = Schedule.of(func).apply(replace, "i", COPY)
    assert "calls another kernel copy already" in refusal(lambda: replace(done.func, "j", SERIAL))


def test_a_call_follows_loops_and_layouts() -> None:
    s = matmul().apply(replace, "ji", instruction("fma8"))
    done = s.apply(reorder_loops, ("jo", "r")).apply(mark_unrolled, "jo")
    done = done.apply(transform_layout, "y", lambda i, j: (j, i))
    assert "fma8(y[8*jo:8*jo + 8, i2], x[i2, r], w[r, 8*jo:8*jo + 8])" in to_text(done.func)
    got = interpret(done.func, inputs_of(s.func))["y"]
    np.testing.assert_array_equal(got.T, interpret(s.func, inputs_of(s.func))["y"])
    same(s.func, s.apply(divide_loop, "r", 3, ("ro", "ri"), "guard").apply(simplify))


def test_a_layout_that_no_window_has_is_refused() -> None:
    s = matmul().apply(replace, "ji", instruction("fma8"))
    reason = refusal(lambda: s.apply(transform_layout, "y", lambda i, j: (i, j // 4, j % 4)))
    assert "fma8 would be no call of fma8 any more" in reason
    assert "inline it first" in reason
    s.apply(inline, "fma8").apply(transform_layout, "y", lambda i, j: (i, j // 4, j % 4))


def test_loops_around_a_call_are_checked_by_what_it_does() -> None:
    s = matmul().apply(replace, "ji", SUM := instruction("fma8"))
    assert SUM.name == "fma8"
    with pytest.raises(ScheduleError, match="holds a loop or an allocation"):
        s.apply(vectorize_loop, "jo")


def test_a_producer_is_computed_at_a_call() -> None:
    func = kernel("""
t = alloc(i32[16])
with block("p"):
    for k in serial(0, 16):
        t[k] = x[k] + i32(1)
for o in serial(0, 4):
    for i in serial(0, 4):
        y[4*o + i] = t[4*o + i]
""")
    s = Schedule.of(func).apply(replace, "i", COPY)
    done = s.apply(compute_at, "p", "o")
    assert "copy(y[4*o:4*o + 4], t[" in to_text(done.func)
    same(func, done)


def test_inlining_gives_the_statements_back() -> None:
    s = matmul().apply(replace, "ji", instruction("fma8"))
    done = s.apply(inline, "fma8")
    assert last_lines(done.func, 2) == (
        "                for fma8.lane in vectorized(0, 8):\n"
        "                    y[i2, 8*jo + fma8.lane] += x[i2, r] * w[r, 8*jo + fma8.lane]"
    )
    same(s.func, done)
    assert "r is a loop or a block, and a call is needed" in refusal(lambda: inline(s.func, "r"))


def test_a_loop_becomes_a_kernel() -> None:
    s = matmul()
    done = s.apply(extract_subproc, "r", "row")
    text = same(s.func, done)
    assert text.startswith(
        "@instruction\ndef row(x: f32[4, 5], w: f32[5, 16], y: inout[f32[4, 16]], i2: index):\n"
        "    for r in serial(0, 5):\n"
    )
    assert text.endswith(
        "    for i2 in serial(0, 4):\n        row(x[0:4, 0:5], w[0:5, 0:16], y[0:4, 0:16], i2)\n"
    )
    assert parse(text) == done.func


def test_what_cannot_be_a_kernel_is_not_extracted() -> None:
    func = kernel("for i in parallel(0, 4):\n  for j in serial(0, 4):\n    y[4*i + j] = x[j]")
    assert "i holds a parallel loop" in refusal(lambda: extract_subproc(func, "i", "f"))
    same(func, extract_subproc(func, "j", "f"))
    assert "uses the name j already" in refusal(lambda: extract_subproc(func, "j", "j"))
    assert "cannot call a kernel of its own" in refusal(lambda: extract_subproc(func, "j", "k"))
    done = extract_subproc(func, "j", "f").func
    assert "f is a call already" in refusal(lambda: extract_subproc(done, "f", "g"))


TWO_LOOPS = "for i in serial(0, 4):\n    y[i] = x[i]\nfor j in serial(4, 16):\n    y[j] = x[j]"


def test_what_a_call_performs_gets_no_name_that_is_taken() -> None:
    """A loop that came out of a call keeps the name of that call in front of its own."""
    func = kernel(TWO_LOOPS)
    called = Schedule.of(func).extract_subproc("j", "f")
    (call,) = calls_in(called.func.body)
    inlined = called.inline("f")
    again = inlined.divide_loop("i", 2, ("j", "r"), "perfect")
    assert "uses the name f.j already" in refusal(lambda: again.extract_subproc("j", "f"))
    text = same(func, replace(inlined.extract_subproc("i", "g").func, "f.j", call.definition))
    assert "f(x[0:16], y[0:16])" in text
    divided = Schedule.of(call.definition).divide_loop("j", 2, ("a", "b"), "perfect")
    named = called.name_statement("i[0]", "f.a")
    assert "uses the name f.a already" in refusal(lambda: named.call_eqv("f", divided))


def test_a_call_is_exchanged_for_an_equivalent_kernel() -> None:
    s = matmul().apply(extract_subproc, "i2", "body")
    (*_, call) = s.func.body
    other = Schedule.of(call.definition).apply(replace, "ji", instruction("fma8"))
    done = s.apply(call_eqv, "body", other)
    same(matmul().func, done)
    assert "fma8(" in to_text(done.func)
    assert done.apply(call_eqv, "body", other).func == s.func


def test_kernels_that_no_schedule_relates_are_not_exchanged() -> None:
    s = matmul().apply(replace, "ji", instruction("fma8"))
    assert "neither the definition nor the result" in refusal(
        lambda: s.apply(call_eqv, "fma8", Schedule.of(COPY))
    )


def test_a_schedule_of_disjoint_parameters_does_not_hold_for_one_buffer() -> None:
    """The copy in reverse order is equivalent for two buffers, and not for one."""
    func = kernel("y[0] = i32(3)\nfor i in serial(0, 4):\n    y[i + 1] = y[i]")
    s = Schedule.of(func).apply(replace, "i", SERIAL)
    lanes = Schedule.of(SERIAL).apply(vectorize_loop, "l")
    assert "gets y twice and writes it" in refusal(lambda: s.apply(call_eqv, "copy", lanes))


def test_an_equivalent_kernel_with_other_parameters_does_not_fit() -> None:
    s = matmul().apply(extract_subproc, "i2", "body")
    (*_, call) = s.func.body
    other = Schedule.of(call.definition).apply(transform_layout, "w", lambda i, j: (j, i))
    assert "do not have the same parameters" in refusal(lambda: s.apply(call_eqv, "body", other))


def test_an_equivalent_kernel_writes_no_more() -> None:
    """What a kernel leaves of an output is undefined by itself, and not where it is called."""
    text = "@primfunc\ndef part(c: out[i32[4]], a: i32[4]):\n    for l in serial(0, 3):\n"
    part = parse(text + "        c[l] = a[l]\n")
    whole = parse(text.replace("0, 3", "0, 4") + "        c[l] = a[l]\n")
    func = kernel("for i in serial(0, 3):\n    y[i] = x[i]")
    s = Schedule.of(func).apply(replace, "i", part)
    more = Schedule.of(part).apply(lambda _: Rewrite(whole))
    reason = refusal(lambda: s.apply(call_eqv, "part", more))
    assert "writes an element of c that part does not write" in reason
    assert "[3]" in reason


def test_random_kernels_are_the_same_with_a_part_extracted() -> None:
    assert sum(check_round_trip(seed) for seed in range(80)) > 50
