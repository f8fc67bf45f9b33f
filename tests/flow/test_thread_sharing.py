"""Tests of which kernels threads share: against exhaustive search, and in whole programs."""

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.cost import CostModel
from graphflow.flow.thread_sharing import ExecutedUnit, cheapest_sharing
from graphflow.inspect import summary_line
from graphflow.plan import ThreadSharing
from graphflow.program import SizeWithin
from support.planning.nets import TARGET

COST = CostModel(TARGET, 2)
SHORT = 8


@st.composite
def runs(draw: st.DrawFn) -> list[ExecutedUnit]:
    """Up to seven kernels of up to 4 µs, which read what any two before them wrote."""
    found: list[ExecutedUnit] = []
    seconds = st.integers(0, 4000)
    for number in range(draw(st.integers(1, 7))):
        alone = 1e-9 * draw(seconds)
        shared = draw(st.sampled_from((alone / 2, float("inf"))))
        writers = st.integers(0, max(number - 1, 0))
        sizes = st.integers(0, 40_000)
        reads = draw(st.dictionaries(writers, sizes, max_size=2)) if number else {}
        found.append(ExecutedUnit(number, alone, shared, reads, draw(st.booleans())))
    return found


def seconds_of(run: list[ExecutedUnit], shared: tuple[bool, ...]) -> float:
    """The price of a decision, term by term."""
    total = sum(s.shared if k else s.alone for s, k in zip(run, shared, strict=True))
    total += sum(
        COST.step_meeting_seconds() for k in range(1, len(run)) if shared[k - 1] or shared[k]
    )
    for step, mine in zip(run, shared, strict=True):
        for writer, size in step.reads.items():
            if mine != shared[int(writer)] or (mine and step.reads_all):
                total += COST.exchange_seconds(size)
    return total


@settings(derandomize=True, max_examples=60, deadline=None)
@given(runs())
def test_no_other_decision_is_cheaper(run: list[ExecutedUnit]) -> None:
    least, shared = cheapest_sharing(run, COST)
    decisions = product((False, True), repeat=len(run))
    best = min(seconds_of(run, decision) for decision in decisions)
    taken = tuple(step.unit in shared for step in run)
    assert least == pytest.approx(best) and seconds_of(run, taken) == pytest.approx(best)


def between_products() -> onnx.ModelProto:
    """A row times 1 MB of weights, softmaxes of the 8 and 16 parts of its 256 elements in turn, and
    a product again."""
    rng = np.random.default_rng(0)
    narrower = rng.standard_normal((1024, 256), np.float32) / 32
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1024]) for n in "xy")
    nodes = [helper.make_node("MatMul", ["x", "narrower"], ["s0"])]
    for k in range(SHORT):
        shape = "parts" if k % 2 else "halves"
        nodes.append(helper.make_node("Reshape", [f"s{k}", shape], [f"r{k}"]))
        nodes.append(helper.make_node("Softmax", [f"r{k}"], [f"s{k + 1}"]))
    nodes.append(helper.make_node("Reshape", [f"s{SHORT}", "row"], ["f"]))
    nodes.append(helper.make_node("MatMul", ["f", "wider"], ["y"]))
    shapes = {"parts": [8, 32], "halves": [16, 16], "row": [1, 256]}
    weights = {"narrower": narrower, "wider": narrower.T}
    constants = {**weights, **{name: np.array(shape) for name, shape in shapes.items()}}
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "between", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.decisions
def test_short_kernels_between_products_are_run_by_one_thread(tmp_path: Path) -> None:
    exe = gf.compile(between_products(), threads=2)
    assert [step.workers(2) for step in exe.program.spec.run] == [2, *[1] * SHORT, 2]
    report = exe.report()["sharing"]
    assert (report["pays"], report["kernels"], report["alone"]) == (True, SHORT + 2, SHORT)
    assert f"one thread runs {SHORT} of {SHORT + 2} kernels" in summary_line(exe.compiled)
    x = np.random.default_rng(1).standard_normal((1, 1024), np.float32)
    exe.save(tmp_path / "between")
    for threads in (1, 3):
        other = gf.load(tmp_path / "between", threads=threads)
        np.testing.assert_array_equal(other.run({"x": x})["y"], exe.run({"x": x})["y"])


def added(elements: int) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [elements]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "added", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shared(exe: gf.Executable) -> bool:
    return any(step.workers(2) > 1 for step in exe.program.spec.run)


@pytest.mark.decisions
@pytest.mark.parametrize(("elements", "pays"), [(4096, False), (4_000_000, True)])
def test_a_run_is_shared_where_that_saves_more_than_waking(elements: int, pays: bool) -> None:
    exe = gf.compile(added(elements), threads=2)
    report = exe.report()["sharing"]
    assert report["pays"] == pays == (report["saved"] > report["waking"])
    assert shared(exe) == pays
    assert ("one thread runs it" in summary_line(exe.compiled)) != pays
    x = np.arange(elements, dtype=np.float32)
    np.testing.assert_array_equal(exe.run({"x": x})["y"], x + x)


@pytest.mark.decisions
def test_a_program_of_sizes_says_what_threads_save_of_each_step() -> None:
    """By which runs of small sizes decide: a product whose rows are shared, and one by columns."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((256, 256), np.float32), name) for name in "ab"
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 256]) for n in "xy")
    nodes = [helper.make_node("MatMul", pair, [to]) for *pair, to in ("xah", "hby")]
    graph = helper.make_graph(nodes, "products", [x], [y], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = gf.compile(proto, threads=2, sizes={"n": (1, 64)})
    spec, found = exe.program.spec, exe.compiled.plan.sharing
    assert found is not None and spec.sharing.waking == round(found.waking * 1e9)
    assert spec.sharing.meeting == round(found.meeting * 1e9) > 0
    shared = [step for step in spec.run if step.workers(2) > 1]
    assert shared and all(step.saved > 0 for step in shared)
    # What is executed of each step grows with the size, by its iterations or within these.
    assert all(step.portion is not None or step.within for step in shared)
    for rows in (1, 2, 63, 64):
        values = rng.standard_normal((rows, 256), np.float32)
        exact = gf.compile(proto, threads=1, input_shapes={"x": [rows, 256]})
        np.testing.assert_allclose(
            exe.run({"x": values})["y"], exact.run({"x": values})["y"], rtol=1e-4, atol=1e-3
        )


@pytest.mark.decisions
def test_the_work_of_a_row_grows_with_the_keys_that_its_softmax_counts() -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", "n"]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "softmax", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (step,) = gf.compile(proto, threads=2, sizes={"n": (1, 512)}).program.spec.run
    assert step.portion is not None
    (rows,) = (digit for digit in step.portion.digits if digit.input is not None)
    assert step.within == (SizeWithin(rows.input, 512),)


def unit(rows: int) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, rows]) for n in "xy")
    graph = helper.make_graph([helper.make_node("EyeLike", ["x"], ["y"])], "unit", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.decisions
@pytest.mark.parametrize(("rows", "pays"), [(16, False), (2048, True)])
def test_threads_share_the_copy_of_a_large_constant_to_an_output(rows: int, pays: bool) -> None:
    exe = gf.compile(unit(rows), threads=2)
    assert shared(exe) == pays
    y = exe.run({"x": np.zeros((rows, rows), np.float32)})["y"]
    np.testing.assert_array_equal(y, np.eye(rows, dtype=np.float32))


def picked(lines: int) -> onnx.ModelProto:
    """One element of each of the lines, by data."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [lines, 64])
    k = helper.make_tensor_value_info("k", TensorProto.INT64, [lines, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [lines, 32])
    node = helper.make_node("GatherElements", ["x", "k"], ["y"], axis=1)
    graph = helper.make_graph([node], "picked", [x, k], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.decisions
@pytest.mark.parametrize(("lines", "pays"), [(2, False), (4096, True)])
def test_threads_share_a_kernel_that_finds_elements(lines: int, pays: bool) -> None:
    exe = gf.compile(picked(lines), threads=2)
    assert shared(exe) == pays
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((lines, 64), np.float32), rng.integers(-64, 64, (lines, 32))
    want = np.take_along_axis(x, k % 64, 1)
    np.testing.assert_array_equal(exe.run({"x": x, "k": k})["y"], want)


def test_there_is_no_decision_for_one_thread() -> None:
    exe = gf.compile(added(4096), threads=1)
    assert exe.report()["sharing"] is None
    # Loaded for more threads it is shared: nothing was decided about these.
    assert shared(exe)


def test_the_reason_names_both_sides() -> None:
    assert str(ThreadSharing(4, 2e-6, 5e-6)) == (
        "4 threads would save at most 2.0 µs, and waking them takes 5.0 µs"
    )
