"""Tests of sizes that are computed from sizes: inputs of the graph that a run computes."""

import pytest

import graphflow as gf
from graphflow.base.sizes import Size, SizeFormula
from graphflow.frontends.importer import import_checked, import_model
from graphflow.graph import OperatorGraph
from support.models.sized_runs import OPTIONS, parsed_model

SIZES = (Size("n", 1, 6), Size("m", 2, 5))


def imported(body: str) -> OperatorGraph:
    """The graph of `body` over a of n rows and b of m."""
    model = parsed_model(f"g (float[n,4] a, float[m,4] b) => (float y) {{ {body} }}")
    return import_checked(model, {"a": (6, 4), "b": (5, 4)}, None, (), False, {}, SIZES)


def formulas(graph: OperatorGraph) -> dict[str, tuple[SizeFormula, int]]:
    """The formulas of all derived sizes by their names, and the number of their operands."""
    return {one.size.name: (one.formula, len(one.operands)) for one in graph.derived}


HALF = (
    "s=Shape<end=1>(a) two=Constant<value=int64[1] {2}>() h=Div(s,two) "
    "zero=Constant<value=int64[1] {0}>() "
)


def test_a_sum_is_an_input_with_a_formula() -> None:
    graph = imported("y=Concat<axis=0>(a,b)")
    (one,) = graph.derived
    assert (one.size, one.formula) == (Size("m + n", 3, 11), SizeFormula("quotient", (1, 1, 0, 1)))
    assert one.operands == (graph.sizes[1].tensor, graph.sizes[0].tensor)
    assert graph.inputs[-1] == one.tensor
    assert graph.counted[graph.values["y"]] == {0: one.tensor}
    assert all(node.op != "Size" for node in graph.nodes)


def test_a_quotient_takes_the_sum_in_it_along() -> None:
    graph = imported(
        "s=Shape<end=1>(a) one=Constant<value=int64[1] {1}>() t=Add(s,one) "
        "two=Constant<value=int64[1] {2}>() h=Div(t,two) y=ConstantOfShape(h)"
    )
    assert formulas(graph)["(n + 1) // 2"] == (SizeFormula("quotient", (1, 1, 2)), 1)


def test_a_product_is_computed_from_its_factors() -> None:
    graph = imported("s=Shape<end=1>(a) t=Shape<end=1>(b) p=Mul(s,t) y=ConstantOfShape(p)")
    assert formulas(graph) == {"m·n": (SizeFormula("product"), 2)}


def test_equal_sizes_are_one_input() -> None:
    graph = imported("c=Concat<axis=0>(a,b) d=Concat<axis=0>(b,a) y=Add(c,d)")
    assert len(graph.derived) == 1


def test_the_greater_of_two_is_their_sum_less_the_lesser() -> None:
    """What is subtracted is added to both before, and half of what one has more is a size."""
    ranged = "zero=Constant<value=int64 {0}>() one=Constant<value=int64 {1}>() "
    shapes = "s=Shape<end=1>(a) t=Shape<end=1>(b) "
    graph = imported(
        ranged + shapes + "g=Max(s,t) e=Squeeze(g) r=Range(zero,e,one) y=Cast<to=1>(r)"
    )
    lesser, more = (one.size for one in graph.derived)
    assert lesser == Size("min(m, n)", 1, 5) and (more.lo, more.hi) == (2, 6)
    graph = imported(
        ranged + shapes + "two=Constant<value=int64[1] {2}>() none=Constant<value=int64[1] {0}>() "
        "d=Sub(s,t) g=Max(d,none) h=Div(g,two) e=Squeeze(h) r=Range(zero,e,one) y=Cast<to=1>(r)"
    )
    bounds = {one.tensor: (one.size.lo, one.size.hi) for one in graph.derived}
    (count,) = graph.counted[graph.values["y"]].values()
    assert bounds[count] == (0, 2)


def test_what_nobody_reads_is_not_computed() -> None:
    """The quotient is of the model, and no result depends on it."""
    body = HALF + "part=ConstantOfShape(h) y=Concat<axis=0>(a,b)"
    assert set(formulas(imported(body))) >= {"n // 2", "m + n"}
    model = parsed_model(f"g (float[n,4] a, float[m,4] b) => (float y) {{ {body} }}")
    sizes = {"n": (1, 6), "m": (2, 5)}
    spec = gf.compile(model, sizes=sizes, options=OPTIONS).program.spec
    assert [one.name for one in spec.computed] == ["m + n"]
    assert len(spec.inputs) == 5


def test_a_count_that_data_decides_is_computed_by_kernels() -> None:
    text = "i=NonZero(x) t=Transpose(i) c=Concat<axis=0>(t,t) y=Cast<to=1>(c)"
    graph = import_model(parsed_model(f"g (float[2,3] x) => (float y) {{ {text} }}"))
    assert not graph.derived
    assert "Size" in {node.op for node in graph.nodes}


@pytest.mark.parametrize("name", ["a", "b"])
def test_the_model_has_its_own_inputs_only(name: str) -> None:
    text = "g (float[n,4] a, float[m,4] b) => (float y) { y=Concat<axis=0>(a,b) }"
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 6), "m": (2, 5)}, options=OPTIONS)
    (one,) = exe.specializations
    assert [tensor.name for tensor in one.inputs] == ["a", "b"]
    assert name in one.program.spec.input_names
    assert "a run gives m + n of them (3 or more)" in one.explain("y")
