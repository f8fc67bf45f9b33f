"""Tests of kernels that a user scheduled, in a graph: their stages are lifted out, moved and
cancelled."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import LayoutConflict, ScheduleError
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.convert import apply_plan
from graphflow.flow import plan_layouts
from graphflow.graph import (
    Expansions,
    Node,
    OperatorGraph,
    Value,
    fuse_groups,
    interpret_graph,
    moved_channels,
    reading_through,
)
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.windows import pooling
from graphflow.kernels.definitions.windows.convolution import convolution as convolution_2d
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import kernel_schedule, lifted, scheduled_variants
from graphflow.layout import IndexMap, Layout, blocked, row_major
from graphflow.lower import lower
from graphflow.plan import LayoutPlan
from graphflow.schedule import (
    Schedule,
    cache_read,
    cache_write,
    divide_loop,
    fission,
    marked_stage,
    parallelize_loop,
    remove_branching_through_overcompute,
    reorder_loops,
    sequential_buffer_access,
    state_padding,
    transform_layout,
    vectorize_loop,
)
from graphflow.tir import Block, Literal, PrimFunc, parse, to_text
from support.placing import interpret_physical
from support.planning.nets import describe
from support.schedules.halo_convolutions import (
    FILTER,
    NUMPY,
    branch_free,
    convolution,
    convolved,
    numbers,
)
from support.schedules.scheduled_chains import (
    ADDONE,
    GROW,
    PACKED,
    X,
    chain,
    elementwise,
    offer_packed_relu,
    packed,
    packed_relu_model,
    run,
    run_natively,
)

Golden = Callable[[str, str], None]
TARGET = Target("eight lanes", "", "", 32, 16, clock_ghz=6.25)
"""Its own data alone: plans do not depend on the machine that runs the tests."""


# D1: lifting, reflowing, and only the padding is fixed ------------------------------------------


def growing(middle: PrimFunc, dtype: str = "i32") -> OperatorGraph:
    """grow → middle → grow, where grow can only be taken as it was scheduled."""
    grow = elementwise("grow", f"{dtype}(2{'' if dtype == 'i32' else '.0'}) * x[i]", dtype)
    graph = chain({"i32": "int32", "f32": "float32"}[dtype], grow, middle, grow)
    zero = 0 if dtype == "i32" else 0.0
    for name in ("grow0", "grow2"):
        graph.offer(name, packed(grow, zero, "undef").apply(state_padding, "y", zero), only=True)
    return fuse_groups(graph)


@pytest.mark.parametrize(
    ("name", "middle"), [("addone", ADDONE), ("exp", elementwise("exp", "exp(x[i])", "f32"))]
)
def test_d1_the_inner_pair_goes_and_only_the_padding_is_fixed(
    name: str, middle: PrimFunc, golden: Golden
) -> None:
    dtype = "i32" if name == "addone" else "f32"
    graph = growing(middle, dtype)
    plan = plan_layouts(graph, TARGET, 1)
    golden(f"rfc_grow_{name}", describe(plan))
    assert [c.value for c in plan.conversions] == ["x", "y"]
    x = X if dtype == "i32" else (X / 8).astype("float32")
    run(graph, plan, TARGET, x=x)


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize(
    ("dtype", "value", "fixed"),
    [
        ("i32", "x[i] * x[i]", False),
        ("f32", "x[i] * x[i]", False),
        ("f32", "select(data(x[i] < f32(0.0)), f32(0.0), x[i])", False),
        ("i32", "max(x[i], i32(0))", False),
        ("i32", "x[i] + i32(1)", True),
        ("f32", "exp(x[i])", True),
        # 1 where denormals count as zero, 0 where they do not.
        ("f32", "select(data(x[i] + f32(1e-40) == f32(0.0)), f32(1.0), f32(0.0))", True),
    ],
)
def test_d1_facts_go_through_kernels_without_a_schedule(
    dtype: str, value: str, fixed: bool, block: bool
) -> None:
    """Zeros stay zeros through a square and a relu, so nothing is added to the kernel between."""
    head = f"def middle(x: {dtype}[14], y: out[{dtype}[14]]):\n"
    loop = f"for i in serial(0, 14):\n            y[i] = {value}\n"
    body = f'    with block("compute"):\n        {loop}' if block else f"    {loop}"
    grow = elementwise("grow", f"{dtype}(2{'' if dtype == 'i32' else '.0'}) * x[i]", dtype)
    zero = 0 if dtype == "i32" else 0.0
    scheduled = packed(grow, zero, "undef").apply(state_padding, "y", zero)
    graph = OperatorGraph()
    x = graph.add_input("x", {"i32": "int32", "f32": "float32"}[dtype], (14,))
    (first,) = gf.call(graph, scheduled, x)
    (second,) = gf.call(graph, gf.kernel(head + body), first, name="middle")
    graph.set_outputs(gf.call(graph, scheduled, second))
    plan = plan_layouts(fuse_groups(graph), TARGET, 1)
    assert [c.value for c in plan.conversions] == [x, graph.outputs[0]]
    assert [c.value for c in plan.cancelled] == [first, second]
    assert (plan.choices["middle"].pad_value is not None) is fixed
    run(graph, plan, TARGET, x=X if dtype == "i32" else (X / 8).astype("float32"))


# D2: six variants of one kernel, and which pairs of neighbours cancel for each
# ----------------------

ONE = 1
FORMS = {
    "1 no stages": Schedule.of(ADDONE),
    "2 padded, padding untouched": packed(ADDONE, None, None, over=False),
    "3 known pad in, padding of the output untouched": packed(ADDONE, 0, None, over=False),
    "4 undef in and out": packed(ADDONE, "undef", "undef"),
    "5 known pad in, derived fact out": packed(ADDONE, 0, "undef").apply(state_padding, "y", ONE),
    "6 known pad in, no fact out": packed(ADDONE, 0, "undef"),
}
BEFORE = {
    "leaves 0": packed(GROW, 0, "undef").apply(state_padding, "y", 0),
    "leaves undef": packed(GROW, 0, "undef"),
}
AFTER = {
    "wants 0": packed(GROW, 0, "undef"),
    "wants 1": packed(GROW, ONE, "undef"),
    "wants nothing": packed(GROW, "undef", "undef"),
}


def between(before: Schedule, after: Schedule, *variants: Schedule, only: bool) -> OperatorGraph:
    graph = chain("int32", GROW, ADDONE, GROW)
    graph.offer("grow0", before, only=True)
    graph.offer("addone1", *variants, only=only)
    graph.offer("grow2", after, only=True)
    return graph


def pair(plan: LayoutPlan, value: str, consumer: str) -> str:
    """What became of the crop and the pad that meet on an edge, and why."""
    made = [c for c in plan.conversions if c.value == value]
    (maker,) = [c for c in plan.choices.values() if plan.edges[value].decided_by.startswith(c.node)]
    if maker.pad_value is not None:
        text = f"cancelled, because {maker.node} also writes {maker.pad_value}"
    elif made:
        text = f"{made[0].kind} to {made[0].target.describe()}"
    else:
        text = "cancelled"
    reasons = [r.reason for r in plan.refused if (r.value, r.consumer) == (value, consumer)]
    text = "; ".join([text, *(f"refused as it is: {reason}" for reason in reasons)])
    return text.replace(PACKED.describe(), "[4, 4]")


def test_d2_each_variant_of_six_cancels_other_pairs(golden: Golden) -> None:
    lines = []
    for variant, schedule in FORMS.items():
        lines.append(variant)
        for (before, first), (after, last) in itertools.product(BEFORE.items(), AFTER.items()):
            plan = plan_layouts(between(first, last, schedule, only=True), TARGET, 1)
            lines.append(f"    before it {before}, behind it {after}:")
            lines.append(f"        {pair(plan, 'v0', 'addone1')}")
            lines.append(f"        {pair(plan, 'v1', 'grow2')}")
    golden("rfc_six_variants", "\n".join(lines) + "\n")


@pytest.mark.parametrize("variant", FORMS)
def test_d2_each_variant_computes_the_same(variant: str) -> None:
    graph = between(BEFORE["leaves 0"], AFTER["wants 0"], FORMS[variant], only=True)
    run(graph, plan_layouts(graph, TARGET, 1), TARGET, x=X)


def test_d2_the_solver_chooses_among_the_variants() -> None:
    """Where nobody behind wants anything, one that need not be told what the padding is."""
    for (before, first), (after, last) in itertools.product(BEFORE.items(), AFTER.items()):
        seconds = {}
        for name, schedule in FORMS.items():
            graph = between(first, last, schedule, only=True)
            seconds[name] = plan_layouts(graph, TARGET, 1).seconds
        best = plan_layouts(between(first, last, *FORMS.values(), only=True), TARGET, 1)
        assert best.seconds == pytest.approx(min(seconds.values())), (before, after, seconds)
        assert len(best.choices["addone1"].others) >= len(FORMS) - 1


# D3: two convolutions chained through one halo ----------------------------------------------------


def two_convolutions(extent: int, dtype: str, weights: Any = FILTER) -> OperatorGraph:
    """Both without a branch, over three rows of eight; nothing writes the padding between."""
    graph = OperatorGraph()
    graph.add_value(Value("x", NUMPY[dtype], (extent,)))
    graph.set_inputs(["x"])
    graph.add_initializer("f", np.array(weights, NUMPY[dtype]))
    between = extent + 2
    for name, n, source, result in (("first", extent, "x", "v"), ("second", between, "v", "y")):
        graph.add(Node(name, "conv", convolution(n, dtype), (source, "f"), (result,)))
        graph.offer(name, branch_free(n, dtype, 3, cached=True), only=True)
    graph.set_outputs(["y"])
    return graph


@pytest.mark.parametrize("extent", [16, 14, 11])
@pytest.mark.parametrize("dtype", NUMPY)
def test_d3_pads_and_crops_of_two_convolutions_become_one_of_each(
    dtype: str, extent: int, golden: Golden
) -> None:
    graph = two_convolutions(extent, dtype)
    plan = plan_layouts(graph, TARGET, 1)
    assert [(c.value, c.kind) for c in plan.conversions] == [("x", "convert"), ("y", "convert")]
    assert [c.value for c in plan.cancelled] == ["v"]
    kernels = lower(apply_plan(graph, plan), host_target()).kernels.values()
    texts = [to_text(k.func) for k in kernels if any(p.buffer.name == "f" for p in k.func.params)]
    assert len(texts) == 2
    if extent == 16:
        golden(f"rfc_convolutions_{dtype}", describe(plan) + texts[0])
    for text in texts:
        assert "if " not in text and "padding" not in text and "% 3" in text
    x = numbers(extent, dtype)
    expected = run(graph, plan, TARGET, x=x)["y"]
    np.testing.assert_array_equal(expected, convolved(x, 2))


def test_d3_in_floats_the_filter_must_be_known_to_be_finite() -> None:
    with pytest.raises(ScheduleError, match=r"nothing is known of f\[k\]"):
        branch_free(16, "f32", 3, cached=True, finite=False)
    graph = two_convolutions(16, "f32", (2, np.inf, 3))
    with pytest.raises(ScheduleError, match="rests on f being finite, and that is not proven"):
        plan_layouts(graph, TARGET, 1)


@pytest.mark.decisions
def test_d3_a_filter_given_at_run_time_may_be_stated_to_be_finite() -> None:
    graph = OperatorGraph()
    graph.add_input("x", "float32", (16,))
    graph.add_input("f", "float32", (3,))
    for name, n, source, result in (("first", 16, "x", "v"), ("second", 18, "v", "y")):
        graph.add(Node(name, "conv", convolution(n, "f32"), (source, "f"), (result,)))
        graph.offer(name, branch_free(n, "f32", 3, cached=True), only=True)
    graph.set_outputs(["y"])
    executable = gf.build(graph, threads=1, assume={"f": "finite"})
    assert [c["edge"] for c in executable.report()["cancelled"]] == ["v"]
    x, f = numbers(16, "f32"), np.array(FILTER, "float32")
    np.testing.assert_array_equal(executable.run({"x": x, "f": f})["y"], convolved(x, 2))


def test_what_a_kernel_derives_of_its_padding_is_proven_again() -> None:
    """Another filter, with a start that is not zero, under the text of the proven stage."""
    text = to_text(branch_free(16, "i32", 3, cached=True).func)
    wrong = text.replace("yc[io, ii] = i32(0)", "yc[io, ii] = i32(1)")
    assert wrong != text
    with pytest.raises(ScheduleError, match="left there: yc holds 0 in its padding"):
        lifted(parse(wrong), TARGET)


# A6: padding that nobody touches ------------------------------------------------------------------

UNTOUCHED = "2 padded, padding untouched"


def test_a6_a_tensor_whose_padding_nobody_touches_needs_no_conversion() -> None:
    for form, elided in ((UNTOUCHED, True), ("4 undef in and out", False)):
        graph = chain("int32", ADDONE)
        graph.offer("addone0", FORMS[form], only=True)
        plan = plan_layouts(graph, TARGET, 1)
        assert [c.value for c in plan.conversions] == ([] if elided else ["x", "y"])
        assert ("[elided]" in plan.choices["addone0"].variant.name) is elided
        run(graph, plan, TARGET, x=X)


def test_a6_padding_that_a_neighbour_needs_is_not_elided() -> None:
    graph = between(BEFORE["leaves 0"], AFTER["wants nothing"], FORMS[UNTOUCHED], only=True)
    plan = plan_layouts(graph, TARGET, 1)
    assert "[untouched]" in plan.choices["addone1"].variant.name
    assert [c.value for c in plan.conversions] == ["x", "y"]
    run(graph, plan, TARGET, x=X)


def test_a6_one_side_may_be_elided_and_the_other_not() -> None:
    graph = chain("int32", ADDONE, GROW)
    graph.offer("addone0", FORMS[UNTOUCHED], only=True)
    graph.offer("grow1", AFTER["wants nothing"], only=True)
    plan = plan_layouts(graph, TARGET, 1)
    name = plan.choices["addone0"].variant.name
    assert re.search(r"x .* \[elided\], y .* \[untouched\]", name)
    assert [c.value for c in plan.conversions] == ["y"]
    run(graph, plan, TARGET, x=X)


def test_a6_rows_that_are_padded_in_memory_are_converted() -> None:
    """[3, 14] as [3, 4, 4]: what lies between the rows cannot be left out of the same memory."""
    func = parse(
        """
        @primfunc
        def k(x: i32[3, 14], y: out[i32[3, 14]]):
            with block("compute"):
                for r in serial(0, 3):
                    for i in serial(0, 14):
                        y[r, i] = x[r, i] + i32(1)
        """
    )
    s = Schedule.of(func).apply(cache_read, "x", "xc")
    s = s.apply(transform_layout, "xc", Layout.of(IndexMap.split(2, 1, 4), (3, 14)))
    (variant,) = scheduled_variants(s.func, TARGET)
    assert variant.layouts["x"].is_padded


@pytest.mark.decisions
def test_a6_the_executable_tells_both_shapes() -> None:
    x = X.copy()
    for form, physical in ((UNTOUCHED, (14,)), ("4 undef in and out", (4, 4))):
        executable = gf.build(FORMS[form], threads=1)
        told = executable.layouts["y"]
        assert (told.logical_shape, told.physical_shape) == ((14,), physical)
        np.testing.assert_array_equal(executable.run({"x": x})["y"], x + 1)


# D4: what lies between follows --------------------------------------------------------------------


def scheduled_growth(name: str, dtype: str = "i32") -> Schedule:
    func = elementwise(name, "i32(2) * x[i]", dtype)
    return packed(func, 0, "undef").apply(state_padding, "y", 0)


def test_d4_neighbours_cancel_back_to_back() -> None:
    graph = chain("int32", GROW, GROW, GROW)
    for name in ("grow0", "grow1", "grow2"):
        graph.offer(name, scheduled_growth("grow"), only=True)
    plan = plan_layouts(graph, TARGET, 1)
    assert [c.value for c in plan.conversions] == ["x", "y"]
    assert [c.value for c in plan.cancelled] == ["v0", "v1"]
    assert not plan.refused
    run(graph, plan, TARGET, x=X)


def test_d4_layouts_go_through_kernels_with_several_inputs_up_to_a_constant(golden: Golden) -> None:
    """Two sums between scheduled kernels: the constant is packed beforehand, nothing moves."""
    add = parse(
        """
        @primfunc
        def add(a: i32[14], b: i32[14], y: out[i32[14]]):
            with block("compute"):
                for i in serial(0, 14):
                    y[i] = a[i] + b[i]
        """
    )
    graph = OperatorGraph()
    for name in "xz":
        graph.add_value(Value(name, "int32", (14,)))
    graph.set_inputs(["x", "z"])
    graph.add_initializer("c", np.arange(14, dtype="int32"))
    for name, func, inputs, result in (
        ("left", GROW, ("x",), "l"),
        ("right", GROW, ("z",), "r"),
        ("sum", add, ("l", "r"), "s"),
        ("shifted", add, ("s", "c"), "t"),
        ("last", GROW, ("t",), "y"),
    ):
        graph.add(Node(name, func.name, func, inputs, (result,)))
        if func is GROW:
            graph.offer(name, scheduled_growth("grow"), only=True)
    graph.set_outputs(["y"])
    plan = plan_layouts(graph, TARGET, 1)
    golden("rfc_several_inputs", describe(plan))
    assert [c.value for c in plan.conversions] == ["x", "z", "y"]
    assert not plan.refused, "0 + 0 is 0"
    packing = [call.name for call in apply_plan(graph, plan).calls if call.prepare]
    assert packing == ["pack c"]
    run(graph, plan, TARGET, x=X, z=X[::-1].copy())


def test_d4_kernels_that_do_not_care_follow(golden: Golden) -> None:
    """Convolution, pooling, convolution: nothing moves between; a pin of no family is obeyed."""
    graph = OperatorGraph()
    graph.add_value(Value("x", "float32", (1, 6, 8, 8)))
    graph.set_inputs(["x"])
    rng = np.random.default_rng(0)
    for name, shape in (("w", (12, 6, 3, 3)), ("u", (12, 12, 3, 3))):
        graph.add_initializer(name, rng.standard_normal(shape).astype("float32"))
    first = convolution_2d((1, 6, 8, 8), (12, 6, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)))
    pool = pooling.max_pool((1, 12, 8, 8), Window.of((2, 2), strides=(2, 2)))
    last = convolution_2d((1, 12, 4, 4), (12, 12, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)))
    graph.add(Node("first", "conv", first, ("x", "w"), ("a",)))
    graph.add(Node("pool", "pool", pool, ("a",), ("b",)))
    graph.add(Node("last", "conv", last, ("b", "u"), ("y",)))
    graph.set_outputs(["y"])
    odd = blocked((1, 12, 4, 4), 1, 4)
    x = rng.standard_normal((1, 6, 8, 8)).astype("float32")
    for name, pins in (("family", {"b": "blocked(8)"}), ("pinned", {"b": odd})):
        plan = plan_layouts(graph, TARGET, 1, pins)
        golden(f"rfc_conv_pool_conv_{name}", describe(plan))
        inner = {c.value for c in plan.conversions} - {"x", "y"}
        assert inner == ({"a"} if name == "pinned" else set())
        got = interpret_physical(graph, apply_plan(graph, plan), TARGET, {"x": x})["y"]
        expected = interpret_graph(graph, {"x": x})["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


# D5: blocks of 32 that do not divide 127 ----------------------------------------------------------

SIDE = 127
MATMUL = linear.matmul((SIDE, SIDE), (SIDE, SIDE))


def padded_matmul() -> Schedule:
    """Columns and the reduction padded to 128, with zeros; no condition is left."""
    square = (SIDE, SIDE)
    split = IndexMap.split(2, 1, 32)
    s = Schedule.of(MATMUL)
    s = s.apply(cache_read, "a", "ac").apply(cache_read, "b", "bc").apply(cache_write, "y", "yc")
    rows = Layout.of(IndexMap.identity(2), square, (SIDE, 128))
    s = s.apply(transform_layout, "ac", rows, 0.0)
    s = s.apply(transform_layout, "bc", Layout.of(split, square, (128, 4, 32)), 0.0)
    s = s.apply(transform_layout, "yc", Layout.of(split, square), "undef")
    s = s.apply(divide_loop, "k", 32, ("ko", "ki"), "guard")
    s = s.apply(sequential_buffer_access, "matmul", "yc", ("io", "jo", "ji"))
    s = s.apply(remove_branching_through_overcompute, "matmul")
    s = s.apply(fission, "ji", 1, "_u", 3).apply(reorder_loops, ("ko", "ki", "ji_u"))
    return s.apply(vectorize_loop, "ji").apply(vectorize_loop, "ji_u")


def partitioned_matmul() -> Schedule:
    """Three blocks of 32 columns and one of 31, each a loop of its own; nothing is padded."""
    s = Schedule.of(MATMUL).apply(divide_loop, "j", 32, ("jo", "ji"), "cut")
    for lane, depth in (("ji", "k"), ("ji_tail", "k_tail")):
        s = s.apply(fission, lane, 1, "_u", 1).apply(reorder_loops, (depth, f"{lane}_u"))
        s = s.apply(vectorize_loop, lane).apply(vectorize_loop, f"{lane}_u")
    return s.apply(parallelize_loop, "i")


def product() -> OperatorGraph:
    graph = OperatorGraph()
    for name in "ab":
        graph.add_value(Value(name, "float32", (SIDE, SIDE)))
    graph.set_inputs("ab")
    graph.add(Node("product", "MatMul", MATMUL, ("a", "b"), ("y",)))
    graph.set_outputs(["y"])
    return graph


@pytest.mark.parametrize("make", [padded_matmul, partitioned_matmul])
def test_d5_a_matmul_in_blocks_that_do_not_divide_it(
    make: Callable[[], Schedule], golden: Golden
) -> None:
    graph = product()
    graph.offer("product", make(), only=True)
    plan = plan_layouts(graph, TARGET, 2)
    kernels = lower(apply_plan(graph, plan), host_target()).kernels.values()
    (text,) = (to_text(k.func) for k in kernels if any(p.buffer.name == "b" for p in k.func.params))
    golden(f"rfc_{make.__name__}", describe(plan) + text)
    assert "if " not in text
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (SIDE, SIDE)).astype("float32") for _ in "ab")
    for got in run_natively(graph, plan, a=a, b=b):
        np.testing.assert_array_equal(got["y"], a @ b)


# D6: what the search says -------------------------------------------------------------------------


def test_d6_the_search_prices_all_that_was_offered() -> None:
    graph = product()
    graph.offer("product", padded_matmul(), partitioned_matmul())
    plan = plan_layouts(graph, TARGET, 2)
    (choice,) = plan.choices.values()
    offered = [other for other in choice.others if "as scheduled" in other.variant]
    assert {"row-major" in other.variant.split(":")[1][:11] for other in offered} == {True, False}
    assert plan.next_best is not None and plan.next_best >= plan.seconds
    for other in offered:
        forced = product()
        schedule = (
            partitioned_matmul() if other.variant.endswith(": row-major") else padded_matmul()
        )
        forced.offer("product", schedule, only=True)
        if "written" not in other.variant:
            price = plan_layouts(forced, TARGET, 2).seconds
            assert other.extra is not None
            assert price == pytest.approx(plan.seconds + other.extra, rel=1e-4)


# What cannot be lifted ----------------------------------------------------------------------------


def broken(text: str) -> PrimFunc:
    return parse(
        f"""
        @primfunc
        def broken(x: i32[14], y: out[i32[14]]):
            xc = alloc(i32[4, 4])
            {text}
        """
    )


COPY = """with block("pad", preproc="pad"):
                for a in serial(0, 14):
                    xc[a // 4, a % 4] = x[a]
            """


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (COPY + "for i in serial(0, 14):\n                y[i] = xc[i // 4, i % 4] + x[0]",
         "x is touched outside the stages marked preproc"),
        (COPY + "xc[0, 0] = i32(1)\n            for i in serial(0, 14):\n"
         "                y[i] = xc[i // 4, i % 4]",
         "xc is written outside the stages that copy x"),
        (COPY.replace("= x[a]", "= x[a] + i32(1)")
         + "for i in serial(0, 14):\n                y[i] = xc[i // 4, i % 4]",
         "no statement copies between x and xc"),
        (COPY.replace("(0, 14)", "(0, 13)")
         + "for i in serial(0, 13):\n                y[i] = xc[i // 4, i % 4]",
         "every element of x is copied does not hold"),
        (COPY.replace("a // 4, a % 4", "a // 8, a % 4")
         + "for i in serial(0, 14):\n                y[i] = xc[i // 8, i % 4]",
         "cannot find i0 again|the derived inverse is wrong"),
    ],
)  # fmt: skip
def test_stages_that_do_more_than_to_copy_stay(text: str, reason: str) -> None:
    func = broken(text)
    variant = lifted(func, TARGET)
    assert variant.layouts["x"] == row_major((14,))
    made = kernel_schedule(func, (), variant.recipe, TARGET)
    assert [r for r in made.refusals if re.search(reason, str(r))]
    assert any(isinstance(s, Block) and s.name == "pad" for s in made.func.body)


def test_what_a_crop_states_is_proven() -> None:
    wrong = packed(ADDONE, 0, "undef").apply(state_padding, "y", 2)
    with pytest.raises(ScheduleError, match=r"pad\(0\) holds 2, and it is only known to hold 1"):
        lifted(wrong.func, TARGET)
    unknown = packed(ADDONE, "undef", "undef").apply(state_padding, "y", 1)
    with pytest.raises(ScheduleError, match=r"only known to hold \[-2147483648, 2147483647\]"):
        lifted(unknown.func, TARGET)


def cropped(mark: str, dtype: str = "i32") -> PrimFunc:
    return parse(
        f"""
        @primfunc
        def k(x: {dtype}[14], y: out[{dtype}[14]]):
            yc = alloc({dtype}[4, 4])
            with block("compute"):
                for i in serial(0, 14):
                    yc[i // 4, i % 4] = x[i]
            with block("crop", postproc="{mark}"):
                for c in serial(0, 14):
                    y[c] = yc[c // 4, c % 4]
        """
    )


def test_a_mark_is_one_of_the_known_ones() -> None:
    for mark in ("copy", "crop", "crop(undef)"):
        assert marked_stage(cropped(mark), "y") is not None
    for mark in ("corp(0)", "crop(0", "", "crop(zero)"):
        with pytest.raises(ScheduleError, match="crop is marked"):
            marked_stage(cropped(mark), "y")


def test_a_crop_of_halves_states_a_fraction() -> None:
    found = marked_stage(cropped("crop(0.5)", "f16"), "y")
    assert found is not None and found.pad == Literal(0.5, "float16")


def test_a_kernel_of_the_graph_may_have_the_stages_itself() -> None:
    """As in the discussion: written by hand, one store that selects; nothing is offered."""
    grow = parse(
        """
        @primfunc
        def grow(x: i32[14], y: out[i32[14]]):
            xc = alloc(i32[4, 4])
            yc = alloc(i32[4, 4])
            with block("pad", preproc="pad"):
                for a in serial(0, 4):
                    for b in serial(0, 4):
                        xc[a, b] = select(4*a + b < 14, x[4*a + b], i32(0))
            with block("compute"):
                for i in serial(0, 4):
                    for j in serial(0, 4):
                        yc[i, j] = i32(2) * xc[i, j]
            with block("crop", postproc="crop(0)"):
                for c in serial(0, 14):
                    y[c] = yc[c // 4, c % 4]
        """
    )
    variant = lifted(grow, TARGET)
    assert variant.layouts["x"] == variant.layouts["y"] == PACKED
    graph = fuse_groups(chain("int32", grow, ADDONE, grow))
    pins = {"v0": PACKED, "v1": PACKED}
    plan = plan_layouts(graph, TARGET, 1, pins)
    assert not {"v0", "v1"} & {c.value for c in plan.conversions}
    assert plan.choices["grow0"].variant == variant
    run(graph, plan, TARGET, x=X)


def test_offers_must_fit_the_node() -> None:
    graph = chain("int32", GROW, ADDONE)
    with pytest.raises(ScheduleError, match="the node has another kernel"):
        graph.offer("grow0", Schedule.of(ADDONE))
    outside = Schedule.of(GROW).apply(transform_layout, "x", PACKED, 0)
    with pytest.raises(ScheduleError, match="cache them"):
        graph.offer("grow0", outside)
    graph.offer("grow0", scheduled_growth("grow"), only=True)
    with pytest.raises(LayoutConflict, match="grow0"):
        plan_layouts(graph, TARGET, 1, {"v0": "row-major"})


@pytest.mark.decisions
def test_offers_reach_the_compiler() -> None:
    executable = gf.compile(packed_relu_model(), offers=offer_packed_relu, threads=1)
    assert "as scheduled" in str(executable.explain("r"))
    x = np.linspace(-2, 2, 14).astype("float32")
    np.testing.assert_allclose(executable.run({"x": x})["y"], np.exp(np.maximum(x, 0)), rtol=1e-6)


def test_what_was_scheduled_is_not_rewritten() -> None:
    """Reading through movement would change the kernel under the schedules."""
    moved = over_joined_channels()
    moves = moved_channels(moved)
    assert "point" in reading_through(Expansions(moved), moves, {"s"}).of_node
    node = moved.node("point")
    moved.offer("point", Schedule.of(node.func))
    assert "point" not in reading_through(Expansions(moved), moves, {"s"}).of_node


def over_joined_channels() -> OperatorGraph:
    """A 1x1 convolution over joined tensors."""
    graph = OperatorGraph()
    for name in "ab":
        graph.add_value(Value(name, "float32", (1, 8, 4, 4)))
    graph.set_inputs("ab")
    graph.add_initializer("w", np.ones((8, 16, 1, 1), "float32"))
    joined = movement.concat([(1, 8, 4, 4), (1, 8, 4, 4)], 1)
    graph.add(Node("join", "Concat", joined, ("a", "b"), ("s",)))
    point = convolution_2d((1, 16, 4, 4), (8, 16, 1, 1))
    graph.add(Node("point", "Conv", point, ("s", "w"), ("y",)))
    graph.set_outputs(["y"])
    return graph
