"""Tests of TopK against numpy and onnxruntime: both algorithms, ties, NaN, element types, axes."""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.errors import InvalidModel, RunError
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from graphflow.kernels.definitions.data_dependent import ranking
from graphflow.tir import interpret
from support.models.sized_runs import OPTIONS, parsed_model
from support.single import noise, peer, single

I64, I32, F32 = np.int64, np.int32, np.float32
DTYPES = (F32, np.float64, I32, I64, np.uint8, np.int8)


def in_order(x: Any, largest: bool) -> Any:
    """The indices of the elements of a row, by value, of equal ones the lower index first."""

    def key(i: int) -> tuple[bool, float, int]:
        is_nan = bool(x[i] != x[i])
        value = 0.0 if is_nan else float(x[i])
        return (not is_nan, -value, i) if largest else (is_nan, value, i)

    return np.array(sorted(range(len(x)), key=key), I64)


def both_ways(x: Any, axis: int, count: int, largest: bool) -> list[Any]:
    """The indices, found by selection and by ranks."""
    dtype = x.dtype.name
    first = interpret(ranking.selected(x.shape, axis, count, largest, dtype), {"x": x})["y"]
    ranked = interpret(ranking.ranks(x.shape, axis, largest, dtype), {"x": x})["y"]
    second = interpret(ranking.at_ranks(x.shape, axis, count), {"x": ranked})["y"]
    return [first, second]


VALUES = st.sampled_from([-2, -1, 0, 1, 2, 3])
FLOATS = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 1.0, np.inf, np.nan])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_elements_in_order(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from(DTYPES))
    of = FLOATS if np.dtype(dtype).kind == "f" else VALUES
    size = int(np.prod(shape))
    values = data.draw(st.lists(of, min_size=size, max_size=size))
    x = np.abs(values).astype(dtype) if dtype is np.uint8 else np.array(values).astype(dtype)
    x = x.reshape(shape)
    count, largest = data.draw(st.integers(0, shape[axis])), data.draw(st.booleans())
    wanted = np.apply_along_axis(in_order, axis, x, largest).take(range(count), axis)
    for found in both_ways(x, axis, count, largest):
        np.testing.assert_array_equal(found, wanted)


LONG = {
    "normal": lambda rng, n: 9 * rng.standard_normal(n),
    "ties": lambda rng, n: rng.integers(0, 5, n),
    "equal": lambda rng, n: np.full(n, 3),
    "infinite": lambda rng, n: rng.choice([np.inf, -np.inf, 0.0, 1.0], n),
    "nan": lambda rng, n: np.where(rng.random(n) < 0.4, np.nan, rng.standard_normal(n)),
    "huge": lambda rng, n: rng.choice([3e38, -3e38, 1e-45, 0.5], n) * rng.random(n),
}
"""How the elements of long lines are drawn, by name."""


@cache
def ranked(dtype: str, extent: int, count: int, largest: bool, target: Target) -> gf.Executable:
    """A program for two lines, which gives values and indices; all kinds of lines share it."""
    x = np.zeros((2, extent), dtype)
    model = single("TopK", [x], 13, {1: np.array([count])}, outputs=2, largest=int(largest))
    model.graph.output.append(helper.make_tensor_value_info("o1", TensorProto.INT64, None))
    return gf.compile(model, target=target, threads=2)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("kind", LONG)
def test_long_lines_of_which_some_elements_are_taken(kind: str, largest: bool) -> None:
    """Lines of whole chunks and of a rest, and most of a line; of the two widths, each extent of a
    type has one for the smallest and one for the largest elements."""
    rng = np.random.default_rng(7)
    cases = product((F32, np.float64, I32), [(517, 9), (700, 40), (300, 290)])
    for turn, (dtype, (extent, count)) in enumerate(cases, int(largest)):
        if dtype is I32 and kind in ("nan", "infinite", "huge"):
            continue
        x = np.stack([LONG[kind](rng, extent) for _ in range(2)]).astype(dtype)
        wanted = np.apply_along_axis(in_order, 1, x, largest)[:, :count]
        target = (host_target(), avx2_target())[turn % 2]
        found = ranked(x.dtype.name, extent, count, largest, target).run({"i0": x})["o1"]
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
@pytest.mark.parametrize("dtype", [F32, I32])
def test_natively_as_onnxruntime(largest: int, count: int, dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 20, (3, 50)).astype(dtype)
    attributes: dict[str, Any] = {"largest": largest, "axis": -1}
    model = single("TopK", [x], 13, {1: np.array([count])}, outputs=2, **attributes)
    info = helper.make_tensor_value_info("o1", TensorProto.INT64, (3, count))
    model.graph.output.append(info)
    exe = gf.compile(model, threads=2)
    for name, wanted in peer(model, {"i0": x}).items():
        np.testing.assert_array_equal(exe.run({"i0": x})[name], wanted)


def test_values_keep_their_bits() -> None:
    x = np.array([0.0, np.nan, -0.0, 1.0], F32)
    model = single("TopK", [x], 13, {1: np.array([4])}, outputs=2)
    values = interpret_graph(import_model(model), {"i0": x})["o0"]
    np.testing.assert_array_equal(values, [np.nan, 1, 0, 0])
    assert np.signbit(values).tolist()[2:] == [False, True]


def test_older_opsets_give_k_as_an_attribute() -> None:
    x = noise(2, 6)
    model = single("TopK", [x], 9, None, outputs=2, k=2, axis=0)
    found = interpret_graph(import_model(model), {"i0": x})
    np.testing.assert_array_equal(found["o0"], -np.sort(-x, 0))


@pytest.mark.parametrize("count", [5, -1])
def test_more_elements_than_there_are(count: int) -> None:
    model = single("TopK", [noise(4)], 13, {1: np.array([4])}, outputs=2)
    model.graph.initializer[0].raw_data = np.array([count]).tobytes()
    with pytest.raises(InvalidModel):
        import_model(model)


# Along axes of which a run gives a part: what is behind is not taken -----------------------------

MOST = 6

SPECIAL = {
    "float": (np.float32, (-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0)),
    "int64": (np.int64, (-(2**63), 2**63 - 1, 0, -1, 7, 5)),
    "uint8": (np.uint8, (0, 255, 1, 254, 0, 255)),
}
"""By type the numbers that are drawn, the extremes first."""


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", SPECIAL)
def test_elements_equal_to_what_stands_behind_come_first(dtype: str, largest: int) -> None:
    """Also all elements of an axis, of which some are infinite or the extreme of their type."""
    text = f"""g ({dtype}[2,n] x) => ({dtype} y, int64 z)
    {{ s=Shape<start=1>(x) y,z=TopK<largest={largest}>(x,s) }}"""
    exe = gf.compile(parsed_model(text), sizes={"n": (0, MOST)}, options=OPTIONS)
    kind, values = SPECIAL[dtype]
    rng = np.random.default_rng(0)
    for n in (MOST, 3, 1, 5, 0):
        exe.run({"x": np.full((2, MOST), values[1 - largest], kind)})
        x = np.array(values, kind)[rng.integers(0, len(values), (2, n))]
        found = exe.run({"x": x})
        places = np.array([in_order(row, bool(largest)) for row in x], np.int64).reshape(2, n)
        np.testing.assert_array_equal(found["z"], places)
        np.testing.assert_array_equal(found["y"], np.take_along_axis(x, places, 1))
    assert len(exe.specializations) == 1


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", SPECIAL)
def test_the_last_of_equal_elements_is_one_of_the_run(dtype: str, op: str) -> None:
    text = f"g ({dtype}[2,n] x) => (int64 y) {{ y={op}<axis=1,select_last_index=1>(x) }}"
    exe = gf.compile(parsed_model(text), sizes={"n": (1, MOST)}, options=OPTIONS)
    kind, values = SPECIAL[dtype]
    rng = np.random.default_rng(1)
    for n in (MOST, 3, 1, 5):
        drawn = rng.integers(0, len(values), (2, n))
        for chosen in (drawn, np.zeros_like(drawn), np.ones_like(drawn)):
            x = np.array(values, kind)[chosen]
            first = getattr(np, op.lower())(x[:, ::-1], axis=1, keepdims=True)
            np.testing.assert_array_equal(exe.run({"x": x})["y"], n - 1 - first)


def test_a_run_with_fewer_elements_than_are_wanted_is_refused() -> None:
    """Of an image whose sides are sizes: no bound of one of them says how many elements it has."""
    model = parsed_model(
        """g (float[1,3,h,w] x) => (float y, int64 i) {
        s = Constant<value=int64[2] {0,-1}>() f = Reshape(x, s)
        k = Constant<value=int64[1] {7}>() y, i = TopK(f, k) }"""
    )
    exe = gf.compile(model, sizes={"h": (1, 9), "w": (1, 9)}, options=OPTIONS)
    for shape in ((9, 9), (1, 3), (4, 2)):
        x = noise(1, 3, *shape)
        found = exe.run({"x": x})
        for name, array in peer(model, {"x": x}).items():
            np.testing.assert_array_equal(found[name], array)
    with pytest.raises(RunError, match="of which it takes 7, is 6, and has to be from 7"):
        exe.run({"x": noise(1, 3, 1, 2)})
    (about,) = {one["why_not"] for one in exe.report()["sizes"].values()}
    assert about == ""
