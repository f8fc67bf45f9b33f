"""Tests of the steps of loops: what an iteration executes of each kernel of its body, and which
tensors are handed on without a copy."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.program import ProgramStep
from support.control_flow import native, scripted
from support.models.sized_runs import beside_peer
from support.single import noise
from support.texts import parsed

F32 = np.float32

ATTENDING = """g (float[1,1,32] x, float[32,32] wk, float[32,32] wv, float limit)
        => (float y, float keys, float values) {{
    y, keys, values = Loop (trips, yes, x, none, none) <
        body = b (int64 i, bool c, float[1,1,32] h, float k, float v)
            => (bool go, float[1,1,32] h2, float k2, float v2) {{
            key = MatMul(h, wk) value = MatMul(h, wv)
            k2 = Concat <axis = 1> (k, key) v2 = Concat <axis = 1> ({before}, value)
            turned = Transpose <perm = [0,2,1]> (k2) scores = MatMul(h, turned)
            p = Softmax <axis = -1> (scores) context = MatMul(p, v2)
            s = Add(context, h) h2 = Tanh(s)
            most = ReduceMax <keepdims = 0> (h2) go = Less(most, limit) }}> }}"""
KEPT = ATTENDING.format(before="v")
READ_AGAIN = ATTENDING.format(before="old").replace("key = MatMul", "old = Neg(v) key = MatMul")


def attending(text: str, *limits: float, **options: object) -> gf.Executable:
    """A program that was compared with onnxruntime for each limit, so after other iterations."""
    none = np.zeros((1, 0, 32), F32)
    model = scripted(text, trips=np.array(24), yes=np.array(True), none=none)
    weights = {
        "x": noise(1, 1, 32),
        "wk": noise(32, 32, seed=1) * F32(0.3),
        "wv": noise(32, 32, seed=2) * F32(0.3),
    }
    feeds = [{**weights, "limit": np.array(limit, F32)} for limit in limits]
    return native(model, *feeds, **options)


def steps_of(exe: gf.Executable) -> tuple[ProgramStep, ...]:
    return exe.program.spec.run


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("text", [KEPT, READ_AGAIN], ids=["kept", "read again"])
def test_iterations_execute_the_rows_that_there_are(text: str, threads: int) -> None:
    exe = attending(text, 2.0, 0.0, 0.95, threads=threads, poison=True)
    late = [one for one in steps_of(exe) if one.portion is not None and one.portion.places]
    assert late
    assert all(digit.most == 24 for one in late for digit in one.portion.digits if digit.place)


def test_what_an_iteration_only_appends_to_is_handed_on_in_place() -> None:
    """The values that are read beside are copied to the room of the next iteration."""
    kept, read_again = (steps_of(attending(text, 2.0)) for text in (KEPT, READ_AGAIN))
    copied = [
        [one for one in steps if one.portion is not None and one.extent == 24 and one.threads == 1]
        for steps in (kept, read_again)
    ]
    assert [len(steps) for steps in copied] == [0, 1]


def test_a_saved_loop_executes_the_rows_that_there_are(tmp_path) -> None:
    exe = attending(READ_AGAIN, 2.0, 0.95)
    exe.save(tmp_path / "loop.gfx")
    loaded = gf.load(tmp_path / "loop.gfx")
    assert [one.portion for one in steps_of(loaded)] == [one.portion for one in steps_of(exe)]
    given = {"x": noise(1, 1, 32), "limit": np.array(2.0, F32)}
    given |= {name: noise(32, 32, seed=k) * F32(0.3) for k, name in enumerate(("wk", "wv"))}
    for name, array in exe.run(given).items():
        np.testing.assert_array_equal(loaded.run(given)[name], array)


BATCHED = """g (float[b,t,16] x, float[16,16] w) => (float y) {
    sh = Shape(x) one = Constant<value=int64 {1}>() steps = Gather(sh, one)
    h0 = ReduceMax <axes=[1], keepdims=0>(x)
    yes = Constant<value=bool {1}>()
    y = Loop(steps, yes, h0) <body = c (int64 k, bool on, float[b,16] h) =>
        (bool go, float[b,16] h2) {
        go = Identity(on) xi = Gather<axis=1>(x, k) a = MatMul(h, w) s = Add(a, xi)
        h2 = Tanh(s) }> }"""


def test_kernels_of_a_body_end_at_the_sizes_around_it() -> None:
    options = gf.Options(cache="off", threads=2, workers=0, fallback=None, poison=True)
    runs = [{"b": b, "t": t} for b, t in ((8, 5), (1, 1), (3, 0), (5, 5), (2, 4))]
    model, sizes = parsed(BATCHED), {"b": (1, 8), "t": (0, 5)}
    assert beside_peer(model, sizes, runs, options, exact=1) == ([], "")
    exe = gf.compile(model, sizes=sizes, options=options)
    (batch,) = (size.input for size in exe.program.spec.sizes if size.name == "b")
    jumps = [number for number, one in enumerate(steps_of(exe)) if one.jump is not None]
    inside = [one.portion for one in steps_of(exe)[jumps[0] + 1 : jumps[-1]] if one.portion]
    assert any(digit.input == batch for portion in inside for digit in portion.digits)
