"""Tests of control flow and sequences: import takes branches, unrolls loops and resolves
positions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.frontends import OPERATORS, import_model
from graphflow.frontends.control_flow import control, unrolling
from graphflow.graph import canonicalize, interpret_graph
from support.control_flow import BRANCHES, LOOP, X, native
from support.single import noise
from support.texts import assert_agrees, parsed

F32, I64 = np.float32, np.int64


@pytest.mark.parametrize(("flag", "ops"), [(True, ["Add", "Neg"]), (False, ["Mul"])])
def test_a_known_condition_leaves_one_branch(flag, ops):
    body = BRANCHES.format(condition="c")
    model = parsed(f"g (float[2,3] x) => (float[2,3] y) {{ {body} }}", c=np.array(flag))
    graph = canonicalize(assert_agrees(model, X))
    assert [node.op for node in graph.nodes] == ops


def test_a_condition_of_shapes_is_known():
    text = (
        """g (float[2,3] x) => (float[2,3] y) <int64[1] two = {2}, int64[1] zero = {0}> {
        shape = Shape(x) n = Gather(shape, zero) c = Equal(n, two)"""
        + BRANCHES.format(condition="c")
        + "}"
    )
    graph = canonicalize(assert_agrees(parsed(text), X))
    assert [node.op for node in graph.nodes] == ["Add", "Neg"]


@pytest.mark.parametrize("flag", [True, False])
def test_a_condition_of_a_run_selects(flag):
    body = BRANCHES.format(condition="c")
    model = parsed(f"g (float[2,3] x, bool c) => (float[2,3] y) {{ {body} }}")
    assert_agrees(model, {**X, "c": np.array(flag)})


LOOP_NODE = """{outputs} = Loop (t, c, x) <body = b (int64 i, bool k, float[2,3] v)
    => (bool o, float[2,3] w) {{ o = Identity({goes_on}) w = Neg(v) }}>"""
SCAN = """{outputs} = Scan <num_scan_inputs = {count}{lists},
    body = b (float[3] v) => (float[3] w) {{ w = Neg(v) }}> (x)"""
TWO = np.array([True, True])


@pytest.mark.parametrize(
    ("body", "constants", "reason"),
    [
        (
            LOOP_NODE.format(outputs="y", goes_on="k"),
            {"t": np.array([1, 2])},
            r"trip count is int64\[2\]",
        ),
        (LOOP_NODE.format(outputs="y", goes_on="k"), {"t": np.array(2.5)}, "trip count is float64"),
        (LOOP_NODE.format(outputs="y", goes_on="k"), {"c": TWO}, r"condition is bool\[2\]"),
        (LOOP_NODE.format(outputs="y", goes_on="d"), {"d": TWO}, "after iteration 0 is bool"),
        (LOOP_NODE.format(outputs="y, z", goes_on="k"), {}, "2 outputs, and its body makes 1"),
        (LOOP_NODE.format(outputs="y, z", goes_on="k"), {"t": np.array(0)}, "2 outputs"),
        (SCAN.format(outputs="y", count=1, lists=", scan_input_axes = [7]"), {}, "no axis 7"),
        (SCAN.format(outputs="y", count=1, lists=", scan_input_axes = [0, 1]"), {}, "2 numbers"),
        (SCAN.format(outputs="y", count=1, lists=", scan_output_directions = [1, 1]"), {}, "2 num"),
        (SCAN.format(outputs="y", count=5, lists=""), {}, "5 of its 1 inputs"),
        (SCAN.format(outputs="y", count=-1, lists=""), {}, "-1 of its 1 inputs"),
        (SCAN.format(outputs="y, z", count=1, lists=""), {}, "2 outputs, and its body makes 1"),
        (BRANCHES.format(condition="c"), {"c": TWO}, r"condition is bool\[2\]"),
        (BRANCHES.format(condition="c"), {"c": TWO[:0]}, r"condition is bool\[0\]"),
        ("s = SequenceConstruct (x, x) y = SequenceAt (s, t)", {"t": np.array([0, 1])}, "int64.2"),
        (
            "s = SplitToSequence <keepdims = 0> (m) y = SequenceAt (s, t)",
            {"m": np.ones(2000, F32)},
            "2000",
        ),
    ],
)
def test_what_does_not_count_or_decide_is_refused(body, constants, reason):
    known = {"t": np.array(2), "c": np.array(True), **constants}
    model = parsed(f"g (float[2,3] x) => (float y) {{ {body} }}", **known)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises((InvalidModel, UnsupportedOp), match=reason):
        import_model(model)


def test_a_condition_of_a_run_is_one_bool():
    body = BRANCHES.format(condition="c")
    with pytest.raises(InvalidModel, match="condition is bool"):
        import_model(parsed(f"g (float[2,3] x, bool[3] c) => (float[2,3] y) {{ {body} }}"))


def test_the_rows_of_no_iteration_have_the_type_that_the_body_states():
    text = """g (float[2,3] x) => (float[0,4,5] z) { y, z = Loop (t, c, x) <body = b
        (int64 i, bool k, float[2,3] v) => (bool o, float[2,3] w, float[4,5] p, float[7] q)
        { o = Identity(k) w = Neg(v) p = Identity(e) q = Identity(f) }> }"""
    known = {"t": np.array(0), "c": np.array(True), "e": noise(4, 5), "f": noise(7)}
    graph = import_model(parsed(text, **known))
    assert graph.values["z"].shape == (0, 4, 5)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_branch_without_one_of_the_outputs_is_refused(is_known):
    text = """g (float[2,3] x, bool c) => (float[2,3] y) { y = If (c) <
        then_branch = t () => () { a = Neg(x) }, else_branch = e () => (float[2,3] b) { b = Neg(x) }
    > }"""
    constants = {"c": np.array(True)} if is_known else {}
    with pytest.raises(InvalidModel):
        import_model(parsed(text.replace(", bool c", "") if is_known else text, **constants))


@pytest.mark.parametrize("flag", [True, False])
def test_branches_inside_branches_see_outer_names(flag):
    text = """g (float[2,3] x, bool[1] c) => (float[2,3] y, float[2,3] z) {
        s = Relu(x)
        y, z = If (c) <
          then_branch = t () => (float[2,3] a, float[2,3] same) {
            u = Exp(s)
            a = If (d) <
              then_branch = tt () => (float[2,3] p) { v = Add(u, x) p = Neg(v) },
              else_branch = te () => (float[2,3] q) { q = Neg(u) }
            >
            same = Identity(s)
          },
          else_branch = e () => (float[2,3] b, float[2,3] r) { b = Neg(s) r = Neg(x) }
        >
    }"""
    for known in (True, False):
        model = parsed(text, d=np.array(known))
        assert_agrees(model, {**X, "c": np.array([flag])})


def test_a_branch_that_may_fail_is_refused_where_both_are_computed(monkeypatch):
    monkeypatch.setattr(control, "add_branch_region", lambda *_: False)
    text = """g (int64[3] x, bool c) => (int64[3] y) { y = If (c) <
        then_branch = t () => (int64[3] a) { a = Div(k, x) },
        else_branch = e () => (int64[3] b) { b = Identity(x) } > }"""
    model = parsed(text, k=np.array([1, 2, 3]))
    with pytest.raises(UnsupportedOp, match=r"Div_0: the condition of If node If_0.*might fail"):
        import_model(model)
    # A floating-point division never fails, and one by a known divisor was looked at.
    model = parsed(text.replace("int64[3]", "float[3]"), k=noise(3))
    assert_agrees(model, {"x": np.array([1, 0, 2], F32), "c": np.array(False)})
    model = parsed(text.replace("Div(k, x)", "Div(x, k)"), k=np.array([1, 2, 3]))
    assert_agrees(model, {"x": np.array([1, 0, 2]), "c": np.array(True)})


def test_a_condition_of_small_integer_inputs_decides_where_branches_cannot_be_selected():
    text = """g (float[2,3] x, int64 rate) => (float[n,3] y) {
        c = Equal(rate, high) d = Less(rate, high)
        y = If (c) <
            then_branch = t () => (float[2,3] a) { a = Neg(x) },
            else_branch = e () => (float[m,3] b) { b = If (d) <
                then_branch = u () => (float[4,3] f) { f = Concat <axis = 0> (x, x) },
                else_branch = v () => (float[2,3] h) { h = Neg(x) } > } > }"""
    model = parsed(text, high=np.array(16000))
    with pytest.raises(ValuesNeeded, match=r"in else_b.*the values of rate") as e:
        import_model(model)
    assert e.value.inputs == ("rate",)
    assert import_model(model, input_values={"rate": np.array(8000)}).values["y"].shape == (4, 3)
    assert import_model(model, input_values={"rate": np.array(16000)}).values["y"].shape == (2, 3)


INVALID = """y = If (c) <
    then_branch = t () => (float[n,4] a) { a = MatMul(x, wide) },
    else_branch = e () => (float[m,4] b) { b = MatMul(x, narrow) } >"""
"""Of rows of six elements only the first branch is valid, of rows of three only the second."""


def test_a_branch_that_the_shapes_make_invalid_may_never_be_taken():
    weights = {"wide": noise(6, 4), "narrow": noise(3, 4)}
    text = f"g (float[2,6] x, int64 rate) => (float[n,4] y) {{ c = Equal(rate, high) {INVALID} }}"
    model = parsed(text, high=np.array(16000), **weights)
    with pytest.raises(ValuesNeeded, match=r"MatMul.*in the body of If.*the values of rate") as e:
        import_model(model)
    assert e.value.inputs == ("rate",)
    taken = import_model(model, input_values={"rate": np.array(16000)})
    assert taken.values["y"].shape == (2, 4)
    with pytest.raises(InvalidModel, match="MatMul"):
        import_model(model, input_values={"rate": np.array(8000)})
    guarded = f"""g (float[2,6] x, bool d) => (float[n,4] y) {{ y = If (d) <
        then_branch = tt () => (float[n,4] p) {{ s = ReduceMax <keepdims = 0> (x)
            c = Less(zero, s) {INVALID.replace("y =", "q =", 1)} p = Neg(q) }},
        else_branch = te () => (float[k,4] r) {{ r = MatMul(x, wide) }} > }}"""
    with pytest.raises(UnsupportedOp, match="MatMul"):
        import_model(parsed(guarded, zero=np.array(0, F32), **weights))


BRANCHES_THAT_DIFFER = """g (float[2,3] x, float rate) => ({shape} y) {{ c = Less(rate, half)
    y = If (c) <then_branch = t () => (float[2,3] a) {{ a = Neg(x) }},
                else_branch = e () => ({other} b) {{ b = {made} }}> }}"""


def test_a_condition_of_floats_does_not_decide():
    text = BRANCHES_THAT_DIFFER.format(
        shape="float[n,3]", other="float[4,3]", made="Concat <axis = 0> (x, x)"
    )
    feeds = [{**X, "rate": np.array(rate, F32)} for rate in (0.1, 0.9)]
    exe = native(parsed(text, half=np.array(0.5, F32)), *feeds)
    assert exe.deciding == ()


def test_branches_of_other_ranks_are_refused_where_a_run_decides():
    text = BRANCHES_THAT_DIFFER.format(
        shape="float[n,3]", other="float[2,3,1]", made="Unsqueeze(x, two)"
    )
    with pytest.raises(
        UnsupportedOp, match=r"float32\(2, 3\) in then_branch and float32\(2, 3, 1"
    ) as e:
        import_model(parsed(text, half=np.array(0.5, F32), two=np.array([2])))
    assert not isinstance(e.value, ValuesNeeded)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(0, 5), st.integers(-1, 4), st.booleans())
def test_loops_are_unrolled_until_their_end(trips, last, going):
    model = parsed(LOOP, trips=np.array(trips), last=np.array(last), going=np.array(going))
    assert_agrees(model, X)


def test_a_loop_without_a_trip_count_ends_by_its_condition():
    text = LOOP.replace("Loop (trips, going, x)", 'Loop ("", going, x)')
    assert_agrees(parsed(text, last=np.array(2), going=np.array(True)), X)


def test_a_loop_may_grow_what_it_carries():
    text = """g (float[1,3] x) => (float[n,3] y) { y = Loop (trips, "", x) <
        body = b (int64 i, bool c, float[m,3] v) => (bool again, float[k,3] w) {
            again = Identity(c) w = Concat <axis = 0> (v, x) } > }"""
    graph = assert_agrees(parsed(text, trips=np.array(3)), {"x": noise(1, 3)})
    assert graph.values["y"].shape == (4, 3)


def test_loops_inside_loops():
    text = """g (float[3] x) => (float[3] y) { y = Loop (two, "", x) <
        body = b (int64 i, bool c, float[3] v) => (bool again, float[3] w) {
            again = Identity(c)
            w = Loop (three, "", v) <
              body = bb (int64 j, bool cc, float[3] vv) => (bool more, float[3] ww) {
                more = Identity(cc) k = Add(i, j) f = Cast <to: int = 1> (k) t = Mul(f, x)
                ww = Add(vv, t) } > } > }"""
    assert_agrees(parsed(text, two=np.array(2), three=np.array(3)), {"x": noise(3)})


def test_rows_of_which_a_run_decides_how_many_there_are_are_refused():
    inputs = "(float[2,3] x, int64 trips, int64 last)"
    model = parsed(LOOP.replace("(float[2,3] x)", inputs), going=np.array(True))
    with pytest.raises(
        UnsupportedOp, match=r"Loop_0: its trip count \(trips\) is only known at run"
    ):
        import_model(model)


def test_loops_are_unrolled_within_a_budget(monkeypatch):
    monkeypatch.setattr(unrolling, "UNROLLED_NODES", 100)
    text = LOOP.replace("Less(i, last)", "Less(i, much)")
    model = parsed(text, trips=np.array(1 << 40), going=np.array(True), much=np.array(1 << 40))
    with pytest.raises(UnsupportedOp, match=r"more than 100 nodes .at iteration 16"):
        import_model(model)


ENDLESS = {
    "a condition that is passed on": LOOP.replace("Less(i, last)", "Identity(c)"),
    "a condition that is always true": LOOP.replace("Less(i, last)", "Identity(going)"),
    "a condition that is a constant": LOOP.replace(
        "Less(i, last)", "Constant <value = bool {1}>()"
    ),
    "an empty body": """g (float[2,3] x) => (float[2,3] y) { y = Loop (trips, going, x) <
        body = b (int64 i, bool c, float[2,3] v) => (bool c, float[2,3] v) { } > }""",
    "loops in loops": """g (float[2,3] x) => (float[2,3] y) { y = Loop (two, going, x) <
        body = b (int64 i, bool c, float[2,3] v) => (bool c, float[2,3] w) {
            much = Constant <value = int64 {5000}>()
            w = Loop (much, c, v) <
              body = bb (int64 ii, bool cc, float[2,3] vv) => (bool cc, float[2,3] ww) {
                ww = Neg(vv) } > } > }""",
}


def refused(*_: object) -> None:
    raise UnsupportedOp("no region")


@pytest.mark.parametrize("case", ENDLESS)
def test_a_certain_number_of_iterations_is_refused_before_the_first(case, monkeypatch):
    monkeypatch.setattr(unrolling, "inlined", None)
    monkeypatch.setattr(unrolling, "add_loop_region", refused)
    model = parsed(
        ENDLESS[case],
        trips=np.array(1 << 40),
        two=np.array(2),
        going=np.array(True),
        last=np.array(0),
    )
    with pytest.raises(UnsupportedOp, match=r"more than 10000 nodes .* iterations of"):
        import_model(model)


def test_the_weights_of_a_body_are_there_once():
    graph = import_model(parsed(LOOP, trips=np.array(4), last=np.array(9), going=np.array(True)))
    assert [name for name in graph.initializers if "step" in name] == ["Loop_0/step"]


SCAN = """g (float[3] s, float[{shape}] a, float[4,3] b)
       => (float[3] t, float[{out}] r, float[4,3] q) {{
    t, r, q = Scan <num_scan_inputs = 2, scan_input_axes = [{axis}, 0],
                    scan_input_directions = [{back}, 1], scan_output_axes = [{axis}, 0],
                    scan_output_directions = [0, {back}],
        body = g (float[3] u, float[3] p, float[3] o) => (float[3] v, float[3] m, float[3] n) {{
            v = Add(u, p) m = Mul(v, o) n = Sub(p, o) }}
    > (s, a, b) }}"""


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("back", [0, 1])
def test_scans_are_unrolled_along_their_axes(axis, back):
    shape = "3,4" if axis else "4,3"
    text = SCAN.format(shape=shape, out=shape, axis=axis, back=back)
    a = noise(3, 4, seed=1) if axis else noise(4, 3, seed=1)
    assert_agrees(parsed(text), {"s": noise(3), "a": a, "b": noise(4, 3, seed=2)})


SEQUENCES = {
    "at": "s = SequenceConstruct(x, z) y = SequenceAt(s, last)",
    "insert": "e = SequenceEmpty() s = SequenceInsert(e, x) t = SequenceInsert(s, z, zero) "
    "y = ConcatFromSequence <axis = 0> (t)",
    "stack": "s = SequenceConstruct(x, z, x) y = ConcatFromSequence <axis = -1, new_axis = 1> (s)",
    "erase": "s = SequenceConstruct(x, z, x) t = SequenceErase(s, zero) u = SequenceErase(t) "
    "y = SequenceAt(u, zero)",
    "length": "s = SequenceConstruct(x, z, x) y = SequenceLength(s)",
    "split": "s = SplitToSequence <axis = 1> (x, two) y = SequenceAt(s, last)",
    "parts": "s = SplitToSequence <axis = 1> (x, sizes) y = SequenceAt(s, zero)",
    "rows": "s = SplitToSequence <axis = 0, keepdims = 0> (x) y = SequenceAt(s, zero)",
    "kept": "s = SplitToSequence <axis = 0> (x) y = SequenceAt(s, zero)",
    "copy": "s = SequenceConstruct(x, z) t = Identity(s) y = SequenceAt(t, zero)",
    "element": "o = Optional(x) y = OptionalGetElement(o)",
    "has": "o = Optional(x) y = OptionalHasElement(o)",
    "map": "s = SequenceConstruct(x, z) t = SequenceMap <body = b (float[2,3] p) => (float[2,3] q) "
    "{ q = Neg(p) }> (s) y = SequenceAt(t, last)",
}
KINDS = {"length": "int64", "has": "bool"}
RANKS = {"length": "", "has": "", "rows": "[n]", "stack": "[n,m,k]"}


@pytest.mark.parametrize("case", SEQUENCES)
def test_sequences_are_resolved(case):
    kind, shape = KINDS.get(case, "float"), RANKS.get(case, "[n,m]")
    text = f"g (float[2,3] x, float[2,3] z) => ({kind}{shape} y) {{ {SEQUENCES[case]} }}"
    numbers = {"zero": 0, "last": -1, "two": 2, "sizes": [1, 2]}
    used = {name: np.array(n) for name, n in numbers.items() if name in text}
    assert_agrees(parsed(text, 18, **used), {**X, "z": noise(2, 3, seed=1)})


def test_a_sequence_may_be_carried_by_a_loop():
    text = """g (float[2,3] x) => (float[n,3] y) {
        e = SequenceEmpty()
        s = Loop (three, "", e) <
          body = b (int64 i, bool c, seq(float[2,3]) v) => (bool again, seq(float[2,3]) w) {
            again = Identity(c) f = Cast <to: int = 1> (i) t = Mul(x, f) w = SequenceInsert(v, t) }
        >
        y = ConcatFromSequence <axis = 0> (s) }"""
    assert_agrees(parsed(text, three=np.array(3)), X)


@pytest.mark.parametrize(
    ("inputs", "node", "message"),
    [
        ("float[2,3] x", "SplitToSequence <axis = 2> (x)", "axis 2 does not exist in rank 2"),
        ("float[2,3] x", "SplitToSequence <axis = -3> (x)", "axis -3 does not exist in rank 2"),
        ("float x", "SplitToSequence (x)", "axis 0 does not exist in rank 0"),
        ("float[2,3] x", "SplitToSequence (x, sizes)", "the sizes have 2 axes"),
    ],
)
def test_a_split_into_a_sequence_that_cannot_be_is_refused(inputs, node, message):
    # ONNX's own inference has the last word only where a model has no branches.
    branch = "{ w = Identity(x) }"
    text = f"""g ({inputs}) => (float[n,m] y, float[n,m] v) {{
        v = If (yes) <then_branch = a () => (float[n,m] w) {branch},
                      else_branch = b () => (float[n,m] w) {branch}>
        s = {node} y = SequenceAt(s, zero) }}"""
    known = {"yes": np.array(True), "zero": np.array(0), "sizes": np.array([[1, 1]])}
    used = {name: value for name, value in known.items() if name in text}
    model = parsed(text, **used)
    model.graph.output[1].type.tensor_type.ClearField("shape")  # of x, whatever that is
    with pytest.raises(InvalidModel, match=f"SplitToSequence_1: {message}"):
        import_model(model)


def test_what_a_sequence_does_not_tell_is_refused():
    text = """g (float[2,3] x, int64 k) => (float[n,m] y) {
        z = Concat <axis = 0> (x, x) s = SequenceConstruct(x, z) y = SequenceAt(s, k) }"""
    with pytest.raises(ValuesNeeded, match=r"SequenceAt_2: input k .* is only known at run time"):
        import_model(parsed(text))
    text = "g (float[2,3] x) => (float[n,m] y) { s = SequenceConstruct(x) y = SequenceAt(s, k) }"
    with pytest.raises(InvalidModel, match="position 1 is not in a sequence of 1 tensors"):
        import_model(parsed(text, k=np.array(1)))


def test_unbuilt_operators_in_a_branch_that_is_not_taken_do_not_matter(monkeypatch):
    monkeypatch.delitem(OPERATORS, "Hardmax")
    text = """g (float[2,3] x) => (float[2,3] y) { y = If (c) <
        then_branch = t () => (float[2,3] a) { a = Neg(x) },
        else_branch = e () => (float[2,3] b) { b = Hardmax(x) } > }"""
    assert_agrees(parsed(text, c=np.array(True)), X)
    with pytest.raises(UnsupportedOp, match=r"Hardmax \(node If_0/Hardmax_0, from the body of If"):
        import_model(parsed(text, c=np.array(False)))


def test_inner_names_of_copies_of_a_body_do_not_meet():
    text = """g (float[2,3] x) => (float[2,3] y) {
        s = Relu(x)
        a = If (c) < then_branch = t () => (float[2,3] r) { u = Neg(s) r = Exp(u) },
                     else_branch = e () => (float[2,3] q) { q = Neg(s) } >
        b = If (c) < then_branch = t2 () => (float[2,3] r) { u = Abs(a) r = Sqrt(u) },
                     else_branch = e2 () => (float[2,3] q) { q = Neg(a) } >
        y = Add(a, b) }"""
    graph = assert_agrees(parsed(text, c=np.array(True)), X)
    expected = np.exp(-np.maximum(X["x"], 0))
    actual = interpret_graph(graph, X)["y"]
    np.testing.assert_allclose(actual, expected + np.sqrt(expected), rtol=1e-6)


def test_a_branch_that_takes_from_an_axis_of_a_size_is_a_graph_of_its_own():
    model = parsed(
        """g (float[n] x, float[1] w) => (float[1] y) {
        zero = Constant<value=float[1] {0}>()
        two = Constant<value=int64[1] {2}>()
        positive = Greater(w, zero)
        y = If(positive) <then_branch = a () => (float[1] r) {
            largest, places = TopK<axis=0>(x, two)
            r = ReduceMin<axes=[0]>(largest) },
        else_branch = b () => (float[1] s) { s = Identity(zero) }> }"""
    )
    options = gf.Options(cache="off", threads=1, workers=0, fallback=None)
    exe = gf.compile(model, sizes={"n": (1, 6)}, options=options)
    x, w = np.float32([3, 1, 2, 5]), np.ones(1, np.float32)
    assert exe.run({"x": x, "w": w})["y"].tolist() == [3]
    assert exe.run({"x": x[:3], "w": -w})["y"].tolist() == [0]
    assert len(exe.specializations) == 1
