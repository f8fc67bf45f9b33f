"""Tests of loops that carry tensors which grow, as scripts build lists of results and decoders keep
keys and values: native, compared with onnxruntime and ONNX's evaluator."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.control_flow import native, scripted
from support.models.sized_runs import beside_peer
from support.single import noise
from support.texts import parsed

F32, TRUE = np.float32, np.array(True)


LISTED = """g (float[4,6] x, float[6,6] w, float least) => (float y, float last, int64 count) {{
    y, last, count = Loop (trips, yes, none, x, zero) <
        body = b (int64 i, bool c, float before, float[4,6] h, int64 k)
            => (bool go, float behind, float[4,6] h2, int64 k2) {{
            p = MatMul(h, w) h2 = Tanh(p) {row} behind = Concat <axis = {axis}> ({joined})
            most = ReduceMax <keepdims = 0> (h2) go = Greater(most, least)
            k2 = Add(k, one) }}>}}"""
ONE_ROW = "row = ReduceMax <axes = [0], keepdims = 1> (h2)"
LISTS = {
    "a list of rows": ((0, 6), ONE_ROW, 0, "before, row"),
    "three rows in each": ((0, 6), "row = Slice(h2, a1, a4)", 0, "before, row"),
    "behind what there is": ((2, 6), ONE_ROW, 0, "before, row"),
    "in front of it": ((2, 6), ONE_ROW, 0, "row, before"),
    "along the last axis": ((1, 3), ONE_ROW, -1, "before, row"),
    "in the middle": ((4, 1, 6), "row = Unsqueeze(h2, a1)", 1, "before, row"),
    "read again": ((1, 6), ONE_ROW + " old = Neg(before)", 0, "old, row"),
}
THRESHOLDS = (0.0, 0.05, 0.1, 0.2, 0.3, 2.0)


@pytest.mark.parametrize("which", LISTS)
def test_one_program_serves_lists_of_all_lengths(which):
    shape, row, axis, joined = LISTS[which]
    model = scripted(
        LISTED.format(row=row, axis=axis, joined=joined),
        trips=np.array(17),
        yes=TRUE,
        none=noise(*shape, seed=4),
        zero=np.array(0),
        one=np.array(1),
        a1=np.array([1]),
        a4=np.array([4]),
    )
    weights = {"x": noise(4, 6), "w": noise(6, 6, seed=1) * F32(0.3)}
    feeds = [{**weights, "least": np.array(least, F32)} for least in THRESHOLDS]
    exe = native(model, *feeds, poison=True)
    assert exe.deciding == ()
    assert len({int(exe.run(given)["count"]) for given in feeds}) > 3


DECODER = """g (int64[1,p] start, float[11,8] table, float[8,11] head, float[{rows},8] places)
        => (int64[1,m] tokens) {{
    tokens = Loop (trips, yes, start) <body = b (int64 i, bool c, int64[1,q] t)
        => (bool go, int64[1,r] t2) {{
        word = Gather(table, t) shape = Shape(t) n = Gather(shape, one) ids = Range(zero, n, one)
        place = Gather(places, ids) v = Add(word, place) vt = Transpose <perm = [0,2,1]> (v)
        scores = MatMul(v, vt) p = Softmax <axis = -1> (scores) context = MatMul(p, v)
        last = Gather <axis = 1> (context, minus) logits = MatMul(last, head)
        next = ArgMax <axis = 1, keepdims = 1> (logits)
        t2 = Concat <axis = 1> (t, next)
        word2 = Squeeze(next) is = Equal(word2, end) go = Not(is) }}> }}"""
DECODER_NUMBERS = {
    "trips": np.array(20), "yes": TRUE, "end": np.array(7), "minus": np.array(-1),
    "one": np.array(1), "zero": np.array(0),
}  # fmt: skip
TABLES = {"table": noise(11, 8, seed=32), "head": noise(8, 11, seed=4)}


def test_a_decoder_that_reads_all_tokens_in_each_iteration():
    text = DECODER.format(rows=22).replace("int64[1,p]", "int64[1,2]")
    feeds = [
        {**TABLES, "places": noise(22, 8, seed=5), "start": np.array([[token, 4]])}
        for token in range(11)
    ]
    model = parsed(text, **DECODER_NUMBERS)
    exe = native(model, *feeds, poison=True)
    lengths = {exe.run(given)["tokens"].shape[1] for given in feeds}
    assert len(lengths) > 2
    found = ReferenceEvaluator(model).run(None, feeds[0])[0]
    np.testing.assert_array_equal(exe.run(feeds[0])["tokens"], found)


def test_a_decoder_that_begins_with_as_many_tokens_as_a_run_gives():
    model = scripted(DECODER.format(rows=28), **DECODER_NUMBERS)
    runs = [{"p": n} for n in (1, 8, 3, 2, 7)]
    options = gf.Options(cache="off", threads=2, workers=0, fallback=None, poison=True)
    wrong, why_not = beside_peer(model, {"p": (1, 8)}, runs, options, exact=1)
    assert (wrong, why_not) == ([], "")


CACHED = """g (float[1,1,8] x, float[8,8] wk, float[8,8] wv)
        => (float y, float keys, float values, float all) {
    y, keys, values, all = Loop (trips, yes, x, none, none) <
        body = b (int64 i, bool c, float[1,1,8] h, float k, float v)
            => (bool go, float[1,1,8] h2, float k2, float v2, float[1,1,8] row) {
            key = MatMul(h, wk) value = MatMul(h, wv)
            k2 = Concat <axis = 1> (k, key) v2 = Concat <axis = 1> (v, value)
            turned = Transpose <perm = [0,2,1]> (k2) scores = MatMul(h, turned)
            p = Softmax <axis = -1> (scores) context = MatMul(p, v2)
            s = Add(context, h) h2 = Tanh(s) row = Identity(h2)
            most = ReduceMax <keepdims = 0> (h2) go = Less(most, limit) }> }"""


def test_keys_and_values_grow_together():
    model = scripted(
        CACHED,
        trips=np.array(24),
        yes=TRUE,
        none=np.zeros((1, 0, 8), F32),
        limit=np.array(0.9, F32),
    )
    feeds = [
        {
            "x": noise(1, 1, 8, seed=k),
            "wk": noise(8, 8, seed=1),
            "wv": noise(8, 8, seed=2) * F32(k / 8),
        }
        for k in range(8)
    ]
    exe = native(model, *feeds, poison=True)
    assert len({exe.run(given)["keys"].shape for given in feeds}) > 2


OVER_SIZE = """g (float[t,3] x) => (float y) {{
    shape = Shape(x) trips = Gather(shape, zero)
    y = Loop (trips, yes, none) <body = b (int64 i, bool c, float[q,3] before)
        => (bool go, float[r,3] behind) {{
        go = Identity(c) xi = Gather <axis = 0> (x, i) h = Tanh(xi) {rows} }}> }}"""
NESTED = """behind = Loop (three, yes, before) <body = d (int64 j, bool e, float[s,3] o)
    => (bool f, float[u,3] o2) { f = Identity(e) g = Cast <to = 1> (j) k = Add(h, g)
    row = Unsqueeze(k, first) o2 = Concat <axis = 0> (o, row) }>"""
PREFIX = """next = Add(i, one) end = Reshape(next, first1) some = Slice(x, first, end)
    sum = ReduceSum <keepdims = 1> (some, first) behind = Concat <axis = 0> (before, sum)"""


@pytest.mark.parametrize(
    "rows",
    ["row = Unsqueeze(h, first) behind = Concat <axis = 0> (before, row)", NESTED, PREFIX],
    ids=["rows", "nested", "prefix"],
)
def test_one_program_serves_lists_over_a_size(rows):
    model = scripted(
        OVER_SIZE.format(rows=rows),
        zero=np.array(0),
        one=np.array(1),
        first=np.array([0]),
        first1=np.array([1]),
        three=np.array(3),
        yes=TRUE,
        none=np.zeros((0, 3), F32),
    )
    options = gf.Options(cache="off", threads=2, workers=0, fallback=None, poison=True)
    runs = [{"t": n} for n in (4, 1, 9, 7, 2)]
    wrong, why_not = beside_peer(model, {"t": (1, 9)}, runs, options, exact=1)
    assert (wrong, why_not) == ([], "")


def test_the_interpreter_executes_loops_of_growing_states():
    shape, row, axis, joined = LISTS["three rows in each"]
    model = scripted(
        LISTED.format(row=row, axis=axis, joined=joined),
        trips=np.array(9),
        yes=TRUE,
        none=np.zeros(shape, F32),
        zero=np.array(0),
        one=np.array(1),
        a1=np.array([1]),
        a4=np.array([4]),
    )
    feeds = {"x": noise(4, 6), "w": noise(6, 6, seed=1), "least": np.array(0.9, F32)}
    found = interpret_graph(import_model(model), feeds)
    expected = dict(
        zip(("y", "last", "count"), ReferenceEvaluator(model).run(None, feeds), strict=True)
    )
    rows = 3 * int(expected["count"])
    np.testing.assert_allclose(found["y"][:rows], expected["y"], rtol=1e-4, atol=1e-5)


def test_a_window_of_one_length_is_no_growing_state():
    model = scripted(
        """g (float[4,6] x, float[6] z, float least) => (float y) {
        y, last = Loop (trips, yes, x, z) <body = b (int64 i, bool c, float[4,6] w, float[6] h)
            => (bool go, float[4,6] w2, float[6] h2) {
            rest = Slice(w, one, four) h2 = Cos(h) row = Unsqueeze(h2, zero)
            w2 = Concat <axis = 0> (rest, row)
            most = ReduceMax <keepdims = 0> (h2) go = Greater(most, least) }> }""",
        trips=np.array(9),
        yes=TRUE,
        zero=np.array([0]),
        one=np.array([1]),
        four=np.array([4]),
    )
    feeds = [
        {"x": noise(4, 6), "z": noise(6, seed=1), "least": np.array(least, F32)}
        for least in (0.0, 0.93, 1.0)
    ]
    assert native(model, *feeds, poison=True).deciding == ()


def test_a_state_that_doubles_is_refused():
    model = scripted(
        """g (float[1,6] x, float[9,9] data) => (float y) {
        y = Loop (trips, yes, x) <body = b (int64 i, bool c, float[q,6] s)
            => (bool go, float[r,6] s2) {
            s2 = Concat <axis = 0> (s, s)
            most = ReduceMax <keepdims = 0> (data) go = Greater(most, least) }> }""",
        trips=np.array(9),
        yes=TRUE,
        least=np.array(1, F32),
    )
    with pytest.raises(UnsupportedOp, match="append as many elements in each iteration"):
        import_model(model)
