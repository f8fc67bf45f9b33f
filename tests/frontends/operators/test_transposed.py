"""Tests of transposed convolution against onnxruntime: every attribute, one to three axes."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.single import noise, peer, single


@st.composite
def transposed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]:
    rank = draw(st.integers(1, 3))
    spatial = [draw(st.integers(1, 4)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    most = draw(st.sampled_from([1, 3]))
    strides = [draw(st.integers(1, most)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) for _ in range(rank)]
    group = draw(st.sampled_from([1, 2]))
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(spatial, strides, reach, strict=True)]
    how = draw(st.sampled_from(["pads", "output_shape", "same", "valid"]))
    if how == "pads":
        extra = [draw(st.integers(0, s - 1)) for s in strides]
        pads = [draw(st.integers(0, max(min(2, (f - 1) // 2), 0))) for f in [*full, *full]]
        attributes |= {"output_padding": extra, "pads": pads}
    elif how == "output_shape":
        attributes["output_shape"] = [
            draw(st.integers(max(n, f - 2), f)) for n, f in zip(spatial, full, strict=True)
        ]
        attributes["auto_pad"] = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER"]))
    elif how == "same":
        attributes["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
    else:
        attributes["auto_pad"] = "VALID"
    bias = draw(st.booleans())
    return (2, 2, *spatial), (2, 3, *kernel), bias, attributes


@st.composite
def of_few_channels(
    draw: st.DrawFn,
) -> tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]:
    """Rows of some vectors that end anywhere in a phase, and one to three channels a group."""
    rank = draw(st.integers(1, 3))
    spatial = [*(draw(st.integers(1, 3)) for _ in range(rank - 1)), draw(st.integers(1, 40))]
    kernel = [draw(st.integers(1, 5)) for _ in range(rank)]
    strides = [draw(st.integers(1, 5)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 3)) for _ in range(rank)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(spatial, strides, reach, strict=True)]
    pads = [draw(st.integers(0, min(3, (f - 1) // 2))) for f in [*full, *full]]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads}
    attributes["output_padding"] = [draw(st.integers(0, s - 1)) for s in strides]
    attributes["group"] = group = draw(st.sampled_from([1, 2]))
    inputs, outputs = draw(st.integers(1, 3)) * group, draw(st.integers(1, 3))
    return (1, inputs, *spatial), (inputs, outputs, *kernel), draw(st.booleans()), attributes


@settings(max_examples=25)
@given(of_few_channels(), st.sampled_from([host_target(), avx2_target()]))
def test_rows_may_end_within_a_phase(
    case: tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]], target: gf.Target
) -> None:
    x_shape, w_shape, bias, attributes = case
    constants = {1: noise(*w_shape, seed=1)}
    if bias:
        constants[2] = noise(w_shape[1] * attributes["group"], seed=2)
    x, result = noise(*x_shape), ["n"] * len(x_shape)
    model = single("ConvTranspose", [x], 13, constants, result=result, **attributes)
    expected = peer(model, {"i0": x})["o0"]
    (found,) = gf.compile(model, target=target).run({"i0": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=60)
@given(transposed(), st.booleans())
def test_any_transposed_convolution_is_onnxruntimes(
    case: tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]], known: bool
) -> None:
    """With a weight that is an input, or a constant, whose taps are reversed for stride 1."""
    x_shape, w_shape, bias, attributes = case
    arrays = {0: noise(*x_shape), 1: noise(*w_shape, seed=1)}
    if bias:
        arrays[2] = noise(w_shape[1] * attributes["group"], seed=2)
    constants = {1: arrays.pop(1)} if known else {}
    of_any_rank = {"result": ["n"] * len(x_shape), **attributes}
    model = single("ConvTranspose", [*arrays.values()], 13, constants, **of_any_rank)
    feeds = {f"i{k}": array for k, array in arrays.items()}
    expected = peer(model, feeds)["o0"]
    found = interpret_graph(import_model(model), feeds)["o0"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
