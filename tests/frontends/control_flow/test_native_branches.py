"""Tests of branches that read and make tensors of which a run decides the extents, as behind the
suppression of boxes: native, compared with onnxruntime and with programs of one shape."""

import numpy as np
import pytest

import graphflow as gf
from support.control_flow import native
from support.models.sized_runs import beside_peer, parsed_model
from support.single import noise
from support.texts import parsed

F32 = np.float32
OPTIONS = gf.Options(cache="off", threads=2, workers=0, fallback=None, poison=True)

KEPT = """g (float[n,4] boxes, float[n] scores) => (float[m,4] y, int64 count) {
    keep = Greater(scores, half) found = NonZero(keep) places = Squeeze(found, first)
    kept = Gather(boxes, places) number = Size(kept) is = Equal(number, zero)
    y, z = If (is) <
        then_branch = t () => (float[0,4] p, float[0] a) {
            p = Identity(none) a = Identity(nothing) },
        else_branch = e () => (float[r,4] q, float[s] b) {
            twice = Mul(kept, two) q = Softmax(twice)
            b = ReduceMax <axes = [1], keepdims = 0> (q) }>
    count = Size(z) }"""
KEPT_NUMBERS = {
    "half": np.array(0.5, F32), "two": np.array(2, F32), "zero": np.array(0),
    "first": np.array([0]), "none": np.zeros((0, 4), F32), "nothing": np.zeros(0, F32),
}  # fmt: skip


def test_no_boxes_in_one_branch_and_those_of_a_run_in_the_other():
    model = parsed(KEPT.replace("[n", "[6"), **KEPT_NUMBERS)
    feeds = [
        {"boxes": noise(6, 4), "scores": noise(6, seed=seed) * F32(scale)}
        for seed in range(3)
        for scale in (1, 0)
    ]
    exe = native(model, *feeds, poison=True)
    assert exe.deciding == () and len({exe.run(given)["y"].shape for given in feeds}) > 2


def test_no_boxes_of_as_many_as_a_run_gives():
    exe = gf.compile(parsed(KEPT, **KEPT_NUMBERS), sizes={"n": (1, 8)}, options=OPTIONS)
    for seed in range(8):
        scores = noise(1 + seed, seed=seed)
        boxes, kept = noise(1 + seed, 4, seed=seed), scores > 0.5
        found = exe.run({"boxes": boxes, "scores": scores})
        powers = np.exp(2 * boxes[kept] - (2 * boxes[kept]).max(1, keepdims=True, initial=-9))
        expected = powers / powers.sum(1, keepdims=True)
        np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-6)
        assert found["count"] == kept.sum()
    assert len(exe.specializations) == 1


SIZED = """g (float[n,4] x, float[k,4] z, float[4,4] w) => (float y)
        <float least = {{{least}}}, int64[1] first = {{0}}, int64[1] three = {{3}}> {{
    top = ReduceMax <keepdims = 0> (w) c = Greater(top, least)
    a = If (c) <then_branch = t () => (float p) {{ p = MatMul(x, w) }},
                else_branch = e () => (float q) {{ {other} }}>
    y = {tail} }}"""
OTHERS = {
    "of one size": ("s = Softmax(x) q = Neg(s)", "Mul(a, x)"),
    "of two sizes": ("s = Softmax(z) q = Neg(s)", "ReduceSum(a, first)"),
    "of a size and a number": (
        "s = MatMul(w, w) q = Slice(s, first, three)",
        "ReduceSum(a, first)",
    ),
    "of none": ("s = MatMul(w, w) q = Slice(s, first, first)", "ReduceSum(a, first)"),
    "of sums": ("q = Concat <axis = 0> (z, x, z)", "ReduceSum(a, first)"),
}


@pytest.mark.parametrize("least", [-9.0, 9.0])
@pytest.mark.parametrize("which", OTHERS)
def test_one_program_serves_branches_of_sizes(which, least):
    other, tail = OTHERS[which]
    text = SIZED.format(other=other, tail=tail, least=least)
    runs = [{"n": n, "k": k} for n, k in ((3, 2), (1, 1), (8, 5), (2, 7))]
    wrong, why_not = beside_peer(parsed_model(text), {"n": (1, 8), "k": (1, 8)}, runs, OPTIONS)
    assert (wrong, why_not) == ([], "")


def test_an_axis_that_is_left_out_if_it_has_one_element():
    model = parsed_model(
        """g (float[n,2,3] x) => (float y) {
        a = ReduceMax <axes = [2], keepdims = 1> (x)
        one = Constant <value = int64 {1}> () zero = Constant <value = int64 {0}> ()
        axis = Constant <value = int64[1] {0}> ()
        shape = Shape(a) d = Gather(shape, zero) c = Equal(d, one)
        y = If (c) <then_branch = t () => (float p) { p = Squeeze(a, axis) },
                    else_branch = e () => (float q) { q = Identity(a) }> }"""
    )
    exe = gf.compile(model, sizes={"n": (1, 6)}, options=OPTIONS)
    for n in (3, 6, 1, 2):
        x = noise(n, 2, 3)
        expected = x.max(2, keepdims=True)
        np.testing.assert_array_equal(exe.run({"x": x})["y"], expected[0] if n == 1 else expected)
    assert len(exe.specializations) == 2


def test_branches_of_several_shapes_in_a_loop():
    model = parsed(
        """g (float[3,4] x, float least) => (float s) {
        y, s = Loop (trips, yes, x, least) <body = b (int64 i, bool c, float[3,4] h, float t)
            => (bool go, float[3,4] h2, float t2) {
            odd = Mod(i, two) is = Cast <to = 9> (odd)
            part = If (is) <then_branch = t1 () => (float[2,4] p) { p = Slice(h, first, behind) },
                            else_branch = e1 () => (float[3,4] q) { q = Neg(h) }>
            u = ReduceSum <keepdims = 0> (part) t2 = Add(t, u) v = Mul(h, half) h2 = Cos(v)
            go = Less(t2, most) }> }""",
        trips=np.array(9),
        yes=np.array(True),
        two=np.array(2),
        first=np.array([0]),
        behind=np.array([2]),
        half=np.array(0.5, F32),
        most=np.array(6, F32),
    )
    feeds = [{"x": noise(3, 4), "least": np.array(least, F32)} for least in (-9, 0, 5, 7)]
    assert native(model, *feeds, poison=True).deciding == ()
