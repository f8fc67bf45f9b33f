"""Tests of the primitives on loops: where they apply, where their condition fails, and traps."""

from collections.abc import Callable

import pytest

from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Rewrite,
    cut_loop,
    divide_loop,
    fission,
    fuse,
    interior,
    mark_unrolled,
    mult_loops,
    parallelize_loop,
    reorder_loops,
    restrict_loop,
    shift_loop,
    simplify,
    stride_loop,
    vectorize_loop,
)
from graphflow.tir import to_text
from support.schedule_checks import kernel, same

Golden = Callable[[str, str], None]


DOUBLE = """
for i in serial(0, 14):
    y[i] = x[i] + x[i]
for j in serial(14, 16):
    y[j] = x[j]
"""
MATMUL = """
for i in serial(0, 4):
    for j in serial(0, 5):
        c[i, j] = i32(0)
        for k in serial(0, 3):
            c[i, j] += a[i, k] * b[k, j]
"""
MATMUL_PARAMS = "a: i32[4, 3], b: i32[3, 5], c: out[i32[4, 5]]"


# -- divide_loop


@pytest.mark.parametrize("tail", ["guard", "cut", "cut_and_guard"])
def test_divide_loop(tail: str, golden: Golden) -> None:
    func = kernel(DOUBLE)
    done = divide_loop(func, "i", 4, ("io", "ii"), tail)
    golden(f"divide_{tail}", same(func, done))
    assert done.places["i"][:2] == ("io", "ii")


def test_divide_loop_perfectly(golden: Golden) -> None:
    func = kernel(DOUBLE)
    golden("divide_perfect", same(func, divide_loop(func, "i", 7, ("i", "ii"), "perfect")))


@pytest.mark.parametrize("tail", ["guard", "cut", "cut_and_guard"])
@pytest.mark.parametrize("factor", [1, 3, 5, 20])
def test_divide_loop_that_starts_later(tail: str, factor: int) -> None:
    func = kernel(
        "for i in serial(3, 16):\n    y[i] = x[i - 3]\nfor j in serial(0, 3):\n    y[j] = x[j]"
    )
    same(func, divide_loop(func, "i", factor, ("io", "ii"), tail))


def test_divide_loop_with_an_allocation_inside() -> None:
    func = kernel(
        """
for i in serial(0, 16):
    t = alloc(i32[2])
    for d in serial(0, 2):
        t[d] = x[i] + x[d]
    y[i] = t[0] * t[1]
"""
    )
    done = divide_loop(func, "i", 5, ("io", "ii"), "cut")
    same(func, done)
    assert done.places["t"] == ("t", "t_tail")
    assert done.places["d"] == ("d", "d_tail")


def test_divide_loop_refuses_names_in_use_and_finds_others_for_the_tail() -> None:
    func = kernel(DOUBLE.replace("for j", "for ii_tail").replace("[j]", "[ii_tail]"))
    done = divide_loop(func, "i", 4, ("io", "ii"), "cut")
    assert done.made["tail"] == ("ii_tail_2",)
    assert done.places["i"] == ("io", "ii", "ii_tail_2")
    same(func, done)
    with pytest.raises(ScheduleError, match="uses the name ii_tail already"):
        divide_loop(func, "i", 4, ("ii_tail", "ii"))


def test_divide_loop_whose_extent_is_negative_never_runs() -> None:
    func = kernel(
        "for i in serial(7, 4):\n    y[i] = x[i]\nfor j in serial(0, 16):\n    y[j] = x[j]"
    )
    for tail in ("guard", "cut", "cut_and_guard"):
        same(func, divide_loop(func, "i", 2, ("io", "ii"), tail))


def test_divided_lanes_stay_lanes_of_one_loop() -> None:
    func = kernel("for i in vectorized(0, 16):\n    y[i] = x[i]")
    assert "for io in serial(0, 4):\n        for ii in vectorized(0, 4)" in same(
        func, divide_loop(func, "i", 4, ("io", "ii"))
    )
    func = kernel("for i in parallel(0, 16):\n    y[i] = x[i]")
    assert "for io in parallel(0, 4):\n        for ii in serial(0, 4)" in same(
        func, divide_loop(func, "i", 4, ("io", "ii"))
    )


# -- mult_loops


def test_mult_loops(golden: Golden) -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(1, 5):\n        y[4*i + j - 1] = x[j]"
    )
    golden("mult_loops", same(func, mult_loops(func, "i", "j", "k")))


def test_mult_loops_whose_inner_start_moves_with_the_outer() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(i, i + 4):\n        y[3*i + j] = x[j]\n"
    )
    # 3·i + j with j from i on is 4·i + d: each element once.
    same(func, mult_loops(func, "i", "j", "k"))


def test_mult_loops_of_a_parallel_and_a_serial_one_needs_a_proof() -> None:
    sums = kernel(
        "for i in parallel(0, 4):\n    for j in serial(0, 4):\n        y[i] = x[4*i + j]",
        "x: i32[16], y: out[i32[4]]",
    )
    with pytest.raises(ScheduleError, match="the iterations of k are independent does not hold"):
        mult_loops(sums, "i", "j", "k")
    moves = kernel(
        "for i in parallel(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] = x[j]"
    )
    assert "for k in parallel(0, 16)" in same(moves, mult_loops(moves, "i", "j", "k"))


# -- reorder_loops


def test_reorder_loops(golden: Golden) -> None:
    func = kernel(
        """
for i in serial(0, 4):
    for j in serial(0, 5):
        if i + j < 7:
            for k in serial(0, 3):
                c[i, j] += a[i, k] * b[k, j]
""",
        MATMUL_PARAMS,
    )
    golden("reorder_loops", same(func, reorder_loops(func, ("k", "j", "i"))))
    assert reorder_loops(func, ("i", "j", "k")).func is func


def test_reorder_loops_refuses_an_order_that_matters() -> None:
    func = kernel(
        "for i in serial(1, 4):\n    for j in serial(1, 4):\n"
        "        y[4*i + j] = y[4*i + j - 5] + x[j]"
    )
    assert reorder_loops(func, ("j", "i")).func is not func  # (1, 1) forward in both
    func = kernel(
        "for i in serial(1, 4):\n    for j in serial(0, 3):\n"
        "        y[4*i + j] = y[4*i + j - 3] + x[j]"
    )
    with pytest.raises(ScheduleError, match="i and j commute does not hold"):
        reorder_loops(func, ("j", "i"))


def test_reorder_loops_sees_through_floor_and_mod() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4):\n"
        "        y[(4*i + j) // 2 % 4] = x[4*i + j]"
    )
    with pytest.raises(ScheduleError, match="commute does not hold"):
        reorder_loops(func, ("j", "i"))


def test_reorder_loops_refuses_what_is_no_perfect_nest() -> None:
    with pytest.raises(ScheduleError, match="are not a perfect nest: see the body of j"):
        reorder_loops(kernel(MATMUL, MATMUL_PARAMS), ("k", "j", "i"))
    guarded = kernel(
        "for i in serial(0, 4):\n    if data(x[i] < i32(0)):\n"
        "        for j in serial(0, 4):\n            y[4*i + j] = x[j]"
    )
    with pytest.raises(ScheduleError, match="not a perfect nest"):
        reorder_loops(guarded, ("j", "i"))


def test_reductions_commute_but_not_with_another_operator() -> None:
    one = "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[(i + j) % 4] += x[4*i + j]"
    same_op = kernel("for z in serial(0, 4):\n    y[z] = i32(0)\n" + one)
    same(same_op, reorder_loops(same_op, ("j", "i")))
    with pytest.raises(ScheduleError, match="commute does not hold"):
        reorder_loops(kernel(one + "\n        y[(i + j) % 4] *= x[4*i + j]"), ("j", "i"))
    with pytest.raises(ScheduleError, match="commute does not hold"):
        reorder_loops(kernel(one.replace("x[4*i + j]", "y[j]")), ("j", "i"))


# -- fission


def test_fission(golden: Golden) -> None:
    func = kernel(MATMUL, MATMUL_PARAMS)
    done = fission(func, "j", 1, "_u", 2)
    golden("fission_lifted", same(func, done))
    assert done.places["i"] == ("i", "i_u")
    assert done.places["j"] == ("j", "j_u")


def test_fission_through_conditions(golden: Golden) -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in serial(0, 4):
    if i < 3:
        for j in serial(0, 4):
            if i + j < 5:
                y[4*i + j] = i32(1)
                y[4*i + j] += x[j]
"""
    )
    golden("fission_conditions", same(func, fission(func, "j", 1, "_u", 2)))


def test_an_assumption_does_not_move_past_a_write() -> None:
    func = kernel(
        """
for i in serial(0, 16):
    y[i] = i32(0)
for j in serial(0, 15):
    assume(unless(j < 0), y[j + 1] == i32(0))
    y[j] = x[j]
"""
    )
    # After the split all claims would come before all writes; here that is also where they hold.
    same(func, fission(func, "j", 1, "_u"))
    backwards = kernel(
        """
for i in serial(0, 16):
    y[i] = i32(0)
for j in serial(0, 15):
    y[j] = x[j]
    assume(unless(j < 0), y[j + 1] == i32(0))
"""
    )
    with pytest.raises(ScheduleError, match="independent across iterations does not hold"):
        fission(backwards, "j", 1, "_u")


# -- fuse


OVERWRITE = "for i in serial(0, 16):\n    y[i] = i32(0)\nfor j in serial(0, 16):\n    y[j] = i32(1)"
READ_PREVIOUS = (
    "for i in serial(0, 16):\n    y[i] = i32(0)\n"
    "for j in serial(0, 16):\n    if j > 0:\n        y[j] = y[j - 1] + i32(1)"
)
READ_NEXT = (
    "for i in serial(0, 16):\n    y[i] = x[i]\n"
    "for j in serial(0, 16):\n    if j > 0 and j < 15:\n        y[j] = y[j - 1] + y[j] + y[j + 1]"
)


@pytest.mark.parametrize(("name", "text"), [("overwrite", OVERWRITE), ("previous", READ_PREVIOUS)])
def test_fuse(name: str, text: str, golden: Golden) -> None:
    func = kernel(text)
    golden(f"fuse_{name}", same(func, fuse(func, "i", "j")))


def test_fuse_refuses_a_read_of_the_next_iteration() -> None:
    with pytest.raises(ScheduleError, match="no iteration of j needs a later one of i does not"):
        fuse(kernel(READ_NEXT), "i", "j")


def test_fuse_moves_allocations_ahead_and_merges_blocks(golden: Golden) -> None:
    func = kernel(
        """
t = alloc(i32[16])
with block("first"):
    for i in serial(0, 16):
        t[i] = x[i] + x[i]
u = alloc(i32[16])
with block("second"):
    for j in serial(0, 16):
        u[j] = t[j] + i32(1)
for k in serial(0, 16):
    y[k] = u[k]
"""
    )
    blocks = fuse(func, "first", "second")
    golden("fuse_blocks", same(func, fuse(blocks.func, "i", "j")))
    assert blocks.places == {"second": ("first",)}


def test_fuse_keeps_annotations() -> None:
    func = kernel(
        'with block("a"):\n    for i in serial(0, 14):\n        y[i] = x[i]\n'
        'with block("y_padding", padding_of="y", padding="value"):\n'
        "    for p in serial(0, 16):\n        if p >= 14:\n            y[p] = i32(0)"
    )
    with pytest.raises(ScheduleError, match="carry different annotations"):
        fuse(func, "a", "y_padding")


def test_fuse_of_parallel_loops_needs_independence_in_both_directions() -> None:
    func = kernel(READ_PREVIOUS.replace("serial", "parallel").replace("y[j - 1]", "y[j]"))
    assert "for i in parallel(0, 16)" in same(func, fuse(func, "i", "j"))
    carried = kernel(
        "for i in parallel(0, 16):\n    y[i] = x[i]\nfor j in parallel(0, 16):\n"
        "    z[j] = y[max(0, j - 1)]",
        "x: i32[16], y: out[i32[16]], z: out[i32[16]]",
    )
    with pytest.raises(ScheduleError, match="the iterations of i are independent does not hold"):
        fuse(carried, "i", "j")
    mixed = kernel(OVERWRITE.replace("for i in serial", "for i in parallel"))
    with pytest.raises(ScheduleError, match="i is parallel and j is serial"):
        fuse(mixed, "i", "j")


# -- cut, shift, restrict, interior


def test_cut_loop(golden: Golden) -> None:
    func = kernel(
        "for i in serial(2, 16):\n    t = alloc(i32[()])\n    t[()] = x[i]\n    y[i] = t[()]\n"
        "for j in serial(0, 2):\n    y[j] = x[j]"
    )
    done = cut_loop(func, "i", 5, "_e")
    golden("cut_loop", same(func, done))
    assert done.places == {"i": ("i", "i_e"), "t": ("t", "t_e")}
    for point in (2, 16):
        same(func, cut_loop(func, "i", point, "_e"))


def test_shift_loop(golden: Golden) -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(i, i + 4):\n        y[3*i + j] = x[j]\n"
    )
    golden("shift_loop", same(func, shift_loop(func, "j", 2)))
    with pytest.raises(ScheduleError, match="the new start -1 of i is negative"):
        shift_loop(func, "i", -1)


def test_cut_loop_by_an_expression() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(i, i + 4):\n        y[3*i + j] = x[j]\n"
    )
    text = same(func, cut_loop(func, "j", Var("i") + 1, "_e"))
    assert "for j in serial(i, i + 1)" in text and "for j_e in serial(i + 1, i + 4)" in text
    with pytest.raises(
        ScheduleError, match=r"lies between the bounds of j does not hold: .* at i=3"
    ):
        cut_loop(func, "j", 2 * Var("i") + 3, "_e")
    with pytest.raises(ScheduleError, match="j uses j, and no loop around the place binds it"):
        cut_loop(func, "j", Var("j"), "_e")


def test_shift_loop_by_an_expression() -> None:
    func = kernel("for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] = x[j]")
    text = same(func, shift_loop(func, "j", 2 * Var("i")))
    assert "for j in serial(2*i, 2*i + 4)" in text
    with pytest.raises(
        ScheduleError, match=r"new start i - 1 of j is not negative .* fails at i=0"
    ):
        shift_loop(func, "j", Var("i") - 1)
    with pytest.raises(ScheduleError, match="j uses j, and no loop around the place binds it"):
        shift_loop(func, "j", Var("j"))


@pytest.mark.parametrize("tail", ["guard", "cut", "cut_and_guard"])
@pytest.mark.parametrize("bounds", ["0, i", "i, 5", "2, i"])
def test_divide_loop_of_an_extent_that_is_an_expression(tail: str, bounds: str) -> None:
    """With `2, i` the extent is negative for small i."""
    func = kernel(
        f"for i in serial(0, 6):\n    y[i] = i32(0)\n    for j in serial({bounds}):\n"
        "        y[i] += x[j]"
    )
    same(func, divide_loop(func, "j", 3, ("jo", "ji"), tail))


def test_divide_loop_perfectly_by_proof() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4*i):\n        y[j] = x[i]\n"
        "    for k in serial(0, 3*i):\n        y[k] = x[i]"
    )
    assert "if" not in same(func, divide_loop(func, "j", 4, ("jo", "ji"), "perfect"))
    with pytest.raises(ScheduleError, match=r"4 divides the extent 3.i does not hold: .* i=1"):
        divide_loop(func, "k", 4, ("ko", "ki"), "perfect")


def test_mult_loops_of_an_extent_that_is_an_expression() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    y[i] = i32(0)\n    for j in serial(1, i):\n"
        "        for k in serial(0, 3):\n            y[i] += x[j + k]"
    )
    same(func, mult_loops(func, "j", "k", "jk"))


# -- conditions fused


def test_fuse_of_conditions() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    if i < 8:\n        y[i] = x[i]\n    else:\n"
        "        y[i] = x[0]\n    if i // 8 == 0:\n        y[i] += x[1]"
    )
    assert same(func, fuse(func, "i[0]", "i[1]")) == to_text(
        kernel(
            "for i in serial(0, 16):\n    if i < 8:\n        y[i] = x[i]\n        y[i] += x[1]\n"
            "    else:\n        y[i] = x[0]"
        )
    )
    data = kernel(
        "for i in serial(0, 16):\n    y[i] = x[i]\n    if data(x[i] < i32(3)):\n"
        "        y[i] += x[i]\n    if data(x[i] < i32(3)):\n        y[i] += x[0]"
    )
    assert same(data, fuse(data, "i[1]", "i[2]")).count("if") == 1


def test_fuse_refuses_conditions_that_differ() -> None:
    func = kernel(
        "for i in serial(0, 16):\n    if i < 8:\n        y[i] = x[i]\n    if i < 9:\n"
        "        y[i] = x[i]\n    if data(x[i] < i32(3)):\n        y[i] = x[0]"
    )
    with pytest.raises(ScheduleError, match=r"i < 8 and i < 9 are equivalent does not hold.*i=8"):
        fuse(func, "i[0]", "i[1]")
    with pytest.raises(ScheduleError, match=r"i < 9 and .* are not the same condition"):
        fuse(func, "i[1]", "i[2]")
    with pytest.raises(ScheduleError, match=r"i\[2\] does not follow i\[0\] as a condition"):
        fuse(func, "i[0]", "i[2]")


def test_fuse_refuses_a_condition_whose_data_change_between() -> None:
    """Trap: the same words, but the first branch writes what they read."""
    func = kernel(
        "for i in serial(0, 16):\n    y[i] = x[i]\n    if data(y[i] < i32(3)):\n"
        "        y[i] += x[i]\n    if data(y[i] < i32(3)):\n        y[i] += x[0]"
    )
    reason = "no statement under .* writes what it reads does not hold: .* fails at i=0"
    with pytest.raises(ScheduleError, match=reason):
        fuse(func, "i[1]", "i[2]")


def test_restrict_loop(golden: Golden) -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in serial(0, 4):
    for j in serial(0, 6):
        if 2*j >= i + 1 and 3*j + i < 11 and (i + j) % 2 == 0:
            y[4*i + j % 4] = x[j]
"""
    )
    golden("restrict_loop", same(func, restrict_loop(func, "j")))


def test_restrict_loop_refuses_what_bounds_nothing() -> None:
    func = kernel("for i in serial(0, 16):\n    if i % 3 == 0:\n        y[i] = x[i]")
    with pytest.raises(ScheduleError, match="does not bound i"):
        restrict_loop(func, "i")
    with pytest.raises(ScheduleError, match="is not a single condition without else"):
        restrict_loop(kernel(DOUBLE), "i")
    data = kernel("for i in serial(0, 16):\n    if data(x[i] < i32(3)):\n        y[i] = x[i]")
    with pytest.raises(ScheduleError, match="is not a single condition without else"):
        restrict_loop(data, "i")


def test_stride_loop(golden: Golden) -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = i32(0)
for i in serial(0, 12):
    for j in serial(1, 6):
        for k in serial(0, 2):
            if j <= i + 1 and (i + 1 - j) % 3 == 0:
                y[i + k] += x[(i + 1 - j) // 3]
"""
    )
    golden("stride_loop", same(func, stride_loop(func, "j")))


@pytest.mark.parametrize(
    "condition", ["(j + 2*i) % 4 == 0", "(5 - j) % 2 == 0", "(i - j) % 7 == 0"]
)
@pytest.mark.parametrize("start", [0, 3])
def test_stride_loop_keeps_what_runs(condition: str, start: int) -> None:
    func = kernel(
        f"""
for z in serial(0, 16):
    y[z] = i32(0)
for i in serial(0, 3):
    for j in serial({start}, {start + 5}):
        if {condition}:
            y[2*i + j] += x[j]
"""
    )
    same(func, stride_loop(func, "j"))


def test_stride_loop_refuses_other_conditions() -> None:
    for condition in ("j < 2", "(i - 2*j) % 4 == 0", "(i + j) % 3 == 1"):
        func = kernel(
            "for i in serial(0, 4):\n    for j in serial(0, 6):\n"
            f"        if {condition}:\n            y[i] += x[j]"
        )
        with pytest.raises(ScheduleError, match="no condition"):
            stride_loop(func, "j")


def test_interior_cuts_borders_off() -> None:
    func = kernel(
        """
for i in serial(0, 16):
    y[i] = i32(0)
    for k in serial(0, 3):
        if i + k >= 1 and i + k < 17:
            y[i] += x[i + k - 1]
"""
    )
    assert interior(func, "i") == (1, 15)
    middle = cut_loop(cut_loop(func, "i", 1, "_m").func, "i_m", 15, "_e").func
    text = same(func, simplify(middle))
    assert "if" not in text.split("for i_m in")[1].split("for i_m_e")[0].split("y[15]")[0]
    with pytest.raises(ScheduleError, match="not a constant extent"):
        interior(
            kernel("for i in serial(0, 4):\n    for j in serial(i, 4):\n        y[j] = x[j]"), "j"
        )


# -- loop kinds


def test_mark_unrolled(golden: Golden) -> None:
    func = kernel(DOUBLE)
    golden("mark_unrolled", same(func, mark_unrolled(func, "j")))
    triangle = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, i):\n        y[4*i + j] = x[j]"
    )
    with pytest.raises(ScheduleError, match="not a constant extent"):
        mark_unrolled(triangle, "j")


@pytest.mark.parametrize("primitive", [vectorize_loop, parallelize_loop])
def test_loops_at_once(primitive: Callable[..., Rewrite]) -> None:
    func = kernel("for i in serial(0, 16):\n    y[15 - i] = x[i]")
    kind = "vectorized" if primitive is vectorize_loop else "parallel"
    assert f"for i in {kind}(0, 16)" in same(func, primitive(func, "i"))


@pytest.mark.parametrize("primitive", [vectorize_loop, parallelize_loop])
@pytest.mark.parametrize(
    "body",
    [
        "y[i] = y[max(0, i - 1)] + x[i]",  # carried
        "y[0] += x[i]\n    reduce_max(y[0], x[i])",  # two operators do not commute
        "y[0] += x[i]\n    y[i] = x[i]",  # a reduction meets a store
        "y[0] += y[i]",  # a reduction meets what it reads
        "y[i // 2] = x[i]",  # two lanes in one element
        "y[i % 8] = x[i]",
        "y[(3*i) % 12] = x[i]",
        "if data(x[i] < i32(3)):\n        y[0] = x[i]",  # may happen in two lanes
    ],
)
def test_loops_at_once_refuse_lanes_that_meet(primitive: Callable[..., Rewrite], body: str) -> None:
    func = kernel(f"for i in serial(0, 16):\n    {body}")
    with pytest.raises(ScheduleError, match="the iterations of i are independent does not hold"):
        primitive(func, "i")


@pytest.mark.parametrize(
    "body",
    [
        "y[0] += x[i]",
        "reduce_max(y[i // 8], x[i])",
        "y[0] += x[i]\n    y[i % 4] += x[15 - i]",
        "if data(x[i] < i32(3)):\n        y[0] += x[i]",
    ],
)
def test_reductions_meet_in_lanes_but_not_in_threads(body: str) -> None:
    """The emitter folds lanes that meet in one element; nothing folds threads."""
    func = kernel(f"for i in serial(0, 16):\n    {body}")
    assert "for i in vectorized(0, 16)" in same(func, vectorize_loop(func, "i"))
    with pytest.raises(ScheduleError, match="the iterations of i are independent does not hold"):
        parallelize_loop(func, "i")


def test_vectorize_loop_is_for_innermost_loops() -> None:
    func = kernel(MATMUL, MATMUL_PARAMS)
    with pytest.raises(ScheduleError, match="i holds a loop or an allocation"):
        vectorize_loop(func, "i")
    with pytest.raises(ScheduleError, match="the iterations of k are independent does not hold"):
        parallelize_loop(func, "k")
    assert "for k in vectorized" in same(func, vectorize_loop(func, "k"))
    alloc = kernel(
        "for i in serial(0, 16):\n    t = alloc(i32[()])\n    t[()] = x[i]\n    y[i] = t[()]"
    )
    with pytest.raises(ScheduleError, match="i holds a loop or an allocation"):
        vectorize_loop(alloc, "i")
    assert "parallel" in same(alloc, parallelize_loop(alloc, "i"))
