"""Tests of guards and of trimmed outputs, from the graph to saved files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel, RunError, VerifyError
from graphflow.graph import Node, OperatorGraph, canonicalize, fuse_groups
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.reductions import reduction
from graphflow.program import ALIGNMENT, GuardedOutput, ProgramSpec, TensorSpec, TrimmedOutput

IDS = "Gather node g: the largest index in tensor ids"


def add(graph: OperatorGraph, name: str, func: Any, *inputs: str) -> str:
    graph.add(Node(f"make_{name}", func.name, func, inputs, (name,), (f"make_{name}",)))
    return name


def looked_up(bound: int = 3) -> OperatorGraph:
    """ids[4] → the double of x[3], with guards on the least and the largest of ids."""
    graph = OperatorGraph()
    graph.add_input("x", "float32", (3,))
    graph.add_input("ids", "int64", (4,))
    add(graph, "double", elementwise.binary("add", (3,), (3,)), "x", "x")
    add(graph, "least", reduction.reduce("min", (4,), (0,), False, "int64"), "ids")
    add(graph, "most", reduction.reduce("max", (4,), (0,), False, "int64"), "ids")
    graph.add_guard("least", -bound, bound - 1, "Gather node g: the least index in tensor ids")
    graph.add_guard("most", -bound, bound - 1, IDS)
    graph.set_outputs(("double",))
    graph.validate()
    return graph


def ids(*values: int) -> dict[str, Any]:
    return {"x": np.float32([1, 2, 3]), "ids": np.array(values, np.int64)}


def cut_along(*axes: int) -> OperatorGraph:
    """x[3, 4] → its double, cut along each of `axes` to what counts[2] says for that axis."""
    graph = OperatorGraph()
    graph.add_input("x", "float32", (3, 4))
    graph.add_input("ends", "int64", (2,))
    add(graph, "y", elementwise.binary("add", (3, 4), (3, 4)), "x", "x")
    add(graph, "counts", elementwise.binary("add", (2,), (2,), "int64"), "ends", "ends")
    graph.set_outputs(("y",))
    for axis in axes:
        graph.trim_output("y", axis, "counts", axis)
    graph.validate()
    return graph


def ends(*values: int) -> dict[str, Any]:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {"x": x, "ends": np.array(values, np.int64)}


# Guards -----------------------------------------------------------------------------------------


def test_a_run_whose_guards_hold_gives_the_model_s_own_outputs() -> None:
    exe = gf.build(looked_up(), threads=1)
    for values in ((0, 1, 2, 2), (-3, 0, 0, 0)):
        assert {name: y.tolist() for name, y in exe.run(ids(*values)).items()} == {
            "double": [2, 4, 6]
        }
    assert [tensor.name for tensor in exe.outputs] == ["double"]


def test_a_run_outside_an_interval_is_refused_and_the_next_one_is_not() -> None:
    exe = gf.build(looked_up(), threads=1)
    with pytest.raises(RunError, match=f"^{IDS} is 3, and has to be from -3 to 2$"):
        exe.run(ids(0, 3, 1, 2))
    with pytest.raises(RunError, match="the least index in tensor ids is -4, and has to be"):
        exe.run(ids(0, 2, -4, 2))
    assert exe.run(ids(0, 1, 2, 0))["double"].tolist() == [2, 4, 6]
    bound = exe.program.bind(ids(0, 3, 1, 2))
    with pytest.raises(RunError, match="is 3"):
        bound.run()


def test_guards_stay_through_the_stages_and_in_files(tmp_path: Path) -> None:
    graph = fuse_groups(canonicalize(looked_up()))
    assert graph.guards == looked_up().guards
    assert graph.results == ("double",) and graph.outputs == ("double", "least", "most")
    exe = gf.build(looked_up(), threads=1)
    assert [guard["edge"] for guard in exe.report()["guards"]] == ["least", "most"]
    exe.save(tmp_path / "guarded.gfx")
    loaded = gf.load(tmp_path / "guarded.gfx")
    assert loaded.outputs == exe.outputs and loaded.report() == exe.report()
    assert list(loaded.run(ids(0, 1, 2, 0))) == ["double"]
    with pytest.raises(RunError, match=IDS):
        loaded.run(ids(0, 1, 7, 0))


def test_a_guarded_output_of_the_model_is_not_hidden() -> None:
    graph = looked_up()
    graph.set_outputs(("most", "double"))
    exe = gf.build(graph, threads=1)
    assert list(exe.run(ids(0, 1, 2, 0))) == ["most", "double"]
    assert exe.program.spec.hidden == 1


def test_a_guard_on_constants_is_settled_when_the_model_is_compiled() -> None:
    for largest, holds in ((2, True), (3, False)):
        graph = looked_up()
        graph.set_inputs(("x",))
        graph.initializers["ids"] = np.array([0, 1, largest, 0])
        if holds:
            assert canonicalize(graph).guards == () and canonicalize(graph).outputs == ("double",)
            continue
        with pytest.raises(InvalidModel, match=f"{IDS} is 3, and has to be from -3 to 2"):
            canonicalize(graph)


def test_the_default_of_an_input_settles_nothing() -> None:
    graph = looked_up()
    graph.initializers["ids"] = np.array([0, 1, 7, 0])
    assert len(canonicalize(graph).guards) == 2


def test_guards_that_cannot_be_checked_are_refused() -> None:
    graph = looked_up()
    with pytest.raises(VerifyError, match="is not a value"):
        graph.add_guard("nobody", 0, 1, "it")
    with pytest.raises(VerifyError, match="float32 and not integers"):
        graph.add_guard("double", 0, 1, "it")
    with pytest.raises(VerifyError, match="allows nothing"):
        graph.add_guard("most", 1, 0, "it")


# Trimmed outputs --------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_an_output_is_cut_to_what_the_run_found(axes: tuple[int, ...]) -> None:
    exe = gf.build(cut_along(*axes), threads=1)
    expected = 2 * ends()["x"]
    for rows, columns in ((1, 1), (0, 2), (1, 0)):
        (y,) = exe.run(ends(rows, columns)).values()
        rows_kept = 2 * rows if 0 in axes else 3
        columns_kept = 2 * columns if 1 in axes else 4
        assert y.shape == (rows_kept, columns_kept) and y.flags.c_contiguous
        assert np.array_equal(y, expected[:rows_kept, :columns_kept])


def test_what_was_cut_keeps_at_most_twice_its_memory_alive() -> None:
    (pieces,) = gf.build(cut_along(1), threads=1).run(ends(0, 1)).values()
    assert pieces.base is None
    (front,) = gf.build(cut_along(0), threads=1).run(ends(1, 0)).values()
    assert front.base.nbytes <= 2 * front.nbytes + ALIGNMENT


def test_a_bound_run_cuts_its_views_anew() -> None:
    exe = gf.build(cut_along(0), threads=1)
    bound = exe.program.bind(ends(1, 0))
    for _ in range(2):
        bound.run()
        assert np.array_equal(bound.outputs["y"], 2 * ends()["x"][:2])


def test_trims_stay_in_files_and_in_the_report(tmp_path: Path) -> None:
    exe = gf.build(cut_along(1), threads=1)
    assert exe.report()["trimmed"] == [{"edge": "y", "axis": 1, "extents": "counts"}]
    assert exe.outputs[0].shape == (3, 4)
    exe.save(tmp_path / "cut.gfx")
    (y,) = gf.load(tmp_path / "cut.gfx").run(ends(0, 1)).values()
    assert y.shape == (3, 2)


def test_an_extent_beyond_the_bound_is_a_fault_of_the_kernel() -> None:
    exe = gf.build(cut_along(0), threads=1)
    for wrong in (2, -1):
        with pytest.raises(VerifyError, match=r"output y has extent .* room for 3"):
            exe.run(ends(wrong, 0))


def test_only_outputs_of_the_model_can_be_trimmed() -> None:
    cases = (
        (("x", 0, "counts", 0), "only outputs can be trimmed"),
        (("y", 2, "counts", 0), "no axis 2"),
        (("y", 0, "x", 0), "not integers"),
        (("y", 0, "counts", 2), "no element 2"),
    )
    for trim, message in cases:
        graph = cut_along()
        graph.trim_output(*trim)
        with pytest.raises(VerifyError, match=message):
            graph.validate()


def test_specs_that_do_not_fit_together_are_refused() -> None:
    outputs = (TensorSpec("y", "float32", (3,)), TensorSpec("n", "int64", ()))

    def spec(**fields: Any) -> ProgramSpec:
        return ProgramSpec((), (), (), (), 0, 0, (), outputs, **fields)

    assert [tensor.name for tensor in spec(hidden=1).results] == ["y"]
    for fields, message in (
        ({"hidden": 3}, "3 outputs are hidden"),
        ({"guards": (GuardedOutput(2, 0, 1, "it"),)}, "there is no output 2"),
        ({"guards": (GuardedOutput(0, 0, 1, "it"),)}, "not integers"),
        ({"hidden": 1, "trimmed": (TrimmedOutput(1, 0, 1),)}, "the model has 1 outputs"),
        ({"hidden": 1, "trimmed": (TrimmedOutput(0, 1, 1),)}, "no axis 1"),
        ({"hidden": 1, "trimmed": (TrimmedOutput(0, 0, 1, 1),)}, "no element 1"),
        ({"trimmed": (TrimmedOutput(0, 0, 0, is_size=True),)}, "input 0 holds no size"),
    ):
        with pytest.raises(VerifyError, match=message):
            spec(**fields)
