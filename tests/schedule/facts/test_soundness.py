"""Tests of the proofs about a kernel that comes in: loop kinds, assumptions and forbidden padding
are proven, and no name decides anything."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import tir
from graphflow.arith import Var, box, equal, floor_mod, less_than, prove, prove_injective
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.graph import Node, OperatorGraph, Value
from graphflow.layout import Constant, Range, blocked, output_facts, row_major
from graphflow.schedule import (
    Rewrite,
    Schedule,
    absorb_padding,
    assume_finite,
    assume_reciprocal,
    bind_expr,
    cache_read,
    cache_write,
    divide_loop,
    fuse,
    parallelize_loop,
    remove_branching_through_overcompute,
    reorder_loops,
    require_consistent,
    require_in_bounds,
    require_sound,
    reverse_compute_at,
    sequential_buffer_access,
    shift_loop,
    simplify,
    stage_mem,
    transform_layout,
)
from graphflow.schedule.facts.claims import claimed, claims
from support.schedule_checks import kernel, same

PACKED = blocked((14,), 0, 4)

# Names --------------------------------------------------------------------------------------------

CLASH = """
for a.b in serial(0, 24):
    for a_dot_b in serial(0, 24):
        if (a.b + 5*a_dot_b) % 11 == 3 and (3*a.b + a_dot_b) % 7 == 2 and a.b % 5 != a_dot_b % 5:
            y[(a.b*3 + a_dot_b*7) % 24] = x[a.b, a_dot_b]
"""


def test_different_names_are_different_variables_to_the_prover() -> None:
    func = kernel(CLASH, "x: i32[24, 24], y: out[i32[24]]")
    with pytest.raises(ScheduleError, match="commute"):
        reorder_loops(func, ("a_dot_b", "a.b"))
    with pytest.raises(ScheduleError, match="independent"):
        parallelize_loop(func, "a.b")


@pytest.mark.parametrize(
    ("first", "second"),
    [("a.b", "a_dot_b"), ("a.b", "a_x2e_b"), ("a_", "a__"), ("é", "_xe9_"), ("a.b_", "a_.b")],
)
def test_no_two_names_are_one_to_integer_sets(first: str, second: str) -> None:
    a, b = Var(first), Var(second)
    domain = box((a, b), (24, 24))
    same = equal(floor_mod(5 * a, 7), floor_mod(5 * b, 7))
    assert not prove(same, domain.given(less_than(floor_mod(3 * a + b, 5), 3))).proven
    assert prove_injective((a, b), domain).proven
    assert not prove_injective((floor_mod(a + b, 24),), domain).proven


def test_loops_may_be_named_as_the_axes_of_a_layout_are() -> None:
    """The row sums of [4, 6], whose reduction loop has the name of a physical axis."""

    def row_sums(inner: str) -> tir.PrimFunc:
        return kernel(
            f"""
            for i in serial(0, 6):
                y[i] = f32(0.0)
                for {inner} in serial(0, 6):
                    if {inner} + i < 6:
                        y[i] += x[i, {inner}]
            """,
            "x: f32[6, 6], y: out[f32[6]]",
        )

    layouts = {"x": row_major((6, 6)), "y": blocked((6,), 0, 4)}
    given = {("x", "logical"): Constant(tir.Literal(1.0, "float32"))}
    names = ("k", "p0", "p1", "i0", "i1")
    found = [output_facts(row_sums(name), layouts, given) for name in names]
    assert all(facts == found[0] for facts in found)


# Loop kinds ---------------------------------------------------------------------------------------

CARRIED = "for i in {kind}(1, 16):\n    y[i] = y[i - 1] + x[i]"
RACING = "for i in {kind}(0, 16):\n    y[i // 2] = x[i]"
SUM = "for i in {kind}(0, 16):\n    y[0] += x[i]"
GUARDED = """
for j in serial(0, 4):
    if j > 0:
        for i in {kind}(0, 4):
            y[4*j + i] = y[4*j + i - 1]
"""
STAGES = """
t = alloc(i32[16])
for i in {kind}(0, 16):
    t[15 - i] = x[i]
    y[i] = t[i]
"""


def graph_of(func: tir.PrimFunc) -> OperatorGraph:
    graph = OperatorGraph()
    for buffer in func.inputs:
        graph.add_value(Value(buffer.name, buffer.dtype, buffer.shape))
    graph.set_inputs([b.name for b in func.inputs])
    names = tuple(b.name for b in func.inputs), tuple(b.name for b in func.outputs)
    graph.add(Node("n", func.name, func, *names))
    graph.set_outputs([b.name for b in func.outputs])
    return graph


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        *product([CARRIED, RACING, GUARDED, STAGES], ["parallel", "vectorized"]),
        (SUM, "parallel"),
        (SUM + "\n    y[i] = x[i]", "vectorized"),
    ],
)
def test_written_loop_kinds_are_proven(body: str, kind: str) -> None:
    wrong = kernel(body.format(kind=kind))
    for trusting in (Schedule.of, graph_of, require_sound):
        with pytest.raises(VerifyError, match=f"the loop i is marked {kind}") as shown:
            trusting(wrong)
        assert "<-- here" in str(shown.value)
    for harmless in ("serial", "unrolled"):
        graph_of(kernel(body.format(kind=harmless))).validate()


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_written_loop_kinds_that_hold_are_accepted(kind: str) -> None:
    func = kernel(f"for i in {kind}(0, 16):\n    y[15 - i] = x[i] + x[(i + 1) % 16]")
    assert Schedule.of(func).func is func
    graph_of(func).validate()


def test_lanes_may_meet_in_a_reduction() -> None:
    func = kernel(SUM.format(kind="vectorized"))
    assert Schedule.of(func).func is func
    graph_of(func).validate()


def test_offered_kernels_are_proven_too() -> None:
    graph = graph_of(kernel(CARRIED.format(kind="serial")))
    node = graph.node("n")
    wrong = kernel(CARRIED.format(kind="vectorized"))
    with pytest.raises(VerifyError, match="the loop i is marked vectorized"):
        graph.replace("n", Node("n", "k", node.func, node.inputs, node.outputs, offered=(wrong,)))


def test_malformed_kernels_are_refused_at_the_door() -> None:
    twice = kernel("for i in serial(0, 4):\n    for i in serial(0, 4):\n        y[i] = x[i]")
    with pytest.raises(VerifyError, match="used twice"):
        Schedule.of(twice)
    with pytest.raises(VerifyError, match="used twice"):
        graph_of(twice)


def test_accesses_outside_are_refused() -> None:
    with pytest.raises(VerifyError, match=r"y\[i\] is not proven to stay in \[16\]"):
        require_in_bounds(kernel("for i in serial(0, 17):\n    y[i] = x[0]"))


# Claims -------------------------------------------------------------------------------------------


def claim_of(text: str, dtype: str) -> Any:
    func = kernel(f"for i in serial(0, 1):\n    assume(unless(i >= 1), {text})", f"x: {dtype}[1]")
    return next(stmt.claim for stmt in tir.walk(func.body) if isinstance(stmt, tir.Assume))


@pytest.mark.parametrize(
    ("text", "dtype", "fact"),
    [
        ("abs(x[i]) <= i32(0)", "i32", Range(-(2**31), 0)),
        ("abs(x[i]) <= i8(5)", "i8", Range(-128, 5)),
        ("abs(x[i]) <= u8(5)", "u8", Range(0, 5)),
        ("abs(x[i]) < i64(5)", "i64", Range(-(2**63), 4)),
        ("abs(x[i]) <= f32(0.0)", "f32", Range(-0.0, 0.0)),
        ("abs(x[i]) < f32(inf)", "f32", Range(-3.4028234663852886e38, 3.4028234663852886e38)),
        ("x[i] == i32(7)", "i32", Constant(tir.Literal(7, "int32"))),
        ("x[i] == f32(0.0)", "f32", Range(-0.0, 0.0)),
        ("x[i] < i32(7)", "i32", Range(-(2**31), 6)),
    ],
)
def test_what_a_claim_says_of_an_element(text: str, dtype: str, fact: Any) -> None:
    assert [found for _, found in claims(claim_of(text, dtype))] == [fact]


NUMBERS = {
    "int8": st.integers(-128, 127),
    "uint8": st.integers(0, 255),
    "float32": st.sampled_from((0.0, -0.0, 1.0, -1.0, 1e-45, float("inf"), float("-inf"), 2.5)),
}


@given(st.sampled_from(sorted(NUMBERS)), st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")),
       st.booleans(), st.data())  # fmt: skip
def test_every_value_that_makes_a_claim_true_is_in_its_span(
    dtype: str, op: str, absolute: bool, data: st.DataObject
) -> None:
    limit = tir.Literal(data.draw(NUMBERS[dtype]), dtype)
    text = {"int8": "i8", "uint8": "u8", "float32": "f32"}[dtype]
    load = claim_of(f"x[i] == {text}(1{'.0' if text == 'f32' else ''})", text).left
    side = tir.Unary("abs", load) if absolute else load
    (span,) = claimed(tir.Comparison(op, side, limit)).values() or (None,)
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
               "eq": np.equal, "ne": np.not_equal}[op]  # fmt: skip
    value = np.asarray(data.draw(NUMBERS[dtype]), tir.DTYPES[dtype])[()]
    with np.errstate(all="ignore"):
        seen = tir.UNARY_FUNCTIONS["abs"](value) if absolute else value
    if op != "ne" and compare(seen, np.asarray(limit.value, tir.DTYPES[dtype])[()]):
        assert span is not None
        assert (
            Range(span.lo, span.hi).holds(value.item())
            if np.isfinite([span.lo, span.hi]).all()
            else span.lo <= value <= span.hi
        )


def total(dtype: str, claim: str) -> tir.PrimFunc:
    zero = {"i32": "i32(0)", "f32": "f32(0.0)"}[dtype]
    return kernel(
        f"""
        with block("known"):
            for a in serial(14, 16):
                assume(unless(a < 14), {claim})
        with block("init"):
            y[0] = {zero}
        with block("compute"):
            for i in serial(0, 16):
                if i < 14:
                    y[0] += x[i]
        """,
        f"x: {dtype}[16], y: out[{dtype}[1]]",
    )


def test_a_sum_is_not_widened_over_what_may_be_the_smallest_integer() -> None:
    with pytest.raises(ScheduleError, match="it must be"):
        remove_branching_through_overcompute(total("i32", "abs(x[a]) <= i32(0)"), "compute")
    for exact in ("x[a] == i32(0)", "x[a] >= i32(0) & (x[a] <= i32(0))"):
        func = total("i32", exact.replace("x[a] >=", "(x[a] >=").replace("i32(0) &", "i32(0)) &"))
        remove_branching_through_overcompute(func, "compute")


@pytest.mark.parametrize(
    "claim",
    [
        "abs(x[a]) <= f32(-1.0)",
        "abs(x[a]) < f32(0.0)",
        "x[a] == f32(nan)",
        "x[a] < f32(-inf)",
        "(x[a] <= f32(1.0)) & (x[a] >= f32(2.0))",
        "f32(1.0) == f32(2.0)",
        "bool(False)",
    ],
)
def test_an_assumption_that_no_value_makes_true_is_refused(claim: str) -> None:
    for trusting in (Schedule.of, graph_of):
        with pytest.raises(VerifyError, match="no value makes `assume"):
            trusting(total("f32", claim))


def test_an_assumption_about_no_element_may_say_anything() -> None:
    func = kernel("for a in serial(0, 4):\n    assume(unless(a < 4), bool(False))\ny[0] = x[0]")
    Schedule.of(func)


def test_assumptions_that_contradict_each_other_are_refused() -> None:
    body = """
    for a in serial(0, 10):
        assume(unless(a < 0), x[a] == i32({}))
    for b in serial({}, 16):
        assume(unless(b < 0), x[b] >= i32(5))
    for i in serial(0, 16):
        y[i] = x[i]
    """
    Schedule.of(kernel(body.format(5, 9)))
    Schedule.of(kernel(body.format(4, 10)))
    with pytest.raises(VerifyError, match=r"x is assumed to hold 4 and a value in \[5, "):
        Schedule.of(kernel(body.format(4, 9)))


def test_padding_that_is_not_finite_contradicts_nothing_that_is_said_of_the_elements() -> None:
    func = kernel("for i in serial(0, 14):\n    y[i] = x[i]", "x: f32[14], y: out[f32[14]]")
    s = Schedule.of(func).apply(transform_layout, "x", PACKED, np.inf)
    finite = s.apply(assume_finite, "x", "the caller says so").func
    x = np.full((4, 4), np.inf, np.float32)
    x.reshape(-1)[:14] = 1
    tir.interpret(finite, {"x": x})
    s.apply(assume_reciprocal, "x", "the caller says so")
    with pytest.raises(VerifyError, match="is assumed to hold"):
        Schedule.of(func).apply(assume_finite, "x", "all").apply(_claimed_infinite)


def _claimed_infinite(func: tir.PrimFunc) -> Rewrite:
    """A primitive that states what contradicts the kernel."""
    text = tir.to_text(func).replace(
        "    for i in", "    for z in serial(0, 14):\n"
        "        assume(unless(z < 0), x[z] == f32(inf))\n    for i in", 1,
    )  # fmt: skip
    new = tir.parse(text)
    require_consistent(new)
    return Rewrite(new)


def test_what_is_known_to_be_finite_says_nothing_about_undefined_padding() -> None:
    func = kernel(
        """
        with block("init"):
            y[0] = f32(0.0)
        with block("compute"):
            for i in serial(0, 14):
                y[0] += x[i] * w[i]
        """,
        "x: f32[14], w: f32[14], y: out[f32[1]]",
    )
    s = Schedule.of(func).apply(transform_layout, "x", PACKED, "undef")
    s = s.apply(transform_layout, "w", PACKED, 0.0)
    s = s.apply(assume_finite, "x", "the user says so of its 14 elements")
    s = s.apply(sequential_buffer_access, "compute", "w", ("io", "ii"))
    with pytest.raises(ScheduleError, match=r"0\.0 times a number that may be infinite"):
        s.apply(remove_branching_through_overcompute, "compute")


# Forbidden padding --------------------------------------------------------------------------------

READS = """
with block("compute"):
    for i in serial(0, 14):
        y[i] = x[i]
"""


def test_forbidden_padding_is_found_by_its_elements_and_not_by_names_of_loops() -> None:
    func = kernel(
        """
        with block("init"):
            y[0] = i32(0)
        with block("compute"):
            for i in serial(0, 14):
                y[0] += x[i]
        """,
        "x: i32[14], y: out[i32[1]]",
    )
    s = Schedule.of(func).apply(transform_layout, "x", PACKED, None)
    s = s.apply(sequential_buffer_access, "compute", "x", ("io", "ii"))
    for moved in (s, s.apply(shift_loop, "x_padding_0", 4), s.apply(shift_loop, "x_padding_1", 9)):
        with pytest.raises(ScheduleError, match="stays away from forbidden padding"):
            moved.apply(remove_branching_through_overcompute, "compute")


GUARDED_READERS = """
with block("compute"):
    for i in serial(0, 4):
        for a in serial(0, 4):
            if 4*i + a < 6:
                y[i, a] = x[i, a]
            if 4*i + a >= {} and 4*i + a < 14:
                y[i, a] = x[i, a] + i32(1)
"""


def forbidding(body: str) -> tir.PrimFunc:
    func = kernel(body, "x: i32[4, 4], y: out[i32[4, 4]]")
    text = tir.to_text(func).replace(
        "    with block(",
        '    with block("x_padding", padding_of="x", padding="none"):\n'
        "        for p in serial(0, 4):\n            for q in serial(0, 4):\n"
        "                assume(unless(4*p + q < 14), x[p, q] != undef(i32))\n    with block(",
        1,
    )
    return tir.parse(text)


def test_staging_copies_no_padding_that_guarded_readers_leave_alone() -> None:
    func = forbidding(GUARDED_READERS.format(6))
    tir.verify(func, "definition")
    with pytest.raises(ScheduleError, match="stays away from forbidden padding"):
        Schedule.of(func).apply(stage_mem, "i", "x", "t", ("a",))
    free = kernel(GUARDED_READERS.format(6), "x: i32[4, 4], y: out[i32[4, 4]]")
    same(free, Schedule.of(free).apply(stage_mem, "i", "x", "t", ("a",)))


def test_staging_what_every_reader_touches_needs_no_more() -> None:
    func = forbidding(
        """
        with block("compute"):
            for i in serial(0, 3):
                for a in serial(0, 4):
                    y[i, a] = x[i, a]
        """
    )
    same(func, Schedule.of(func).apply(stage_mem, "i", "x", "t", ("a",)))


def test_binding_reads_no_forbidden_element() -> None:
    func = forbidding(
        """
        with block("compute"):
            for i in serial(0, 4):
                if data(x[0, 0] > i32(0)):
                    y[i, 0] = x[3, i]
        """
    )
    with pytest.raises(ScheduleError):
        Schedule.of(func).apply(bind_expr, "i", "x", "t")


# What lies behind ---------------------------------------------------------------------------------


def test_an_output_that_nothing_stores_to_gets_its_padding_written() -> None:
    func = kernel(
        "for i in serial(0, 9):\n    if i >= 9:\n        y[i] = x[i]", "x: i32[9], y: out[i32[9]]"
    )
    s = Schedule.of(func).apply(simplify)
    plain = s.apply(transform_layout, "y", blocked((9,), 0, 4), 1).func
    x = np.zeros(9, np.int32)
    assert (
        tir.interpret(plain, {"x": x}, undefined=7)["y"].reshape(-1).tolist() == [7] * 9 + [1] * 3
    )
    cached = s.apply(cache_write, "y", "yc").apply(simplify)
    cached = cached.apply(transform_layout, "yc", blocked((9,), 0, 4), 1)
    tir.verify(cached.func, "scheduled")
    tir.interpret(cached.func, {"x": x})


def test_staging_keeps_what_only_an_assumption_reads() -> None:
    func = kernel(
        """
        t = alloc(f32[6])
        for a in serial(0, 6):
            t[a] = f32(1.0)
        for b in serial(0, 6):
            assume(unless(b < 0), t[b] == f32(1.0))
        for i in serial(0, 6):
            y[i] = x[i]
        """,
        "x: f32[6], y: out[f32[6]]",
    )
    same(func, Schedule.of(func).apply(stage_mem, "a", "t", "r", ()))


def test_a_whole_box_loses_no_iteration_whose_index_lies_outside_it() -> None:
    func = kernel(READS, "x: i32[14], y: out[i32[14]]")
    s = Schedule.of(func).apply(transform_layout, "y", PACKED, 7)
    s = s.apply(sequential_buffer_access, "compute", "y", ("io", "ii"))
    s = s.apply(absorb_padding, "compute", "y")
    s = s.apply(sequential_buffer_access, "compute", "x", ("p",), True)
    x = np.arange(14, dtype=np.int32)
    assert tir.interpret(s.func, {"x": x})["y"].reshape(-1).tolist() == [*range(14), 7, 7]


def test_a_stage_that_only_assumes_does_not_overwrite() -> None:
    func = kernel(
        """
        with block("compute"):
            for i in serial(0, 16):
                if i < 14:
                    y[i] = x[i]
        with block("later", padding_of="y", padding="undef"):
            for a in serial(14, 16):
                assume(unless(a < 14), y[a] == undef(i32))
        """
    )
    with pytest.raises(ScheduleError, match=r"y\[i\] at i=14 is read by y\[a\] at a'=14"):
        remove_branching_through_overcompute(func, "compute")


def test_a_stage_without_its_kind_is_refused_by_name() -> None:
    func = kernel(
        """
        with block("compute"):
            for i in serial(0, 16):
                if i < 14:
                    y[i] = x[i]
        with block("later", padding_of="y"):
            for a in serial(14, 16):
                y[a] = i32(0)
        """
    )
    with pytest.raises(ScheduleError, match="the stage later is marked padding_of"):
        remove_branching_through_overcompute(func, "compute")


def test_the_cache_of_an_input_keeps_its_own_padding() -> None:
    func = kernel(READS, "x: i32[14], y: out[i32[14]]")
    s = Schedule.of(func).apply(cache_read, "x", "xc").apply(transform_layout, "xc", PACKED, None)
    same(func, s)


# Names and places ---------------------------------------------------------------------------------


def test_a_block_and_a_loop_may_not_have_one_name() -> None:
    func = kernel('with block("i"):\n    for i in serial(0, 16):\n        y[i] = x[i]')
    with pytest.raises(VerifyError, match="the loop variable name i is used for a block too"):
        Schedule.of(func)


@pytest.mark.parametrize("name", ["for", "i.0", "a b", ""])
def test_new_names_must_be_names(name: str) -> None:
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]")
    with pytest.raises(ScheduleError, match="is no name: it takes identifiers"):
        divide_loop(func, "i", 4, ("io", name))


def test_joining_with_a_stage_that_does_nothing_is_refused() -> None:
    func = kernel(
        """
        with block("init"):
            for r in serial(0, 1):
                y[r] = i32(0)
        with block("compute"):
            for j in serial(0, 1):
                for i in serial(0, 5):
                    if j >= 1:
                        y[j] += x[i, j]
        """,
        "x: i32[5, 1], y: out[i32[1]]",
    )
    with pytest.raises(ScheduleError, match="does nothing"):
        Schedule.of(func).apply(simplify).apply(reverse_compute_at, "compute", "init")


# Scalars ------------------------------------------------------------------------------------------


def with_scalar(fact: str, body: str = "") -> tir.PrimFunc:
    return tir.parse(f"""
@primfunc
def f(x: i32[16], y: inout[i32[16]], n: index):
    assume(unless({fact}), bool(False))
    for i in serial(0, 8):
        y[i + n] = x[i]
{body}""")


@pytest.mark.parametrize(("last", "fits"), [(3, True), (4, False)])
def test_the_window_of_a_call_that_performs_nothing_is_in_bounds(last: int, fits: bool) -> None:
    hint = tir.to_text(tir.PREFETCH16).replace("primfunc", "instruction")
    text = f"""{hint}
@primfunc
def k(x: f32[4, 16], y: out[f32[4]]):
    for i in serial(0, 4):
        y[i] = x[i, 0]
        prefetch16(x[min({last}, i + 1), 0:16])
"""
    if fits:
        assert require_in_bounds(tir.parse(text))
        return
    with pytest.raises(VerifyError, match=r"x\[min\(4, i \+ 1\), 0\] is not proven to stay in"):
        require_in_bounds(tir.parse(text))


def test_an_assumption_about_a_scalar_keeps_accesses_in_bounds() -> None:
    require_in_bounds(with_scalar("n >= 0 and n <= 8"))
    with pytest.raises(VerifyError, match=r"is not proven to stay in \[16\]: fails at i=7, n=9"):
        require_in_bounds(with_scalar("n >= 9 and n <= 9"))
    with pytest.raises(VerifyError, match=r"is not proven to stay in \[16\]: fails at i=\d, n="):
        require_in_bounds(with_scalar("n >= 0"))


def test_assumptions_about_a_scalar_that_no_value_satisfies() -> None:
    require_sound(with_scalar("n >= 5"))
    with pytest.raises(VerifyError, match="no value makes"):
        require_sound(with_scalar("n >= 5 and n < 5"))
    again = with_scalar("n >= 5", "    assume(unless(n < 3), bool(False))\n")
    with pytest.raises(VerifyError, match=r"no value makes `assume\(unless\(n < 3\)"):
        require_sound(again)


@pytest.mark.parametrize("low", range(-3, 4))
@pytest.mark.parametrize("high", range(-3, 4))
def test_loops_are_joined_where_every_value_of_a_scalar_permits_it(low: int, high: int) -> None:
    """Joined, y[j] reads what iteration j wrote: y[j + n + 4] is written later only for n < -4."""
    if low > high:
        return
    text = f"""
@primfunc
def f(x: i32[16], y: inout[i32[16]], z: out[i32[8]], n: index):
    assume(unless(n >= {low} and n <= {high}), bool(False))
    for i in serial(0, 8):
        y[i + n + 4] = x[i]
    for j in serial(0, 8):
        z[j] = y[j + 4]
"""
    func = tir.parse(text)
    inputs = {name: np.arange(16, dtype="int32") * k for name, k in (("x", 1), ("y", -1))}
    try:
        joined_loops = Schedule.of(func).apply(fuse, "i", "j")
    except ScheduleError as error:
        assert low < 0
        assert "n=-" in str(error)
        return
    assert low >= 0
    for n in range(low, high + 1):
        want = tir.interpret(func, inputs, scalars={"n": n})
        got = tir.interpret(joined_loops.func, inputs, scalars={"n": n})
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array)
