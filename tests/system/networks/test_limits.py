"""Tests that work and memory stay bounded where attributes are large."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import CodegenError, GraphflowError, MemoryLimitExceeded
from graphflow.codegen import avx2_target, compile_object
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from graphflow.kernels.definitions.windows import pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes.schedules.tile import UNROLL_BUDGET, emitted_statements
from graphflow.models import ModelBuilder
from graphflow.tir import loops_of
from support.single import noise, peer, single

ONE = gf.Options(threads=1, workers=0)


def test_borders_of_a_large_dilated_window_stay_loops() -> None:
    x = noise(1, 1, 300, 300)
    model = single("MaxPool", [x], 12, kernel_shape=[16, 20], dilations=[10, 10],
                   strides=[10, 10], pads=[10, 15, 10, 15])  # fmt: skip
    exe = gf.compile(model, options=ONE)
    for kernel in exe.compiled.lowered.kernels.values():
        assert emitted_statements(kernel.func.body) <= UNROLL_BUDGET
    np.testing.assert_array_equal(exe.run({"i0": x})["o0"], peer(model, {"i0": x})["o0"])


def test_borders_of_small_windows_are_unrolled_as_before() -> None:
    model = single("MaxPool", [noise(1, 32, 14, 14)], 12, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    (kernel,) = gf.compile(model, options=ONE).compiled.lowered.kernels.values()
    assert any(loop.kind.value == "unrolled" for loop in loops_of(kernel.func.body))


def test_a_kernel_that_would_be_unrolled_without_end_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphflow.codegen.statements.emit_statements.MAX_LINES", 1000)
    func = gf.kernel("""
        def fill(x: f32[8], y: out[f32[8]]):
            for i in unrolled(0, 8):
                for j in unrolled(0, 2000):
                    y[i] = x[i] + index(j, f32)
    """)
    with pytest.raises(CodegenError, match="unroll fewer"):
        compile_object(func, "fill", avx2_target())


def test_taps_that_never_meet_the_input_are_not_visited() -> None:
    window = Window.of((100001,), None, (50000, 50000))
    kept = window.reaching((5,), window.output_shape((5,)))
    assert (kept.kernel, kept.pads_begin) == ((9,), (4,))
    func = pooling.max_pool((1, 1, 5), Window.of((100001,), pads=(50000, 50000)))
    assert max(loop.extent or 0 for loop in loops_of(func.body)) == 9
    # Every second tap of a window that begins far before the input.
    strided = Window.of((1000,), (3,), (997, 2), (2,))
    outputs = strided.output_shape((1001,))
    kept = strided.reaching((1001,), outputs)
    met = {k for k in range(1000) for o in range(outputs[0]) if 0 <= 3 * o + 2 * k - 997 < 1001}
    first = (997 - kept.pads_begin[0]) // 2
    assert (first, kept.kernel[0]) == (min(met), max(met) - min(met) + 1)


@pytest.mark.parametrize("include", [0, 1])
def test_average_pool_of_a_huge_window(include: int) -> None:
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    model = single("AveragePool", [x], 19, kernel_shape=[2_000_001],
                   pads=[1_000_000, 1_000_000], count_include_pad=include)  # fmt: skip
    found = interpret_graph(import_model(model), {"i0": x})["o0"]
    np.testing.assert_allclose(found, np.full((1, 1, 5), 15 / (2_000_001 if include else 5)))


@pytest.mark.parametrize("size", [65536, 9, 8, 4])
def test_lrn_of_a_size_beyond_the_channels(size: int) -> None:
    x = noise(1, 5, 2, 2)
    model = single("LRN", [x], 13, size=size, alpha=0.5)
    graph = import_model(model)
    assert max(loop.extent or 0 for loop in loops_of(graph.nodes[0].func.body)) <= 9
    squares = x.astype(np.float64) ** 2
    total = np.stack(
        [squares[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].sum(axis=1) for c in range(5)],
        axis=1,
    )
    expected = x / (1 + 0.5 / size * total) ** 0.75
    np.testing.assert_allclose(interpret_graph(graph, {"i0": x})["o0"], expected, rtol=1e-5)


def test_a_tensor_beyond_the_limit_is_refused_by_name() -> None:
    model = single("Relu", [noise(1000)])
    with pytest.raises(MemoryLimitExceeded, match=r"3999.*o0|3999.*i0, float32\[1000\], 4000"):
        gf.compile(model, options=gf.Options(memory_limit=3999))
    with pytest.raises(MemoryLimitExceeded, match="8000 bytes"):  # input and output together
        gf.compile(model, options=gf.Options(workers=0, memory_limit=7999))
    x = noise(1000)
    exe = gf.compile(model, options=gf.Options(workers=0, memory_limit=9000))
    np.testing.assert_array_equal(exe.run({"i0": x})["o0"], np.maximum(x, 0))


def test_a_large_tensor_inside_a_fused_kernel_counts_for_nothing() -> None:
    b = ModelBuilder()
    x = b.input("x", (1, 1000))
    b.output(b.node("Relu", [b.node("Exp", [b.node("Neg", [x])])]))
    exe = gf.compile(b.model(), options=gf.Options(workers=0, memory_limit=8200))
    assert (exe.run({"x": noise(1, 1000)}).popitem()[1] > 0).all()


def test_what_no_machine_holds_is_refused_without_being_tried() -> None:
    pads = np.array([10**5, 10**5, 10**5, 10**5], np.int64)
    model = single("Pad", [noise(2, 2)], 13, {1: pads})
    with pytest.raises(MemoryLimitExceeded, match="o0"):
        gf.compile(model, options=ONE)


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(GraphflowError, match="memory_limit is 0"):
        gf.Options(memory_limit=0)
