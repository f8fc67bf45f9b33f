"""Tests of Einsum against numpy's, and of the matrix products that import makes of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph
from support.single import noise, peer, single

EXTENTS = {"a": 2, "b": 3, "c": 1, "d": 4, "E": 2}


def run(equation: str, *arrays: np.ndarray) -> np.ndarray:
    rank = np.einsum(equation.replace(" ", ""), *arrays).ndim
    model = single("Einsum", list(arrays), 12, equation=equation, result=["n"] * rank)
    elem_type = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    model.graph.output[0].type.tensor_type.elem_type = elem_type
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    return interpret_graph(import_model(model), feeds)["o0"]


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    labels = st.lists(st.sampled_from(sorted(EXTENTS)), max_size=3)
    dots = draw(st.booleans())
    between = draw(st.sampled_from([[], [3], [2, 3]]))
    terms, shapes = [], []
    for term in draw(st.lists(labels, min_size=1, max_size=3)):
        at = draw(st.integers(0, len(term))) if dots else None
        shape = [EXTENTS[label] for label in term]
        text = "".join(term)
        if at is not None:
            # Of each operand as many axes, as ONNX has it.
            shape[at:at] = [draw(st.sampled_from([1, n])) for n in between]
            text = text[:at] + "..." + text[at:]
        terms.append(text)
        shapes.append(tuple(shape))
    equation = ",".join(terms)
    if draw(st.booleans()):
        used = sorted({c for c in equation if c.isalpha()})
        kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
        equation += "->" + "".join([*kept[:1], "..." if dots else "", *kept[1:]])
    return equation, shapes


@settings(max_examples=80)
@given(equations(), st.sampled_from(["float32", "float64", "int32"]))
def test_any_equation_is_numpys(case: tuple[str, list[tuple[int, ...]]], dtype: str) -> None:
    equation, shapes = case
    arrays = [(3 * noise(*s, seed=k)).astype(dtype) for k, s in enumerate(shapes)]
    found, expected = run(equation, *arrays), np.einsum(equation, *arrays)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_axes_of_extent_one_are_repeated_along_their_label() -> None:
    a, b = noise(4, 3), noise(1, 3, seed=1)
    np.testing.assert_allclose(run("ij,ij->i", a, b), (a * b).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 20, 16), (2, 3, 24, 16)]),
        ("bij,jk", [(2, 20, 16), (16, 32)]),
        ("bsd,dnh->bsnh", [(2, 20, 48), (48, 3, 16)]),
        ("ij,jk,kl->li", [(5, 6), (6, 7), (7, 8)]),
        ("...ii->...i", [(3, 5, 5)]),
    ],
)
def test_native_code_agrees_with_onnxruntime(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [noise(*shape, seed=k) for k, shape in enumerate(shapes)]
    rank = np.einsum(equation, *arrays).ndim
    model = single("Einsum", arrays, 12, equation=equation, result=["n"] * rank)
    feeds = {f"i{k}": array for k, array in enumerate(arrays)}
    exe = gf.compile(model, options=gf.Options(threads=1, workers=0))
    np.testing.assert_allclose(exe.run(feeds)["o0"], peer(model, feeds)["o0"], rtol=1e-4, atol=1e-5)


def test_a_product_of_two_operands_is_one_matrix_product() -> None:
    model = single("Einsum", [noise(2, 5, 4), noise(2, 4, 6)], 12, equation="bij,bjk->bik")
    graph = canonicalize(import_model(model))
    assert [node.op for node in graph.nodes] == ["Einsum.product"]
    model = single("Einsum", [noise(5, 4), noise(6, 4)], 12, equation="ij,kj->ki")
    ops = [node.op.partition(".")[2] for node in canonicalize(import_model(model)).nodes]
    assert sorted(ops) == ["product", "transpose", "transpose"]


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3)]),
        ("ij->i", [(2, 3, 4)]),
        ("i1->i", [(2, 3)]),
        ("ij->iz", [(2, 3)]),
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij->ii", [(2, 3)]),
    ],
)
def test_bad_equations_are_refused(equation: str, shapes: list[tuple[int, ...]]) -> None:
    valid = ",".join("ab"[: len(s)] + "..." for s in shapes) + "->..."
    model = single("Einsum", [noise(*s) for s in shapes], 12, equation=valid, result=("n", "m"))
    model.graph.node[0].attribute[0].s = equation.encode()
    with pytest.raises(InvalidModel):
        import_model(model)
