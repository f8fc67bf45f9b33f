"""Tests of searches of schedules: what is tried, kept, offered and explained."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.bench import Protocol
from graphflow.cli import main
from graphflow.codegen import host_target
from graphflow.cost import Timing, TimingTable
from graphflow.kernels.recipes import definition_key, lifted, variant_key
from graphflow.models import ModelBuilder
from graphflow.schedule import Schedule, divide_loop, parallelize_loop, vectorize_loop
from graphflow.tir import PrimFunc
from graphflow.tuning import Tuned

TARGET = host_target()
QUICK = Protocol(blocks=1, idle=0.0, discarded=0.0, measured=0.0)
"""What is measured does not matter here."""

KERNEL = gf.kernel(
    """
    def halved(x: f32[24, 16], y: out[f32[24, 16]]):
        for i in serial(0, 24):
            for j in serial(0, 16):
                y[i, j] = x[i, j] * f32(0.5)
    """
)


@gf.sketch(rows=(4, 5, 8, 6), lanes=(8, 16), where="rows + lanes < 24")
def in_rows(s: Schedule, rows: int, lanes: int) -> Schedule:
    s = s.apply(divide_loop, "i", rows, ("io", "ii"), "perfect")
    s = s.apply(divide_loop, "j", lanes, ("jo", "ji"), "perfect")
    return s.apply(vectorize_loop, "ji").apply(parallelize_loop, "io")


def quick(path: Path, model: PrimFunc | onnx.ModelProto = KERNEL, search: int = 4) -> Tuned:
    return gf.tune(
        model, sketches=[in_rows], search=search, threads=1, timings=str(path), protocol=QUICK
    )


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_search_times_points_counts_refusals_and_finds_all_of_them_again(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    (found,) = quick(path, search=6).searched
    # Of 8 points the constraint excludes (8, 16); of the rest 5 divides nothing.
    assert (found.space, found.timed, found.known) == (8, 5, 0)
    assert [dict(point)["rows"] for point, _ in found.refused] == [5, 5]
    ((reason, count),) = found.reasons().items()
    assert count == 2 and "perfect needs a factor that divides 24, and 5 does not" in reason
    assert "5 schedules timed, 0 known, 2 refused, of 8 points" in str(found)
    searched = {str(x["key"]) for x in lines_of(path) if str(x["key"]).startswith("search ")}
    assert len(searched) == 5 and any(key.endswith(" rows=4, lanes=8") for key in searched)

    (again,) = quick(path, search=6).searched
    assert (again.timed, again.known, len(again.refused)) == (0, 5, 2)
    assert again.default_seconds is not None and again.seconds <= again.default_seconds


def test_no_schedules_are_searched_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    assert quick(path, search=0).searched == ()
    assert not any(str(line["key"]).startswith("search ") for line in lines_of(path))


def test_a_compilation_takes_what_was_found_and_explains_it(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    quick(path)
    table = TimingTable(path, TARGET, 1)
    options = gf.Options(threads=1, timings=str(path))
    exe = gf.build(KERNEL, sketches=[in_rows], options=options)
    node = exe.compiled.graph.node("halved")
    (found,) = node.found
    # Whatever was measured: from now on the found kernel takes hardly any time.
    key = variant_key(definition_key(node.func), lifted(found.kernel, TARGET), None)
    table.add(Timing(key, 1e-9, 1.0, "found") for _ in range(9))
    exe = gf.build(KERNEL, sketches=[in_rows], options=options)
    text = exe.explain("y")
    assert f"searched  {found}" in text and "sketch in_rows with rows=" in text
    assert "as its recipe makes it (" in text
    x = np.arange(24 * 16, dtype=np.float32).reshape(24, 16)
    np.testing.assert_array_equal(exe.run({"x": x})["y"], x / 2)
    assert "searched" not in gf.build(KERNEL, options=options).explain("y")


def test_results_of_a_changed_sketch_are_not_offered(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    quick(path, search=2)
    options = gf.Options(threads=1, timings=str(path))
    changed = replace(in_rows, source="another text")
    exe = gf.build(KERNEL, sketches=[changed], options=options)
    assert exe.compiled.graph.node("halved").found == ()


def test_a_sketch_that_a_kernel_refuses_leaves_its_variants(tmp_path: Path) -> None:
    kernel = gf.kernel(
        """
        def other(x: f32[7], y: out[f32[7]]):
            for k in serial(0, 7):
                y[k] = x[k]
        """
    )
    tuned = quick(tmp_path / "timings.jsonl", kernel, search=2)
    (found,) = tuned.searched
    assert tuned.settled and (found.timed, found.best) == (0, None)
    assert "0 schedules timed" in str(found) and all("i" in why for why in found.reasons())


def test_a_sketch_with_an_error_of_its_own_raises(tmp_path: Path) -> None:
    @gf.sketch(rows=(4,))
    def broken(s: Schedule, rows: int) -> Schedule:
        return Schedule.of(KERNEL)

    other = gf.kernel(
        "def other(x: f32[7], y: out[f32[7]]):\n    for k in serial(0, 7):\n        y[k] = x[k]\n"
    )
    with pytest.raises(GraphflowError, match="a schedule of another kernel than other"):
        gf.tune(other, sketches=[broken], search=1, timings=str(tmp_path / "t"), protocol=QUICK)


def test_a_sketch_without_choices_is_one_schedule(tmp_path: Path) -> None:
    @gf.sketch()
    def only(s: Schedule) -> Schedule:
        return s.apply(vectorize_loop, "j")

    path = tmp_path / "timings.jsonl"
    for known in (0, 1):
        tuned = gf.tune(KERNEL, sketches=[only], search=2, timings=str(path), protocol=QUICK)
        (found,) = tuned.searched
        assert (found.timed, found.known, found.best) == (1 - known, known, ())


def test_sketches_of_one_text_with_other_spaces_are_both_searched(tmp_path: Path) -> None:
    def tiled(*rows: int) -> gf.Sketch:
        @gf.sketch(rows=rows)
        def tiles(s: Schedule, rows: int) -> Schedule:
            return s.apply(divide_loop, "i", rows, ("io", "ii"), "perfect")

        return tiles

    sketches = [tiled(4, 8), tiled(6, 12)]
    path = str(tmp_path / "timings.jsonl")
    tuned = gf.tune(KERNEL, sketches=sketches, search=2, timings=path, protocol=QUICK)
    assert [found.timed for found in tuned.searched] == [2, 2]


def test_the_command_searches_with_the_sketch_of_the_compiler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = ModelBuilder(opset=17)
    b.output(b.relu(b.node("ReduceMean", [b.input("x", (6, 40))], axes=[1])))
    model, path = tmp_path / "mean.onnx", tmp_path / "timings.jsonl"
    onnx.save(b.model(), model)
    command = ["tune", str(model), "--threads", "1", "--timings", str(path), "--search", "2"]
    assert main(command) == 0
    assert "ReduceMean+Relu, sketch reduction: 2 schedules timed" in capsys.readouterr().out
