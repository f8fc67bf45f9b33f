"""Tests of foreign sections: nodes without a kernel run in onnxruntime, between native kernels."""

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import graphflow as gf
from graphflow.api.checking import check
from graphflow.api.executable import Executable
from graphflow.base.errors import GraphflowError, UnsupportedOp, VerifyError
from graphflow.base.fields import replace
from graphflow.cli import main
from graphflow.convert import apply_plan
from graphflow.cost import roofline
from graphflow.foreign import RunnableSection, Section, open_section
from graphflow.frontends import OPERATORS, import_model
from graphflow.frontends.sections import names_read, stages_of
from graphflow.runtime import Program, executor
from support.models.peer_sessions import peer_session

FLOAT, INT64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)


@pytest.fixture(autouse=True)
def without_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tanh stands for an operator that no kernel is built for, whatever is built some day."""
    monkeypatch.delitem(OPERATORS, "Tanh")


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[Any]]],
    outputs: Mapping[str, tuple[int, list[Any] | None]],
    constants: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, *spec) for n, spec in inputs.items()],
        [helper.make_tensor_value_info(n, *spec) for n, spec in outputs.items()],
        [numpy_helper.from_array(array, n) for n, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def middle() -> onnx.ModelProto:
    """A convolution, two foreign nodes on branches of their own, and what joins them."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
    return model_of(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], name="conv"),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Tanh", ["a"], ["c"], name="first"),
            helper.make_node("Tanh", ["b"], ["d"], name="second"),
            helper.make_node("Add", ["c", "d"], ["y"]),
        ],
        {"x": (FLOAT, [1, 4, 6, 5])},
        {"y": (FLOAT, [1, 8, 6, 5])},
        {"w": weights},
    )


def agree(
    model: onnx.ModelProto, inputs: Mapping[str, Any], exe: Executable | None = None
) -> Executable:
    """Compiled, and with onnxruntime's results."""
    exe = gf.compile(model) if exe is None else exe
    session = peer_session(model)
    names = [output.name for output in model.graph.output]
    found = exe.run(inputs)
    for name, wanted in zip(names, session.run(names, dict(inputs)), strict=True):
        if np.asarray(wanted).dtype.kind == "f":
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], wanted)
    return exe


def image() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((1, 4, 6, 5)).astype(np.float32)


def test_neighbours_variant_one_section_and_the_rest_stays_native() -> None:
    exe = agree(middle(), {"x": image()})
    (section,) = (spec.section for spec in exe.program.spec.sections)
    assert [node.name for node in section.nodes] == ["first", "second"]
    assert section.inputs == ("a", "b") and section.outputs == ("c", "d")
    assert {node.op for node in exe.compiled.graph.nodes} > {section.title}
    agree(middle(), {"x": 3 * image()}, exe)


def test_a_model_with_kernels_for_all_nodes_has_no_section() -> None:
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}
    )
    exe = agree(model, {"x": np.array([-1, 0, 2], np.float32)})
    assert exe.foreign == () and not exe.program.spec.sections


def test_the_report_says_which_nodes_are_foreign_and_why() -> None:
    exe = gf.compile(middle())
    report = exe.report()
    assert report["summary"]["foreign_nodes"] == 2 and report["summary"]["sections"] == 1
    assert report["foreign"][0] == {
        "section": "section1",
        "node": "first",
        "op": "Tanh",
        "reason": "no kernel is built for this operator",
    }
    assert "2 nodes run in onnxruntime" in exe.decisions().summary
    assert "section1" in exe.explain("c")


def test_without_fallback_such_a_model_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match="Tanh"):
        gf.compile(middle(), options=gf.Options(fallback=None))
    with pytest.raises(GraphflowError, match="fallback is 'tvm'"):
        gf.Options(fallback="tvm")


def test_sections_with_kernels_between_them_are_apart() -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("Mul", ["c", "a"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, [5])}, {"y": (FLOAT, [5])})
    exe = agree(model, {"x": np.linspace(-2, 2, 5, dtype=np.float32)})
    assert [spec.name for spec in exe.program.spec.sections] == ["section1", "section2"]


def test_stages_count_the_changes_to_sections() -> None:
    nodes = [
        helper.make_node("F", ["x"], ["a"]),
        helper.make_node("N", ["a"], ["b"]),
        helper.make_node("F", ["b", "c"], ["d"]),
        helper.make_node("F", ["c"], ["e"]),
        helper.make_node("F", ["k"], ["f"]),
    ]
    found = stages_of(nodes, {0, 2, 3, 4}.__contains__, {"k"}.__contains__)
    assert found == [1, 1, 2, 1, 1]


def test_what_no_kernel_takes_passes_from_node_to_node() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("StringConcat", ["words", "words"], ["kept"]),
        helper.make_node("Shape", ["kept"], ["count"]),
        helper.make_node("Tanh", ["a"], ["y"]),
    ]
    model = model_of(
        nodes,
        {"x": (FLOAT, [3]), "words": (STRING, [3])},
        {"y": (FLOAT, [3]), "kept": (STRING, [3]), "count": (INT64, [1])},
    )
    x = np.array([-1, 0.5, 2], np.float32)
    exe = agree(model, {"x": x, "words": np.array(["a", "b", "c"], object)})
    assert [known.name for known in exe.program.spec.objects_in] == ["words"]
    agree(model, {"x": x, "words": np.array(["a", "d", "c"], object)}, exe)
    with pytest.raises(gf.errors.InvalidModel, match="'words' is missing"):
        exe.run({"x": x})


@pytest.fixture
def copies_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a kernel that moves the elements costs less than a copy behind a view."""
    monkeypatch.setattr(roofline, "COPY_START_UP", 0.0)


@pytest.mark.usefixtures("copies_begin_at_once")
@pytest.mark.parametrize(
    "text",
    [
        # What a section reads is a part of a tensor whose rows lie apart.
        "p, q = Split<axis = 1, num_outputs = 2>(x) z = Tanh(q)",
        "r = Relu(x) p, q = Split<axis = 1, num_outputs = 2>(r) t = Tanh(q) z = Add(t, p)",
        "r = Relu(x) p, q = Split<axis = 1, num_outputs = 2>(r) t = Tanh(q) z = Tanh(t)",
        # What it writes becomes a part of another one.
        "r = Relu(x) t = Tanh(x) c = Concat<axis = 1>(r, t) z = Relu(c)",
        "t = Tanh(x) u = Relu(t) v = Tanh(u) c = Concat<axis = 1>(t, v, u) z = Relu(c)",
    ],
)
def test_a_section_has_its_tensors_in_one_piece(text: str) -> None:
    """A callee knows nothing of strides; it read and wrote the first elements of the memory."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[3, 4] x) => (float[N, M] z) {{ {text} }}""")
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    agree(model, {"x": x})


@pytest.mark.usefixtures("copies_begin_at_once")
def test_the_plan_says_why_a_section_reads_a_copy() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[3, 4] x) => (float[N, M] z) {
            p, q = Split<axis = 1, num_outputs = 2>(x) z = Tanh(q) }""")
    (copy,) = gf.compile(model).compiled.plan.conversions
    assert (copy.value, copy.kind) == ("q", "copy")
    assert copy.because.endswith(
        "variant row-major, by section1 wants row-major in one contiguous piece"
    )


@pytest.mark.usefixtures("copies_begin_at_once")
def test_a_plan_that_gives_a_section_a_part_of_a_tensor_is_refused() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[3, 4] x) => (float[N, M] z) {
            p, q = Split<axis = 1, num_outputs = 2>(x) z = Tanh(q) }""")
    compiled = gf.compile(model).compiled
    wrong = replace(compiled.plan, conversions=())
    with pytest.raises(VerifyError, match=r"section1 .* takes q as contiguous memory"):
        apply_plan(compiled.graph, wrong)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [("axis = 1, keepdims = 0", "N"), ("axis = 1, keepdims = 1", "N, M"), ("axis = 0", "N, M")],
)
def test_sequences_are_made_of_parts(attributes: str, shape: str) -> None:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[3, 4] x) => (seq(float[{shape}]) s) {{ s = SplitToSequence<{attributes}>(x) }}""")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    session = peer_session(model)
    found = gf.compile(model).run({"x": x})["s"]
    for one, other in zip(found, session.run(None, {"x": x})[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_outputs_come_in_the_order_of_the_model() -> None:
    nodes = [
        helper.make_node("StringConcat", ["words", "words"], ["kept"]),
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Identity", ["words"], ["same"]),
        helper.make_node("Neg", ["x"], ["b"]),
    ]
    floats, words = (FLOAT, [2]), (STRING, [2])
    outputs = {"kept": words, "a": floats, "same": words, "b": floats}
    model = model_of(nodes, {"x": floats, "words": words}, outputs)
    inputs = {"x": np.ones(2, np.float32), "words": np.array(["a", "b"], object)}
    assert list(agree(model, inputs).run(inputs)) == list(outputs)


def test_a_sequence_beside_a_shape_that_a_run_decides() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (seq(float[N]) s, float[M] x, int64 k) => (float[K] y, float[M] z)
        { y = SequenceAt(s, k) z = Relu(x) }""")
    parts = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    agree(model, {"s": parts, "x": np.ones(4, np.float32), "k": np.array(1)})


def test_a_section_has_no_more_threads_than_there_are_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session for a thousand waits for ever where the system refuses it one of them."""
    asked: list[int] = []

    def opened(section: Section, threads: int) -> RunnableSection:
        asked.append(threads)
        return open_section(section, threads)

    monkeypatch.setattr(executor, "default_threads", lambda: 2)
    spec = gf.compile(middle(), threads=1).program.spec
    Program(spec, 1, opens=opened)
    Program(spec, 8, opens=opened)
    assert asked == [1, 2]


def test_a_section_waits_for_the_objects_of_another() -> None:
    """`kept` goes from the first section to the second, and no tensor does."""
    nodes = [
        helper.make_node("StringConcat", ["words", "words"], ["kept"]),
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Shape", ["kept"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=FLOAT),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Add", ["d", "f"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, [3]), "words": (STRING, [3])}, {"y": (FLOAT, [3])})
    agree(model, {"x": np.ones(3, np.float32), "words": np.array(["a", "b", "c"], object)})


def from_words() -> onnx.ModelProto:
    """A section that takes and gives both tensors and objects."""
    nodes = [
        helper.make_node("StringConcat", ["words", "words"], ["kept"]),
        helper.make_node("Shape", ["kept"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=FLOAT),
        helper.make_node("Tanh", ["x"], ["d"]),
        helper.make_node("Add", ["d", "f"], ["y"]),
    ]
    inputs = {"x": (FLOAT, [3]), "words": (STRING, [3])}
    return model_of(nodes, inputs, {"y": (FLOAT, [3]), "kept": (STRING, [3])})


def test_subgraphs_take_names_from_outside() -> None:
    branch = helper.make_graph(
        [helper.make_node("Tanh", ["a"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", FLOAT, [3])],
    )
    other = helper.make_graph(
        [helper.make_node("Add", ["a", "k"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", FLOAT, [3])],
    )
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    assert names_read(choice) == ("c", "a", "k")
    model = model_of(
        [helper.make_node("Relu", ["x"], ["a"]), choice],
        {"x": (FLOAT, [3]), "c": (BOOL, [])},
        {"y": (FLOAT, [3])},
        {"k": np.array([1, 2, 3], np.float32)},
    )
    x = np.array([-1, 0.5, 2], np.float32)
    exe = agree(model, {"x": x, "c": np.array(True)})
    agree(model, {"x": x, "c": np.array(False)}, exe)


def test_a_node_is_taken_back_whole_where_one_of_its_kernels_is_refused() -> None:
    """What an operator's function added before it refused must not stay in the graph."""
    model = middle()
    graph = import_model(model, fallback=True)
    graph.validate()
    assert all(graph.producer(name) or name in ("x", "w") for name in graph.values)


def test_what_onnxruntime_refuses_too_is_refused_with_both_reasons() -> None:
    node = helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere", name="strange")
    model = model_of([node], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])})
    model.opset_import.append(helper.make_opsetid("nowhere", 1))
    message = r"strange: no kernel.*onnxruntime says: .*operators="
    with pytest.raises(UnsupportedOp, match=message) as caught:
        gf.compile(model)
    assert "nowhere" in str(caught.value)
    found = check(model)
    assert not found.runs and found.impossible[0][0][0].name == "strange"


def test_saved_models_keep_their_sections(tmp_path: Path) -> None:
    exe = gf.compile(middle())
    exe.save(tmp_path / "m.gfx")
    again = gf.load(tmp_path / "m.gfx")
    assert again.foreign == exe.foreign
    agree(middle(), {"x": image()}, again)
    assert again.report() == exe.report()


@pytest.mark.parametrize("name", ["inputs", "outputs", "objects_in", "objects_out"])
def test_a_section_that_names_other_tensors_than_its_buffers_is_refused(name: str) -> None:
    """As a damaged file has them."""
    spec = gf.compile(from_words()).program.spec
    (one,) = spec.sections
    changed = replace(one, section=replace(one.section, **{name: ("another",)}))
    with pytest.raises(VerifyError, match=r"'another'|before it is made|no step makes"):
        replace(spec, sections=(changed,))
    if name == "objects_out":
        with pytest.raises(VerifyError, match="nothing takes 'kept', which section1 makes"):
            replace(spec, objects_out=())


def test_runs_from_several_threads_do_not_meet() -> None:
    exe = gf.compile(middle())
    inputs = [k * image() for k in range(1, 5)]
    wanted = [exe.run({"x": x})["y"] for x in inputs]
    failures: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if not np.array_equal(exe.run({"x": inputs[k]})["y"], wanted[k]):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_bound_runs_have_sections_too() -> None:
    exe = gf.compile(middle())
    bound = exe.program.bind({"x": image()})
    bound.run()
    np.testing.assert_array_equal(bound.outputs["y"], exe.run({"x": image()})["y"])


def test_a_bound_run_refuses_a_second_thread_inside_a_section() -> None:
    """No kernel runs then, so the native code alone would let both use the same memory."""
    inside, resume = threading.Event(), threading.Event()

    class Waiting:
        def __init__(self, section: Section, threads: int) -> None:
            self.session = open_section(section, threads)

        def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
            inside.set()
            assert resume.wait(60)
            return self.session.run(values)

    program = gf.compile(middle(), threads=1).program
    bound = Program(program.spec, 1, opens=Waiting).bind({"x": image()})
    first = threading.Thread(target=bound.run)
    first.start()
    assert inside.wait(60)
    with pytest.raises(GraphflowError, match="executed by another thread"):
        bound.run()
    with pytest.raises(GraphflowError, match="bind once per thread"):
        bound.run()  # the refused run has not opened the door for a third one
    resume.set()
    first.join()
    bound.run()
    np.testing.assert_array_equal(bound.outputs["y"], program.run({"x": image()})["y"])


def test_a_bound_run_is_free_again_after_a_section_failed() -> None:
    class Failing:
        def __init__(self, section: Section, threads: int) -> None:
            self.session, self.fails = open_section(section, threads), True

        def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
            if self.fails:
                self.fails = False
                raise GraphflowError("the section failed")
            return self.session.run(values)

    program = gf.compile(middle(), threads=1).program
    bound = Program(program.spec, 1, opens=Failing).bind({"x": image()})
    failures = 0
    for _ in range(10):
        try:
            bound.run()
            break
        except GraphflowError as error:
            assert str(error) == "the section failed"
            failures += 1
    assert failures == len(program.spec.sections)
    np.testing.assert_array_equal(bound.outputs["y"], program.run({"x": image()})["y"])


def test_a_section_is_dropped_where_nobody_needs_it() -> None:
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Relu", ["x"], ["y"])]
    exe = gf.compile(model_of(nodes, {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}))
    assert exe.foreign == ()


def test_a_pin_that_a_section_cannot_read_is_a_conflict() -> None:
    with pytest.raises(
        gf.errors.LayoutConflict, match=r"section1 .Tanh. has no variant with b pinned"
    ):
        gf.compile(middle(), layouts={"b": "NHWC"})


def test_validation_poison_and_timings_pass_sections_by() -> None:
    options = gf.Options(validate=True, poison=True, workers=0)
    agree(middle(), {"x": image()}, gf.compile(middle(), options=options))


def test_the_command_line_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(middle(), path)
    assert main(["run", str(path)]) == 0
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "2 nodes run in onnxruntime: Tanh first: no kernel" in told
    assert main(["run", str(path), "--strict"]) == 1
    assert "Tanh" in capsys.readouterr().err
    assert main(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert "native: 3 nodes: Add (1), Conv (1), Relu (1)" in said
    assert "    Tanh first: no kernel is built for this operator" in said


@pytest.mark.parametrize("place", ["a section", "the program"])
def test_an_interrupt_ends_a_loop(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "b (int64 i, bool c, float[4] v) => (bool c, float[4] w) { w = Add (v, v) }"
    if place == "a section":
        monkeypatch.delitem(OPERATORS, "Add")
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) '
        f"<int64 trips = {{{1 << 40}}}> {{ y = Loop <body = {body}> (trips, , x) }}"
    )
    exe = gf.compile(model, options=gf.Options(workers=0))
    assert [node.op for node in exe.foreign] == (["Loop"] if place == "a section" else [])
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        exe.run({"x": np.ones(4, np.float32)})
