"""Tests that the model's own large weights are released, and that nothing takes others for them."""

import gc
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
import graphflow.api.releasing as releasing
from graphflow.api import compiled_model, program_maker
from graphflow.api.releasing import LARGE, ReleasedConstant
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.base.fields import replace
from graphflow.baselines import compared_families, uniform_pins
from graphflow.frontends import StoredArray, stored_part
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import Compiled, Shared, compile_graph
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


def namespace(module: object) -> dict[str, object]:
    return getattr(module, "__dict__", {})


def large_arrays(held: object) -> list[np.ndarray]:
    """The large arrays of float32 that something holds, or that a module does.  The collector lists
    neither arrays nor tuples of them, so references are followed, not into other modules."""
    gc.collect()
    found = [held, *(module for name, module in sys.modules.items() if "graphflow" in name)]
    others = [one for name, one in sys.modules.items() if "graphflow" not in name]
    seen = {id(one): one for one in others} | {id(d): d for d in map(namespace, others)}
    while new := {id(one): one for one in found if id(one) not in seen}:
        seen |= new
        found = gc.get_referents(*new.values())
    arrays = (one for one in seen.values() if isinstance(one, np.ndarray))
    return [array for array in arrays if array.nbytes >= LARGE and array.dtype == np.float32]


@pytest.mark.parametrize("rows", [2, "n"])
@pytest.mark.parametrize("is_file", [True, False])
def test_nothing_else_holds_weights_while_they_are_packed(
    rows: int | str, is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(rows), path)
    read: list[weakref.ref[Any]] = []

    def found(array: np.ndarray) -> StoredArray | None:
        read.append(weakref.ref(array))
        return stored_part(array)

    def watched(*given: Any, initial: dict[int, Any], **named: Any) -> Program:
        kinds = StoredArray if is_file else np.ndarray
        large = [one for one in initial.values() if one.nbytes >= LARGE]
        assert [isinstance(one, kinds) for one in large] == [True] * 2
        contents = {position: stored(array) for position, array in initial.items()}
        assert len(read) >= 2
        initial.clear()
        large.clear()
        assert not [ref() for ref in read if ref() is not None]
        return Program(*given, initial=contents, **named)

    monkeypatch.setattr(releasing, "stored_part", found)
    monkeypatch.setattr(compiled_model, "Program", watched)
    exe = gf.compile(path if is_file else network(rows), options=OPTIONS)
    assert exe.run({"x": X})


def stored(constant: np.ndarray | StoredArray) -> np.ndarray | StoredArray:
    return constant if isinstance(constant, StoredArray) else constant.copy()


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
    whole = compile_graph(CompileRequest(network(), options=OPTIONS))
    assert {array.shape for array in large_arrays(whole)} >= {(512, 640), (640, 512)}
    del whole
    exe = gf.compile(network().SerializeToString(), options=OPTIONS)
    exe.run({"x": X})
    assert not large_arrays(exe)


def masked(mask: np.ndarray) -> onnx.ModelProto:
    """Attention with a large mask of causal decoders, whose elements decide between kernels."""
    build = ModelBuilder(seed=4)
    tokens = build.input("x", (1, 4, len(mask), 64))
    keys = build.node("Transpose", [tokens], perm=[0, 1, 3, 2])
    scores = build.add(build.node("MatMul", [tokens, keys]), build.constant(mask))
    build.output(build.node("MatMul", [build.node("Softmax", [scores], axis=-1), tokens]))
    return build.model()


def convolutions() -> onnx.ModelProto:
    """Two convolutions of large weights, with padding between them."""
    build = ModelBuilder(seed=5)
    hidden = build.relu(build.conv(build.input("x", (1, 250, 6, 6)), 250, 3, pads=[1, 1, 1, 1]))
    build.output(build.conv(hidden, 250, 3, pads=[1, 1, 1, 1]))
    return build.model()


@pytest.mark.parametrize("causal", [False, True])
def test_plans_with_a_pin_are_those_of_before(causal: bool) -> None:
    mask = np.where(np.tri(512, dtype=bool), 0, -np.inf).astype(np.float32)
    model = masked(mask) if causal else convolutions()
    whole = compile_graph(CompileRequest(model, options=OPTIONS))
    trials, others = whole.pin_trials, gf.compile(model, options=OPTIONS).compiled.pin_trials
    assert trials is not None and others is not None
    assert not causal or {array.shape for array in large_arrays(others)} == {mask.shape}
    planned = 0
    for family in compared_families(whole.target):
        for value, layout in uniform_pins(trials.graph, whole.target, family).items():
            found = trials.plan(value, layout)
            assert others.plan(value, layout) == found
            planned += not isinstance(found, str)
    assert planned


def test_what_pins_cost_is_known_without_weights() -> None:
    pins = {"relu_1": "NCHW"}
    whole = compile_graph(CompileRequest(convolutions(), layouts=pins, options=OPTIONS)).plan
    exe = gf.compile(convolutions(), layouts=pins, options=OPTIONS)
    assert not large_arrays(exe)
    assert exe.compiled.plan.pinned == whole.pinned != ()
    assert exe.compiled.plan.unpinned == whole.unpinned


@pytest.mark.parametrize("kind", ["path", "bytes", "proto"])
def test_further_shapes_read_weights_again(kind: str, tmp_path: Path) -> None:
    proto = network("n")
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    model = {"path": path, "bytes": path.read_bytes(), "proto": proto}[kind]
    exe, fixed = gf.compile(model, options=OPTIONS), gf.compile(network(), options=OPTIONS)
    exe.run({"x": X[:1]})
    (found,), (expected,) = exe.run({"x": X}).values(), fixed.run({"x": X}).values()
    np.testing.assert_array_equal(found, expected)
    first, second = (one.program.constants for one in exe.specializations)
    assert all(
        isinstance(array, ReleasedConstant)
        for one in exe.specializations
        for _, array in one.compiled.spec.constants
        if array.nbytes >= LARGE
    )
    if kind != "bytes":  # else they are the given ones
        assert not large_arrays([*exe.specializations, exe])
    lent = second.borrowed.parts.values()
    assert first is second or any(np.shares_memory(first.memory, part) for part in lent)


@pytest.mark.parametrize("rows", [1, 3])
def test_weights_of_refused_compilations_are_gone_before_the_next(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By themselves: the collector runs seldom, and weights that wait for it are in memory twice.

    A run of 1 row has a program, and one of 3 rows is refused.
    """
    build = ModelBuilder(seed=4)
    product = build.node("MatMul", [build.input("x", ("n", 512)), build.weight(512, 640)])
    build.output(build.add(product, build.constant(np.ones((2, 640), np.float32))))
    path = tmp_path / "model.onnx"
    onnx.save(build.model(), path)
    read: list[weakref.ref[Any]] = []

    def watched(request: CompileRequest, shared: Shared, earlier: Any) -> Compiled:
        assert not [ref for ref in read if ref() is not None]
        try:
            return compile_graph(request, shared, earlier)
        finally:
            large = (array for array in shared.contents.values() if array.nbytes >= LARGE)
            read.extend(map(weakref.ref, large))

    monkeypatch.setattr(program_maker, "compile_graph", watched)
    assert not gc.isenabled()
    with pytest.warns(UserWarning, match="no program of .* serves all sizes"):
        exe = gf.compile(path, sizes={"n": (1, 8)}, options=OPTIONS)
    with suppress(InvalidModel):
        exe.run({"x": np.ones((rows, 512), np.float32)})
    assert len(read) == 3


def test_other_weights_in_a_proto_are_refused() -> None:
    proto = network("n")
    exe = gf.compile(proto, options=OPTIONS)
    exe.run({"x": X[:1]})
    (tensor, *_) = (t for t in proto.graph.initializer if tuple(t.dims) == (512, 640))
    tensor.raw_data = bytes(len(tensor.raw_data))
    exe.run({"x": X[:1]})
    with pytest.raises(InvalidModel, match=f"{tensor.name} of the given ModelProto has other"):
        exe.run({"x": X})


def test_defaults_are_kept() -> None:
    build = ModelBuilder()
    x = build.input("x", (512, 640))
    build.input("w", (512, 640))
    build.constant(np.ones((512, 640), np.float32), "w")
    build.output(build.add(x, "w"))
    exe = gf.compile(build.model(), overridable=["w"], options=OPTIONS)
    zeros = np.zeros((512, 640), np.float32)
    (found,) = exe.run({"x": zeros}).values()
    np.testing.assert_array_equal(found, zeros + 1)
