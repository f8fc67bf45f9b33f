"""Tests of branches and loops of which a run decides: native, compared with onnxruntime."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import RunError, UnsupportedOp
from graphflow.bench import profile_run
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from graphflow.inspect.page import shown_model
from support.control_flow import native
from support.single import noise, peer
from support.texts import parsed

F32, I64 = np.float32, np.int64


def jumps(exe: gf.Executable) -> int:
    return sum(step.jump is not None for step in exe.program.spec.run)


BRANCH = """g (float[4,6] x, float[6,6] w, bool c, int64[4] i) => (float[4,6] y) {
    a = Relu(x)
    z = If (c) <
        then_branch = t () => (float[4,6] p) { q = MatMul(a, w) p = Gather(q, i) },
        else_branch = e () => (float[4,6] r) { s = MatMul(w, w) r = Slice(s, zero, four) }>
    y = Neg(z) }"""
BRANCH_FEEDS = {"x": noise(4, 6), "w": noise(6, 6, seed=1), "i": np.array([0, 1, -1, 2])}


@pytest.fixture(scope="module")
def branch() -> gf.Executable:
    model = parsed(BRANCH, zero=np.array([0]), four=np.array([4]))
    feeds = ({**BRANCH_FEEDS, "c": np.array(c)} for c in (True, False, True))
    return native(model, *feeds, poison=True)


def test_a_run_executes_one_branch(branch):
    assert jumps(branch) == 2
    assert "If_1: a run executes one of its branches, as c says" in branch.explain("z")


def test_errors_of_a_branch_appear_only_where_it_is_taken(branch):
    wrong = {**BRANCH_FEEDS, "i": np.array([0, 1, 9, 2])}
    assert branch.run({**wrong, "c": np.array(False)})["y"].shape == (4, 6)
    with pytest.raises(RunError, match="an index of tensor i is 9"):
        branch.run({**wrong, "c": np.array(True)})


def test_a_division_by_zero_in_the_other_branch_is_not_executed():
    text = """g (int64[3] x, bool c) => (int64[3] y) { y = If (c) <
        then_branch = t () => (int64[3] a) { a = Div(k, x) },
        else_branch = e () => (int64[3] b) { b = Identity(x) } > }"""
    exe = native(
        parsed(text, k=np.array([1, 2, 3])),
        {"x": np.array([1, 0, 2]), "c": np.array(False)},
        {"x": np.array([1, -1, 2]), "c": np.array(True)},
    )
    assert jumps(exe) == 2


def test_a_saved_program_jumps_too(branch, tmp_path):
    branch.save(tmp_path / "branch.gfx")
    loaded = gf.load(tmp_path / "branch.gfx")
    for c in (True, False):
        feeds = {**BRANCH_FEEDS, "c": np.array(c)}
        np.testing.assert_array_equal(loaded.run(feeds)["y"], branch.run(feeds)["y"])


def test_reports_pages_and_profiles_have_branches(branch):
    assert branch.page().startswith("<!doctype html>")
    nodes = shown_model(branch.compiled).program.nodes
    (shown,) = (node for node in nodes if node.kind == "region")
    assert shown.notes == ("If node If_1: a run executes one of its branches, as c says",)
    feeds = {**BRANCH_FEEDS, "c": np.array(True)}
    profile = profile_run(branch.compiled, branch.program, feeds, runs=6)
    assert len(profile.steps) == len(branch.program.spec.run)
    assert sum(step.seconds == 0 for step in profile.steps) >= 2  # those of the other branch


def test_branches_of_other_shapes_lie_in_one_box():
    text = """g (float[3,4] x, bool c) => (float[n,4] y, float[m,4] z) {
        y = If (c) <then_branch = t () => (float[2,4] a) { e = Exp(x) a = Slice(e, zero, two) },
                    else_branch = e () => (float[6,4] b) { b = Concat <axis = 0> (x, x) }>
        z = Neg(y) }"""
    model = parsed(text, zero=np.array([0]), two=np.array([2]))
    feeds = ({"x": noise(3, 4), "c": np.array(c)} for c in (True, False))
    native(model, *feeds, poison=True)


def test_branches_with_extents_that_data_decides():
    text = """g (float[5] x, bool c) => (int64[1,n] y) {
        y = If (c) <then_branch = t () => (int64[1,k] a) { a = NonZero(x) },
                    else_branch = e () => (int64[1,k] b) { f = Not(d) d = Cast <to: int = 9> (x)
                                                           b = NonZero(f) }>}"""
    text = text.replace(
        "f = Not(d) d = Cast <to: int = 9> (x)", "d = Cast <to: int = 9> (x) f = Not(d)"
    )
    x = np.array([0, 1, 0, 2, 3], F32)
    native(parsed(text), *({"x": x, "c": np.array(c)} for c in (True, False)))


def test_branches_inside_branches():
    text = """g (float[4,4] x, bool c, bool d) => (float[4,4] y) {
        y = If (c) <
            then_branch = t () => (float[4,4] a) { m = MatMul(x, x) a = If (d) <
                then_branch = tt () => (float[4,4] aa) { aa = MatMul(m, x) },
                else_branch = te () => (float[4,4] ab) { ab = Softmax(m) }> },
            else_branch = e () => (float[4,4] b) { b = Softmax(x) }>}"""
    feeds = [
        {"x": noise(4, 4), "c": np.array(c), "d": np.array(d)}
        for c in (True, False)
        for d in (True, False)
    ]
    assert jumps(native(parsed(text), *feeds)) == 4


LOOP = """g ({inputs}) => (float[4,6] y, int64 n, float[k,3,6] rows) {{
    y, n, rows = Loop ({trips}, {going}, x, zero) <
        body = b (int64 i, bool c, float[4,6] s, int64 k)
            => (bool again, float[4,6] t, int64 l, float[3,6] row) {{
            q = MatMul(s, w) t = Tanh(q) a = Abs(t) most = ReduceMax <keepdims = 0> (a)
            again = Greater(most, least) l = Add(k, one) row = Gather(t, ix) }}>}}"""
LOOP_CONSTANTS = {"zero": np.array(0), "one": np.array(1)}
LOOP_INPUTS = "float[4,6] x, float[6,6] w, float least, int64[3] ix"


def loop_feeds(least: float, **others) -> dict[str, np.ndarray]:
    feeds = {"x": noise(4, 6), "w": noise(6, 6, seed=1) * F32(0.3), "ix": np.array([0, 3, -1])}
    return {**feeds, "least": np.array(least, F32), **others}


def test_a_loop_ends_when_its_condition_says():
    inputs = f"{LOOP_INPUTS}, bool going"
    text = LOOP.format(inputs=inputs, trips="seven", going="going")
    model = parsed(text, seven=np.array(7), **LOOP_CONSTANTS)
    feeds = [
        loop_feeds(least, going=np.array(going))
        for least in (0.0, 0.3, 2.0)
        for going in (True, False)
    ]
    exe = native(model, *feeds, poison=True)
    assert jumps(exe) == 2
    wrong = loop_feeds(0.0, going=np.array(True), ix=np.array([0, 3, 9]))
    with pytest.raises(RunError, match="an index of tensor ix is 9"):
        exe.run(wrong)
    assert exe.run({**wrong, "going": np.array(False)})["n"] == 0
    assert "a run executes its body at most 7 times" in exe.explain("rows")


@pytest.mark.parametrize("trips", [0, 1, 40])
def test_a_trip_count_of_a_run_needs_no_constant_bound_without_rows(trips):
    inputs = f"{LOOP_INPUTS}, int64 trips"
    text = LOOP.format(inputs=inputs, trips="trips", going="").replace(", rows", "")
    text = text.replace(", float[k,3,6] rows", "").replace(", float[3,6] row)", ")")
    text = text.replace(" row = Gather(t, ix)", "")
    model = parsed(text, **LOOP_CONSTANTS)
    native(model, loop_feeds(0.0, trips=np.array(trips)), loop_feeds(0.5, trips=np.array(trips)))


def test_the_interpreter_executes_loops_too():
    text = LOOP.format(inputs=LOOP_INPUTS, trips="seven", going="")
    model = parsed(text, seven=np.array(7), **LOOP_CONSTANTS)
    graph = import_model(model)
    feeds = loop_feeds(0.3)
    found, expected = interpret_graph(graph, feeds), peer(model, feeds)
    count = int(expected["n"])
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["rows"][:count], expected["rows"], rtol=1e-4, atol=1e-5)


STATES = {
    "float16": "t = Mul(s, s)",
    "int8": "t = Add(s, s)",
    "bool": "t = Not(s)",
    "float64": "t = Add(s, s)",
    "uint8": "t = Add(s, s)",
}


@pytest.mark.parametrize("dtype", STATES)
def test_states_of_all_element_types(dtype):
    kind = {"float64": "double"}.get(dtype, dtype)
    text = f"""g ({kind}[2,3] x, int64 trips) => ({kind}[2,3] y) {{
        y = Loop (trips, , x) <body = b (int64 i, bool c, {kind}[2,3] s)
            => (bool again, {kind}[2,3] t) {{ again = Identity(c) {STATES[dtype]} }}>}}"""
    x = (noise(2, 3) > 0) if dtype == "bool" else np.arange(6).reshape(2, 3)
    feeds = ({"x": x.astype(dtype), "trips": np.array(n)} for n in (0, 1, 2, 5))
    model = parsed(text)
    exe = gf.compile(model, options=gf.Options(fallback=None, workers=0))
    if dtype in ("uint8", "int8", "float16"):  # onnxruntime lacks some of these kernels
        given = one = x.astype(dtype)
        for n in (0, 1, 2):
            np.testing.assert_array_equal(exe.run({"x": given, "trips": np.array(n)})["y"], one)
            with np.errstate(over="ignore"):
                one = one * one if dtype == "float16" else one + one
        return
    for given in feeds:
        np.testing.assert_array_equal(exe.run(given)["y"], peer(model, given)["y"])


def test_states_that_change_places():
    text = """g (float[8] x, float[8] z, int64 trips) => (float[8] a, float[8] b) {
        a, b = Loop (trips, , x, z) <body = b (int64 i, bool c, float[8] s, float[8] t)
            => (bool again, float[8] t, float[8] u) { again = Identity(c) u = Identity(s) }>}"""
    text = text.replace(
        "=> (bool again, float[8] t, float[8] u)", "=> (bool again, float[8] t2, float[8] u)"
    )
    text = text.replace("u = Identity(s) }", "u = Identity(s) t2 = Identity(t) }")
    feeds = ({"x": noise(8), "z": noise(8, seed=1), "trips": np.array(n)} for n in (0, 1, 4))
    native(parsed(text), *feeds)


def test_loops_inside_loops_and_branches_inside_loops():
    text = """g (float[3,3] x, int64 n, int64 m) => (float[3,3] y, int64 k) {
        y, k = Loop (n, , x, zero) <body = b (int64 i, bool c, float[3,3] s, int64 p)
            => (bool again, float[3,3] t, int64 r) { again = Identity(c)
            odd = Mod(i, two) is = Cast <to: int = 9> (odd)
            u = If (is) <then_branch = d () => (float[3,3] v) { v = Softmax(s) },
                         else_branch = e () => (float[3,3] w) { w = MatMul(s, x) }>
            t, r = Loop (m, , u, p) <body = bb (int64 j, bool cc, float[3,3] ss, int64 pp)
                => (bool more, float[3,3] tt, int64 rr) { more = Identity(cc)
                f = Cast <to: int = 1> (j) tt = Add(ss, f) rr = Add(pp, two) }> }>}"""
    model = parsed(text, zero=np.array(0), two=np.array(2))
    feeds = [
        {"x": noise(3, 3) * F32(0.3), "n": np.array(n), "m": np.array(m)}
        for n in (0, 1, 3)
        for m in (0, 2)
    ]
    native(model, *feeds)


SCAN = """g (float[3] s, float[{shape}] a, float[600,3] b)
       => (float[3] t, float[{shape}] r, float[600,3] q) {{
    t, r, q = Scan <num_scan_inputs = 2, scan_input_axes = [{axis}, 0],
                    scan_input_directions = [{back}, 1], scan_output_axes = [{axis}, 0],
                    scan_output_directions = [0, {back}],
        body = g (float[3] u, float[3] p, float[3] o) => (float[3] v, float[3] m, float[3] n) {{
            d = Sub(u, p) e = Mul(d, half) f = Abs(e) g = Neg(f) h = Exp(g) j = Add(h, h)
            k = Sub(j, h) l = Add(k, e) v1 = Mul(l, half) v2 = Add(v1, v1) v3 = Mul(v2, half)
            v4 = Add(v3, v3) v5 = Mul(v4, half) v = Add(v5, v5)
            m = Mul(v, o) n = Sub(p, o) }}
    > (s, a, b) }}"""


@pytest.mark.parametrize(("axis", "back"), [(0, 0), (1, 1), (-1, 0)])
def test_a_scan_too_long_to_unroll_is_a_loop(axis, back):
    shape = "3,600" if axis else "600,3"
    text = SCAN.format(shape=shape, axis=axis, back=back)
    a = noise(3, 600, seed=1) if axis else noise(600, 3, seed=1)
    model = parsed(text, half=np.array([0.5], F32))
    exe = native(model, {"s": noise(3), "a": a, "b": noise(600, 3, seed=2)})
    assert jumps(exe) == 2 and len(exe.program.spec.run) < 30


def test_threads_take_the_same_way_through_a_loop():
    text = """g (float[256,256] x, float[256,256] w, int64 trips, float least)
        => (float[256,256] y, int64 n) { y, n = Loop (trips, , x, zero) <
        body = b (int64 i, bool c, float[256,256] s, int64 k)
            => (bool again, float[256,256] t, int64 l) {
            q = MatMul(s, w) t = Tanh(q) a = Abs(t) m = ReduceMax <keepdims = 0> (a)
            again = Greater(m, least) l = Add(k, one) }>}"""
    model = parsed(text, zero=np.array(0), one=np.array(1))
    exe = gf.compile(model, options=gf.Options(fallback=None, workers=0, threads=2))
    for trips, least in ((0, 0.0), (1, 0.0), (60, 0.0), (60, 0.05)):
        feeds = {"x": noise(256, 256), "w": noise(256, 256, seed=1) * F32(0.05)}
        feeds |= {"trips": np.array(trips), "least": np.array(least, F32)}
        found, expected = exe.run(feeds), peer(model, feeds)
        assert found["n"] == expected["n"]
        np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-3, atol=1e-4)


def test_rows_without_a_bound_are_refused():
    inputs = f"{LOOP_INPUTS}, float[99] data"
    text = LOOP.format(inputs=inputs, trips="trips", going="")
    text = text.replace(
        "y, n, rows = Loop",
        "s = ReduceMax <keepdims = 0> (data) trips = Cast <to: int = 7> (s) y, n, rows = Loop",
    )
    with pytest.raises(UnsupportedOp, match="trip count"):
        import_model(parsed(text, **LOOP_CONSTANTS))


SEQUENCE = """g (float[2,3] x, float least) => ({output}) {{
    e = SequenceEmpty()
    last, q = Loop (seven, going, x, e) <
        body = b (int64 i, bool c, float[2,3] s, seq(float[2,3]) before)
            => (bool again, float[2,3] t, seq(float[2,3]) after) {{
            t = Mul(s, s) u = Neg(t) after = SequenceInsert(before, u)
            most = ReduceMax <keepdims = 0> (t) again = Greater(most, least) }}>
    {tail} }}"""
SEQUENCE_FEEDS = [
    {"x": np.array([[0.9, 0.8, 0.1], [0.2, 0.3, 0.4]], F32), "least": np.array(least, F32)}
    for least in (0.9, 0.5, 0.01, 1e-30)
]


@pytest.mark.parametrize(
    ("output", "tail"),
    [
        ("float[a,b,c] y", "y = ConcatFromSequence <axis = 0, new_axis = 1> (q)"),
        ("float[a,b,c] y", "z = ConcatFromSequence <axis = -1, new_axis = 1> (q) y = Exp(z)"),
        ("float[a,b] y", "y = ConcatFromSequence <axis = 0> (q)"),
        ("float[a,b] y", "y = ConcatFromSequence <axis = 1> (q)"),
        ("int64 y", "y = SequenceLength(q)"),
        ("float[a,b] y", "l = SequenceLength(q) f = Cast <to = 1> (l) y = Mul(last, f)"),
    ],
)
def test_tensors_that_iterations_append_to_a_sequence_are_rows(output, tail):
    text = SEQUENCE.format(output=output, tail=tail)
    exe = native(parsed(text, seven=np.array(7), going=np.array(True)), *SEQUENCE_FEEDS)
    assert exe.deciding == ()
