"""Tests of loops that are written out or joined."""

from graphflow.schedule import Schedule, cut_loop, join_loops, simplify, unroll_loop
from graphflow.tir import to_text
from support.schedule_checks import kernel, same

LOCAL = """
for i in serial(2, 16):
    t = alloc(i32[()])
    t[()] = x[i]
    for j in serial(0, 2):
        y[i + j - 1] = t[()] + x[j]
"""


# -- unroll_loop


def test_unroll_loop() -> None:
    func = kernel("for i in serial(0, 8):\n    for j in serial(i, i + 2):\n        y[2*j] = x[j]")
    func = kernel("for i in serial(0, 4):\n    for j in serial(1, 4):\n        y[3*i + j] = x[j]")
    assert same(func, unroll_loop(func, "j")) == to_text(
        kernel(
            "for i in serial(0, 4):\n    y[3*i + 1] = x[1]\n    y[3*i + 2] = x[2]\n"
            "    y[3*i + 3] = x[3]"
        )
    )


def test_unroll_loop_copies_places() -> None:
    func = kernel(LOCAL.replace("(2, 16)", "(2, 5)"))
    s = Schedule.of(func)
    loop, inner, buffer = s.handle("i"), s.handle("j"), s.handle("t")
    s = s.apply(unroll_loop, "i")
    assert same(func, s).count("alloc") == 3
    assert s.forward(loop) == ()
    assert [place.name for place in s.forward(inner)] == ["j", "j_1", "j_2"]
    assert [place.name for place in s.forward(buffer)] == ["t", "t_1", "t_2"]


# -- join_loops


def test_join_loops_undoes_a_cut() -> None:
    func = kernel(LOCAL)
    s = Schedule.of(func).apply(cut_loop, "i", 7, "_b")
    inner = s.handle("j_b")
    s = s.apply(join_loops, "i", "i_b")
    assert same(func, s) == to_text(func)
    assert s[inner] == "j" and s.names(s.made["joined"]) == ("i",)


def test_join_loops_with_bounds_that_are_expressions() -> None:
    func = kernel(
        "for i in serial(0, 8):\n    for j in serial(0, i):\n        y[j] = x[i]\n"
        "    for k in serial(i, 8):\n        y[k] = x[i]"
    )
    joined = same(func, join_loops(func, "j", "k"))
    assert "for j in serial(0, 8):\n            y[j] = x[i]" in joined


def test_unrolled_conditions_are_simplified_away() -> None:
    func = kernel("for i in serial(0, 3):\n    if i < 2:\n        y[i] = x[i]")
    s = Schedule.of(func).apply(unroll_loop, "i").apply(simplify)
    assert same(func, s).count("if") == 0
