"""Tests of gather, scatter and one-hot, interpreted and native, against onnxruntime, and of indices
outside of their axis."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.base.errors import InvalidModel, RunError, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph
from support.single import assert_same_as_peer, noise, peer, single

I64, I32, F32 = np.int64, np.int32, np.float32
LOWEST = np.iinfo(I64).min
HIGHEST = np.iinfo(I64).max

FEW = settings(max_examples=25, deadline=None)


def feeds_of(model: Any, arrays: list[Any]) -> dict[str, Any]:
    return {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)}


def compare(op: str, arrays: list[Any], opset: int = 18, **attributes: Any) -> None:
    model = single(op, arrays, opset, None, **attributes)
    assert_same_as_peer(model, feeds_of(model, arrays))


def compiled_like_peer(op: str, arrays: list[Any], opset: int = 18, **attributes: Any) -> Any:
    """The executable, whose results equal onnxruntime's to the bit."""
    model = single(op, arrays, opset, None, **attributes)
    feeds = feeds_of(model, arrays)
    exe = gf.compile(model, threads=2)
    for name, wanted in peer(model, feeds).items():
        np.testing.assert_array_equal(exe.run(feeds)[name], wanted)
    return exe


@st.composite
def shapes(draw: Any, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, 4), min_size=least, max_size=most)))


def drawn_indices(draw: Any, shape: tuple[int, ...], extent: int) -> Any:
    """Indices of an axis, negative and equal ones among them, as int32 or int64."""
    count = int(np.prod(shape))
    values = draw(st.lists(st.integers(-extent, extent - 1), min_size=count, max_size=count))
    return np.array(values, draw(st.sampled_from([I32, I64]))).reshape(shape)


def contents(shape: tuple[int, ...], dtype: Any) -> Any:
    values = np.arange(int(np.prod(shape))) - 3
    return values.reshape(shape).astype(dtype)


DTYPES = st.sampled_from([F32, np.float64, I32, I64, np.uint8, np.bool_])


@FEW
@given(data=st.data())
def test_gather(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = drawn_indices(data.draw, data.draw(shapes(0, 2)), shape[axis])
    compare("Gather", [contents(shape, data.draw(DTYPES)), indices], axis=axis)


@FEW
@given(data=st.data())
def test_gather_and_scatter_elements(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    extents = [data.draw(st.integers(1, n)) for n in shape]
    extents[axis] = data.draw(st.integers(1, 5))
    x = contents(shape, data.draw(DTYPES))
    indices = drawn_indices(data.draw, tuple(extents), shape[axis])
    compare("GatherElements", [x, indices], axis=axis)
    updates = contents(indices.shape, x.dtype)
    compare("ScatterElements", [x, indices, updates], axis=axis)


@FEW
@given(data=st.data())
def test_gather_and_scatter_nd(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    batch = data.draw(st.integers(0, min(1, len(shape) - 1)))
    taken = data.draw(st.integers(1, len(shape) - batch))
    outer = (*shape[:batch], *data.draw(shapes(0, 2)))
    if len(outer) == batch:
        outer = (*outer, 2)  # an index tuple alone would give a scalar, which `single` cannot say
    columns = [drawn_indices(data.draw, outer, n) for n in shape[batch : batch + taken]]
    indices = np.stack(columns, -1).astype(I64)
    x = contents(shape, data.draw(DTYPES))
    compare("GatherND", [x, indices], batch_dims=batch)
    if not batch:
        updates = contents((*outer, *shape[taken:]), x.dtype)
        compare("ScatterND", [x, indices, updates])


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [F32, np.float64, I32, I64])
def test_scatter_reductions_of_equal_indices(reduction: str, dtype: Any) -> None:
    x = contents((3, 4), dtype)
    indices = np.array([[0, 2, 0, -1], [0, 2, 1, 1]])
    updates = contents((2, 4), dtype) + dtype(2)
    compare("ScatterElements", [x, indices, updates], reduction=reduction)
    compare("ScatterElements", [x, indices, updates], axis=1, reduction=reduction)
    tuples = np.array([[0], [2], [0], [-1]])
    rows = contents((4, 4), dtype) - dtype(1)
    compare("ScatterND", [x, tuples, rows], reduction=reduction)


def test_updates_of_one_element_are_made_in_order() -> None:
    x = np.zeros(3, F32)
    compare("ScatterND", [x, np.array([[1], [1], [1]]), np.array([1, 2, 3], F32)], 16)
    compare("ScatterElements", [x, np.array([2, -1, 2]), np.array([1, 2, 3], F32)], 16)
    compare("Scatter", [x, np.array([2, 0, 2]), np.array([1, 2, 3], F32)], 9)


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
@pytest.mark.parametrize("dtype", [I64, I32, F32])
def test_one_hot(axis: int, dtype: Any) -> None:
    indices = np.array([[0, 2, 4], [-1, -5, 1]], dtype)
    outside = np.array([[5, 2, -6], [100, -100, 1]], dtype)
    for ids in (indices, outside):
        values = np.array([2, 7], I64)
        model = single("OneHot", [ids, values], 11, {1: I64(5)}, axis=axis)
        feeds = feeds_of(model, [ids, values])
        made = interpret_graph(import_model(model), feeds)["o0"]
        here = np.moveaxis(np.arange(5) == np.where(ids < 0, ids + 5, ids)[..., None], -1, axis)
        np.testing.assert_array_equal(made, np.where(here, 7, 2))


def test_one_hot_of_extreme_indices_and_of_other_values() -> None:
    ids = np.array([LOWEST, HIGHEST, 0, -3])
    model = single("OneHot", [ids], 11, {1: I64(3), 2: np.array([False, True])})
    exe = gf.compile(model, threads=1)
    wanted = np.zeros((4, 3), bool)
    wanted[2, 0] = wanted[3, 0] = True
    np.testing.assert_array_equal(exe.run({"i0": ids})["o0"], wanted)


# Natively ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "arrays", "attributes"),
    [
        ("Gather", [noise(50, 40), np.array([[3, -1, 49], [0, 0, -50]])], {}),
        ("Gather", [noise(6, 50, 5), np.array([3, -1, 49, 7], I32)], {"axis": 1}),
        ("Gather", [noise(6, 50), np.array(3)], {"axis": 1}),
        ("GatherElements", [noise(9, 20), np.arange(180).reshape(9, 20) % 9 - 4], {}),
        ("GatherND", [noise(4, 5, 33), np.array([[[0, -1]], [[3, 4]], [[-4, 0]]])], {}),
        ("GatherND", [noise(2, 5, 17), np.array([[[-1], [0]], [[4], [4]]])], {"batch_dims": 1}),
        ("ScatterND", [noise(8, 33), np.array([[1], [-1], [1]]), noise(3, 33)], {}),
        ("ScatterElements", [noise(9, 5), np.array([[1, -1, 1, 2, 8]]), noise(1, 5)], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_compiled(op: str, arrays: list[Any], attributes: dict[str, Any]) -> None:
    compiled_like_peer(op, arrays, **attributes)


def test_the_rows_of_a_table_are_neither_fused_nor_run_by_one_thread() -> None:
    table, ids = noise(100, 64), np.array([[5, 99, -100, 0]])
    exe = compiled_like_peer("Gather", [table, ids])
    assert max(step.extent for step in exe.program.spec.run) == 4


# Indices outside of their axis -------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [4, -5, LOWEST, HIGHEST, 2**32])
@pytest.mark.parametrize("op", ["Gather", "GatherElements", "ScatterElements"])
def test_a_run_with_an_index_outside_is_refused_and_the_next_is_not(op: str, wrong: int) -> None:
    x, good = noise(4, 2), np.array([[1, -4]])
    arrays = [x, good, *([noise(1, 2, seed=1)] if op.startswith("Scatter") else [])]
    exe = compiled_like_peer(op, arrays)
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    reason = f"^{op} node the_node: an index of tensor i1 is {wrong}, and has to be from"
    with pytest.raises(RunError, match=f"{reason} -4 to 3$"):
        exe.run({**feeds, "i1": np.array([[1, wrong]])})
    assert (exe.run(feeds)["o0"] == exe.run(feeds)["o0"]).all()


def test_each_number_of_an_index_tuple_has_its_own_axis() -> None:
    x, tuples = noise(2, 5), np.array([[1, 4], [-2, -5]])
    exe = compiled_like_peer("GatherND", [x, tuples])
    with pytest.raises(RunError, match="an index of tensor i1 is 2, and has to be from -2"):
        exe.run({"i0": x, "i1": np.array([[2, 0], [0, 0]])})
    with pytest.raises(RunError, match="an index of tensor i1 is -6, and has to be from -5"):
        exe.run({"i0": x, "i1": np.array([[1, 0], [0, -6]])})


def test_known_indices_are_checked_when_the_model_is_compiled() -> None:
    for op, indices in (
        ("Gather", np.array([4])),
        ("GatherElements", np.array([[0, -5]])),
        ("GatherND", np.array([[0, 2]])),
        ("GatherND", np.array([[-5, 1]])),
    ):
        model = single(op, [noise(4, 2)], 13, {1: indices})
        with pytest.raises(InvalidModel, match="of tensor i1 is outside of its axis"):
            import_model(model)
    graph = canonicalize(
        import_model(single("GatherND", [noise(4, 2)], 13, {1: np.array([[3, -2]])}))
    )
    assert graph.guards == ()


def test_an_axis_without_elements_has_no_place_for_an_index() -> None:
    with pytest.raises(InvalidModel, match="the axis has no elements, so no index"):
        import_model(single("Gather", [np.zeros((0, 2), F32), np.array([0])], 13))
    exe = gf.compile(single("Gather", [np.zeros((0, 2), F32), np.zeros(0, I64)], 13), threads=1)
    made = exe.run({"i0": np.zeros((0, 2), F32), "i1": np.zeros(0, I64)})["o0"]
    assert made.shape == (0, 2)


def test_refusals() -> None:
    x = noise(4, 2)
    scatter = [x, np.array([[0, 1]]), noise(1, 2)]
    arrays = [np.array([1]), np.array(3), np.array([0, 1], F32)]
    with pytest.raises(UnsupportedOp, match=r"the_node: input i1 \(depth\) is only known"):
        import_model(single("OneHot", arrays, 11, result=(1, 3)))
    model = single("ScatterElements", scatter, 18, reduction="add")
    model.graph.node[0].attribute[0].s = b"mean"
    with pytest.raises((UnsupportedOp, InvalidModel), match="mean"):
        import_model(model)
