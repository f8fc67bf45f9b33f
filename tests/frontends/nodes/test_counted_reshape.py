"""Tests of reshapes of axes of which a run decides the extent: one program gives the row-major
order of every extent."""

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphflow.base.errors import ExtentsLost
from graphflow.base.sizes import Size
from graphflow.frontends.importer import import_checked
from support.models.sized_runs import beside_peer, parsed_model
from support.seeds import seeds

NAMES = "nmk"


def reshaping(seed: int) -> tuple[onnx.ModelProto, dict[str, tuple[int, int]]]:
    """A model that reshapes its input to other products of the same extents, and reads that."""
    rng = random.Random(seed)
    given: list[int | str] = [rng.choice([*NAMES, 1, 2, 3, 4]) for _ in range(rng.randint(2, 4))]
    given[rng.randrange(len(given))] = rng.choice(NAMES)
    sizes = {
        n: (lo, lo + rng.randint(1, 4)) for n in NAMES if n in given for lo in [rng.randint(1, 3)]
    }
    nodes = [helper.make_node("Shape", ["x"], ["s"])]
    constants = {"minus": np.array([-1])}
    order = list(range(len(given)))
    if rng.random() < 0.3:
        rng.shuffle(order)
    factors = []
    for axis in order:
        constants[f"i{axis}"] = np.array([axis])
        nodes.append(helper.make_node("Gather", ["s", f"i{axis}"], [f"e{axis}"]))
        factors.append(f"e{axis}")
    while len(factors) > 1 and rng.random() < 0.6:  # merge two that are side by side
        place = rng.randrange(len(factors) - 1)
        merged = f"p{len(nodes)}"
        nodes.append(helper.make_node("Mul", factors[place : place + 2], [merged]))
        factors[place : place + 2] = [merged]
    if rng.random() < 0.3:
        constants["one"] = np.array([1])
        factors.insert(rng.randrange(len(factors) + 1), "one")
    if rng.random() < 0.5:
        factors[rng.randrange(len(factors))] = "minus"
    nodes += [
        helper.make_node("Concat", factors, ["t"], axis=0),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "t"], ["y"]),
        helper.make_node("Softmax", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), sizes


@pytest.mark.parametrize("seed", seeds(8, 80))
def test_any_reshape_of_any_extents(seed: int) -> None:
    model, sizes = reshaping(seed)
    rng = random.Random(seed)
    runs = [{name: rng.randint(*bounds) for name, bounds in sizes.items()} for _ in range(5)]
    assert beside_peer(model, sizes, runs) == ([], "")


def kernels(shape: str, target: str) -> list[str]:
    """The kernels of a reshape, of (n, m) up to (5, 3); `target` is the shape as text."""
    text = f"g (float[{shape}] x) => (float y) {{ t=Constant<value=int64[{target}>() "
    model = parsed_model(text + "y=Reshape(x,t) }")
    axes = model.graph.input[0].type.tensor_type.shape.dim
    most = {"n": 5, "m": 3}
    room = {"x": tuple(most.get(dim.dim_param, dim.dim_value) for dim in axes)}
    names = {dim.dim_param for dim in axes} & most.keys()
    sizes = [Size(name, 1, most[name]) for name in most if name in names]
    graph = import_checked(model, room, None, (), False, {}, sizes)
    return [node.op for node in graph.nodes if node.op.startswith("Reshape")]


def test_elements_move_only_where_a_run_leaves_them_apart() -> None:
    assert kernels("n,4", "1] {-1}") == ["Reshape"]
    assert kernels("n,4", "2] {-1,2}") == ["Reshape"]
    assert kernels("2,n,6", "3] {2,-1,3}") == ["Reshape"]
    assert "Reshape.moved0" in kernels("4,n", "1] {-1}")
    assert "Reshape.moved1" in kernels("2,n,m", "2] {2,-1}")


@pytest.mark.parametrize("case", [("n,4", "2] {5,-1}"), ("n,5", "2] {5,5}")])
def test_extents_that_are_no_products_are_refused(case: tuple[str, str]) -> None:
    with pytest.raises(ExtentsLost, match="the node states the extents of its output"):
        kernels(*case)


def test_an_extent_of_zero_copies_that_of_the_input() -> None:
    """In ONNX's Reshape a 0 in the shape is no extent; where it copies the same size it may be."""
    swapped = parsed_model(
        "g (float[n,4] x) => (float y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {-1}>() "
        "u=Concat<axis=0>(t,s) y=Reshape(x,u) }"
    )
    with pytest.raises(ExtentsLost, match="states axis 1 as 0, that is copied"):
        import_checked(swapped, {"x": (5, 4)}, None, (), False, {}, [Size("n", 0, 5)])
    same = parsed_model(
        "g (float[n,4] x) => (float y) { s=Shape<end=1>(x) t=Constant<value=int64[2] {2,2}>() "
        "u=Concat<axis=0>(s,t) y=Reshape(x,u) }"
    )
    assert beside_peer(same, {"n": (0, 5)}, [{"n": 0}, {"n": 3}]) == ([], "")


@pytest.mark.parametrize(("least", "is_one"), [((0, 0), False), ((0, 1), True), ((1, 0), True)])
def test_a_size_of_zero_copies_no_other_extent(least: tuple[int, int], is_one: bool) -> None:
    text = "g (float[n,m,4] x) => (float y) { s=Shape(x) t=Constant<value=int64[2] {-1,4}>() "
    model = parsed_model(text + "a=Reshape(x,t) b=Relu(a) y=Reshape(b,s) }")
    sizes = {"n": (least[0], 3), "m": (least[1], 2)}
    runs = [{"n": n, "m": m} for n in range(least[0], 4) for m in range(least[1], 3)]
    wrong, why_not = beside_peer(model, sizes, runs)
    assert not wrong
    assert why_not == "" if is_one else "states axis 0 as 0, that is copied" in why_not


def test_images_are_divided_into_windows_along_both_sides() -> None:
    """As networks of shifted windows do; sides that are no multiples have no such windows."""
    model = parsed_model(
        """g (float[n,h,w,3] x) => (float[n,h,w,3] y) {
        s = Shape(x) two = Constant<value=int64 {2}>() front = Constant<value=int64[1] {0}>()
        middle = Constant<value=int64[1] {1}>() end = Constant<value=int64[1] {2}>()
        three = Constant<value=int64[1] {3}>() all = Constant<value=int64[3] {-1,4,3}>()
        n = Slice(s, front, middle) h = Slice(s, middle, end) w = Slice(s, end, three)
        a = Div(h, two) b = Div(w, two)
        parts = Concat<axis=0>(n, a, end, b, end, three)
        r = Reshape(x, parts) t = Transpose<perm=[0,1,3,2,4,5]>(r) windows = Reshape(t, all)
        p = Softmax<axis=1>(windows)
        blocks = Concat<axis=0>(n, a, b, end, end, three)
        u = Reshape(p, blocks) v = Transpose<perm=[0,1,3,2,4,5]>(u) y = Reshape(v, s) }"""
    )
    sizes = {"n": (1, 2), "h": (2, 9), "w": (2, 8)}
    shapes = ((1, 4, 8), (2, 2, 2), (1, 8, 6))
    runs = [dict(zip("nhw", shape, strict=True)) for shape in shapes]
    assert beside_peer(model, sizes, runs) == ([], "")
