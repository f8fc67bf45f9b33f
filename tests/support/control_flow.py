"""Models with branches and loops, in ONNX's text form, and programs of them without sections."""

import numpy as np
import onnx

import graphflow as gf
from support.single import noise, peer
from support.texts import parsed

X = {"x": noise(2, 3)}


BRANCHES = """y = If ({condition}) <
    then_branch = t () => (float[2,3] a) <float[3] w = {{1, 2, 3}}> {{ s = Add(x, w) a = Neg(s) }},
    else_branch = e () => (float[2,3] b) {{ s = Mul(x, x) b = Identity(s) }}
>"""


LOOP = """g (float[2,3] x) => (float[2,3] y, float[n,2,3] rows) {
    y, rows = Loop (trips, going, x) <
        body = b (int64 i, bool c, float[2,3] v) => (bool again, float[2,3] w, float[2,3] row)
          <float[3] step = {1, -1, 2}> {
            f = Cast <to: int = 1> (i) s = Mul(f, step) w = Add(v, s) row = Neg(w)
            again = Less(i, last)
          }
    > }"""


def native(model, *feeds, **options) -> gf.Executable:
    """A program without sections, after runs with all feeds were compared."""
    exe = gf.compile(model, options=gf.Options(fallback=None, workers=0, **options))
    for given in feeds:
        found, expected = exe.run(given), peer(model, given)
        for name, array in expected.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    return exe


def unbounded(text: str) -> str:
    """`LOOP` with a condition that does not bound the number of iterations."""
    return text.replace("again = Less(i, last)", "again = Identity(going)")


def loop_of_onnxruntime() -> onnx.ModelProto:
    """A loop that onnxruntime runs, as a run decides its end, and a kernel behind it."""
    text = LOOP.replace(
        "(float[2,3] x) => (float[2,3] y,", "(float[2,3] x, float[100] data) => (float[2,3] z,"
    )
    most = "most = ReduceMax <keepdims = 0> (data) trips = Cast <to: int = 7> (most) y, rows = Loop"
    text = text.replace("y, rows = Loop", most).replace("> }", "> z = Relu (y) }")
    return parsed(unbounded(text), going=np.array(True))


def scripted(text: str, **numbers: np.ndarray) -> onnx.ModelProto:
    """A model in ONNX's text form, without the shapes of floats that bodies hand on."""
    model = parsed(text, **numbers)
    infos = [*model.graph.output]
    bodies = [a.g for node in model.graph.node for a in node.attribute if a.HasField("g")]
    while bodies:
        body = bodies.pop()
        infos += [*body.input, *body.output]
        bodies += [a.g for node in body.node for a in node.attribute if a.HasField("g")]
    for info in infos:
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            info.type.tensor_type.ClearField("shape")
    return model
