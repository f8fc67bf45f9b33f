"""Tests of abstract evaluation: it covers every concrete result, and is exact on constants."""

from math import copysign, inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.arith import Var, const, less_than
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import convolution, pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.layout import (
    Constant,
    IndexMap,
    Layout,
    NoAccess,
    Range,
    Undefined,
    blocked,
    channels_last_padded,
    fact_of,
    output_facts,
    row_major,
    value_fact,
)

X = tir.Load(tir.Buffer("x", ()), ())
Y = tir.Load(tir.Buffer("y", ()), ())
FLOAT_UNARY = tuple(op for op in tir.UNARY_FUNCTIONS if op not in ("not", "bits"))
ARITHMETIC = tuple(
    op for op in tir.BINARY_FUNCTIONS if op not in ("and", "or", "xor", "shl", "shr")
)
TINY = float(np.finfo("float32").tiny)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1e38, -1e38, 1e-38, 1e-45, inf, -inf, nan)


def f32(value):
    return fact_of(value, "float32")


def given_x(fact, other=None):
    return lambda load: fact if load == X else other


def covers(fact, value):
    """Whether a numpy scalar is among what a fact allows."""
    if isinstance(fact, Undefined | NoAccess):
        return True
    if isinstance(fact, Constant):
        return fact.literal == tir.Literal(value.item(), value.dtype.name)
    return fact.holds(value.item())


def run(expr, **values):
    """The interpreter's value of an expression whose loads are buffers of rank 0."""
    from_buffers = {"x": X, "y": Y}

    def go(node):
        match node:
            case tir.Literal():
                return np.asarray(node.value, tir.DTYPES[node.dtype])[()]
            case tir.Load():
                return next(values[name] for name, load in from_buffers.items() if load == node)
            case tir.Unary():
                return tir.UNARY_FUNCTIONS[node.op](go(node.operand))
            case tir.Binary():
                return tir.BINARY_FUNCTIONS[node.op](go(node.left), go(node.right))
            case tir.Cast():
                return go(node.operand).astype(tir.DTYPES[node.dtype])
            case tir.Comparison():
                a, b = go(node.left), go(node.right)
                table = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b}
                return np.bool_(table.get(node.op, a != b))
            case tir.Select():
                return go(node.if_true) if go(node.condition) else go(node.if_false)
        raise AssertionError(node)

    with np.errstate(all="ignore"):
        return go(expr)


floats = st.one_of(
    st.sampled_from(SPECIAL),
    st.floats(width=32, min_value=-100, max_value=100),
    st.floats(width=32),
)


@st.composite
def facts_with_values(draw):
    """A fact, and a float32 that it allows."""
    a, b = draw(floats), draw(floats)
    kind = draw(st.sampled_from(["constant", "range", "range", "undef"]))
    if kind == "constant":
        return f32(a), np.float32(a)
    if kind == "undef" or any(x != x or abs(x) == inf for x in (a, b)):
        return Undefined(), np.float32(a)
    lo, hi = sorted(
        (float(np.float32(a)), float(np.float32(b))), key=lambda v: (v, str(v)[0] != "-")
    )
    inside = draw(
        st.one_of(st.just(lo), st.just(hi), st.floats(0, 1).map(lambda t: lo + t * (hi - lo)))
    )
    value = float(np.float32(inside))
    fact = Range(lo, hi)
    return fact, np.float32(value if fact.holds(value) else lo)


def expressions(depth):
    leaves = st.one_of(
        st.just(X), st.just(Y), st.sampled_from([0.0, -0.0, 1.0, 0.1, -3.0, 6.0]).map(tir.float32)
    )
    if not depth:
        return leaves
    below = expressions(depth - 1)
    condition = st.builds(tir.Comparison, st.sampled_from(tir.COMPARISONS), below, below)
    return st.one_of(
        leaves,
        st.builds(tir.Unary, st.sampled_from(FLOAT_UNARY), below),
        st.builds(tir.Binary, st.sampled_from(ARITHMETIC), below, below),
        st.builds(tir.Select, condition, below, below),
        st.builds(tir.Cast, st.builds(tir.Cast, below, st.just("float64")), st.just("float32")),
        st.builds(tir.Cast, condition, st.just("float32")),
    )


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(expressions(3), facts_with_values(), facts_with_values())
def test_whatever_happens_is_covered(expr, first, second):
    (x_fact, x), (y_fact, y) = first, second
    found = value_fact(expr, given_x(x_fact, y_fact))
    value = run(expr, x=x, y=y)
    assert covers(found, value), (found, value)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(st.sampled_from(ARITHMETIC), facts_with_values(), facts_with_values())
def test_single_operators_are_covered(op, first, second):
    expr = tir.Binary(op, X, Y)
    found = value_fact(expr, given_x(first[0], second[0]))
    assert covers(found, run(expr, x=first[1], y=second[1]))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(facts_with_values(), facts_with_values(), facts_with_values(), st.booleans())
def test_contraction_to_fma_is_covered(a, b, c, minus):
    """The product and the sum rounded once, which native code may do."""
    z = tir.Load(tir.Buffer("z", ()), ())
    table = {X: a[0], Y: b[0], z: c[0]}
    expr = tir.Binary("sub" if minus else "add", z, tir.Binary("mul", X, Y))
    found = value_fact(expr, table.__getitem__)
    with np.errstate(all="ignore"):
        product = np.longdouble(a[1]) * np.longdouble(b[1])
        total = np.longdouble(c[1]) - product if minus else np.longdouble(c[1]) + product
        fused = np.float32(total)
    if isinstance(found, Constant) and fused == 0 == found.literal.value:
        assert np.signbit(fused) == np.signbit(np.float32(found.literal.value))
    if not isnan(fused):
        assert covers(found, fused), (found, fused)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    st.sampled_from(["add", "sub", "mul", "div", "max", "min", "and", "or", "xor", "shl", "shr"]),
    st.sampled_from(["int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64"]),
    st.data(),
)
def test_integers_are_covered(op, dtype, data):
    info = np.iinfo(dtype)
    numbers = st.one_of(
        st.integers(int(info.min), int(info.max)), st.integers(0, 9), st.just(int(info.max))
    )
    loads, table, concrete = [], {}, []
    for name in "ab":
        low, value, high = sorted(data.draw(st.tuples(numbers, numbers, numbers)))
        loads.append(tir.Load(tir.Buffer(name, (), dtype), ()))
        wide = data.draw(st.booleans())
        table[loads[-1]] = Undefined() if wide else Range(low, high)
        concrete.append(np.asarray(value, dtype)[()])
    if op == "div" and concrete[1] == 0:
        return
    found = value_fact(tir.Binary(op, *loads), table.__getitem__)
    with np.errstate(all="ignore"):
        value = tir.BINARY_FUNCTIONS[op](*concrete)
    assert not isinstance(found, Undefined | NoAccess)
    assert covers(found, value)


@pytest.mark.parametrize("op", ["neg", "abs", "not"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64"])
def test_unary_operators_on_integers_are_covered(op, dtype):
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    load = tir.Load(tir.Buffer("a", (), dtype), ())
    for lo, hi in ((low, high), (1, 5), (low, low + 3), (high - 2, high), (low, 0)):
        found = value_fact(tir.Unary(op, load), {load: Range(lo, hi)}.__getitem__)
        for value in {lo, hi, (lo + hi) // 2}:
            with np.errstate(all="ignore"):
                result = tir.UNARY_FUNCTIONS[op](np.asarray(value, dtype)[()])
            assert covers(found, result), (value, found)


def test_the_bits_of_a_number_are_known_and_those_of_nan_are_not():
    found = value_fact(tir.Unary("bits", X), given_x(f32(-0.0)))
    assert found == fact_of(1 << 31, "uint32")
    for unknown in (f32(nan), Range(0.0, 1.0)):
        found = value_fact(tir.Unary("bits", X), given_x(unknown))
        assert covers(found, np.uint32(0))
        assert covers(found, np.uint32(2**32 - 1))


@pytest.mark.parametrize("op", ["neg", "abs", "sqrt", "floor", "ceil", "round"])
@pytest.mark.parametrize("value", SPECIAL)
def test_unary_constants_fold_as_the_interpreter_does(op, value):
    expected = run(tir.Unary(op, X), x=np.float32(value))
    found = value_fact(tir.Unary(op, X), given_x(f32(value)))
    if 0 < abs(value) < TINY and op not in ("neg", "abs"):  # it may count as zero
        assert covers(found, expected)
        assert covers(found, run(tir.Unary(op, X), x=np.float32(0.0)))
    else:
        assert found == (Undefined() if isnan(expected) else f32(expected.item()))


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "max", "min"])
@pytest.mark.parametrize("a", SPECIAL)
def test_binary_constants_fold_as_the_interpreter_does(op, a):
    def computed(x, y):
        return run(tir.Binary(op, X, Y), x=np.float32(x), y=np.float32(y))

    for b in SPECIAL:
        expected = computed(a, b)
        found = value_fact(tir.Binary(op, X, Y), given_x(f32(a), f32(b)))
        if not any(0 < abs(value) < TINY for value in (a, b, expected)):
            assert found == (Undefined() if isnan(expected) else f32(expected.item())), b
            continue
        # A program that flushes denormals takes them for the zeros of their signs.
        zero_a, zero_b = (copysign(0.0, v) if 0 < abs(v) < TINY else v for v in (a, b))
        assert covers(found, expected), b
        assert covers(found, computed(zero_a, zero_b)), b
        if 0 < abs(expected) < TINY:
            assert covers(found, np.copysign(np.float32(0.0), expected)), b


RELU = tir.Binary("max", X, tir.float32(0.0))
ZERO_PRESERVING = (
    "abs", "tanh", "erf", "sqrt", "floor", "ceil", "round",
    "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh",
)  # fmt: skip


@pytest.mark.parametrize("op", FLOAT_UNARY)
def test_which_operators_preserve_zero(op):
    found = value_fact(tir.Unary(op, X), given_x(f32(0.0)))
    expected = {
        "neg": f32(-0.0),
        "exp": f32(1.0),
        "sigmoid": f32(0.5),
        "log": f32(-inf),
        "cos": f32(1.0),
        "cosh": f32(1.0),
        "acosh": Undefined(),
    }.get(op, f32(0.0))
    if op == "acos":  # as exactly as anybody computes it
        assert 1.5 < found.lo < np.pi / 2 < found.hi < 1.6
    else:
        assert found == expected
    assert (found == f32(0.0)) == (op in ZERO_PRESERVING)


def test_traps_at_zero():
    zero = given_x(f32(0.0), f32(0.0))
    assert value_fact(RELU, zero) == f32(0.0)
    assert value_fact(tir.Binary("div", X, Y), zero) == Undefined()
    assert value_fact(tir.Binary("div", tir.float32(1.0), tir.Unary("sqrt", X)), zero) == f32(inf)
    assert value_fact(tir.Binary("pow", X, Y), zero) == f32(1.0)
    assert value_fact(tir.Comparison("eq", X, Y), zero) == fact_of(True, "bool")
    assert value_fact(tir.Binary("add", X, tir.float32(3.0)), zero) == f32(3.0)
    clip = tir.Binary("min", tir.Binary("max", X, tir.float32(1.0)), tir.float32(6.0))
    assert value_fact(clip, zero) == f32(1.0)
    hard = tir.Binary("add", tir.Binary("mul", X, tir.float32(0.2)), tir.float32(0.5))
    assert value_fact(hard, zero) == f32(0.5)
    softplus = tir.Unary("log", tir.Binary("add", tir.Unary("exp", X), tir.float32(1.0)))
    found = value_fact(softplus, zero)
    assert isinstance(found, Range)
    assert found.lo < np.log(2.0) < found.hi


def test_zero_times_something():
    product = tir.Binary("mul", tir.float32(0.0), X)
    assert value_fact(product, given_x(Range(0.0, 5.0))) == f32(0.0)
    assert value_fact(product, given_x(Range(-5.0, -1.0))) == f32(-0.0)
    assert value_fact(product, given_x(Range(-5.0, 5.0))) == Range(-0.0, 0.0)
    # Added to +0.0, either zero gives +0.0.
    assert value_fact(
        tir.Binary("add", tir.float32(0.0), product), given_x(Range(-5.0, 5.0))
    ) == f32(0.0)
    assert value_fact(product, given_x(Undefined())) == Undefined()
    assert value_fact(product, given_x(f32(inf))) == Undefined()


def test_sums_that_may_overflow_are_undefined():
    big = Range(-3e38, 3e38)
    assert value_fact(tir.Binary("add", X, Y), given_x(big, big)) == Undefined()
    assert value_fact(tir.Binary("mul", X, Y), given_x(big, big)) == Undefined()
    small = value_fact(tir.Binary("add", X, Y), given_x(Range(0.0, 0.1), Range(0.0, 0.2)))
    assert small.lo == 0.0
    assert small.hi >= 0.3


def test_constants_that_contraction_may_change_are_not_constants():
    expr = tir.Binary("add", tir.Binary("mul", X, tir.float32(0.1)), tir.float32(0.3))
    found = value_fact(expr, given_x(f32(0.7)))
    assert isinstance(found, Range)
    assert found.hi - found.lo < 1e-6
    # An exact product rounds the same way either way.
    assert isinstance(value_fact(expr, given_x(f32(0.0))), Constant)
    halves = tir.Binary("add", tir.Binary("mul", X, tir.float32(0.5)), tir.float32(0.3))
    assert isinstance(value_fact(halves, given_x(f32(0.75))), Constant)


def test_undef_is_poison_and_a_load_of_undef_is_not():
    poison = tir.Undef("int32")
    load = tir.Load(tir.Buffer("n", (), "int32"), ())
    five = tir.Literal(5, "int32")
    assert value_fact(tir.Binary("min", poison, five), given_x(None)) == Undefined()
    assert (
        value_fact(tir.Binary("mul", tir.Undef("float32"), tir.float32(0.0)), given_x(None))
        == Undefined()
    )
    frozen = value_fact(tir.Binary("min", load, five), lambda _: Undefined())
    assert frozen == Range(-(2**31), 5)
    assert value_fact(tir.Binary("max", X, tir.float32(0.0)), given_x(Undefined())) == Undefined()


def test_a_select_asks_only_for_the_side_it_may_take():
    safe = tir.Select(less_than(Var("i"), 3), tir.float32(1.0), X)
    assert value_fact(safe, given_x(NoAccess())) == NoAccess()
    assert value_fact(safe, given_x(NoAccess()), decide=lambda _: True) == f32(1.0)
    always = tir.Select(
        tir.Comparison("lt", tir.float32(0.0), tir.float32(1.0)), tir.float32(2.0), X
    )
    assert value_fact(always, given_x(NoAccess())) == f32(2.0)
    either = tir.Select(tir.Comparison("lt", Y, tir.float32(0.0)), tir.float32(2.0), X)
    assert value_fact(either, given_x(f32(3.0), Undefined())) == Range(2.0, 3.0)


def test_index_values_take_the_bounds_of_their_variables():
    i = Var("i")
    expr = tir.IndexValue(i * 2 + const(1), "float32")
    assert value_fact(expr, given_x(None), ranges={i: (0, 3)}) == Range(1.0, 7.0)


# Whole kernels ----------------------------------------------------------------------------------

SHAPE = (1, 3, 4, 4)
PACKED = blocked(SHAPE, 1, 4)
FINITE = Range(-10.0, 10.0)
PAD = ("x", "pad(1)")


def test_elementwise_kernels_region_by_region():
    layouts = {"x": PACKED, "y": PACKED}
    known = {("x", "logical"): FINITE, PAD: f32(0.0)}
    assert output_facts(elementwise.unary("exp", SHAPE), layouts, known)["y", "pad(1)"] == f32(1.0)
    assert output_facts(elementwise.unary("tanh", SHAPE), layouts, known)["y", "pad(1)"] == f32(0.0)
    assert output_facts(elementwise.unary("exp", SHAPE), layouts, {})["y", "pad(1)"] == NoAccess()
    loose = output_facts(elementwise.unary("exp", SHAPE), layouts, {PAD: Undefined()})
    assert loose == {("y", "logical"): Undefined(), ("y", "pad(1)"): Undefined()}


def test_operands_in_other_layouts_cannot_be_read_beyond_their_box():
    layouts = {"x": row_major(SHAPE), "y": PACKED}
    found = output_facts(elementwise.unary("tanh", SHAPE), layouts, {("x", "logical"): FINITE})
    assert found["y", "pad(1)"] == NoAccess()
    layouts["x"] = channels_last_padded(SHAPE, 4)
    found = output_facts(elementwise.unary("tanh", SHAPE), layouts, {PAD: f32(0.0)})
    assert found["y", "pad(1)"] == f32(0.0)


def test_a_broadcast_operand():
    func = elementwise.binary("add", SHAPE, (1, 3, 1, 1))
    a, b = (buffer.name for buffer in func.inputs)
    (y,) = (buffer.name for buffer in func.outputs)
    layouts = {a: PACKED, y: PACKED, b: blocked((1, 3, 1, 1), 1, 4)}
    known = {(a, "pad(1)"): f32(0.0), (b, "pad(1)"): f32(2.0)}
    assert output_facts(func, layouts, known)[y, "pad(1)"] == f32(2.0)
    del layouts[b]
    assert output_facts(func, layouts, known)[y, "pad(1)"] == NoAccess()


def test_pooling_keeps_channels_apart():
    func = pooling.max_pool(SHAPE, Window.of((3, 3), pads=(1, 1, 1, 1)))
    layouts = {"x": PACKED, "y": blocked(func.outputs[0].shape, 1, 4)}
    found = output_facts(func, layouts, {("x", "logical"): FINITE, PAD: f32(0.0)})
    assert found == {("y", "logical"): FINITE, ("y", "pad(1)"): f32(0.0)}
    func = pooling.average_pool(SHAPE, Window.of((3, 3), pads=(1, 1, 1, 1)))
    found = output_facts(func, layouts, {("x", "logical"): FINITE, PAD: f32(0.0)})
    assert found["y", "pad(1)"] == f32(0.0)
    assert found["y", "logical"].lo < -10.0


def test_a_window_that_may_lie_wholly_in_the_padding_gives_minus_infinity():
    func = pooling.max_pool((1, 3, 2, 2), Window.of((1, 1), pads=(1, 1, 1, 1)))
    shape = func.outputs[0].shape
    layouts = {"x": blocked((1, 3, 2, 2), 1, 4), "y": blocked(shape, 1, 4)}
    found = output_facts(func, layouts, {("x", "logical"): FINITE, PAD: f32(0.0)})
    assert found["y", "pad(1)"] == Undefined()


@pytest.mark.parametrize("finite", [True, False])
def test_output_lanes_of_a_convolution_are_zero_only_for_finite_inputs(finite):
    func = convolution.convolution(SHAPE, (5, 3, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)))
    rows = IndexMap.split(4, 0, 4, inner_last=True)
    layouts = {
        "x": PACKED,
        "w": Layout.of(rows, (5, 3, 3, 3), box=(2, 3, 3, 3, 4)),
        "y": blocked(func.outputs[0].shape, 1, 4),
    }
    known = {("w", "logical"): FINITE, ("w", "pad(0)"): f32(0.0)}
    known["x", "logical"] = FINITE if finite else Undefined()
    found = output_facts(func, layouts, known)
    assert found["y", "pad(1)"] == (f32(0.0) if finite else Undefined())
    if finite:
        assert found["y", "logical"].hi >= 100.0 * 27


def test_softmax_over_the_logical_extent():
    layout = row_major((4, 5)).boxed((4, 8))
    known = {("x", "logical"): FINITE, ("x", "pad(1)"): f32(-inf)}
    found = output_facts(reduction.softmax((4, 5), (1,)), {"x": layout, "y": layout}, known)
    assert found["y", "pad(1)"] == f32(0.0)
    assert isinstance(found["y", "logical"], Range)


def test_concat_keeps_its_parts_and_refuses_to_run_on():
    func = movement.concat([SHAPE, SHAPE], 1)
    layouts = {"y": blocked(func.outputs[0].shape, 1, 4)}
    known = {("x0", "logical"): f32(1.0), ("x1", "logical"): f32(2.0)}
    found = output_facts(func, layouts, known)
    assert found == {("y", "logical"): Range(1.0, 2.0), ("y", "pad(1)"): NoAccess()}


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
def test_reductions_cover_what_the_interpreter_gives(op):
    func = reduction.reduce(op, (3, 7), (1,), True)
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.3, 1.0, (3, 7)).astype(np.float32)
    known = {("x", "logical"): Range(float(x.min()), float(x.max()))}
    ((name, _), fact), *_ = output_facts(func, {}, known).items()
    for value in tir.interpret(func, {"x": x})[name].ravel():
        assert covers(fact, value)
    assert isinstance(fact, Range)


def test_facts_hold_whether_denormals_are_flushed_or_not():
    """1e-40 may count as zero, so neither side of a comparison that tells them apart is claimed."""
    one, zero = tir.float32(1.0), tir.float32(0.0)
    shifted = tir.Binary("add", X, tir.float32(1e-40))
    told = tir.Select(tir.Comparison("eq", shifted, zero), one, zero)
    assert value_fact(told, given_x(f32(0.0))) == Range(0.0, 1.0)
    assert value_fact(shifted, given_x(f32(0.0))) == Range(0.0, float(np.float32(1e-40)))
    assert value_fact(tir.Binary("div", one, X), given_x(f32(1e-40))) == Undefined()
    assert value_fact(tir.Unary("neg", X), given_x(f32(1e-40))) == f32(-1e-40), (
        "moves keep every bit"
    )
    product = tir.Binary("mul", X, Y)
    found = value_fact(product, given_x(Range(1e-30, 1.0), Range(1e-30, 1.0)))
    assert isinstance(found, Range)
    assert found.holds(0.0)


def test_a_maximum_may_give_either_zero_where_a_denormal_counts_as_one():
    found = value_fact(tir.Binary("max", X, Y), given_x(Range(-1.0, 0.0), f32(0.0)))
    assert found == Range(-0.0, 0.0)
    assert value_fact(tir.Binary("max", X, Y), given_x(Range(0.0, 1.0), f32(0.0))) == Range(
        0.0, 1.0
    )


def test_a_comparison_with_a_denormal_keeps_the_denormals_that_meet_it():
    """Without flushing, 1e-40 <= 1e-40 holds: the side that is taken is not below zero there."""
    tiny = tir.float32(1e-40)
    for op, sign in (("le", 1.0), ("ge", -1.0), ("eq", 1.0)):
        limit = tir.Literal(sign * tiny.value, "float32")
        taken = tir.Select(tir.Comparison(op, X, limit), X, tir.float32(0.0))
        found = value_fact(taken, given_x(Range(-1.0, 1.0)))
        assert isinstance(found, Range)
        assert found.holds(limit.value)


def test_an_index_that_nothing_reaches_gives_no_range() -> None:
    i = Var("i")
    none = value_fact(tir.IndexValue(i, "int32"), lambda _: Undefined(), ranges={i: (2, 1)})
    assert none == Undefined()


@pytest.mark.parametrize(
    ("first", "last", "fact"), [(0, 1, Range(-3, 300)), (2, 3, Range(-3, 300)), (0, 2, NoAccess())]
)
def test_a_loop_of_one_value_is_known_in_a_sum_of_loops(first, last, fact):
    """As the channel of a group of a depthwise convolution, whose sums later stages read."""
    func = tir.parse(f"""
    @primfunc
    def k(x: i32[6], y: out[i32[6]]):
        t = alloc(i32[8])
        for g in serial(0, 6):
            for o in serial({first}, {last}):
                t[g + o] = x[g]
        for i in serial(0, 6):
            y[i] = t[i + {first}]
    """)
    assert output_facts(func, {}, {("x", "logical"): Range(-3, 300)})["y", "logical"] == fact
