"""Tests of handles: they follow loops, blocks and buffers through every kind of step, and name the
step that consumed them.  Attempts keep the reasons of refusals, and derived names are fresh."""

import ast
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.layout import blocked
from graphflow.schedule import (
    Handle,
    Refusal,
    Schedule,
    absorb_padding,
    assume_finite,
    assume_reciprocal,
    bind_expr,
    cache_read,
    cache_write,
    cut_loop,
    divide_loop,
    eliminate_dead_code,
    fission,
    fuse,
    lift_alloc,
    lift_conditions,
    lift_stages,
    mark_unrolled,
    mult_loops,
    parallelize_loop,
    remove_branching_through_overcompute,
    reorder_loops,
    replay,
    restrict_loop,
    reverse_compute_at,
    rfactor,
    sequential_buffer_access,
    shift_loop,
    simplify,
    sink_alloc,
    split_condition,
    stage_mem,
    state_padding,
    stride_loop,
    transform_layout,
    vectorize_loop,
)
from graphflow.schedule.places.place_names import names_of_places
from graphflow.tir import loops_of, to_text
from support.paths import ROOT
from support.schedule_checks import kernel, same

RECIPES = ROOT / "kernels" / "recipes"

NEST = """
with block("b"):
    for i in serial(0, 4):
        for j in serial(0, 4):
            y[4*i + j] = x[4*i + j]
"""
PARTS = """
with block("first"):
    for i in serial(0, 16):
        y[i] = x[i] + x[i]
with block("second"):
    for j in serial(0, 16):
        z[j] = y[j]
"""
TWO_OUTPUTS = "x: i32[16], y: out[i32[16]], z: out[i32[16]]"
ONE = "for i in serial(0, 16):\n    y[i] = x[i]"
INIT = """
for i in serial(0, 4):
    for j in serial(0, 4):
        y[4*i + j] = i32(0)
        for k in serial(0, 3):
            y[4*i + j] += x[4*i + j]
"""
PRIVATE = """
for i in serial(0, 16):
    t = alloc(i32[1])
    t[0] = x[i]
    y[i] = t[0]
"""
SHARED = "t = alloc(i32[16])\nfor i in serial(0, 16):\n    t[i] = x[i]\n    y[i] = t[i]"
SUM = """
for i in serial(0, 16):
    y[i] = i32(0)
    for k in serial(0, 3):
        y[i] += x[k]
"""
GUARDED = "for i in serial(0, 16):\n    if i < 12:\n        y[i] = x[i]\n        z[i] = x[i]"
DEAD = """
for i in serial(0, 16):
    y[i] = x[i]
for k in serial(4, 4):
    y[k] = x[k]
"""
INNER = """
for i in serial(0, 16):
    for k in serial(0, 1):
        if i < 12:
            y[i] = x[i]
"""
STRIDED = "for i in serial(0, 16):\n    if (15 - i) % 4 == 0:\n        y[i] = x[i]"
FLOATS = "x: f32[16], y: out[f32[16]]"

Case = tuple[str, str, Callable[..., Any], tuple[Any, ...], Mapping[str, str]]

BOTH = "x: i32[16], y: out[i32[16]]"
CASES: Mapping[str, Case] = {
    "divide": (ONE, BOTH, divide_loop, ("i", 4, ("io", "ii")), {"i": "io ii"}),
    "divide, cut": (
        ONE, BOTH, divide_loop, ("i", 5, ("io", "ii"), "cut"), {"i": "io ii ii_tail"}),
    "mult": (NEST, BOTH, mult_loops, ("i", "j", "k"), {"i": "k", "j": "k"}),
    "reorder": (NEST, BOTH, reorder_loops, (("j", "i"),), {}),
    "cut": (NEST, BOTH, cut_loop, ("i", 3, "_r"), {"i": "i i_r", "j": "j j_r"}),
    "shift": (ONE, BOTH, shift_loop, ("i", 3), {}),
    "fission": (
        INIT, BOTH, fission, ("j", 1, "_u", 2), {"i": "i i_u", "j": "j j_u"}),
    "split condition": (GUARDED, TWO_OUTPUTS, split_condition, ("i",), {}),
    "fuse": (PARTS, TWO_OUTPUTS, fuse, ("first", "second"), {"second": "first"}),
    "compute at": (
        PARTS, TWO_OUTPUTS, reverse_compute_at, ("second", "first"), {"second": "first", "j": "i"}),
    "stage": (NEST, BOTH, stage_mem, ("i", "y", "t", ("j",)), {}),
    "bind": (ONE, BOTH, bind_expr, ("i", "x", "t"), {}),
    "lift allocation": (PRIVATE, BOTH, lift_alloc, ("t",), {}),
    "sink allocation": (SHARED, BOTH, sink_alloc, ("t", "i"), {}),
    "accumulators": (SUM, BOTH, rfactor, ("k", "k", "y", 2, "p"), {}),
    "cache read": (ONE, BOTH, cache_read, ("x", "c"), {}),
    "cache write": (ONE, BOTH, cache_write, ("y", "c"), {}),
    "transform": (ONE, BOTH, transform_layout, ("y", blocked((16,), 0, 5), 0), {}),
    "restrict": (GUARDED, TWO_OUTPUTS, restrict_loop, ("i",), {}),
    "stride": (STRIDED, BOTH, stride_loop, ("i",), {}),
    "unroll": (ONE, BOTH, mark_unrolled, ("i",), {}),
    "vectorize": (ONE, BOTH, vectorize_loop, ("i",), {}),
    "parallelize": (ONE, BOTH, parallelize_loop, ("i",), {}),
    "assume finite": (ONE, FLOATS, assume_finite, ("x", "the test says so"), {}),
    "assume reciprocal": (ONE, FLOATS, assume_reciprocal, ("x", "the test says so"), {}),
    "eliminate": (DEAD, BOTH, eliminate_dead_code, (), {"k": ""}),
    "simplify": (INNER, BOTH, simplify, (), {"k": ""}),
    "lift conditions": (INNER, BOTH, lift_conditions, ("i",), {}),
}  # fmt: skip


def names(s: Schedule, place: Handle) -> str:
    return " ".join(now.name for now in s.forward(place))


@pytest.mark.parametrize("name", CASES)
def test_a_handle_survives_every_kind_of_step(name: str) -> None:
    body, params, primitive, arguments, moved = CASES[name]
    before = Schedule.of(kernel(body, params))
    held = {place: before.handle(place) for place in names_of_places(before.func)}
    after = before.apply(primitive, *arguments)
    assert after is not before
    assert {old: names(after, place) for old, place in held.items()} == {
        old: moved.get(old, old) for old in held
    }
    for made in (place for places in after.made.values() for place in places):
        assert after[made] in names_of_places(after.func)
        assert all(now.name in names_of_places(after.func) for now in after.forward(made))


def test_a_handle_survives_the_steps_that_want_padding() -> None:
    s = Schedule.of(kernel("with block('b'):\n" + _deeper(ONE).replace("16", "14"), SHORT))
    block, loop, output = s.handle("b"), s.handle("i"), s.handle("y")
    s = s.apply(transform_layout, "y", blocked((14,), 0, 4), 5)
    (stage,) = s.made["padding"]
    s = s.apply(sequential_buffer_access, s[block], s[output], ("io", "ii"), True)
    assert s.names(s.made["axes"]) == ("io", "ii")
    s = s.apply(absorb_padding, s[block], s[output])
    with pytest.raises(ScheduleError, match=r"y_padding is gone: absorb_padding\('b', 'y'\) took"):
        s[stage]
    assert names(s, loop) == "io ii"
    free = Schedule.of(s.definition).apply(transform_layout, "y", blocked((14,), 0, 4), "undef")
    free = free.apply(sequential_buffer_access, "b", "y", ("io", "ii"), True)
    outer, inner = free.made["axes"]
    free = free.apply(transform_layout, "x", blocked((14,), 0, 4), "undef")
    free = free.apply(remove_branching_through_overcompute, free[outer])
    assert free.names((outer, inner)) == ("io", "ii")


SHORT = "x: i32[14], y: out[i32[14]]"


def _deeper(body: str) -> str:
    return "\n".join("    " + line for line in body.splitlines())


def test_a_handle_survives_the_lifting_of_stages() -> None:
    s = Schedule.of(kernel(ONE.replace("16", "14"), SHORT)).apply(cache_write, "y", "c")
    (cache,), (stage,) = s.made["buffer"], s.made["block"]
    loop = s.handle("i")
    s = s.apply(transform_layout, s[cache], blocked((14,), 0, 4), 0)
    s = s.apply(state_padding, "y", 0).apply(lift_stages, "y")
    assert s[loop] == "i"
    assert s.forward(stage) == s.forward(cache) == ()


def test_a_handle_is_followed_over_several_steps() -> None:
    s = Schedule.of(kernel(ONE.replace("16", "14"), SHORT))
    i = s.handle("i")
    s = s.apply(divide_loop, s[i], 4, ("io", "ii"), tail="cut")
    outer, inner = s.made["parts"]
    (tail,) = s.made["tail"]
    s = s.apply(cut_loop, s[outer], 1, "_rest")
    _, rest = s.made["pieces"]
    (copy,) = s.inside(rest, (inner,))
    s = s.apply(mult_loops, s[rest], s[copy], s.fresh("{}_{}", rest, copy))
    (joined,) = s.made["loop"]
    s = s.apply(vectorize_loop, s[joined])
    assert names(s, i) == "io io_rest_ii_rest ii ii_tail"
    assert names(s, outer) == "io io_rest_ii_rest"
    assert (s[joined], s[tail]) == ("io_rest_ii_rest", "ii_tail")
    assert {loop.var.name for loop in loops_of(s.func.body)} == set(names(s, i).split())
    assert s.present((i, rest, copy)) == (i, rest, copy)
    assert s.loop(joined).extent == 8


def test_a_name_that_another_loop_got_is_not_the_handle() -> None:
    s = Schedule.of(kernel(PARTS, TWO_OUTPUTS))
    i, j = s.handle("i"), s.handle("j")
    s = s.apply(divide_loop, "i", 4, ("a", "b")).apply(divide_loop, "j", 4, ("i", "c"))
    assert (names(s, i), names(s, j)) == ("a b", "i c")
    assert s[s.handle("i")] == "i"


def test_a_consumed_handle_says_which_step_ended_it() -> None:
    s = Schedule.of(kernel(DEAD))
    i, k = s.handle("i"), s.handle("k")
    s = s.apply(simplify).apply(divide_loop, "i", 4, ("io", "ii"))
    s = s.apply(vectorize_loop, "ii").apply(eliminate_dead_code)
    with pytest.raises(ScheduleError, match=r"i is not one place.*: divide_loop\('i', 4.* io and"):
        s.apply(mark_unrolled, s[i])
    with pytest.raises(ScheduleError, match=r"k is gone: \w+\(\) took it away"):
        s.loop(k)
    assert s.present((i, k)) == (i,)
    with pytest.raises(ScheduleError, match="k has no loop or block q"):
        s.handle("q")
    with pytest.raises(ScheduleError, match="k has no loop or block x"):
        s.loop(s.handle("x"))


def test_a_handle_belongs_to_its_own_schedule() -> None:
    start = Schedule.of(kernel(NEST))
    i = start.handle("i")
    dropped = start.apply(divide_loop, "i", 2, ("io", "ii"))
    (outer, _) = dropped.made["parts"]
    taken = start.apply(cut_loop, "i", 2, "_r")
    with pytest.raises(ScheduleError, match=r"the handle of io, made by divide_loop.* another"):
        taken[outer]
    with pytest.raises(ScheduleError, match="the handle of io"):
        start.forward(outer)
    assert names(taken, i) == "i i_r"
    with pytest.raises(ScheduleError, match="the handle of i belongs to another schedule"):
        Schedule.of(kernel(NEST)).forward(i)


def test_what_a_step_made_is_not_asked_of_the_next_one() -> None:
    s = Schedule.of(kernel(ONE)).apply(divide_loop, "i", 4, ("io", "ii"), "perfect")
    assert s.apply(simplify).made == {}
    unchanged = s.apply(reorder_loops, ("io", "ii"))
    assert (unchanged.func, unchanged.made) == (s.func, {})
    assert s.attempt(vectorize_loop, "io").made == {}


def test_a_schedule_with_handles_is_sent_and_replayed() -> None:
    s = Schedule.of(kernel(NEST)).apply(cut_loop, "i", 3, "_r")
    again = pickle.loads(pickle.dumps(s))
    assert again.names(again.made["pieces"]) == ("i", "i_r")
    assert replay(s.definition, s.steps) == s.func


def test_a_refused_attempt_keeps_the_schedule_and_the_reason() -> None:
    carried = "for i in serial(1, 16):\n    y[i] = x[i]\n    y[i] += y[i - 1]"
    s = Schedule.of(kernel(carried))
    kept = s.attempt(vectorize_loop, "i").attempt(mark_unrolled, "i").attempt(mark_unrolled, "q")
    carry, unknown = kept.refusals
    assert carry.step == "vectorize_loop('i')"
    assert "the iterations of i are independent" in carry.reason
    assert carry.proof is not None
    assert unknown == Refusal("mark_unrolled('q')", "k has no loop or block q; it has i")
    assert [str(step) for step in kept.steps] == ["mark_unrolled('i')"]
    assert "refused: vectorize_loop('i')" in kept.trace(proofs=True)


def test_of_several_steps_none_is_taken_where_one_is_refused() -> None:
    def change(s: Schedule, factor: int) -> Schedule:
        return s.apply(divide_loop, "i", factor, ("io", "ii"), "perfect").apply(mark_unrolled, "q")

    s = Schedule.of(kernel(ONE))
    kept = s.attempt_all(change, 4)
    assert (kept.func, kept.steps) == (s.func, ())
    assert [str(refusal) for refusal in kept.refusals] == [
        "mark_unrolled('q'): k has no loop or block q; it has io, ii"
    ]
    assert kept.attempt_all(change, 4) == kept
    refusal = kept.attempt_all(change, 3).refusals[1]
    assert "perfect needs a factor that divides 16" in refusal.reason


def test_names_that_steps_derive_avoid_those_of_the_kernel() -> None:
    body = "for i_r in serial(0, 16):\n    z[i_r] = x[i_r]\n" + ONE
    s = Schedule.of(kernel(body, TWO_OUTPUTS))
    cut = s.apply(cut_loop, "i", 4, "_r")
    assert cut.names(cut.made["pieces"]) == ("i", "i_r_2")
    same(s.definition, cut)
    assert s.fresh("i_r") == "i_r_2"
    assert s.fresh("{}_{}", s.handle("i"), 7) == "i_7"
    beside = kernel(
        "for x_padding in serial(0, 14):\n    y[x_padding] = x[x_padding]",
        "x: i32[14], y: out[i32[14]]",
    )
    padded = Schedule.of(beside).apply(transform_layout, "x", blocked((14,), 0, 4), "undef")
    assert padded.names(padded.made["padding"]) == ("x_padding_2",)


# What recipes may do ------------------------------------------------------------------------------

LOOKUPS = {"apply", "attempt", "attempt_all", "handle", "fresh", "find_loop", "interior"}
CUTS = {"removesuffix", "removeprefix", "endswith", "startswith", "join", "format", "replace"}


def _builds_text(node: ast.AST, built: set[str]) -> bool:
    """Whether an expression puts a text together, or uses a variable that was."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.JoinedStr):
            return True
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add | ast.Mod | ast.Mult):
            sides = (inner.left, inner.right)
            if any(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides):
                return True
        if isinstance(inner, ast.Attribute) and inner.attr in CUTS - {"replace", "join"}:
            return True
        if isinstance(inner, ast.Name) and inner.id in built:
            return True
    return False


def built_names(source: str) -> list[int]:
    """The lines on which a place is looked up, or a step applied, with a text put together."""
    wrong = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        built: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _builds_text(node.value, set()):
                built |= {
                    n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)
                }
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                called = node.func
                name = (
                    called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                )
                arguments = (*node.args, *(k.value for k in node.keywords))
                if name in LOOKUPS and any(_builds_text(a, built) for a in arguments):
                    wrong.append(node.lineno)
            if isinstance(node, ast.Compare) and _builds_text(node, built):
                wrong.append(node.lineno)
    return wrong


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.py")), ids=lambda path: path.stem)
def test_no_recipe_builds_the_name_of_a_loop(path: Path) -> None:
    assert built_names(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        's.apply(mark_unrolled, name + "o")',
        's.apply(mark_unrolled, f"{name}o")',
        's.handle("%so" % name)',
        's.handle(name.removesuffix("o"))',
        'inner = name + "i"\n    s.apply(mark_unrolled, inner)',
        's.apply(reorder_loops, tuple(n + "_u" for n in names))',
        'loop.var.name == name + "i"',
        'name.endswith("_m") and 1 == name.endswith("_m")',
    ],
)
def test_the_check_finds_built_names(line: str) -> None:
    assert built_names(f"def f(s, name, names):\n    {line}\n")


def test_the_check_permits_patterns_and_handles() -> None:
    assert not built_names('def f(s, a):\n    s.apply(divide_loop, s[a], 4, s.fresh("{}o", a))\n')
    assert not built_names('def f(s, a):\n    raise ScheduleError(f"{a} is lost")\n')


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.py")), ids=lambda path: path.stem)
def test_no_recipe_drops_the_reason_of_a_refusal(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler) and "ScheduleError" in ast.dump(node.type or node):
            assert node.name is not None, f"{path.name}:{node.lineno} drops the reason"
            used = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
            assert any(n.id == node.name for n in used), f"{path.name}:{node.lineno}"


def test_the_text_of_a_kernel_is_in_a_refusal() -> None:
    s = Schedule.of(kernel(ONE))
    with pytest.raises(ScheduleError) as refused:
        s.apply(mark_unrolled, "q")
    assert str(refused.value).endswith(f"\nin\n{to_text(s.func)}")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
