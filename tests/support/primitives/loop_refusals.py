"""Refusals of the primitives on loops: one for each clause at least."""

from __future__ import annotations

from graphflow.arith import Var
from graphflow.schedule import (
    add_loop,
    cut_loop,
    divide_loop,
    divide_with_recompute,
    fission,
    join_loops,
    mult_loops,
    parallelize_loop,
    remove_loop,
    reorder_loops,
    shift_loop,
    unroll_loop,
)
from support.primitives.refusal import on

i, j = Var("i"), Var("j")


ROW = "for i in serial(0, 16):\n    {}"
SQUARE = "for i in {}(0, 4):\n    for j in {}(0, 4):\n        {}"
PLAIN = SQUARE.format("serial", "serial", "y[4*i + j] = x[4*i + j]")
TRIANGLE = "for i in serial(0, 4):\n    for j in {}(0, i{}):\n        y[4*i + j] = x[4*i + j]"
NOT_PERFECT = (
    "for i in serial(0, 4):\n    y[i] = x[i]\n    for j in serial(0, 4):\n        y[4*i + j] = x[j]"
)
PAIR = "for i in serial(0, 16):\n    {}\nfor j in serial(0, 16):\n    {}"
TEMPORARY = "t = alloc(i32[16])\nfor z in serial(0, 16):\n    t[z] = x[z]\n"

LOOP_REFUSALS = (
    on(reorder_loops, "1", NOT_PERFECT, ("j", "i")).says(
        "j, i are not a perfect nest: see the body of i"
    ),
    on(reorder_loops, "2", TRIANGLE.format("serial", " + 1"), ("j", "i")).says(
        "the bounds of j depend on i"
    ),
    on(
        reorder_loops, "3", SQUARE.format("serial", "serial", "y[i + j] = x[4*i + j]"), ("j", "i")
    ).says("i and j commute", r"i=\d+, j=\d+, i'=\d+, j'=\d+"),
    on(
        reorder_loops,
        "4",
        SQUARE.format("serial", "vectorized", "y[4*i + j] = x[4*i + j]"),
        ("j", "i"),
    ).says("one of i and j runs as lanes; reorder before that"),
    on(
        reorder_loops,
        "4",
        SQUARE.format("serial", "parallel", "y[i + j] += x[4*i + j]"),
        ("j", "i"),
    ).says("the iterations of j are independent", r"j=\d+, i=\d+, j'=\d+, i'=\d+"),
    on(divide_loop, "1", PLAIN, "i", 0, ("a", "b")).says(
        r"cannot divide by 0 with tail guard; tails are \('perfect', 'guard',"
    ),
    on(divide_loop, "2", PLAIN, "i", 3, ("a", "b"), "perfect").says(
        "perfect needs a factor that divides 4, and 3 does not"
    ),
    on(divide_loop, "2", TRIANGLE.format("serial", " + 1"), "j", 2, ("a", "b"), "perfect").says(
        r"2 divides the extent i \+ 1", r"i=\d+"
    ),
    on(divide_loop, "3", TRIANGLE.format("unrolled", " + 1"), "j", 2, ("a", "b"), "guard").says(
        r"the loop j runs over \(0, i \+ 1\), not a constant extent"
    ),
    on(divide_with_recompute, "1", PLAIN, "i", 3, 2, ("a", "b")).says(
        "3 blocks of step 2 are more than the 4 of i"
    ),
    on(divide_with_recompute, "2", ROW.format("y[0] += x[i]"), "i", 3, 4, ("a", "b")).says(
        "the iterations of i are independent", r"i=\d+, i'=\d+"
    ),
    on(
        divide_with_recompute,
        "3",
        ROW.replace("serial", "parallel").format("y[i] = x[i]"),
        "i",
        3,
        4,
        ("a", "b"),
    ).says("i is parallel, and two blocks store the same elements"),
    on(mult_loops, "1", NOT_PERFECT, "i", "j", "k").says(
        "j must be the only statement in the body of i"
    ),
    on(mult_loops, "2", TRIANGLE.format("serial", " + 1"), "i", "j", "k").says(
        r"the loop j runs over \(0, i \+ 1\), not a constant extent"
    ),
    on(
        mult_loops, "3", SQUARE.format("parallel", "serial", "y[4*i] += x[4*i + j]"), "i", "j", "k"
    ).says("the iterations of k are independent", r"k=\d+, k'=\d+"),
    on(cut_loop, "1", ROW.format("y[i] = x[i]"), "i", 17, "_b").says(
        "17 lies between the bounds of i"
    ),
    on(cut_loop, "1", PLAIN, "j", i + 2, "_b").says(
        r"i \+ 2 lies between the bounds of j", r"i=\d+"
    ),
    on(
        cut_loop,
        "2",
        SQUARE.format("serial", "vectorized", "y[4*i + j] = x[4*i + j]"),
        "j",
        i,
        "_b",
    ).says(r"the loop j runs over \(0, i\), not a constant extent"),
    on(
        join_loops,
        "1",
        "for i in serial(0, 4):\n    y[i] = x[i]\n"
        "y[15] = x[0]\nfor k in serial(4, 8):\n    y[k] = x[k]",
        "i",
        "k",
    ).says("k does not follow i directly"),
    on(
        join_loops,
        "2",
        "for i in serial(0, 4):\n    y[i] = x[i]\nfor k in serial(4, 8):\n    y[k] = x[0]",
        "i",
        "k",
    ).says("the bodies of i and k are not identical: they differ from statement 0"),
    on(
        join_loops,
        "3",
        "for a in serial(0, 4):\n    for i in serial(0, a):\n"
        "        y[i] = x[i]\n    for k in serial(2, 8):\n        y[k] = x[k]",
        "i",
        "k",
    ).says("k starts where i stops", r"a=\d+"),
    on(
        join_loops,
        "4",
        "for i in serial(0, 4):\n    y[i] = x[i]\nfor k in unrolled(4, 8):\n    y[k] = x[k]",
        "i",
        "k",
    ).says("i is serial and k is unrolled"),
    on(
        join_loops,
        "4",
        "for i in parallel(0, 4):\n    y[i % 4] = x[i]\n"
        "for k in parallel(4, 8):\n    y[k % 4] = x[k]",
        "i",
        "k",
    ).says("the iterations of i are independent", r"i=\d+, i'=\d+"),
    on(shift_loop, "1", PLAIN, "j", i - 1).says(
        "the new start i - 1 of j is not negative", r"i=\d+"
    ),
    on(fission, "1", PLAIN, "i", 0, "_b").says("position 0 leaves one side of i empty"),
    on(
        fission,
        "2",
        ROW.format("t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]"),
        "i",
        2,
        "_b",
    ).says("the second part uses t, which the first allocates"),
    on(
        fission,
        "3",
        TEMPORARY + "for i in serial(0, 15):\n    t[i] = i32(1)\n    y[i] = t[i + 1]",
        "i",
        1,
        "_b",
    ).says("the parts of i are independent across iterations", r"i=\d+, i'=\d+"),
    on(remove_loop, "1", ROW.format("y[i] = x[0]"), "i").says("the body of i depends on i"),
    on(remove_loop, "2", ROW.format("y[0] += x[0]"), "i").says(
        "the body of i is idempotent", r"what y\[0\] at i=\d+ holds is read by y\[0\] at i'=\d+"
    ),
    on(
        remove_loop,
        "3",
        "for i in serial(0, 4):\n    for r in serial(0, i):\n        y[i] = x[i]",
        "r",
    ).says("r runs at least once", r"i=\d+"),
    on(add_loop, "1", ROW.format("y[i] = x[i]"), "i[0]", "r", i).says("i is positive", r"i=\d+"),
    on(add_loop, "2", ROW.format("y[0] += x[i]"), "i[0]", "r", 2).says(
        "the body of r is idempotent",
        r"what y\[0\] at i=\d+, r=\d+ holds is read by y\[0\] at i'=\d+, r'=\d+",
    ),
    on(add_loop, "3", TEMPORARY + "y[0] = t[0]", "[0]", "r", 2).says(
        r"\[0\] is an allocation, which would end with the loop"
    ),
    on(add_loop, "3", "for i in vectorized(0, 4):\n    y[i] = x[i]", "i[0]", "r", 2).says(
        r"i\[0\] stands inside i, whose iterations are lanes"
    ),
    on(unroll_loop, "1", TRIANGLE.format("serial", " + 1"), "j").says(
        r"the loop j runs over \(0, i \+ 1\), not a constant extent"
    ),
    on(unroll_loop, "2", "for i in serial(0, 0):\n    y[i] = x[i]", "i").says(
        r"i never runs: \(0, 0\) is empty"
    ),
    on(unroll_loop, "3", "for i in serial(0, 20000):\n    y[0] = x[0]", "i").says(
        "size: i written out has 20,000 statements, and 10,000 is most"
    ),
    on(
        parallelize_loop, "1", "for i in serial(1, 16):\n    y[i - 1] = x[i]\n    y[i] = x[i]", "i"
    ).says("the iterations of i are independent", r"i=\d+, i'=\d+"),
)
