"""Tests of onnxruntime's operators on quantized tensors, against onnxruntime.

Weights stay below 64, because onnxruntime saturates larger products of uint8 and int8 on some
processors.
"""

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph
from support.models.sized_runs import OPTIONS, difference, exact_results
from support.single import assert_same_as_peer, contrib, noise, peer
from support.targets import in_turn
from support.texts import assert_agrees

F32 = np.float32
BYTES = ["uint8", "int8"]
SCALE, OTHER, RESULT = F32(np.pi / 150), F32(np.e / 80), F32(np.sqrt(2) / 30)
"""Scales of two inputs and of the output, whose quotients are not half-way between two steps."""


def integers(dtype: str, *shape: int, seed: int = 0) -> Any:
    info = np.iinfo(dtype)
    numbers = np.random.default_rng(seed).integers(info.min, info.max + 1, shape)
    return np.asarray(numbers, dtype)


def weights(dtype: str, *shape: int, seed: int = 0) -> Any:
    low = 0 if dtype == "uint8" else -64
    return np.random.default_rng(seed).integers(low, 64, shape).astype(dtype)


def zeros(dtype: str) -> tuple[Any, Any, Any]:
    """Zero points of two inputs and of the output."""
    middle = 128 if dtype == "uint8" else 0
    return tuple(np.array(middle + n, dtype) for n in (3, -9, 12))


def binary(dtype: str) -> list[Any]:
    a, b = integers(dtype, 3, 40, 5), integers(dtype, 40, 1, seed=1)
    of_a, of_b, of_c = zeros(dtype)
    return [a, SCALE, of_a, b, OTHER, of_b, RESULT, of_c]


def unary(dtype: str, *shape: int) -> list[Any]:
    of_x, _, of_y = zeros(dtype)
    return [integers(dtype, *shape), SCALE, of_x, RESULT, of_y]


def same(op: str, arrays: list[Any], constants: Any = (), **attributes: Any) -> None:
    assert_agrees(*contrib(op, arrays, constants, **attributes))


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("constants", [(), (1, 2, 4, 5, 6, 7)])
def test_sums_and_products(dtype: str, constants: tuple[int, ...]) -> None:
    same("QLinearAdd", binary(dtype), constants)
    same("QLinearMul", binary(dtype), constants)


@pytest.mark.parametrize("dtype", BYTES)
def test_functions_of_one_tensor(dtype: str) -> None:
    fixed = (1, 2, 3, 4)
    same("QLinearSigmoid", unary(dtype, 300), fixed)
    same("QLinearLeakyRelu", unary(dtype, 300), fixed, alpha=0.3)
    same("QLinearLeakyRelu", unary(dtype, 300), fixed)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("opset", [12, 13])
def test_softmax_is_rounded_once(dtype: str, opset: int) -> None:
    """onnxruntime takes exponentials from a table of integers, and is off by a step at times."""
    arrays = unary(dtype, 2, 3, 4)
    x, scale, zero, result, result_zero = arrays
    model, feeds = contrib("QLinearSoftmax", arrays, (1, 2, 3, 4), axis=1, opset=opset)
    found = interpret_graph(import_model(model), feeds)["o0"]
    grown = np.exp(scale * (x.astype("float64") - zero))
    parts = grown / grown.sum(1 if opset == 13 else (1, 2), keepdims=True)
    np.testing.assert_array_equal(found, np.rint(parts / result) + result_zero)
    theirs = peer(model, feeds)["o0"].astype(int)
    assert np.abs(found.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("dtype", BYTES)
def test_pools(dtype: str) -> None:
    fixed = (1, 2, 3, 4)
    arrays = unary(dtype, 2, 13, 7, 9)
    for last in (0, 1):
        same("QLinearGlobalAveragePool", arrays, fixed, channels_last=last)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for counted in (0, 1):
        same("QLinearAveragePool", arrays, fixed, count_include_pad=counted, **window)


@pytest.mark.parametrize("last", [0, 1])
def test_convolutions_with_the_channels_last(last: int) -> None:
    x = integers("uint8", *((1, 7, 9, 4) if last else (1, 4, 7, 9)))
    of_x, _, of_y = zeros("uint8")
    w, columns = weights("int8", 6, 4, 3, 3), np.abs(noise(6)).astype(F32) / 50
    bias = integers("int16", 6).astype("int32")
    head = [x, SCALE, of_x, w, columns, np.zeros(6, "int8"), F32(0.7), of_y]
    window = {"pads": [1, 1, 0, 1], "strides": [2, 1], "channels_last": last}
    same("QLinearConv", [*head, bias], tuple(range(1, 9)), **window)
    same("QLinearConv", head, tuple(range(1, 8)), **window)


@pytest.mark.parametrize("dtype", BYTES)
def test_joined_and_selected(dtype: str) -> None:
    a, b = integers(dtype, 2, 3, 5), integers(dtype, 2, 4, 5, seed=1)
    of_a, _, result = zeros(dtype)
    arrays = [RESULT, result, a, SCALE, of_a, b, RESULT, result]
    same("QLinearConcat", arrays, (0, 1, 3, 4, 6, 7), axis=-2)
    model, _ = contrib("QLinearConcat", arrays, (0, 1, 3, 4, 6, 7), axis=1)
    quantized = [node for node in import_model(model).nodes if node.op == "QuantizeLinear"]
    assert len(quantized) == 1, "an input that has the output's scale is joined as it is"
    chosen = integers(dtype, 2, 3, 5, seed=2) % 2 == 0
    other = integers(dtype, 1, 3, 5, seed=1)
    arrays = [chosen, a, SCALE, of_a, other, OTHER, of_a, RESULT, result]
    same("QLinearWhere", arrays, (2, 3, 5, 6, 7, 8))


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_general_products(dtype: str, turned: tuple[int, int]) -> None:
    a, b = integers(dtype, 9, 33), weights(dtype, 33, 17, seed=1)
    a, b = (m.T.copy() if turn else m for m, turn in zip((a, b), turned, strict=True))
    attributes = {"transA": turned[0], "transB": turned[1], "alpha": 0.7}
    of_a, _, of_y = zeros(dtype)
    of_b, bias = np.array(5, dtype), integers("int16", 17).astype("int32")
    head = [a, SCALE, of_a, b, OTHER, of_b]
    fixed = (1, 2, 3, 4, 5, 7, 8)
    same("QGemm", [*head, bias, F32(0.7), of_y], fixed, **attributes)
    same("QGemm", [*head, None, F32(0.7), of_y], fixed, **attributes)
    columns = np.abs(noise(17)).astype(F32) / 50
    head[4:] = [columns, np.full(17, 5, dtype)]
    same("QGemm", [*head, bias], fixed[:5], **attributes)


@pytest.mark.parametrize("dtype", BYTES)
def test_products_that_give_floats(dtype: str) -> None:
    a, b = integers("uint8", 2, 5, 33), weights(dtype, 33, 17, seed=1)
    of_a, of_b = np.array(120, "uint8"), np.full(17, 5, dtype)
    columns, bias = np.abs(noise(17)).astype(F32) / 50, noise(17, seed=1)
    same("MatMulIntegerToFloat", [a, b, SCALE, columns, of_a, of_b, bias], (1, 3, 5))
    same("MatMulIntegerToFloat", [a, b, SCALE, OTHER])
    x = noise(2, 5, 33)
    same("DynamicQuantizeMatMul", [x, b, columns, of_b, bias], (1, 2, 3))
    same("DynamicQuantizeMatMul", [x, b, OTHER], (1,))


QUANTIZED = [integers("uint8", 2, 3, 8), weights("int8", 8, 24), noise(24)]
COLUMNS = np.abs(noise(24)).astype(F32) / 50
ATTENTIONS = [
    ([F32(0.01), F32(0.02)], {}),
    ([F32(0.01), COLUMNS, np.array([2, 3], "int32"), np.array(7, "uint8")], {}),
    ([F32(0.01), F32(0.02), None, np.array(7, "uint8"), np.array(4, "int8")], {"scale": 0.3}),
    ([F32(0.01), F32(0.02), None, None, None, noise(2, 2, 2, 4, 4, seed=5)], {"unidirectional": 1}),
]


@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention(case: Any) -> None:
    more, attributes = case
    arrays = [*QUANTIZED, *more]
    outputs = (0, 1) if len(more) == 6 else (0,)
    assert_agrees(*contrib("QAttention", arrays, (1,), outputs, num_heads=2, **attributes))


def test_shorts_are_quantized_in_any_opset() -> None:
    """The reason why these two are in onnxruntime's domain too."""
    x, q = noise(3, 20), integers("int16", 3, 20)
    zero = np.array(7, "int16")
    same("QuantizeLinear", [x, SCALE, zero], (1, 2))
    same("DequantizeLinear", [q, SCALE, zero], (1, 2))
    row = np.abs(noise(3)).astype(F32) + F32(0.1)
    same("QuantizeLinear", [x, row, np.zeros(3, "int8")], (1, 2), axis=0)


RECURRENT = [
    {},
    {"dtype": "int8", "columns": True, "bias": False},
    {
        "hidden": 20,
        "direction": "bidirectional",
        "columns": True,
        "states": True,
        "peepholes": True,
    },
    {"batch": 3, "states": True, "lengths": [6, 2, 4]},
    {"batch": 2, "direction": "reverse", "lengths": [3, 2]},
    {"batch": 2, "direction": "bidirectional", "lengths": [3, 5], "clip": 0.7, "input_forget": 1},
]


@pytest.mark.parametrize("case", RECURRENT)
def test_an_lstm_of_integers(case: dict[str, Any]) -> None:
    """onnxruntime has a range for each sequence, as here, if it has a thread for each."""
    model, feeds = lstm(**case)
    options = ort.SessionOptions()
    options.intra_op_num_threads = case.get("batch", 1)
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, feeds)
    graph = import_model(model)
    made = interpret_graph(graph, feeds, graph.results)
    for found, array in zip(made.values(), wanted, strict=True):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-6)


BLOCKS_OF_ROWS = {"batch": 4, "hidden": 34, "given": True}
"""Twice below, as blocks have instructions of their own on each target."""


@in_turn(
    "case", [*RECURRENT, BLOCKS_OF_ROWS, BLOCKS_OF_ROWS], targets=(avx2_target(), host_target())
)
def test_native_code_of_an_lstm_of_integers(case: dict[str, Any], target: Target) -> None:
    """With AVX2 alone there are no dot products of bytes.  Its states are rounded to bytes, of
    which validation claims nothing."""
    model, feeds = lstm(**case)
    graph = import_model(model)
    wanted = interpret_graph(graph, feeds, graph.results)
    options = gf.Options(workers=0, fallback=None, validate=True)
    made = gf.compile(model, threads=2, options=options, target=target).run(feeds)
    for name, array in wanted.items():
        np.testing.assert_allclose(made[name], array, rtol=1e-5, atol=1e-6)


def test_one_program_of_an_lstm_of_integers_serves_shorter_sequences() -> None:
    """And fewer of them, whose range has nothing of what a run does not give."""
    model, feeds = lstm(batch=3, hidden=20, direction="bidirectional")
    (x,) = (name for name, array in feeds.items() if array.shape == (6, 3, 7))
    (info,) = (info for info in model.graph.input if info.name == x)
    for axis, name in enumerate(("steps", "sequences")):
        info.type.tensor_type.shape.dim[axis].dim_param = name
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    sizes = {"steps": (1, 6), "sequences": (1, 3)}
    exe = gf.compile(model, sizes=sizes, threads=2, options=gf.Options(workers=0))
    for steps, sequences in ((6, 3), (4, 1), (1, 2)):
        given = {**feeds, x: np.ascontiguousarray(feeds[x][:steps, :sequences])}
        graph = import_model(model, input_shapes={x: (steps, sequences, 7)})
        wanted = interpret_graph(graph, given, graph.results)
        for name, array in exe.run(given).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-6)
    assert exe.report()["programs"]["compiled"] == 1


def test_zero_points_of_weights_count_only_where_they_are_not_known_to_be_zero() -> None:
    """As int8, those of uint8 are 128 less."""
    for case, further in (
        ({"dtype": "int8"}, 2),
        ({"dtype": "uint8", "middle": 128}, 2),
        ({"dtype": "uint8"}, 3),
        ({"dtype": "int8", "given": True}, 3),
    ):
        kernels = [node.func for node in import_model(lstm(**case)[0]).nodes]
        (recurrent,) = (func for func in kernels if func.name == "lstm")
        read = [buffer.name for buffer in recurrent.inputs]
        assert read[4 : 4 + further] == ["scales", "weight_sums", "zeros"][:further]
        assert len(read) == 4 + further


def lstm(
    batch: int = 1,
    hidden: int = 9,
    dtype: str = "uint8",
    direction: str = "forward",
    columns: bool = False,
    bias: bool = True,
    lengths: list[int] | None = None,
    states: bool = False,
    peepholes: bool = False,
    middle: int | None = None,
    given: bool = False,
    **attributes: Any,
) -> tuple[Any, Any]:
    """A model of six steps of seven numbers; with `columns` each unit has scales of its own, and
    with `given` a run gives the weights.  `middle` is the zero point of these."""
    count, width, rng = 1 + (direction == "bidirectional"), 4 * hidden, np.random.default_rng(1)
    shape = (count, width) if columns else (count,)
    if middle is None:
        middle = 30 if dtype == "uint8" else 0
    of_zero = np.full(shape, middle, dtype)
    of_w, of_r = (F32(rng.uniform(0.005, 0.02, shape)) for _ in range(2))
    start = [noise(count, batch, hidden, seed=k) if states else None for k in (1, 2)]
    arrays = [
        noise(6, batch, 7),
        weights(dtype, count, 7, width),
        weights(dtype, count, hidden, width, seed=1),
        noise(count, 2 * width, seed=3) / F32(3) if bias else None,
        np.array(lengths, "int32") if lengths else None,
        *start,
        noise(count, 3 * hidden, seed=4) if peepholes else None,
        *(of_w, of_zero, of_r, of_zero),
    ]
    known = () if given else (1, 2, 3, 7, 8, 9, 10, 11)
    fixed = tuple(k for k in known if arrays[k] is not None)
    attributes |= {"hidden_size": hidden, "direction": direction}
    return contrib("DynamicQuantizeLSTM", arrays, fixed, (0, 1, 2), **attributes)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_one_program_of_a_quantized_lstm_serves_any_steps_and_batch(direction, lengths):
    """Beside programs for each shape: a range has none of what lies behind the steps of a run."""
    given = {"lengths": [6, 2, 4]} if lengths else {}
    model, feeds = lstm(batch=3, direction=direction, states=True, **given)
    inputs = {info.name: info.type.tensor_type.shape.dim for info in model.graph.input}
    axes = {"i0": ("steps", "batch"), "i4": ("batch",), "i5": ("", "batch"), "i6": ("", "batch")}
    for name, dims in inputs.items():
        for dim, size in zip(dims, axes[name], strict=False):
            dim.dim_param = size
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    exe = gf.compile(model, sizes={"steps": (1, 6), "batch": (1, 3)}, options=OPTIONS)
    assert {one["why_not"] for one in exe.report()["sizes"].values()} == {""}
    for steps, batch in ((6, 3), (1, 1), (5, 2), (2, 3)):
        exe.run({**feeds, "i0": np.full_like(feeds["i0"], 1e3)})
        parts = {
            name: array[:steps, :batch] if name == "i0" else array[:, :batch]
            for name, array in feeds.items()
            if name != "i4"
        }
        if lengths:
            parts["i4"] = np.minimum(feeds["i4"][:batch], steps)
        assert not difference(exe.run(parts), exact_results(model, parts, OPTIONS), 1e-5)
    assert len(exe.specializations) == 1


SIZED: dict[str, tuple[str, dict[str, int]]] = {
    "means of channels": ("QLinearGlobalAveragePool", {}),
    "means of the last channels": ("QLinearGlobalAveragePool", {"channels_last": 1}),
    "shares of the last axis": ("QLinearSoftmax", {"axis": -1, "opset": 13}),
    "shares of the axes from one on": ("QLinearSoftmax", {"axis": 1, "opset": 12}),
}


@pytest.mark.parametrize(("op", "attributes"), SIZED.values(), ids=SIZED)
def test_one_program_serves_images_of_any_sides(op: str, attributes: dict[str, int]) -> None:
    """Means are divided by as many elements as a run has."""
    arrays = unary("uint8", 3, 6, 7, 5)
    model, feeds = contrib(op, arrays, (1, 2, 3, 4), **attributes)
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, "nchw", strict=True):
        dim.dim_param = size
    model.graph.output[0].type.tensor_type.ClearField("shape")
    sizes = {"n": (1, 3), "c": (1, 6), "h": (1, 7), "w": (1, 5)}
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    for n, c, h, w in ((3, 6, 7, 5), (1, 1, 1, 1), (2, 5, 3, 4), (3, 2, 7, 1)):
        part = {"i0": np.ascontiguousarray(feeds["i0"][:n, :c, :h, :w])}
        assert not difference(exe.run(part), exact_results(model, part, OPTIONS), 0)
    assert len(exe.specializations) == 1


def test_quantized_operators_are_compiled() -> None:
    model, feeds = contrib("QLinearMul", binary("uint8"), (1, 2, 4, 5, 6, 7))
    exe = gf.compile(model, threads=1, options=gf.Options(workers=0, fallback=None))
    np.testing.assert_array_equal(exe.run(feeds)["o0"], peer(model, feeds)["o0"])


def test_nodes_that_lack_a_part_are_refused() -> None:
    model, _ = contrib(
        "QLinearConcat", [RESULT, np.array(3, "uint8"), *binary("uint8")[:3]], axis=0
    )
    del model.graph.node[0].input[-1]
    with pytest.raises(InvalidModel, match="4 inputs are not two, and three for each"):
        import_model(model)
    model, _ = lstm()
    model.graph.node[0].input[-1] = ""
    with pytest.raises(InvalidModel, match="lacks a scale or a zero point"):
        import_model(model)
    model, _ = contrib("QLinearSigmoid", unary("uint8", 3))
    model.graph.node[0].attribute.append(helper.make_attribute("unheard", 1))
    with pytest.raises(UnsupportedOp, match="attribute unheard"):
        import_model(model)
    model, _ = contrib("QLinearGlobalAveragePool", unary("uint8", 1, 2, 3))
    del model.graph.input[0].type.tensor_type.shape.dim[1:]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", TensorProto.UINT8, ("a",)))
    with pytest.raises(InvalidModel, match="no axes behind the channels"):
        import_model(model)


TABLES = [
    ("uint8", 2, True, {}),
    ("uint8", 4, False, {}),
    ("uint8", 4, True, {}),
    ("uint8", 8, False, {"gather_axis": -2, "quantize_axis": -1}),
    ("uint8", 8, True, {}),
    ("int4", 4, False, {}),
    ("uint4", 4, True, {"gather_axis": 1, "quantize_axis": 0}),
]


@pytest.mark.parametrize("indices", [[[1, 2, 5], [0, 0, -6]], 3], ids=str)
@pytest.mark.parametrize(("kind", "bits", "with_zeros", "axes"), TABLES)
def test_rows_of_a_table_in_blocks_are_scaled(kind, bits, with_zeros, axes, indices):
    rows, depth, block = 6, 96, 32
    per_byte = 8 // bits if kind == "uint8" else 1
    shapes = [(rows, depth // per_byte), (rows, 3), (rows, -(-3 // per_byte))]
    if axes.get("gather_axis") == 1:
        shapes = [shape[::-1] for shape in shapes]
    rng = np.random.default_rng(0)
    table, zeros = (
        rng.integers(0, 256 if kind == "uint8" else 8, shape).astype(np.dtype(kind))
        for shape in (shapes[0], shapes[2])
    )
    arrays = [table, np.array(indices), noise(*shapes[1]), *[zeros] * with_zeros]
    constants = (0, 2, 3)[: len(arrays) - 1]
    attributes = {"bits": bits, "block_size": block, **axes}
    model, feeds = contrib("GatherBlockQuantized", arrays, constants, **attributes)
    assert_same_as_peer(model, feeds, canonicalize(import_model(model)))


def test_a_table_that_is_gathered_along_its_blocks_is_refused():
    arrays = [np.zeros((6, 48), np.uint8), np.array([1]), noise(6, 3)]
    model, _ = contrib("GatherBlockQuantized", arrays, (0, 2), block_size=32)
    model.graph.node[0].attribute.append(helper.make_attribute("gather_axis", 1))
    with pytest.raises(InvalidModel, match="gathers along axis 1, which has the blocks"):
        import_model(model)
