"""Tests of lets: naming values, moving their evaluation outwards and back, and refusals."""

from textwrap import dedent

import pytest

from graphflow.arith import Var, const
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    bind_let,
    divide_loop,
    expand_dim,
    inline_let,
    lift_conditions,
    lift_lets,
    lift_scope,
    rewrite_expr,
    unroll_loop,
)
from graphflow.tir import Binary, Buffer, Load, PrimFunc, to_text
from support.schedule_checks import kernel, same

X = Buffer("x", (16,), "int32")


def body(text: str) -> str:
    """The statements of a printed kernel, without their indentation."""
    return dedent(text.split(":\n", 1)[1])


def lines(text: str) -> str:
    return dedent(text).lstrip("\n")


CONDITION = """
for i in serial(0, 4):
    for j in serial(0, 4):
        if data(x[i] * i32(3) < x[15]):
            y[4*i + j] = x[j]
        else:
            y[4*i + j] = i32(7)
"""


# -- bind_let


def test_b4_the_condition_of_an_if_becomes_a_let_and_leaves_the_loop() -> None:
    func = kernel(CONDITION)
    bound = bind_let(func, "j", "x[i] * i32(3) < x[15]", "c")
    assert bound.made == {"let": ("c",)}
    same(func, bound)
    lifted = lift_scope(bound.func, "c")
    assert body(same(func, lifted)) == lines("""
        for i in serial(0, 4):
            with let(x[i] * i32(3) < x[15]) as c:
                for j in serial(0, 4):
                    if data(c[()]):
                        y[4*i + j] = x[j]
                    else:
                        y[4*i + j] = i32(7)
        """)
    with pytest.raises(ScheduleError, match=r"scope: x\[i\] \* i32\(3\) < x\[15\] changes with i"):
        lift_scope(lifted.func, "c")


def test_b4_a_select_and_a_part_of_a_boolean_expression_become_lets() -> None:
    func = kernel("""
for i in serial(0, 4):
    for j in serial(0, 4):
        y[4*i + j] = select(data((x[i] < i32(3)) & (x[j] < i32(5))), x[i] * x[i], x[j])
""")
    part = lift_scope(bind_let(func, "j", "x[i] < i32(3)", "small").func, "small")
    square = lift_scope(bind_let(part.func, "j", "x[i] * x[i]", "square").func, "square")
    assert body(same(func, square)) == lines("""
        for i in serial(0, 4):
            with let(x[i] < i32(3)) as small:
                with let(x[i] * x[i]) as square:
                    for j in serial(0, 4):
                        y[4*i + j] = select(data(small[()] & (x[j] < i32(5))), square[()], x[j])
        """)
    whole = "select(data((x[i] < i32(3)) & (x[j] < i32(5))), x[i] * x[i], x[j])"
    assert f"with let({whole}) as value:" in same(func, bind_let(func, "j", whole, "value"))


def test_bind_let_of_the_first_use_alone() -> None:
    func = kernel("for i in serial(0, 8):\n    y[i] = x[i] * x[i]\n    y[i + 8] = x[i] * x[i]")
    text = same(func, bind_let(func, "i", "x[i] * x[i]", "t", cse=False))
    assert text.count("t[()]") == 1 and text.count("x[i] * x[i]") == 2
    assert same(func, bind_let(func, "i", "x[i] * x[i]", "t")).count("t[()]") == 2


# -- moving lets


def test_a_let_takes_the_statements_beside_it_along() -> None:
    func = kernel("""
for i in serial(0, 4):
    y[i] = i32(0)
    with let(x[2] + x[3]) as t:
        y[i] = t[()]
    y[i + 4] = x[i]
""")
    assert body(same(func, lift_scope(func, "t"))) == lines("""
        with let(x[2] + x[3]) as t:
            for i in serial(0, 4):
                y[i] = i32(0)
                y[i] = t[()]
                y[i + 4] = x[i]
        """)


def test_b4_a_let_leaves_conditions_blocks_and_lets() -> None:
    func = kernel("""
for i in serial(0, 4):
    if i >= 2:
        y[i] = x[0]
    else:
        with block("b"):
            with let(x[i]) as u:
                with let(x[i + 1]) as t:
                    y[i] = t[()] * u[()]
""")
    schedule = Schedule.of(func)
    for _ in range(3):
        schedule = schedule.apply(lift_scope, "t")
    assert "    with let(x[i + 1]) as t:\n            if i >= 2:" in same(func, schedule)
    with pytest.raises(ScheduleError, match=r"scope: .* changes with i"):
        lift_scope(schedule.func, "t")


def test_a_let_leaves_a_window_and_loads_from_the_buffer_behind_it() -> None:
    func = kernel("""
with x[4:8] as w:
    for i in serial(0, 4):
        with y[4*i:4*i + 4] as v:
            with let(w[1] * i32(3)) as t:
                for j in serial(0, 4):
                    v[j] = t[()] + w[j]
""")
    once = lift_scope(func, "t")
    assert "for i in serial(0, 4):\n            with let(w[1] * i32(3)) as t:" in same(func, once)
    twice = lift_scope(once.func, "t")
    text = same(func, lift_scope(twice.func, "t"))
    assert "\n    with let(x[5] * i32(3)) as t:\n        with x[4:8] as w:" in text
    assert same(func, lift_lets(func, "w")) == same(func, twice)


NEVER_ABOVE = """
for i in serial(0, 4):
    with let(x[i] + i32(1)) as u:
        with let(u[()] * u[()]) as t:
            y[i] = t[()]
"""


def test_b4_no_let_moves_above_one_that_it_uses() -> None:
    with pytest.raises(ScheduleError, match="scope: u is allocated inside u"):
        lift_scope(kernel(NEVER_ABOVE), "t")
    func = kernel("for i in serial(0, 4):\n    with let(x[2]) as t:\n        y[i] = t[()]")
    with pytest.raises(ScheduleError, match="nothing is around t"):
        lift_scope(lift_scope(func, "t").func, "t")


def test_a_write_behind_the_let_does_not_hold_it_in_a_condition() -> None:
    func = kernel("""
if data(x[0] < i32(3)):
    with let(x[1]) as t:
        y[0] = t[()]
""")
    assert "\n    with let(x[1]) as t:\n        if data(" in same(func, lift_scope(func, "t"))


def test_b4_a_condition_leaves_a_let_that_it_does_not_use() -> None:
    func = kernel("""
for i in serial(0, 4):
    with let(x[i]) as t:
        if data(x[8] < i32(3)):
            y[i] = t[()]
        else:
            y[i] = t[()] + i32(1)
""")
    done = lift_scope(func, "t[0]")
    assert body(same(func, done)) == lines("""
        for i in serial(0, 4):
            if data(x[8] < i32(3)):
                with let(x[i]) as t:
                    y[i] = t[()]
            else:
                with let(x[i]) as t_else:
                    y[i] = t_else[()] + i32(1)
        """)
    assert done.places == {"t": ("t", "t_else")}
    used = kernel("with let(x[0] < i32(3)) as t:\n    if data(t[()]):\n        y[0] = x[1]")
    with pytest.raises(ScheduleError, match=r"data\(t\[\(\)\]\) uses t"):
        lift_scope(used, "t[0]")


def test_a_loop_leaves_a_let() -> None:
    text = "with let({}) as t:\n    for i in serial(0, 4):\n        y[i] = t[()] + x[i]"
    func = kernel(text.format("x[5]"))
    done = lift_scope(func, "i")
    assert "for i in serial(0, 4):\n        with let(x[5]) as t:" in same(func, done)
    with pytest.raises(ScheduleError, match=r"no iteration of i writes what y\[0\] reads"):
        lift_scope(kernel(text.format("y[0]")), "i")


def test_b4_a_condition_on_indices_leaves_a_let_and_the_loop_around() -> None:
    func = kernel("""
for i in serial(0, 4):
    for j in serial(0, 4):
        with let(x[j] + i32(1)) as t:
            if i >= 2:
                y[4*i + j] = t[()]
""")
    text = same(func, lift_conditions(func, "i"))
    assert "if i >= 2:\n            for j in serial(0, 4):\n                with let(" in text


# -- all lets of a loop at once


SEVERAL = """
for i in serial(0, 4):
    for j in serial(0, 4):
        with let(x[i] + i32(1)) as u:
            with let(u[()] * x[i]) as v:
                with let(x[i] * x[2]) as w:
                    with let(x[j] + x[j + 1]) as p:
                        with let(v[()] < i32(40)) as c:
                            if data(c[()]):
                                y[4*i + j] = w[()] + p[()]
                            else:
                                y[4*i + j] = p[()]
"""


def test_b4_all_lets_leave_the_loops_that_they_do_not_use() -> None:
    func = kernel(SEVERAL)
    text = body(same(func, lift_lets(func, "i")))
    before, behind = text.split("for j in")
    assert [before.count(f" as {name}:") for name in "uvwcp"] == [1, 1, 1, 1, 0]
    assert before.index(" as u:") < before.index(" as v:") < before.index(" as c:")
    assert " as p:" in behind


def test_b4_only_lets_that_a_condition_needs_move() -> None:
    func = kernel(SEVERAL)
    before, behind = body(same(func, lift_lets(func, "i", conditions_only=True))).split("for j in")
    assert [before.count(f" as {name}:") for name in "uvwcp"] == [1, 1, 0, 1, 0]
    assert " as w:" in behind and " as p:" in behind


def test_lift_lets_refuses_where_nothing_moves() -> None:
    with pytest.raises(ScheduleError, match="no let in i can leave a loop or condition"):
        lift_lets(kernel(NEVER_ABOVE), "i")
    plain = "for i in serial(0, 4):\n    for j in serial(0, 4):\n        {}y[4*i + j] = t[()]"
    func = kernel(plain.format("with let(x[i]) as t:\n            "))
    with pytest.raises(ScheduleError, match="no let in i"):
        lift_lets(func, "i", conditions_only=True)
    same(func, lift_lets(func, "i"))


# -- inline_let


def test_inline_let_is_the_way_back() -> None:
    func = kernel(CONDITION)
    done = lift_scope(bind_let(func, "j", "x[i] * i32(3) < x[15]", "c").func, "c")
    back = inline_let(done.func, "c")
    assert back.func == func and back.places == {"c": ()}


def test_inline_let_up_to_a_later_write() -> None:
    func = kernel("y[0] = x[3]\nwith let(y[0]) as t:\n    y[1] = t[()]\n    y[0] = t[()] + x[1]")
    assert (
        body(same(func, inline_let(func, "t"))) == "y[0] = x[3]\ny[1] = y[0]\ny[0] = y[0] + x[1]\n"
    )


# -- other primitives on kernels with lets


def with_let() -> PrimFunc:
    return kernel(NEVER_ABOVE)


def test_handles_and_names_of_lets_survive_other_steps() -> None:
    func = with_let()
    schedule = Schedule.of(func)
    schedule = schedule.apply(divide_loop, "i", 2, ("a", "b"))
    assert " as t:" in same(func, schedule)
    schedule = Schedule.of(func)
    schedule = schedule.apply(unroll_loop, "i")
    text = same(func, schedule)
    assert text.count("with let(") == 8


def test_the_value_of_a_let_is_rewritten_and_bound() -> None:
    func = kernel("for i in serial(0, 4):\n    with let(x[i] * x[3]) as t:\n        y[i] = t[()]")
    swapped = Binary("mul", Load(X, (const(3),)), Load(X, (Var("i"),)))
    assert "with let(x[3] * x[i]) as t:" in same(
        func, rewrite_expr(func, "t", "x[i] * x[3]", swapped)
    )
    once = same(func, bind_let(func, "i", "x[3]", "last", cse=False))
    assert "with let(x[3]) as last:\n            with let(x[i] * last[()]) as t:" in once


def test_a_rewrite_that_stores_to_a_let_leaves_the_statements_that_it_performs() -> None:
    func = kernel("for i in serial(0, 4):\n    with let(x[i]) as t:\n        y[i] = t[()]")
    text = to_text(expand_dim(func, "t", 4, Var("i")).func)
    assert "t = alloc(i32[4], register)" in text and "with let" not in text
