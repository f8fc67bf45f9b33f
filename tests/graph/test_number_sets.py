"""Values that are never below zero: what kernels store decides, and UNKNOWN counts as no."""

import numpy as np
import pytest

from graphflow.graph import Node, OperatorGraph
from graphflow.graph.number_sets import NonNegative
from graphflow.kernels.definitions import elementwise, stages
from graphflow.kernels.definitions.movements.movement import transpose
from graphflow.kernels.definitions.reductions.reduction import reduce
from graphflow.kernels.definitions.scalar_functions import add, clipped, compared, multiply
from graphflow.tir import Buffer, Expr, PrimFunc, Select, Unary, parse

SHAPE = (4, 6)


def elementwise_of(value: Expr) -> PrimFunc:
    y = Buffer("y", SHAPE, "float32")
    return stages.elementwise_kernel("value", (X,), y, LOOPS, value)


X = Buffer("x", SHAPE, "float32")
LOOPS = stages.loops_over("i", SHAPE)
ELEMENT = stages.element(X, LOOPS)
ZERO, SIX = stages.literal(0, "float32"), stages.literal(6, "float32")


def non_negative(*funcs: PrimFunc) -> bool:
    """Whether the last of some kernels in a row gives no number below zero."""
    graph = OperatorGraph()
    graph.add_input("v0", "float32", SHAPE)
    for number, func in enumerate(funcs):
        graph.add(Node(f"n{number}", "Op", func, (f"v{number}",), (f"v{number + 1}",)))
    return NonNegative(graph).holds(f"v{len(funcs)}")


@pytest.mark.parametrize(
    "value",
    [
        clipped(ELEMENT, ZERO, None),
        clipped(ELEMENT, ZERO, SIX),
        Select(compared("gt", ELEMENT, 0), ELEMENT, ZERO),
        Select(compared("ge", ZERO, ELEMENT), ZERO, ELEMENT),
        Unary("abs", ELEMENT),
        Unary("exp", ELEMENT),
        multiply(ELEMENT, ELEMENT),
        add(Unary("abs", ELEMENT), SIX),
        Unary("round", clipped(ELEMENT, ZERO, SIX)),
    ],
)
def test_values_of_these_kernels_are_never_below_zero(value: Expr) -> None:
    assert non_negative(elementwise_of(value))


@pytest.mark.parametrize(
    "value",
    [
        ELEMENT,
        clipped(ELEMENT, stages.literal(-1, "float32"), SIX),
        clipped(ELEMENT, None, SIX),
        Select(compared("lt", ELEMENT, 0), ELEMENT, ZERO),
        Select(compared("gt", ELEMENT, 0), ZERO, ELEMENT),
        # Where the bound is NaN, no element is below it.
        clipped(ELEMENT, stages.literal(np.nan, "float32"), None),
        Unary("neg", Unary("abs", ELEMENT)),
        add(ELEMENT, SIX),
        multiply(ELEMENT, SIX),
    ],
)
def test_others_may_be(value: Expr) -> None:
    assert not non_negative(elementwise_of(value))


def test_an_infinite_quotient_may_be_negative_as_the_divisor_may_be_minus_zero() -> None:
    positive = elementwise_of(Unary("abs", ELEMENT))
    quotient = parse(
        "@primfunc\n"
        "def q(x: f32[4, 6], y: out[f32[4, 6]]):\n"
        '    with block("q"):\n'
        "        for i0 in serial(0, 4):\n"
        "            for i1 in serial(0, 6):\n"
        "                y[i0, i1] = f32(1.0) / x[i0, i1]\n"
    )
    assert not non_negative(positive, quotient)


def test_movement_keeps_them_and_a_maximum_may_not() -> None:
    positive = elementwise_of(clipped(ELEMENT, ZERO, None))
    assert non_negative(positive, transpose(SHAPE, (1, 0)))
    # A maximum begins at minus infinity, which is that of no elements.
    assert not non_negative(positive, reduce("max", SHAPE, (0,)))


def test_contents_of_constants_and_inputs() -> None:
    graph = OperatorGraph()
    graph.add_input("x", "float32", (2,))
    graph.add_initializer("positive", np.array([0.0, np.nan, np.inf], np.float32))
    graph.add_initializer("negative", np.array([1.0, -1e-40], np.float32))
    known = NonNegative(graph)
    assert [known.holds(name) for name in ("x", "positive", "negative")] == [False, True, False]


def test_elementwise_definitions_of_the_operators() -> None:
    assert non_negative(elementwise.clip(SHAPE, 0.0, 6.0, "float32"))
    assert not non_negative(elementwise.clip(SHAPE, None, 6.0, "float32"))


def test_integers_wrap_around() -> None:
    x, y = (Buffer(name, SHAPE, "int32") for name in ("x", "y"))
    element = stages.element(x, LOOPS)
    square = stages.elementwise_kernel("square", (x,), y, LOOPS, multiply(element, element))
    graph = OperatorGraph()
    graph.add_input("v0", "int32", SHAPE)
    graph.add(Node("n0", "Op", square, ("v0",), ("v1",)))
    assert not NonNegative(graph).holds("v1")
