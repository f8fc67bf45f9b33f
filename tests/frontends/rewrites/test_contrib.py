"""Tests of onnxruntime's own operators, which import rewrites to standard ones."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel, RunError, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.frontends.reading.vendor import for_onnxruntime, move_added
from graphflow.graph import canonicalize
from support.single import assert_same_as_peer, contrib, noise, peer
from support.texts import assert_agrees

X = (2, 3, 8)
IMAGE = [noise(1, 2, 5, 6), noise(3, 2, 3, 3, seed=1), noise(3, seed=2)]
Z = noise(1, 3, 3, 4, seed=3)
MATRICES = [noise(3, 4), noise(4, 5, seed=1), noise(5, seed=2)]
CASES = [
    ("Gelu", [noise(*X)], {}),
    ("BiasGelu", [noise(*X), noise(8, seed=1)], {}),
    ("FastGelu", [noise(*X)], {}),
    ("FastGelu", [noise(*X), noise(8, seed=1)], {}),
    ("QuickGelu", [noise(*X)], {}),
    ("QuickGelu", [noise(*X)], {"alpha": 0.9}),
    ("FusedConv", IMAGE[:2], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    ("FusedConv", [*IMAGE, Z], {"activation": "Relu"}),
    ("FusedConv", [*IMAGE[:2], None, Z], {"activation": "Sigmoid"}),
    ("FusedConv", IMAGE, {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("FusedConv", IMAGE, {"activation": "Clip", "activation_params": [-0.3, 0.4]}),
    ("FusedConv", IMAGE, {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    ("FusedGemm", MATRICES, {"activation": "Relu", "alpha": 0.5}),
    ("FusedGemm", MATRICES, {"activation": "LeakyRelu", "activation_alpha": 0.3}),
    ("FusedGemm", MATRICES, {"activation": "Elu", "activation_alpha": 0.7}),
    ("FusedGemm", MATRICES, {"activation": "Celu", "activation_alpha": 0.7}),
    (
        "FusedGemm",
        MATRICES,
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    ),
    (
        "FusedGemm",
        MATRICES,
        {"activation": "Selu", "activation_alpha": 1.5, "activation_gamma": 1.1},
    ),
    ("FusedGemm", MATRICES, {"activation": "Sigmoid"}),
    ("FusedGemm", MATRICES, {"activation": "Softplus"}),
    ("FusedGemm", MATRICES, {"activation": "Softsign"}),
    ("FusedGemm", MATRICES, {"activation": "Tanh"}),
    ("FusedGemm", MATRICES, {"activation": "ThresholdedRelu", "activation_alpha": 0.3}),
    ("FusedMatMul", [noise(2, 4, 3), noise(2, 4, 5, seed=1)], {"transA": 1, "alpha": 0.5}),
    ("FusedMatMul", [noise(2, 3, 4), noise(2, 5, 4, seed=1)], {"transB": 1}),
    ("FusedMatMul", [noise(2, 3, 4), noise(3, 4, 5, seed=1)], {"transBatchA": 1}),
    ("TransposeMatMul", [noise(4, 3), noise(4, 5, seed=1)], {"transA": 1}),
    (
        "SkipLayerNormalization",
        [noise(*X), noise(*X, seed=1), noise(8, seed=2), noise(8, seed=3), noise(8, seed=4)],
        {"epsilon": 1e-3},
    ),
    ("SkipLayerNormalization", [noise(*X), noise(3, 8, seed=1), noise(8, seed=2)], {}),
    (
        "SkipSimplifiedLayerNormalization",
        [noise(*X), noise(*X, seed=1), noise(8, seed=2), noise(8, seed=4)],
        {"epsilon": 1e-3},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_operators_match_onnxruntime(case):
    op, arrays, attributes = case
    assert_agrees(*contrib(op, arrays, **attributes))


SELF = [noise(2, 3, 8), noise(8, 24, seed=1), noise(24, seed=2)]
I32 = np.int32
RAW = np.array([[1, 1, 0], [1, 0, 0]], I32)
WINDOW = np.array([[[1, 0, 1], [1, 1, 0], [0, 1, 1]], [[0, 0, 0], [1, 1, 1], [0, 1, 0]]], I32)
SELF_CASES = [
    ([], {}),
    ([], {"unidirectional": 1}),
    ([], {"scale": 0.3}),
    ([RAW], {}),
    ([RAW], {"unidirectional": 1, "mask_filter_value": -5.0}),
    ([WINDOW], {}),
    ([np.array([2, 3], I32)], {}),
    ([np.array([3, 2, 1, 0], I32)], {}),
    ([None, noise(2, 2, 2, 4, 4, seed=5)], {"unidirectional": 1}),
    ([None, None, noise(1, 2, 3, 3, seed=6)], {}),
]


@pytest.mark.parametrize("case", SELF_CASES)
def test_self_attention_matches_onnxruntime(case):
    more, attributes = case
    past = len(more) == 2
    outputs = (0, 1) if past else (0,)
    assert_agrees(*contrib("Attention", [*SELF, *more], (), outputs, num_heads=2, **attributes))


def test_self_attention_with_values_of_another_size():
    arrays = [noise(2, 3, 8), noise(8, 20, seed=1), noise(20, seed=2)]
    attributes = {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}
    assert_agrees(*contrib("Attention", arrays, **attributes))


QUERY, KEY, VALUE = noise(2, 3, 8), noise(2, 5, 8, seed=1), noise(2, 5, 12, seed=2)
PADDED = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 0]], I32)
PASTS = [noise(2, 2, 4, 4, seed=3), noise(2, 2, 4, 4, seed=4)]
CROSS_CASES = [
    ([QUERY, KEY, VALUE], (0,), {}),
    ([QUERY, KEY, VALUE, noise(28, seed=3)], (0,), {"scale": 0.2}),
    ([QUERY, KEY, VALUE, None, PADDED], (0,), {}),
    ([QUERY, KEY, VALUE, None, np.array([2, 5], I32)], (0,), {}),
    ([QUERY, KEY, VALUE, None, None, noise(2, 1, 3, 5, seed=4)], (0,), {}),
    ([QUERY, QUERY, QUERY], (0,), {"unidirectional": 1}),
    ([QUERY, QUERY, QUERY, None, None, None, *PASTS], (0, 1, 2), {}),
    ([QUERY, QUERY, QUERY, None, None, None, *PASTS], (0, 1, 2), {"unidirectional": 1}),
    ([QUERY, *PASTS], (0,), {}),
    ([QUERY, KEY, VALUE], (0,), {"unidirectional": 1}),
    ([QUERY, KEY, VALUE, None, PADDED], (0,), {"unidirectional": 1}),
    ([KEY, QUERY, QUERY], (0,), {"unidirectional": 1}),
    ([QUERY, KEY, KEY, None, None, None, *PASTS], (0, 1, 2), {"unidirectional": 1}),
]


@pytest.mark.parametrize("case", CROSS_CASES)
def test_attention_of_heads_matches_onnxruntime(case):
    arrays, outputs, attributes = case
    model, feeds = contrib("MultiHeadAttention", arrays, (), outputs, num_heads=2, **attributes)
    assert_agrees(model, feeds)


def grouped(
    length, earlier, batch=1, packed=False, known=(6,), lengths=None, others=(), total=None, **more
):
    """A GroupQueryAttention of four heads in two groups, of 16 elements each, and its inputs."""
    total, size = length + earlier if total is None else total, 16
    widths = (128,) if packed else (64, 32, 32)
    heads = [noise(batch, length, n, seed=k) for k, n in enumerate(widths)]
    pasts = [noise(batch, 2, earlier, size, seed=seed) for seed in (4, 5)]
    given = np.array([total - 1] * batch if lengths is None else lengths, I32)
    caches = [noise(12, size // 2, seed=seed) for seed in (6, 7)] if "do_rotary" in more else []
    arrays = [*heads, *[None] * (3 - len(heads)), *pasts, given, np.array(total, I32), *caches]
    arrays += [None] * (9 - len(arrays) if others else 0)
    arrays += others
    attributes = {"num_heads": 4, "kv_num_heads": 2, **more}
    return contrib("GroupQueryAttention", arrays, known, (0, 1, 2), **attributes)


GROUPED_CASES = [
    {"length": 5, "earlier": 0, "local_window_size": 2},
    {"length": 3, "earlier": 6, "local_window_size": 3, "do_rotary": 1},
    {"length": 5, "earlier": 0},
    {"length": 5, "earlier": 0, "batch": 2, "lengths": [4, 4], "do_rotary": 1},
    {"length": 1, "earlier": 6, "do_rotary": 1},
    {"length": 1, "earlier": 6, "batch": 2, "known": (5, 6)},
    {"length": 1, "earlier": 6, "batch": 2},
    {"length": 3, "earlier": 4, "do_rotary": 1, "rotary_interleaved": 1, "packed": True},
    {"length": 3, "earlier": 4, "scale": 0.7, "softcap": 2.0},
    {"length": 3, "earlier": 2, "do_rotary": 1, "others": [np.array([[5, 0, 2]])]},
    {"length": 3, "earlier": 0, "do_rotary": 1, "others": [np.array([[5, 0, 2]])]},
    {"length": 3, "earlier": 4, "smooth_softmax": 1, "softcap": 2.0, "local_window_size": 2},
    {"length": 3, "earlier": 0, "others": [None, None, noise(4, seed=9)]},
    {"length": 3, "earlier": 4, "smooth_softmax": -1, "others": [None, noise(1, 4, 3, 7, seed=8)]},
]


@pytest.mark.parametrize("case", GROUPED_CASES, ids=str)
def test_attention_of_groups_matches_onnxruntime(case):
    model, feeds = grouped(**case)
    graph = canonicalize(import_model(model))
    assert_same_as_peer(model, feeds, graph)
    if case.get("others", [None])[0] is not None:
        return  # positions are checked as well
    asks = case["earlier"] and case.get("known") != (5, 6)
    guards = [("o0.unused_keys", 0, 0)] if asks else []
    assert [(g.value, g.lo, g.hi) for g in graph.guards] == guards


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"length": 1, "earlier": 6, "known": (5, 6), "lengths": [4]}, "of several lengths"),
        ({"length": 3, "earlier": 0, "qk_output": 1}, "qk_output = 1"),
    ],
)
def test_attention_of_groups_with_keys_that_are_unused_is_refused(case, reason):
    with pytest.raises(UnsupportedOp, match=reason):
        import_model(grouped(**case)[0])


def test_a_run_checks_that_all_earlier_keys_are_in_use():
    model, feeds = grouped(1, 6)
    exe = gf.compile(model, options=gf.Options(fallback=None, threads=1))
    exe.run(feeds)
    with pytest.raises(
        RunError, match="the number of earlier keys that seqlens_k says are not in use is 1"
    ):
        exe.run(feeds | {"i5": np.array([5], I32)})


# Shared memory ------------------------------------------------------------------------------------

ROOM = 12
SHARED = gf.Options(fallback=None, threads=1)


def shared(lengths, total, length=1, **more):
    """A GroupQueryAttention over memory of `ROOM` rows, of which those that are not in use are NaN,
    and its inputs."""
    past = [0 if length == total else last + 1 - length for last in lengths]
    model, feeds = grouped(
        length, ROOM, len(lengths), known=(), lengths=lengths, total=total, **more
    )
    for name in ("i3", "i4"):
        for row, begin in zip(feeds[name], past, strict=True):
            row[:, max(begin, 0) :] = np.nan
    return model, feeds


def in_use(outputs, lengths):
    """The output, and the present rows that are in use."""
    y, *present = outputs.values()
    return [y, *(row[:, : last + 1] for x in present for row, last in zip(x, lengths, strict=True))]


@pytest.mark.parametrize(
    ("lengths", "case"),
    [
        ([5], {"total": 6}),
        ([5], {"total": 6, "length": 3, "do_rotary": 1}),
        ([2, 2], {"total": 3, "length": 3, "do_rotary": 1, "rotary_interleaved": 1}),
        ([5, 3], {"total": 6, "packed": True, "local_window_size": 2}),
        ([5, 11], {"total": ROOM, "smooth_softmax": 1, "softcap": 2.0}),
        ([6], {"total": 9, "others": [None, noise(1, 4, 1, 9, seed=8), noise(4, seed=9)]}),
    ],
    ids=str,
)
def test_rows_behind_those_in_use_are_not_read(lengths, case):
    model, feeds = shared(lengths, **case)
    exe = gf.compile(model, input_values={"i6": feeds["i6"]}, options=SHARED)
    wanted = in_use(peer(model, feeds), lengths)
    given = {name: feeds[name].copy() for name in ("i3", "i4")}
    out = {"o1": given["i3"], "o2": given["i4"]}
    for found in (exe.run(feeds), exe.bind().run(feeds), exe.run({**feeds, **given}, out=out)):
        arrays = {name: np.asarray(array) for name, array in found.items()}
        for one, other in zip(in_use(arrays, lengths), wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-5)
    assert np.isnan(given["i3"][0, :, -1]).all() or max(lengths) == ROOM - 1


def test_new_rows_are_written_into_the_memory_of_the_earlier_ones():
    model, feeds = shared([5], 6)
    exe = gf.compile(model, input_values={"i6": feeds["i6"]}, options=SHARED)
    assert [state["in_place"] for state in exe.report()["states"]] == [True, True]
    bound = exe.bind()
    present = bound.run(feeds)
    bound.run({**feeds, "i3": present["o1"], "i4": present["o2"]})
    assert bound.copied == 0


@pytest.mark.parametrize(
    ("lengths", "total", "length", "reason"),
    [
        ([-1], 6, 1, "the last key that seqlens_k names is -1"),
        ([6], 6, 1, "the number of keys that seqlens_k says are in use is -1"),
        ([1], 6, 3, "the row at which seqlens_k says that new keys begin is -1"),
    ],
)
def test_lengths_that_are_none_are_an_error_of_the_run(lengths, total, length, reason):
    model, feeds = shared([total - 1], total, length)
    exe = gf.compile(model, input_values={"i6": feeds["i6"]}, options=SHARED)
    with pytest.raises(RunError, match=reason):
        exe.run({**feeds, "i5": np.array(lengths, I32)})


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("shape", "width", "attributes"),
    [
        ((2, 3, 16), 4, {}),
        ((2, 4, 3, 8), 4, {}),
        ((2, 3, 16), 2, {"num_heads": 2, "rotary_embedding_dim": 4}),
    ],
)
def test_rotations_at_known_positions_match_onnxruntime(shape, width, attributes, interleaved):
    caches = [noise(6, width, seed=1), noise(6, width, seed=2)]
    for positions in (np.array([2]), np.array([[0, 5, 2], [1, 1, 3]])):
        arrays = [noise(*shape), positions, *caches]
        attributes = {**attributes, "interleaved": interleaved}
        assert_agrees(*contrib("RotaryEmbedding", arrays, (1,), **attributes))


def standard(op, opset, branch=False):
    """A model of a normalization in the standard domain, or in a branch that a run decides."""
    scale, square = noise(8, seed=1), noise(8, 8, seed=2)
    tensors = [numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(square, "square")]
    normal = helper.make_node(op, ["x", "scale"], ["z"], name="normal", axis=-1, epsilon=1e-3)
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X)]
    if branch:
        infos.append(helper.make_tensor_value_info("chosen", TensorProto.BOOL, ()))
        other = helper.make_node("MatMul", ["x", "square"], ["z"], name="product")
        made = [helper.make_tensor_value_info("z", TensorProto.FLOAT, X)]
        bodies = [helper.make_graph([node], node.name, [], made) for node in (normal, other)]
        normal = helper.make_node(
            "If", ["chosen"], ["z"], name="if", then_branch=bodies[0], else_branch=bodies[1]
        )
    result = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ("a", "b", "c"))]
    graph = helper.make_graph([normal], "g", infos, result, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(
    ("op", "opset"),
    [("LayerNormalization", 14), ("LayerNormalization", 17), ("SimplifiedLayerNormalization", 17)],
)
def test_normalizations_that_onnxruntime_adds_to_the_standard_domain(op, opset):
    assert_agrees(standard(op, opset), {"x": noise(*X)})
    for chosen in (False, True):
        feeds = {"x": noise(*X), "chosen": np.array(chosen)}
        assert_agrees(standard(op, opset, branch=True), feeds)


def test_onnxruntime_finds_such_a_normalization_where_it_has_it():
    model = standard("LayerNormalization", 14)
    moved = onnx.ModelProto.FromString(model.SerializeToString())
    move_added(moved)
    assert [node.domain for node in moved.graph.node] == ["com.microsoft"]
    assert {entry.domain for entry in moved.opset_import} == {"", "com.microsoft"}
    assert for_onnxruntime(moved.graph.node[0]).domain == ""
    assert moved.graph.node[0].domain == "com.microsoft", "the node given was edited"


def test_an_operator_that_onnx_has_stays_where_it_is_and_one_that_nobody_has_is_refused():
    model = standard("LayerNormalization", 17)
    before = model.SerializeToString()
    move_added(model)
    assert model.SerializeToString() == before
    with pytest.raises(InvalidModel, match="No Op registered for UnheardNormalization"):
        import_model(standard("UnheardNormalization", 17))


@pytest.mark.parametrize(
    ("op", "count"), [("SkipLayerNormalization", 5), ("SkipSimplifiedLayerNormalization", 4)]
)
def test_the_sum_before_a_normalization_is_an_output_too(op, count):
    arrays = [noise(*X), noise(*X, seed=1), *(noise(8, seed=k) for k in range(2, count))]
    assert_agrees(*contrib(op, arrays, outputs=(0, 3)))


def test_embeddings_of_known_words_are_normalized():
    ids = np.array([[1, 2, 0], [4, 4, 3]], np.int32)
    kinds = np.array([[0, 1, 1], [0, 0, 0]], np.int32)
    mask = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
    tables = [noise(n, 8, seed=n) for n in (5, 6, 2)]
    scales = [noise(8, seed=1), noise(8, seed=2)]
    for constants, arrays, outputs in [
        ((0, 1), [ids, kinds, *tables, *scales, mask], (0, 1, 2)),
        ((0,), [ids, None, *tables[:2], None, *scales], (0, 1)),
        ((0, 8), [ids, None, *tables[:2], None, *scales, None, kinds], (0, 1)),
    ]:
        assert_agrees(*contrib("EmbedLayerNormalization", arrays, constants, outputs))


@pytest.mark.parametrize(
    ("op", "arrays", "outputs", "attributes", "reason"),
    [
        ("Gelu", [noise(3)], (0,), {"unheard": 1}, "attribute unheard"),
        ("FusedConv", IMAGE, (0,), {"activation": "Swish"}, "activation Swish"),
        ("MurmurHash3", [noise(3)], (0,), {}, r"com\.microsoft\.MurmurHash3 \(node the_node\)"),
        ("Inverse", [noise(300, 300)], (0,), {}, "matrices of 300 rows"),
    ],
)
def test_what_is_not_built_is_refused_by_name(op, arrays, outputs, attributes, reason):
    model, _ = contrib(op, arrays, (), outputs)
    model.graph.node[0].attribute.extend(
        helper.make_attribute(name, value) for name, value in attributes.items()
    )
    with pytest.raises(UnsupportedOp, match=reason):
        import_model(model)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("SkipSimplifiedLayerNormalization", [(), (), (1,)], {}),
        ("MultiHeadAttention", [(2, 3, 8)] * 3, {"num_heads": 0}),
        ("EmbedLayerNormalization", [(2,), (2,), (4, 8), (4, 8), (4, 8), (8,), (8,)], {}),
        ("BiasGelu", [(2, 3)], {}),
    ],
)
def test_nodes_that_do_not_fit_their_operator_are_refused(op, shapes, attributes):
    """ONNX has no schema of them by which the ranks and attributes would have been checked."""
    names = [f"i{k}" for k in range(len(shapes))]
    kinds = [
        TensorProto.INT64 if len(shape) == 1 and op[0] == "E" else TensorProto.FLOAT
        for shape in shapes
    ]
    infos = [helper.make_tensor_value_info(*of) for of in zip(names, kinds, shapes, strict=True)]
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", infos, [result])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(GraphflowError, match=op):
        import_model(helper.make_model(graph, opset_imports=opsets))
