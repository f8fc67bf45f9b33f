"""Tests of loops over as many steps as a run gives, with sizes in their bodies: one program for all
extents, compared with onnxruntime and with programs of one shape."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import RunError
from support.models.sized_runs import OPTIONS, beside_peer, parsed_model
from support.texts import parsed

BATCH = {"b": (1, 3)}
RUNS = [{"b": b, "t": t} for b, t in ((2, 4), (1, 1), (3, 9), (1, 0), (2, 7))]

CELL = """xi = Gather<axis=1>(x, k)
    a = MatMul(xi, w)
    r = MatMul(h, u)
    s = Add(a, r)
    h2 = Tanh(s)"""

RECURRENT = f"""g (float[b,t,5] x, float[5,7] w, float[7,7] u) => (float y, float last) {{
    sh = Shape(x)
    zero = Constant<value=int64 {{0}}>()
    one = Constant<value=int64 {{1}}>()
    first = Constant<value=int64[1] {{0}}>()
    rows = Gather(sh, first)
    width = Constant<value=int64[1] {{7}}>()
    hs = Concat<axis=0>(rows, width)
    h0 = ConstantOfShape(hs)
    steps = Gather(sh, one)
    yes = Constant<value=bool {{1}}>()
    last, made = Loop(steps, yes, h0) <body = c (int64 k, bool on, float[b,7] h) =>
        (bool go, float[b,7] h2, float[b,7] row) {{ go = Identity(on) {CELL} row = Identity(h2) }}>
    y = Transpose<perm=[1,0,2]>(made) }}"""

EARLY = """g (float[t,3] x) => (float y, float made) {
    steps = Shape<end=1>(x)
    zero = Constant<value=float[3] {0,0,0}>()
    yes = Constant<value=bool {1}>()
    most = Constant<value=float {1.5}>()
    y, made = Loop(steps, yes, zero) <body = c (int64 k, bool on, float[3] h) =>
        (bool go, float[3] h2, float[3] row) {
        xi = Gather<axis=0>(x, k)
        h2 = Add(h, xi)
        top = ReduceMax<keepdims=0>(h2)
        go = Less(top, most)
        row = Tanh(h2) }> }"""

ATTENDING = """g (float[b,t,4] x, float[b,4] q) => (float y, float made) {
    sh = Shape(x)
    one = Constant<value=int64 {1}>()
    all = Gather(sh, one)
    steps = Sub(all, one)
    yes = Constant<value=bool {1}>()
    y, made = Loop(steps, yes, q) <body = c (int64 k, bool on, float[b,4] h) =>
        (bool go, float[b,4] h2, float row) {
        go = Identity(on)
        behind = Constant<value=int64[1] {2}>()
        inner = Constant<value=int64[1] {1}>()
        column = Unsqueeze(h, behind)
        scores = MatMul(x, column)
        flat = Squeeze(scores, behind)
        p = Softmax<axis=1>(flat)
        pp = Unsqueeze(p, inner)
        context = MatMul(pp, x)
        c1 = Squeeze(context, inner)
        number = Cast<to=1>(k)
        length = Cast<to=1>(all)
        share = Div(number, length)
        h2 = Add(c1, share)
        turned = Transpose<perm=[1,0]>(h2)
        square = MatMul(h2, turned)
        row = Concat<axis=1>(square, square) }> }"""

SCANNED = """g (float[2] z, float[b,t,2] x, float[b,t] v) => (float s, float y, float w) {
    s, y, w = Scan<num_scan_inputs=2, scan_input_axes=[1,-1], scan_output_axes=[-1,0],
        scan_input_directions=[1,0], scan_output_directions=[0,1],
        body = c (float[2] h, float[b,2] xi, float[b] vi) =>
        (float[2] h2, float[b,2] row, float[b] beside) {
        front = Constant<value=int64[1] {0}>()
        m = ReduceSum<keepdims=0>(xi, front)
        h2 = Add(h, m)
        a = Add(h2, xi)
        row = Tanh(a)
        top = ReduceSum<keepdims=0>(h2, front)
        beside = Add(vi, top) }>(z, x, v) }"""

LISTED = """g (float[b,t,3] x) => (float y, float last) {
    parts = SplitToSequence<axis=1, keepdims=0>(x)
    steps = SequenceLength(parts)
    yes = Constant<value=bool {1}>()
    none = SequenceEmpty()
    first = ReduceMax<axes=[1], keepdims=0>(x)
    last, list = Loop(steps, yes, first, none) <body = c (int64 k, bool on, float[b,3] h, seq(float)
        before) => (bool go, float[b,3] h2, seq(float) behind) {
        go = Identity(on)
        xi = SequenceAt(parts, k)
        h2 = Add(h, xi)
        row = Tanh(h2)
        behind = SequenceInsert(before, row) }>
    y = ConcatFromSequence<axis=1, new_axis=1>(list) }"""


@pytest.mark.parametrize(
    ("text", "least"), [(RECURRENT, 1), (EARLY, 0), (ATTENDING, 2), (SCANNED, 1), (LISTED, 1)]
)
def test_one_program_serves_all_numbers_of_steps(text, least):
    sizes = {"t": (least, 9)} | (BATCH if "[b" in text else {})
    runs = [{n: run[n] for n in sizes} for run in RUNS if run["t"] >= least]
    options = gf.Options(cache="off", threads=2, workers=0, fallback=None)
    wrong, why_not = beside_peer(parsed_model(text), sizes, runs, options, exact=1)
    assert (wrong, why_not) == ([], "")


def test_an_index_of_a_body_is_checked_against_what_the_run_gives():
    model = parsed_model(
        """g (float[t,3] x, float[n] z) => (float y) {
        steps = Shape(z)
        zero = Constant<value=float[3] {0,0,0}>()
        yes = Constant<value=bool {1}>()
        y = Loop(steps, yes, zero) <body = c (int64 k, bool on, float[3] h) =>
            (bool go, float[3] h2) {
            go = Identity(on)
            xi = Gather<axis=0>(x, k)
            h2 = Add(h, xi) }> }"""
    )
    exe = gf.compile(model, sizes={"t": (1, 8), "n": (1, 8)}, options=OPTIONS)
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    exe.run({"x": x, "z": np.zeros(8, np.float32)})
    found = exe.run({"x": x[:4], "z": np.zeros(3, np.float32)})["y"]
    np.testing.assert_array_equal(found, x[:3].sum(0))
    with pytest.raises(RunError, match="the largest index of tensor"):
        exe.run({"x": x[:5], "z": np.zeros(7, np.float32)})


def test_scanned_axes_of_two_sizes_are_equal_in_each_run():
    model = parsed_model(
        """g (float[3] z, float[t,3] x, float[n,3] v) => (float s) {
        s = Scan<num_scan_inputs=2, body = c (float[3] h, float[3] xi, float[3] vi) =>
            (float[3] h2) { a = Add(h, xi) h2 = Add(a, vi) }>(z, x, v) }"""
    )
    exe = gf.compile(model, sizes={"t": (1, 8), "n": (1, 8)}, options=OPTIONS)
    x, z = np.ones((4, 3), np.float32), np.zeros(3, np.float32)
    np.testing.assert_array_equal(exe.run({"x": x, "v": x, "z": z})["s"], np.full(3, 8.0))
    assert next(iter(exe.report()["sizes"].values()))["why_not"] == ""
    with pytest.raises(gf.GraphflowError, match="t = n has to hold"):
        exe.run({"x": x, "v": x[:2], "z": z})


def test_a_sequence_of_as_many_tensors_as_a_run_says_is_an_output_of_a_program_of_one_shape():
    model = parsed("""g (float[t,3] x) => (seq(float[3]) y) {
        y = SplitToSequence<axis=0, keepdims=0>(x) }""")
    with pytest.warns(UserWarning, match="a sequence whose length a run decides"):
        exe = gf.compile(model, sizes={"t": (1, 8)}, options=OPTIONS)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(exe.run({"x": x})["y"], x)


def test_a_state_of_another_extent_after_an_iteration_is_refused():
    model = parsed_model(
        """g (float[t,3] x, float[n,3] v) => (float s) {
        yes = Constant<value=bool {1}>()
        m = Shape<end=1>(v)
        s = Loop(m, yes, x) <body = c (int64 k, bool on, float[t,3] h) =>
            (bool go, float[t,3] h2) { go = Identity(on) h2 = Relu(v) }> }"""
    )
    with pytest.warns(UserWarning, match="may have another extent after an iteration"):
        exe = gf.compile(model, sizes={"t": (1, 8), "n": (1, 8)}, options=OPTIONS)
    x = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(exe.run({"x": x, "v": x})["s"], x)
