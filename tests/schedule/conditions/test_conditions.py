"""Tests of the primitives on conditions: simplify, lift, remove dead code, and overcompute."""

import gc
from collections.abc import Callable

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    eliminate_dead_code,
    lift_conditions,
    parallelize_loop,
    remove_branching_through_overcompute,
    simplify,
)
from graphflow.tir import interpret, parse, sites, to_text
from support.schedule_checks import kernel, same

Golden = Callable[[str, str], None]
over = remove_branching_through_overcompute


# -- simplify


def test_simplify(golden: Golden) -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in serial(3, 7):
    for once in serial(2, 3):
        if i < 9 and i + once > 3:
            y[(4*i + once) // 4] = x[(16*i + once) % 16]
        else:
            y[0] = i32(5)
    for never in serial(i, 3):
        y[never] = i32(7)
    if data(x[(i + 16) % 16] < i32(2)):
        if i >= 3:
            y[i] += i32(1)
"""
    )
    done = simplify(func)
    golden("simplify", same(func, done))
    assert simplify(done.func).func is done.func


@pytest.mark.parametrize("start", [1, 3, 5, 8])
def test_simplify_is_exact_for_loops_that_start_later(start: int) -> None:
    func = kernel(
        f"""
for z in serial(0, 16):
    y[z] = i32(0)
for i in serial({start}, {start + 6}):
    for j in serial(i, i + 3):
        if i % 4 == {start} % 4 or j // 4 >= 2:
            y[(i + j) % 16] += x[(j - {start}) // 2] + x[i // {start}] + x[(i - {start}) % 8]
"""
    )
    same(func, simplify(func))


def test_what_stays_as_it_is_is_freed_without_the_garbage_collector() -> None:
    """Findings that are kept with a statement do not lead back to it."""

    def simplified() -> None:
        func = kernel(
            """
with block("stage"):
    for i in serial(0, 4):
        for j in serial(0, 4):
            if i + j < 5:
                y[4*i + j] = x[4*i + j]
"""
        )
        assert simplify(func).func is func
        assert len([*sites(func.body)]) == 5

    simplified()  # what is computed once in a process
    gc.collect()
    simplified()
    assert gc.collect() == 0


def test_simplify_asks_intervals_alone() -> None:
    func = kernel("for i in serial(0, 16):\n    if 2*(i // 2) <= i:\n        y[i] = x[i]")
    assert simplify(func).func is func
    assert "if" not in same(func, eliminate_dead_code(func))


# -- eliminate_dead_code


def test_eliminate_dead_code(golden: Golden) -> None:
    func = kernel(
        """
unread = alloc(i32[16])
chain = alloc(i32[16])
used = alloc(i32[16])
for i in serial(0, 16):
    unread[i] = x[i]
    chain[i] = x[i]
    unread[i] += chain[i]
    used[i] = x[i]
    if 2*i + 1 == 6:
        y[i] = i32(9)
    else:
        y[i] = used[i]
    for j in serial(i, 2*(i // 2)):
        y[j] = i32(8)
    if data(x[i] < i32(0)):
        if i > 20:
            y[i] = i32(7)
"""
    )
    done = eliminate_dead_code(func)
    golden("dead_code", same(func, done))
    assert eliminate_dead_code(done.func).func is done.func


def test_eliminate_dead_code_drops_the_part_of_a_conjunction_that_always_holds() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4):\n"
        "        if j < 2 and 2*(i // 2) <= i and i < 3:\n            y[4*i + j] = x[j]\n"
        "        else:\n            y[4*i + j] = i32(0)"
    )
    done = eliminate_dead_code(func)
    assert "if j < 2 and i < 3:" in same(func, done)
    assert eliminate_dead_code(done.func).func is done.func


def test_eliminate_dead_code_keeps_every_store_to_an_output() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    y[i] = i32(0)\n    y[i] = x[i]\n    z[i] = i32(1)",
        "x: i32[16], y: out[i32[16]], z: out[i32[16]]",
    )
    assert eliminate_dead_code(func).func is func


def test_eliminate_dead_code_in_one_place_only() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    if i >= 0:\n        y[i] = x[i]\n"
        "for j in serial(0, 16):\n    if j >= 0:\n        y[j] = x[j]"
    )
    assert same(func, eliminate_dead_code(func, "j")).count("if") == 1


def test_eliminate_dead_code_refuses_a_loop_that_runs() -> None:
    func = kernel("for i in serial(0, 4):\n    for j in serial(2, i):\n        y[j] = x[i]")
    with pytest.raises(ScheduleError, match=r"runs: j never runs does not hold.*at i=3"):
        eliminate_dead_code(func, "j")
    never = kernel("for i in serial(0, 3):\n    for j in serial(2, i):\n        y[j] = x[i]")
    assert "for j" not in same(never, eliminate_dead_code(never, "j"))


def test_eliminate_dead_code_knows_what_was_stored() -> None:
    body = (
        "t = alloc(i32[1])\nt[0] = i32(3)\nfor i in serial(0, 4):\n    if data(t[0] < {value}):\n"
        "        y[i] = x[i]\n    else:\n        y[i] = i32(0)"
    )
    func = kernel(body.format(value="t[0]"))
    with pytest.raises(ScheduleError, match=r"decided: the condition of i\[0\] is not always"):
        eliminate_dead_code(func, "i[0]")
    stored = kernel(
        "t = alloc(bool[1])\nt[0] = bool(True)\nfor i in serial(0, 4):\n    if data(t[0]):\n"
        "        y[i] = x[i]\n    else:\n        y[i] = i32(0)"
    )
    assert "y[i] = x[i]" in same(stored, eliminate_dead_code(stored, "i[0]"))


def test_eliminate_dead_code_keeps_what_an_assumption_names() -> None:
    func = kernel(
        "t = alloc(i32[16])\nfor i in serial(0, 16):\n    t[i] = i32(3)\n"
        "    assume(unless(i < 4), t[i] == i32(3))\n    y[i] = x[i]"
    )
    assert eliminate_dead_code(func).func is func


def test_eliminate_dead_code_keeps_what_is_said_of_padding() -> None:
    func = kernel(
        "t = alloc(i32[16])\nfor i in serial(0, 16):\n    t[i] = x[i]\n    y[i] = x[i]\n"
        'with block("y_padding", padding_of="y", padding="none"):\n    pass'
    )
    assert 'padding_of="y"' in same(func, eliminate_dead_code(func))


# -- lift_conditions


def test_lift_conditions(golden: Golden) -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in serial(0, 4):
    for j in serial(0, 4):
        for k in serial(0, 3):
            if i < 3 and j + k < 4:
                if i > 0:
                    y[4*i + j] += x[k]
"""
    )
    done = lift_conditions(func, "i")
    golden("lift_conditions", same(func, done))
    with pytest.raises(ScheduleError, match=r"lifted: .* uses i; j \+ k < 4 uses k"):
        lift_conditions(done.func, "i")


def test_lift_conditions_leaves_what_it_must() -> None:
    text = """
for i in serial(0, 4):
    for j in serial(0, 4):
        {condition}:
            y[4*i + j] = x[j]
        {rest}
"""
    for condition, rest, reason in [
        ("if j < 2", "y[4*i + j] = x[0]", "j < 2 is not the whole body of a loop"),
        ("if i < 2", "y[4*i + j] = x[0]", "i < 2 is not the whole body of a loop"),
        ("if data(x[i] < i32(0))", "y[i] = x[i]", r"data\(x\[i\] < i32\(0\)\) depends on data"),
    ]:
        func = kernel(text.format(condition=condition, rest=rest))
        with pytest.raises(ScheduleError, match=f"lifted: {reason}"):
            lift_conditions(func, "i")
    with pytest.raises(ScheduleError, match="lifted: there is no condition in i"):
        lift_conditions(kernel("for i in serial(0, 16):\n    y[i] = x[i]"), "i")
    orelse = kernel(text.format(condition="if i < 2", rest="else:\n            y[4*i + j] = x[1]"))
    with pytest.raises(ScheduleError, match="lifted: i < 2 has an else branch"):
        lift_conditions(orelse, "i")
    with pytest.raises(ScheduleError, match="b is a block, and a loop is needed"):
        lift_conditions(kernel('with block("b"):\n    y[0] = x[0]'), "b")


# -- remove_branching_through_overcompute


SCRATCH = """
t = alloc(i32[20])
for i in serial(0, 16):
    if i < 13:
        t[i] = x[i] + x[i]
for j in serial(0, {read}):
    y[j] = t[j]
"""


def test_overcompute_of_what_nobody_reads(golden: Golden) -> None:
    func = kernel(SCRATCH.format(read=13), "x: i32[16], y: out[i32[13]]")
    golden("overcompute", same(func, over(func, "i")))


def test_overcompute_refuses_what_a_load_reads() -> None:
    # Reading an element that was never written is undefined; the rewrite leaves it as it is.
    func = kernel(SCRATCH.format(read=14), "x: i32[16], y: out[i32[14]]")
    with pytest.raises(
        ScheduleError, match=r"what overcompute writes to t.* is never read does not"
    ):
        over(func, "i")


def test_overcompute_refuses_to_leave_a_buffer() -> None:
    func = kernel(
        "t = alloc(i32[16])\nfor i in serial(0, 16):\n    if i < 13:\n        t[i] = x[i + 3]\n"
        "for j in serial(0, 13):\n    y[j] = t[j]",
        "x: i32[16], y: out[i32[13]]",
    )
    with pytest.raises(ScheduleError, match=r"access x\[i \+ 3\] stays in bounds does not hold"):
        over(func, "i")


def test_overcompute_refuses_an_output_without_padding() -> None:
    func = kernel(
        "for z in serial(0, 16):\n    y[z] = x[z]\nfor i in serial(0, 16):\n"
        "    if i < 9:\n        y[i] = x[0]"
    )
    with pytest.raises(ScheduleError, match=r"y\[i\] at i=\d+ is left in the output"):
        over(func, "i")


def test_overcompute_refuses_an_else_branch_and_data_conditions() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    if i < 9:\n        y[i] = x[i]\n"
        "    else:\n        y[i] = x[0]"
    )
    with pytest.raises(ScheduleError, match="the condition i < 9 has an else branch"):
        over(func, "i")
    data = kernel("for i in serial(0, 16):\n    if data(x[i] < i32(0)):\n        y[i] = x[i]")
    with pytest.raises(ScheduleError, match="there is no index condition in i on anything"):
        over(data, "i")


def test_overcompute_looks_at_points_where_two_conditions_fail() -> None:
    text = """
t = alloc(i32[17])
for i in serial(0, 4):
    for j in serial(0, 4):
        {first}:
            {second}:
                t[{index}] = x[4*i + j]
for k in serial(0, 1):
    y[k] = t[0]
"""
    # Only (3, 3), where both fail, would store to t[0], which is read.
    index = "max(0, 16 - 16*max(0, i + j - 5))"
    nested = kernel(
        text.format(first="if i < 3", second="if j < 3", index=index), "x: i32[16], y: out[i32[1]]"
    )
    with pytest.raises(ScheduleError, match="is never read does not hold"):
        over(nested, "i")
    one = over(nested, "i", "j").func
    assert "if i < 3" in to_text(one)
    assert "j < 3" not in to_text(one)


def test_overcompute_through_an_aliasing_index() -> None:
    func = kernel(
        "t = alloc(i32[8])\nfor i in serial(0, 16):\n    if i < 8:\n        t[i % 8] = x[i]\n"
        "for j in serial(0, 8):\n    y[j] = t[j]",
        "x: i32[16], y: out[i32[8]]",
    )
    with pytest.raises(ScheduleError, match=r"t\[i % 8\] is never read does not hold"):
        over(func, "i")


def test_an_assumption_under_the_condition_is_not_widened() -> None:
    func = kernel(
        """
t = alloc(i32[16])
for i in serial(0, 16):
    if i < 9:
        assume(unless(i < 0), x[i] <= i32(21))
        t[i] = x[i]
for j in serial(0, 9):
    y[j] = t[j]
""",
        "x: i32[16], y: out[i32[9]]",
    )
    assert "unless(i < 0 or i >= 9)" in same(func, over(func, "i"))


def test_overcompute_does_not_make_threads_meet() -> None:
    func = kernel(
        """
t = alloc(i32[8])
for i in parallel(0, 4):
    for j in serial(0, 4):
        if j < 2:
            t[2*i + j] = x[i]
for k in serial(0, 1):
    y[k] = t[0]
""",
        "x: i32[16], y: out[i32[1]]",
    )
    with pytest.raises(ScheduleError):
        over(func, "j")


SUM = """
@primfunc
def total({params}):
    for p in serial(0, 4):
        for q in serial(0, 4):
            assume(unless(4*p + q < 14), {claim})
    y[0] = {start}
    for io in serial(0, 4):
        for ii in serial(0, 4):
            if 4*io + ii < 14:
                {reduce}
"""


def reduction(
    reduce: str = "y[0] += x[io, ii]",
    claim: str = "x[p, q] == f32(0.0)",
    start: str = "f32(0.0)",
    params: str = "x: f32[4, 4], w: f32[4, 4], y: out[f32[1]]",
) -> str:
    return SUM.format(reduce=reduce, claim=claim, start=start, params=params)


INT = "x: i32[4, 4], w: i32[4, 4], y: out[i32[1]]"


@pytest.mark.parametrize(
    ("text", "pad"),
    [
        (reduction(), 0),
        (reduction("y[0] *= x[io, ii]", "x[p, q] == f32(1.0)"), 1),
        (reduction("reduce_max(y[0], x[io, ii])", "x[p, q] == f32(-inf)", "f32(-inf)"), -np.inf),
        (reduction("reduce_min(y[0], x[io, ii])", "x[p, q] == f32(inf)", "f32(inf)"), np.inf),
        (reduction("y[0] += -x[io, ii]"), 0),
        (reduction("y[0] += x[io, ii] * w[io, ii]", "x[p, q] == i32(0)", "i32(3)", INT), 0),
        (reduction("reduce_max(y[0], abs(x[io, ii]))", "x[p, q] == f32(-inf)"), None),
    ],
)
def test_overcompute_of_neutral_elements(text: str, pad: float | None) -> None:
    func = parse(text)
    if pad is None:
        with pytest.raises(ScheduleError, match="it must be equal to -inf float32"):
            over(func, "io")
        return
    done = over(func, "io").func
    assert "if" not in to_text(done).replace("i32", "")
    for seed in range(3):
        generator = np.random.default_rng(seed)
        arrays = {b.name: generator.integers(-9, 9, b.shape).astype(b.dtype) for b in func.inputs}
        if seed == 2 and text.startswith("\n@primfunc\ndef total(x: f32"):
            arrays["x"][0, 0], arrays["x"][1, 1] = np.inf, np.nan
            arrays["x"][2] = -0.0
        arrays["x"].reshape(-1)[14:] = pad
        want, got = interpret(func, arrays)["y"], interpret(done, arrays)["y"]
        assert want.tobytes() == got.tobytes() or (np.isnan(want).all() and np.isnan(got).all())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (reduction(claim="x[p, q] == undef(f32)"), r"nothing is known of x\[io, ii\]"),
        (reduction(claim="x[p, q] == f32(1.0)"), "it must be a zero"),
        (reduction(start="f32(-0.0)"), "the sum may start at -0.0"),
        (reduction(start="w[0, 0]"), "the sum may start at -0.0"),
        (reduction("y[0] *= x[io, ii]"), "it must be equal to 1 float32"),
        (
            reduction("y[0] += x[io, ii]", start="f32(0.0)\n    reduce_min(y[0], w[0, 0])"),
            "a min on y may make it -0.0 before",
        ),
        (reduction("y[0] += x[io, ii] * w[io, ii]"), r"nothing is known of w\[io, ii\]"),
        (reduction("y[0] += x[ii, io]"), "it must be a zero"),
        (reduction("y[0] += exp(x[io, ii])"), "exp.* it must be a zero"),
        (
            reduction("y[0] += select(data(w[0, 0] < f32(0.0)), x[io, ii], w[0, 0])"),
            "must be a zero",
        ),
    ],
)
def test_overcompute_refuses_what_is_not_neutral(text: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        over(parse(text), "io")


def test_zero_times_a_finite_weight_is_neutral() -> None:
    finite = """
    for a in serial(0, 4):
        for b in serial(0, 4):
            assume(unless(a < 0), abs(w[a, b]) <= f32(1e+30))
    y[0] ="""
    text = reduction("y[0] += x[io, ii] * w[io, ii]").replace("\n    y[0] =", finite)
    assert "if" not in to_text(over(parse(text), "io").func)
    part = text.replace("a < 0", "a < 1 or b < 4 - a")
    assert "if" not in to_text(over(parse(part), "io").func)
    with pytest.raises(ScheduleError, match=r"nothing is known of w\[io, ii\]"):
        over(parse(text.replace("a < 0", "a < 4")), "io")


def test_a_fact_ends_where_the_buffer_is_written() -> None:
    text = """
    t = alloc(i32[4, 4])
    for p in serial(0, 4):
        for q in serial(0, 4):
            t[p, q] = x[p, q]
    with block("t_padding", padding_of="t", padding="value"):
        for r in serial(0, 4):
            for s in serial(0, 4):
                if 4*r + s >= 14:
                    t[r, s] = i32(0)
    {between}
    y[0] = i32(0)
    for io in serial(0, 4):
        for ii in serial(0, 4):
            if 4*io + ii < 14:
                y[0] += t[io, ii]
                {inside}
"""
    head = "\n@primfunc\ndef k(x: i32[4, 4], y: out[i32[1]]):"
    func = parse(head + text.format(between="", inside=""))
    assert "if 4*io" not in same(func, over(func, "io"))
    for change in (
        {"between": "t[3, 3] = i32(5)", "inside": ""},
        {"between": "", "inside": "t[3, 3] = i32(5)"},
    ):
        with pytest.raises(ScheduleError):
            over(parse(head + text.format(**change)), "io")
    early = head + text.format(between="", inside="")
    block = early[early.index("    with block") : early.index("    \n    y[0]")]
    early = early.replace(block, "").replace("    for p in", block + "    for p in", 1)
    with pytest.raises(ScheduleError, match=r"nothing is known of t\[io, ii\]"):
        over(parse(early), "io")


def test_neutral_sums_of_threads_may_not_meet() -> None:
    func = kernel(
        """
for p in serial(0, 16):
    assume(unless(p < 12), x[p] == i32(0))
for z in serial(0, 4):
    y[z] = i32(0)
for i in serial(0, 4):
    for j in serial(0, 4):
        if 3*i + j < 12 and j < 3:
            y[i + j // 3] += x[4*i + j]
""",
        "x: i32[16], y: out[i32[5]]",
    )
    func = parallelize_loop(func, "i").func
    with pytest.raises(ScheduleError):
        over(func, "j")
