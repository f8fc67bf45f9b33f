"""Tests of foreign sections around nodes with a body: loops, branches, functions and sequences."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import ValuesNeeded
from graphflow.frontends import OPERATORS, import_model
from graphflow.graph import OperatorGraph
from support.control_flow import BRANCHES, LOOP, X, unbounded
from support.models.sized_runs import parsed_model
from support.single import noise, peer
from support.texts import parsed


def members(graph: OperatorGraph) -> list[str]:
    return [node.op for section in graph.sections.values() for node in section.nodes]


def agrees(model, feeds, **options) -> gf.Executable:
    exe = gf.compile(model, **options)
    found, expected = exe.run(feeds), peer(model, feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)
    return exe


def with_data(name: str) -> str:
    """The loop with a number `name` that comes from more elements than may decide shapes."""
    text = LOOP.replace("(float[2,3] x)", "(float[2,3] x, float[100] data)")
    most = f"most = ReduceMax <keepdims = 0> (data) {name} = Cast <to: int = 7> (most)"
    return text.replace("y, rows = Loop", f"{most} y, rows = Loop")


def test_a_loop_whose_end_a_run_decides_is_one_member():
    model = parsed(unbounded(with_data("trips")), going=np.array(True))
    assert members(import_model(model, fallback=True)) == ["Loop"]
    agrees(model, {**X, "data": np.full(100, 4, np.float32)})
    bounded = parsed(with_data("trips"), last=np.array(1), going=np.array(True))
    assert members(import_model(bounded, fallback=True)) == []
    agrees(bounded, {**X, "data": np.full(100, 4, np.float32)})


def test_a_loop_whose_end_is_an_input_is_compiled_for_its_value():
    text = unbounded(LOOP.replace("(float[2,3] x)", "(float[2,3] x, int64 trips)"))
    model = parsed(text, going=np.array(True))
    with pytest.raises(ValuesNeeded, match=r"Loop_0: its trip count \(trips\)"):
        import_model(model, fallback=True)
    for trips in (1, 4):
        agrees(model, {**X, "trips": np.array(trips)})


def test_a_loop_that_fails_late_leaves_nothing_behind():
    # What the body makes has another shape in the second iteration.
    text = with_data("last").replace(
        "w = Add(v, s)", "t = Add(v, s) w = Concat <axis = 0> (t, t) late = Less(i, last)"
    )
    text = text.replace("again = Less(i, last)", "again = Or(late, late)")
    text = text.replace("float[2,3] v)", "float[n,3] v)").replace("float[2,3] w,", "float[m,3] w,")
    text = text.replace("float[2,3] row)", "float[p,3] row)").replace("[2,3] y,", "[h,3] y,")
    model = parsed(text, trips=np.array(5), going=np.array(True))
    graph = import_model(model, fallback=True)
    assert members(graph) == ["Loop"]
    assert [node.op for node in graph.nodes] == ["ReduceMax", "Cast", "Loop"]
    assert not [name for name in graph.values if "/" in name and "done" not in name]


def test_a_branch_without_a_kernel_runs_outside(monkeypatch):
    text = """g (int64[3] x, float data) => (int64[3] y) {
        z = Neg(x) c = Cast <to = 9> (data) y = If (c) <
        then_branch = t () => (int64[3] a) { a = Div(k, z) },
        else_branch = e () => (int64[3] b) { b = Identity(z) } > }"""
    model = parsed(text, k=np.array([1, 2, 3]))
    assert members(import_model(model, fallback=True)) == []
    monkeypatch.delitem(OPERATORS, "Div")
    graph = import_model(model, fallback=True)
    assert members(graph) == ["If"]
    assert [node.op for node in graph.nodes] == ["Neg", "Cast", "If"]
    agrees(model, {"x": np.array([1, 0, 2]), "data": np.array(0, np.float32)})


def test_of_a_branch_that_is_taken_only_the_unbuilt_node_runs_outside(monkeypatch):
    monkeypatch.delitem(OPERATORS, "Neg")
    text = f"g (float[2,3] x) => (float[2,3] y) {{ {BRANCHES.format(condition='c')} }}"
    model = parsed(text, c=np.array(True))
    graph = import_model(model, fallback=True)
    assert [node.op for node in graph.nodes] == ["Add", "Neg"]
    agrees(model, X)


def test_an_operator_whose_body_is_not_built_is_one_member(monkeypatch):
    monkeypatch.delitem(OPERATORS, "Celu", raising=False)
    monkeypatch.delitem(OPERATORS, "Mul")
    model = parsed("g (float[2,3] x) => (float[2,3] y) { y = Celu(x) }")
    assert members(import_model(model, fallback=True)) == ["Celu"]
    agrees(model, X)


def test_sequences_that_import_resolved_are_made_for_a_section():
    text = """g (float[2,3] x, float[100] data) => (float[n,m] y) {
        most = ReduceMax <keepdims = 0> (data) k = Cast <to: int = 7> (most)
        z = Concat <axis = 0> (x, x) s = SequenceConstruct(x, z) y = SequenceAt(s, k) }"""
    model = parsed(text)
    assert members(import_model(model, fallback=True)) == ["SequenceConstruct", "SequenceAt"]
    agrees(model, {**X, "data": np.ones(100, np.float32)})


def test_a_sequence_may_be_an_output():
    text = """g (float[2,3] x) => (seq(float[2,3]) s, float[2,3] y) {
        t = Neg(x) s = SequenceConstruct(x, t) y = Exp(t) }"""
    found = gf.compile(parsed(text)).run(X)
    for array, expected in zip(found["s"], (X["x"], -X["x"]), strict=True):
        np.testing.assert_array_equal(array, expected)


SQUEEZE = """g (float[a,b] x) => (float[{out}] y)
    <int64[1] axis = {{1}}, int64 one = {{1}}, int64 place = {{1}}> {{
    s = Shape(x) d = Gather(s, place) c = Equal(d, one)
    r = If (c) < then_branch = t () => (float[k] a) {{ a = Squeeze(x, axis) }},
                 else_branch = e () => (float[k,l] b) {{ b = Identity(x) }} >
    y = Neg(r) }}"""


@pytest.mark.parametrize(("extent", "out"), [(3, "n,m"), (1, "n")])
def test_a_branch_that_would_be_wrong_is_not_looked_at(extent, out):
    """How exporters write the squeezing of an axis that may have any extent."""
    model = parsed(SQUEEZE.format(out=out))
    graph = import_model(model, {"x": (2, extent)})
    assert graph.values["y"].shape == ((2, 3) if extent == 3 else (2,))
    agrees(model, {"x": noise(2, extent)})


UNREAD = """g (float[6] s, bool flag) => (int64 y) <int64 zero = {0}> {
    nz = NonZero(s) u = Unique(nz) y = Unique(u) n = Shape(u) k = Gather(n, zero) c = Equal(k, zero)
    unread = If (c) <then_branch = t () => (int64 a) { a = Identity(k) },
                     else_branch = e () => (int64 b) { w = Unique(nz) b = Identity(n) }>
    behind = Neg(unread) }"""

DECIDED_BY_A_SECTION = """g (float[6] s, bool flag) => (int64[k] y) <int64 zero = {0}> {
    nz = NonZero(s) u = Unique(nz)
    y = If (flag) <then_branch = t () => (int64[k] a) { a = Identity(u) },
        else_branch = e () => (int64[k] b) { n = Gather(u, zero) c = Greater(n, zero) b = If (c) <
            then_branch = t2 () => (int64[k] p) { p = Unique(u) },
            else_branch = e2 () => (int64[k] q) { q = Neg(u) }> }> }"""


@pytest.mark.parametrize("text", [UNREAD, DECIDED_BY_A_SECTION])
@pytest.mark.parametrize("flag", [True, False])
def test_objects_that_branches_read(text, flag):
    """A section that no output depends on takes an object of another one, and an object decides."""
    for s in ([0, 1, 2, 0, 3, 0], [2, 0, 0, 0, 0, 0]):
        agrees(parsed_model(text), {"s": np.array(s, np.float32), "flag": np.array(flag)})
