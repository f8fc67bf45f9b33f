"""Small models that the mutation tests damage; together they reach every part of the compiler.

In: nothing.  Out: `Base`s.  What always holds: a base compiles and runs undamaged with its feeds.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import parser
from onnx.backend.test.loader import load_model_tests

from graphflow.models import ModelBuilder


@dataclass(frozen=True)
class Base:
    """A model as bytes, and inputs that suit it; others are drawn at random.

    `expected` are the outputs that ONNX states, where it does.
    """

    content: bytes
    feeds: Mapping[str, Any] = field(default_factory=dict)
    expected: tuple[Any, ...] = ()


# Kernels ------------------------------------------------------------------------------------------


def convolutions() -> onnx.ModelProto:
    b = ModelBuilder(seed=1)
    x = b.input("x", (1, 3, 6, 6))
    y = b.relu(b.batch_norm(b.conv(x, 4, 3, pads=[1] * 4)))
    y = b.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    b.output(b.linear(b.node("Flatten", [b.node("GlobalAveragePool", [y])]), 5))
    return b.model()


def broadcasts() -> onnx.ModelProto:
    b = ModelBuilder(seed=2)
    x, y = b.input("x", (2, 1, 4)), b.input("y", (3, 1))
    z = b.add(b.node("Mul", [x, y]), b.constant(np.float32([1, 2, 3, 4])))
    b.output(b.node("Clip", [z, b.constant(np.float32(-1)), b.constant(np.float32(1))]))
    return b.model()


def movement() -> onnx.ModelProto:
    b = ModelBuilder(seed=3)
    x = b.input("x", (2, 6, 4))
    y = b.node("Reshape", [x, b.constant(np.array([2, 2, -1, 4], np.int64))])
    y = b.node("Transpose", [y], perm=[0, 2, 1, 3])
    y = b.node("Reshape", [y, b.node("Shape", [x])])
    b.output(b.node("Concat", [y, x], axis=-1))
    return b.model()


def reductions() -> onnx.ModelProto:
    b = ModelBuilder(seed=4)
    x = b.input("x", (2, 3, 4))
    y = b.node("ReduceMean", [x], axes=[1], keepdims=1)
    z = b.node("ReduceSum", [x, b.constant(np.array([-1], np.int64))], keepdims=0)
    b.output(b.node("Softmax", [b.node("Sub", [x, y])], axis=-1), z)
    return b.model()


def selections() -> onnx.ModelProto:
    b = ModelBuilder(seed=5)
    x = b.input("x", (4, 6))
    y = b.node("Gather", [x, b.constant(np.array([2, 0, -1], np.int64))], axis=1)
    bounds = [b.constant(np.array([n], np.int64)) for n in (1, 4, 0, 2)]
    z = b.node("Slice", [x, *bounds])
    b.output(y, b.node("Pad", [z, b.constant(np.array([0, 1, 1, 0], np.int64))]))
    return b.model()


def old() -> onnx.ModelProto:
    b = ModelBuilder(seed=6, opset=6)
    x = b.input("x", (1, 2, 4, 4))
    y = b.node("Add", [b.conv(x, 3, 3), b.weight(3)], broadcast=1, axis=1)
    b.output(b.node("Reshape", [b.relu(y), b.constant(np.array([1, -1], np.int64))]))
    return b.model()


def recurrent() -> onnx.ModelProto:
    b = ModelBuilder(seed=7)
    x = b.input("x", (3, 2, 4))
    y = b.node("LSTM", [x, b.weight(1, 20, 4), b.weight(1, 20, 5), b.weight(1, 40)], hidden_size=5)
    b.output(b.node("Squeeze", [y, b.constant(np.array([1], np.int64))]))
    return b.model()


# Contents that decide, bodies, other element types ------------------------------------------------

INDICES = """<ir_version: 8, opset_import: ["" : 17]>
indices (float[4,6] x, int64[3] i, int64[2,2] p, float[3,6] u)
    => (float[3,6] rows, float[2] points, float[4,6] put, float[4,2] top, int64[2,N] places)
    <int64[1] k = {2}> {
    rows = Gather <axis = 0> (x, i)
    points = GatherND (x, p)
    column = Unsqueeze (i, axis)
    put = ScatterND <reduction = "add"> (x, column, u)
    axis = Constant <value = int64[1] {1}> ()
    top, which = TopK <axis = 1> (put, k)
    zero = Constant <value = float {0.0}> ()
    positive = Greater (x, zero)
    places = NonZero (positive)
}"""

CONTROL = """<ir_version: 8, opset_import: ["" : 17]>
control (bool flag, float[2,3] x) => (float[2,3] y, float[8,3] z, float[2,3] first)
    <int64 trips = {3}, bool on = {1}, int64 one = {1}> {
    y = If (flag) <
        then_branch = yes () => (float[2,3] a) { a = Relu (x) },
        else_branch = no () => (float[2,3] b) { b = Neg (x) }
    >
    all = SequenceConstruct (x)
    last, kept = Loop (trips, on, x, all) <body = step
        (int64 n, bool c, float[2,3] v, seq(float[2,3]) s)
        => (bool d, float[2,3] w, seq(float[2,3]) t) {
        d = Identity (c)
        w = Add (v, x)
        t = SequenceInsert (s, w)
    }>
    z = ConcatFromSequence <axis = 0> (kept)
    first = SequenceAt (kept, one)
}"""

SCANS = """<ir_version: 8, opset_import: ["" : 17]>
scans (float[3,2] x, float[2] start, float[4,2] parts)
    => (float[2] last, float[2,3] y, float[2,2] z)
    <int64[2] sizes = {2, 2}, int64 one = {1}, bool yes = {1}> {
    last, y = Scan <num_scan_inputs = 1, scan_input_axes = [0], scan_output_axes = [1],
        scan_input_directions = [1], body = step (float[2] s, float[2] row)
            => (float[2] t, float[2] out) { t = Add (s, row) out = Mul (s, row) }> (start, x)
    split = SplitToSequence <axis = 0> (parts, sizes)
    part = SequenceAt (split, one)
    z = If (yes) <then_branch = a () => (float[2,2] p) { p = Neg (part) },
        else_branch = b () => (float[2,2] q) { q = Relu (part) }>
}"""

FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
functions (float[2,4] x, float[4,3] w) => (float[2,3] y, float[2,3] z) {
    y = own.Layer <alpha = 0.5> (x, w)
    z = own.Twice (y)
}
<domain: "own", opset_import: ["" : 17, "own" : 1]>
Layer <alpha> (a, b) => (c) {
    d = MatMul (a, b)
    e = own.Twice (d)
    c = LeakyRelu <alpha: float = @alpha> (e)
}
<domain: "own", opset_import: ["" : 17]>
Twice (a) => (b) {
    b = Add (a, a)
}"""

QUANTIZED = """<ir_version: 8, opset_import: ["" : 17]>
quantized (float[2,3] x, uint8[2,3] q) => (float[2,4] y, int32[2,4] z)
    <float s = {0.05}, uint8 zero = {128}, float[4] t = {0.1, 0.2, 0.3, 0.4},
     int8[4] zeros = {0, 0, 0, 0},
     int8[3,4] w = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12}> {
    a = QuantizeLinear (x, s, zero)
    b = DequantizeLinear (a, s, zero)
    v = DequantizeLinear <axis = 1> (w, t, zeros)
    y = MatMul (b, v)
    z = MatMulInteger (q, w, zero)
}"""

HALF = """<ir_version: 8, opset_import: ["" : 17]>
half (float16[2,4] x, float16[4,3] w) => (float16[2,3] y, float[2,3] z) {
    a = MatMul (x, w)
    y = Softmax <axis = 1> (a)
    b = Relu (a)
    z = Cast <to = 1> (b)
}"""

STRINGS = """<ir_version: 9, opset_import: ["" : 20, "ai.onnx.ml" : 2]>
strings (string[4] words, float[4,2] x) => (float[4,2] y, string[4] doubled) {
    doubled = StringConcat (words, words)
    code = ai.onnx.ml.LabelEncoder
        <keys_strings = ["a", "b"], values_floats = [1.0, 2.0], default_float = -1.0> (words)
    axis = Constant <value = int64[1] {1}> ()
    column = Unsqueeze (code, axis)
    y = Mul (column, x)
}"""

SECTIONS = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
sections (float[3,4] x, int64[3] labels) => (float y, float[3,4] z)
    <float[3,4] b, float[3,4] d> {
    a = Relu (x)
    b = ai.onnx.ml.Normalizer <norm = "L2"> (a)
    c = Add (b, x)
    d = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (c)
    z = Tanh (d)
    y = SoftmaxCrossEntropyLoss (z, labels)
}"""

TREES = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
trees (float[3,4] x, int64[2] columns) => (float[3,2] y, int64[3] label, float[3,2] scores)
    <float[3,2] picked, float[3,1] grown> {
    picked = ai.onnx.ml.ArrayFeatureExtractor (x, columns)
    grown = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1, post_transform = "NONE",
        nodes_treeids = [0, 0, 0, 1, 1, 1], nodes_nodeids = [0, 1, 2, 0, 1, 2],
        nodes_featureids = [0, 0, 0, 1, 0, 0],
        nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
        nodes_values = [0.5, 0.0, 0.0, 0.25, 0.0, 0.0],
        nodes_truenodeids = [1, 0, 0, 1, 0, 0], nodes_falsenodeids = [2, 0, 0, 2, 0, 0],
        target_treeids = [0, 0, 1, 1], target_nodeids = [1, 2, 1, 2],
        target_ids = [0, 0, 0, 0], target_weights = [1.0, 2.0, 3.0, 4.0]> (x)
    label, scores = ai.onnx.ml.LinearClassifier <classlabels_ints = [0, 1],
        coefficients = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], intercepts = [0.0, 0.5],
        multi_class = 0, post_transform = "SOFTMAX"> (x)
    y = Add (picked, grown)
}"""

VENDOR = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
vendor (float[2,3,8] x, int64[2,6] tokens) => (float[2,3,8] y, float[2,3,2] z, float[2,6] w)
    <float[8] ones = {1, 1, 1, 1, 1, 1, 1, 1}, float[2,3,8] s,
     uint8[2,1,8] q = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
     float[2] scales = {0.5, 0.25}, float[2,6] logits =
     {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6}> {
    s = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.001> (x, x, ones)
    y = Relu (s)
    z = com.microsoft.MatMulNBits <K = 8, N = 2, bits = 4, block_size = 16> (x, q, scales)
    w = com.microsoft.NGramRepeatBlock <ngram_size = 2> (tokens, logits)
}"""

FUSED = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
fused (float[2,3,8] x, float[2,3,8] k, float[1,2,5,5] image, int32[2,3] ids)
    => (float[2,3,8] y, float[2,3,3] p, float[1,3,5,5] c, float[2,3,8] e)
    <float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}, float[3,2,1,1] w = {1, 2, 3, 4, 5, 6},
     float[2,8] table = {1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 1, 0, 1, 0, 1, 0},
     float[3,8] places = {1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1}> {
    a = com.microsoft.MultiHeadAttention <num_heads = 2> (x, k, x)
    y = com.microsoft.BiasGelu (a, bias)
    p = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (x, k)
    c = com.microsoft.FusedConv <activation = "LeakyRelu", activation_params = [0.1]> (image, w)
    e, m = com.microsoft.EmbedLayerNormalization <epsilon = 0.001>
        (ids, ids, table, places, table, bias, bias)
}"""

SHAPES = """<ir_version: 8, opset_import: ["" : 17]>
shapes (float[2,6] x, int64[2] shape, int64 n) => (float[A,B] y, float[C] z) {
    a = Relu (x)
    y = Reshape (a, shape)
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    r = Range (zero, n, one)
    z = Cast <to = 1> (r)
}"""

OPEN = """<ir_version: 8, opset_import: ["" : 17]>
open (float[N,4] x, float[M,4] y) => (float[N,M] z, float[K] flat) {
    t = Transpose <perm = [1, 0]> (y)
    z = MatMul (x, t)
    all = Constant <value = int64[1] {-1}> ()
    flat = Reshape (x, all)
}"""


SIZED = """<ir_version: 8, opset_import: ["" : 17]>
sized (float[n,3,6,6] x, float[m,n,2] y) => (float[n,4,4,4] a, float[m,n,5] b)
<float[4,3,3,3] w, float[2,5] v = {1,2,3,4,5,6,7,8,9,0}> {
    c = Conv (x, w)
    a = Relu (c)
    b = MatMul (y, v)
}"""


def sized() -> onnx.ModelProto:
    model = parser.parse_model(SIZED)
    weights = np.linspace(-1, 1, 108, dtype=np.float32).reshape(4, 3, 3, 3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def of_text(text: str) -> Callable[[], onnx.ModelProto]:
    return lambda: parser.parse_model(text)


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "convolutions": convolutions,
    "broadcasts": broadcasts,
    "movement": movement,
    "reductions": reductions,
    "selections": selections,
    "old": old,
    "recurrent": recurrent,
    "indices": of_text(INDICES),
    "control": of_text(CONTROL),
    "scans": of_text(SCANS),
    "functions": of_text(FUNCTIONS),
    "quantized": of_text(QUANTIZED),
    "half": of_text(HALF),
    "strings": of_text(STRINGS),
    "sections": of_text(SECTIONS),
    "trees": of_text(TREES),
    "vendor": of_text(VENDOR),
    "fused": of_text(FUSED),
    "shapes": of_text(SHAPES),
    "open": of_text(OPEN),
    "sizes": sized,
}

FEEDS: Mapping[str, Mapping[str, Any]] = {
    "indices": {"i": np.array([2, 0, 3]), "p": np.array([[1, 2], [3, -1]])},
    "quantized": {"q": np.array([[1, 128, 255], [0, 7, 130]], np.uint8)},
    "strings": {"words": np.array(["b", "a", "x", ""], dtype=object)},
    "sections": {"labels": np.array([1, 3, 0])},
    "trees": {"columns": np.array([3, 0])},
    "vendor": {"tokens": np.array([[0, 1, 2, 3, 0, 1], [1, 1, 2, 0, 1, 1]])},
    "shapes": {"shape": np.array([3, 4]), "n": np.array(5)},
    "open": {"x": np.ones((3, 4), np.float32), "y": np.ones((2, 4), np.float32)},
    "sizes": {"x": np.ones((4, 3, 6, 6), np.float32), "y": np.ones((3, 4, 2), np.float32)},
}


@cache
def base(name: str) -> Base:
    """One of the models above."""
    return Base(MODELS[name]().SerializeToString(), FEEDS.get(name, {}))


@cache
def built() -> tuple[Base, ...]:
    """All of the models above."""
    return tuple(map(base, MODELS))


@cache
def with_sections() -> tuple[Base, ...]:
    """Those of them that onnxruntime runs parts of, or might where they are damaged."""
    return tuple(map(base, ("strings", "sections", "trees", "vendor", "fused")))


@cache
def of_one_operator() -> tuple[Base, ...]:
    """The models that onnx tests backends with: nearly all operators, many that are not built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    found = []
    for case in cases:
        if case.model is not None and case.data_sets:
            inputs, outputs = case.data_sets[0]
            names = [info.name for info in case.model.graph.input]
            feeds = dict(zip(names, inputs, strict=False))
            found.append(Base(case.model.SerializeToString(), feeds, tuple(outputs)))
    return tuple(found)
