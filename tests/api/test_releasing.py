"""Tests that the model's own large weights are released, and that nothing takes others for them."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.api.releasing import LARGE, ReleasedConstant
from graphflow.base.errors import GraphflowError
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.runtime import Program

OPTIONS = gf.Options(threads=1, workers=0)
X = np.random.default_rng(0).standard_normal((2, 512)).astype(np.float32)


def network(rows: int | str = 2) -> onnx.ModelProto:
    """A product whose weights are packed, and a sum with a constant that is read as it is."""
    build = ModelBuilder(seed=4)
    product = build.node("MatMul", [build.input("x", (rows, 512)), build.weight(512, 640)])
    shift = build.constant(np.arange(2 * 640, dtype=np.float32).reshape(2, 640))
    table = build.node("Add", [product, shift])
    build.output(build.node("MatMul", [table, build.weight(640, 512)]))
    return build.model()


def large_arrays() -> int:
    gc.collect()
    arrays = (o for o in gc.get_objects() if isinstance(o, np.ndarray))
    return sum(1 for array in arrays if array.nbytes >= LARGE and array.dtype == np.float32)


def test_weights_are_released_and_answers_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(), path)
    compiled = compile_graph(CompileRequest(str(path), options=OPTIONS))
    expected = Program(compiled.spec, 1).run({"x": X})
    exe = gf.compile(path, options=OPTIONS)
    (output,) = expected
    np.testing.assert_array_equal(exe.run({"x": X})[output], expected[output])
    released = [a for _, a in exe.compiled.spec.constants if isinstance(a, ReleasedConstant)]
    whole = [a for _, a in compiled.spec.constants if a.nbytes >= LARGE]
    assert [(a.shape, a.dtype, a.nbytes) for a in released] == [
        (a.shape, a.dtype, a.nbytes) for a in whole
    ]
    assert len(released) == 2
    assert not any(
        isinstance(array, np.ndarray) and array.nbytes >= LARGE
        for graph in (exe.compiled.imported, exe.compiled.graph)
        for array in graph.initializers.values()
    )
    report = exe.report()
    exe.save(tmp_path / "model.gfx")
    loaded = gf.load(tmp_path / "model.gfx")
    np.testing.assert_array_equal(loaded.run({"x": X})[output], expected[output])
    assert loaded.report() == report


def test_asking_for_released_contents_is_an_error() -> None:
    exe = gf.compile(network(), options=OPTIONS)
    (one, *_) = [a for _, a in exe.compiled.spec.constants if isinstance(a, ReleasedConstant)]
    for ask in (
        lambda: np.asarray(one),
        lambda: np.add(one, 1),
        lambda: one.tobytes(),
        lambda: np.array_equal(one, np.zeros(one.shape, one.dtype)),
        lambda: np.array_equal(np.zeros(one.shape, one.dtype), one),
        lambda: np.zeros(one.shape, one.dtype) == one,
        lambda: one == replace(one),
        lambda: Program(exe.compiled.spec, 1),
    ):
        with pytest.raises(GraphflowError, match="were released when its program was ready"):
            ask()
    assert (one.ndim, one.size) == (1, 512 * 640) and one.nbytes >= LARGE


def test_no_array_of_large_weights_is_left() -> None:
    before = large_arrays()
    exe = gf.compile(network().SerializeToString(), options=OPTIONS)
    exe.run({"x": X})
    assert large_arrays() == before


def test_weights_are_kept_for_further_shapes_and_as_defaults() -> None:
    exe, fixed = gf.compile(network("n"), options=OPTIONS), gf.compile(network(), options=OPTIONS)
    exe.run({"x": X[:1]})
    (found,), (expected,) = exe.run({"x": X}).values(), fixed.run({"x": X}).values()
    np.testing.assert_array_equal(found, expected)
    build = ModelBuilder()
    x = build.input("x", (512, 640))
    build.input("w", (512, 640))
    build.constant(np.ones((512, 640), np.float32), "w")
    build.output(build.add(x, "w"))
    exe = gf.compile(build.model(), overridable=["w"], options=OPTIONS)
    zeros = np.zeros((512, 640), np.float32)
    (found,) = exe.run({"x": zeros}).values()
    np.testing.assert_array_equal(found, zeros + 1)
