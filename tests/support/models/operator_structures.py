"""Random nodes of movement, windowed, product and quantized operators, for test_every_operator."""

from math import prod
from typing import Any

import numpy as np

from support.models.operator_cases import (
    EPSILONS,
    MOVED,
    WORDS,
    Case,
    Choices,
    Constant,
    Shape,
    Strategy,
)


def ints(numbers: Any, dtype: str = "int64") -> Constant:
    return Constant(np.asarray(numbers, dtype).reshape(-1))


def moved(c: Choices, shape: Shape) -> Any:
    return c.array(shape, c.one(*MOVED))


# Movement ---------------------------------------------------------------------------------------


def reshape(c: Choices) -> Case:
    shape = c.shape()
    wanted = [n if n else 0 for n in shape]
    if prod(shape):
        wanted = list(shape)
        cut = c.whole(0, len(shape))
        wanted = [prod(wanted[:cut]), *wanted[cut:]]
        if c.whole(0, 1):
            wanted[c.whole(0, len(wanted) - 1)] = -1
    return Case("Reshape", 19, [moved(c, shape), ints(wanted)], {}, True)


def flatten(c: Choices) -> Case:
    shape = c.shape(1)
    return Case("Flatten", 13, [moved(c, shape)], {"axis": c.whole(-len(shape), len(shape))}, True)


def transpose(c: Choices) -> Case:
    shape = c.shape(1)
    perm = sorted(range(len(shape)), key=lambda axis: c.whole(0, 9))
    return Case("Transpose", 13, [moved(c, shape)], {"perm": perm} if c.whole(0, 3) else {}, True)


def squeeze(c: Choices) -> Case:
    shape = tuple(c.one(1, n) for n in c.shape())
    ones = [k - len(shape) * c.whole(0, 1) for k, n in enumerate(shape) if n == 1 and c.whole(0, 2)]
    inputs = [moved(c, shape), ints(ones)] if ones else [moved(c, shape)]
    return Case("Squeeze", 13, inputs, {}, True)


def unsqueeze(c: Choices) -> Case:
    shape = c.shape(0, 3)
    axes = c.axes(len(shape) + 1, 1)[:1] if c.whole(0, 1) else [0, len(shape) + 1]
    return Case("Unsqueeze", 13, [moved(c, shape), ints(axes)], {}, True)


def expand(c: Choices) -> Case:
    given, whole = c.broadcast(2)
    rank = max(len(given), len(whole))
    return Case("Expand", 13, [moved(c, given), ints(whole)], {}, True, result=("n",) * rank)


def tile(c: Choices) -> Case:
    shape = c.shape(1)
    return Case(
        "Tile", 13, [moved(c, shape), ints([c.one(1, 1, 2, 3, 0) for _ in shape])], {}, True
    )


def concat(c: Choices) -> Case:
    shape, dtype = c.shape(1), c.one(*MOVED)
    axis = c.axis(len(shape))
    parts = []
    for _ in range(c.whole(1, 4)):
        part = list(shape)
        part[axis] = c.one(0, 1, 2, 5, 8)
        parts.append(c.array(tuple(part), dtype))
    return Case("Concat", 13, parts, {"axis": axis}, True)


def split(c: Choices) -> Case:
    shape = c.shape(1, empty=False)
    axis = c.axis(len(shape))
    first = c.whole(0, shape[axis])
    sizes = ints([first, shape[axis] - first])
    return Case("Split", 13, [moved(c, shape), sizes], {"axis": axis}, True, outputs=2)


def slices(c: Choices) -> Case:
    shape = c.shape(1)
    axes = c.axes(len(shape), 1)
    far = (2**63 - 1, -(2**63), 100, -100)
    starts, ends = ([c.one(*far, *range(-4, 5)) for _ in axes] for _ in range(2))
    steps = [c.one(1, 1, 2, 3, -1, -2) for _ in axes]
    dtype = c.one(*WORDS)
    if dtype == "int32":
        starts, ends = ([max(min(n, 2**31 - 1), -(2**31)) for n in part] for part in (starts, ends))
    inputs = [ints(part, dtype) for part in (starts, ends, axes, steps)]
    return Case("Slice", 13, [moved(c, shape), *inputs], {}, True, result=("n",) * len(shape))


def pad(c: Choices) -> Case:
    shape = c.shape(1, empty=False)
    mode = c.one("constant", "constant", "reflect", "edge", "wrap")
    # Neither mode is defined for more than the tensor has.
    most = {"reflect": min(shape) - 1, "wrap": min(shape)}.get(mode, 3)
    least = -1 if mode == "constant" and min(shape) > 2 else 0
    pads = [c.whole(least, min(most, 3)) for _ in range(2 * len(shape))]
    x = c.array(shape, c.one("float32", "float64", "int32", "int64", "int8", "uint8", "bool"))
    inputs = [x, ints(pads)]
    if mode == "constant" and c.whole(0, 1):
        inputs.append(c.given(c.array((), x.dtype.name)))
    return Case("Pad", 19, inputs, {"mode": mode}, True)


def trilu(c: Choices) -> Case:
    shape = c.shape(2)
    inputs = [moved(c, shape), c.given(np.asarray(c.whole(-20, 20)))]
    return Case("Trilu", 14, inputs[: c.whole(1, 2)], {"upper": c.whole(0, 1)}, True)


def depth_to_space(c: Choices) -> Case:
    block = c.one(1, 2, 3)
    x = c.array(
        (c.whole(1, 2), block * block * c.one(1, 3), c.one(1, 4), c.one(1, 3)), special=True
    )
    return Case("DepthToSpace", 13, [x], {"blocksize": block, "mode": c.one("DCR", "CRD")}, True)


def space_to_depth(c: Choices) -> Case:
    block = c.one(1, 2, 3)
    x = c.array((c.whole(1, 2), c.one(1, 3), block * c.one(1, 3), block * c.one(1, 2)))
    return Case("SpaceToDepth", 13, [x], {"blocksize": block}, True)


def reverse_sequence(c: Choices) -> Case:
    axes = c.one((0, 1), (1, 0))
    shape = (c.one(1, 3, 5), c.one(1, 2, 4), *c.shape(0, 2))
    lengths = np.array([c.whole(1, shape[axes[0]]) for _ in range(shape[axes[1]])], np.int64)
    given = {"time_axis": axes[0], "batch_axis": axes[1]}
    return Case("ReverseSequence", 10, [moved(c, shape), c.given(lengths)], given, True)


# Indices that are data --------------------------------------------------------------------------


def indices(c: Choices, extent: int, shape: Shape, dtype: str = "int64") -> Any:
    rng = np.random.default_rng(c.whole(0, 2**32 - 1))
    return np.asarray(rng.integers(-extent, extent, shape)).astype(dtype)


def gather(c: Choices) -> Case:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    where = indices(c, shape[axis], c.shape(0, 2), c.one(*WORDS))
    return Case("Gather", 13, [moved(c, shape), c.given(where)], {"axis": axis}, True)


def gather_elements(c: Choices) -> Case:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    wanted = [c.whole(1, n) for n in shape]
    wanted[axis] = c.one(1, 3, 9)
    where = indices(c, shape[axis], tuple(wanted), c.one(*WORDS))
    return Case("GatherElements", 13, [moved(c, shape), c.given(where)], {"axis": axis}, True)


def _tuples(c: Choices, shape: Shape, depth: int, rows: Shape) -> Any:
    return np.stack([indices(c, n, rows) for n in shape[:depth]], -1)


def gather_nd(c: Choices) -> Case:
    shape = c.shape(1, 3, empty=False)
    depth, rows = c.whole(1, len(shape)), c.shape(0, 2, empty=False)
    where = _tuples(c, shape, depth, rows)
    result = (*rows, *shape[depth:])
    # ONNX infers no scalar, so the type is that which a model has where nothing is inferred.
    x = moved(c, shape) if result else c.array(shape)
    return Case("GatherND", 13, [x, c.given(where)], {}, True, result=result)


def scatter_elements(op: str) -> Strategy:
    def case(c: Choices) -> Case:
        shape, dtype = c.shape(1, 3, empty=False), c.one("float32", "int64", "float64", "int32")
        axis = c.axis(len(shape))
        wanted = [c.whole(1, n) for n in shape]
        where = indices(c, shape[axis], tuple(wanted))
        given: dict[str, Any] = {"axis": axis}
        if op == "Scatter" or c.whole(0, 1):
            # Without a reduction each place is written once: the order is nobody's business.
            order = np.argsort(c.array(tuple(wanted), special=False), axis=axis, kind="stable")
            where = order.astype(np.int64) - shape[axis] * c.whole(0, 1)
        else:
            given["reduction"] = c.one("add", "mul", "max", "min")
        x, updates = (c.array(s, dtype, special=False) for s in (shape, tuple(wanted)))
        opset = 10 if op == "Scatter" else 18
        tolerance = EPSILONS.get(dtype, 0.0)
        return Case(op, opset, [x, where, updates], given, False, 4 * tolerance)

    return case


def scatter_nd(c: Choices) -> Case:
    shape, dtype = c.shape(1, 3, empty=False), c.one("float32", "int64", "float64", "int32")
    depth = c.whole(1, len(shape))
    if c.whole(0, 1):
        given = {"reduction": c.one("add", "mul", "max", "min")}
        where = _tuples(c, shape, depth, (c.one(1, 3),))
    else:
        given, where = {}, _tuples(c, shape, depth, (1,))
    x, updates = (c.array(s, dtype, special=False) for s in (shape, (len(where), *shape[depth:])))
    return Case("ScatterND", 18, [x, where, updates], given, False, 4 * EPSILONS.get(dtype, 0.0))


def one_hot(c: Choices) -> Case:
    shape, depth = c.shape(1, 3), c.one(1, 3, 9)
    where = indices(c, depth + 2, shape, c.one(*WORDS))  # some are outside, and give no one
    values = c.array((2,), c.one("float32", "int64", "int32"), special=False)
    given = {"axis": c.whole(-len(shape) - 1, len(shape))}
    inputs = [where, Constant(np.int64(depth)), c.given(values)]
    return Case("OneHot", 11, inputs, given, False, 1e-6)  # the evaluator adds to the off value


def top_k(c: Choices) -> Case:
    shape = c.shape(1, empty=False)
    axis, dtype = c.axis(len(shape)), c.one("float32", "float64", "int64", "int32")
    x = np.round(c.array(shape, dtype, special=dtype.startswith("int"))).astype(dtype) + 0
    given = {"axis": axis, "largest": c.whole(0, 1), "sorted": 1}
    return Case("TopK", 11, [x, ints(c.whole(1, shape[axis]))], given, outputs=2)


def compress(c: Choices) -> Case:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    condition = c.array((c.whole(1, shape[axis]),), "bool")
    given = {"axis": axis} if c.whole(0, 1) else {}
    if not given:
        condition = c.array((c.whole(1, prod(shape)),), "bool")
    rank = len(shape) if given else 1
    return Case("Compress", 11, [c.array(shape), condition], given, True, result=("n",) * rank)


def non_zero(c: Choices) -> Case:
    shape = c.shape(1, 3, empty=False)
    x = c.array(shape, c.one("float32", "int64", "bool", "int32"))
    return Case("NonZero", 13, [x], {}, result=(len(shape), "n"))


def unique(c: Choices) -> Case:
    shape = c.shape(1, 2, empty=False)
    x = np.round(c.array(shape, c.one("float32", "int64"), special=False)) + 0
    return Case("Unique", 11, [x], {"sorted": c.whole(0, 1)}, True, result=("n",))


# Shapes -----------------------------------------------------------------------------------------


def shape_of(c: Choices) -> Case:
    x = moved(c, c.shape())
    given = {name: c.whole(-5, 5) for name in ("start", "end") if c.whole(0, 1)}
    return Case("Shape", 15, [x], given, True)


def size_of(c: Choices) -> Case:
    return Case("Size", 13, [moved(c, c.shape())], {}, True)


def eye_like(c: Choices) -> Case:
    shape = (c.one(1, 3, 9), c.one(1, 4, 7))
    return Case("EyeLike", 9, [c.array(shape, c.one("float32", "int32"))], {"k": c.whole(-9, 9)})


def constant_of_shape(c: Choices) -> Case:
    """A model of constants alone: what it returns is computed at import or by a kernel."""
    shape = c.one((), (3,), (2, 0, 3), (40, 41))
    return Case("ConstantOfShape", 9, [ints(shape)], {}, True)


def ranges(c: Choices) -> Case:
    """The count is that of the exact quotient, rounded up; some are too long for import to fold."""
    dtype = c.one("float32", "float64", "int16", "int32", "int64")
    if dtype.startswith("float"):
        delta = c.one(0.25, -0.5, 1, 3)
    else:
        delta = c.one(1, -1, 2, -3, 7)
    start, count = c.whole(-20, 20), c.one(0, 1, 5, 1100, 2000)
    part = c.one(0, 0, 1) if count and abs(delta) > 1 else 0
    numbers = (start, start + count * delta - part * np.sign(delta), delta)
    inputs = [Constant(np.asarray(number).astype(dtype)) for number in numbers]
    return Case("Range", 11, inputs, {}, True)


# Windows ----------------------------------------------------------------------------------------


def _window(c: Choices, axes: int, extents: Shape) -> dict[str, Any]:
    kernel = [c.whole(1, min(3, n)) for n in extents]
    pads = [c.whole(0, k - 1) for k in (*kernel, *kernel)]
    return {"kernel_shape": kernel, "strides": [c.whole(1, 3) for _ in range(axes)], "pads": pads}


def _images(c: Choices) -> tuple[Shape, Shape]:
    axes = c.one(1, 2, 2, 2, 3)
    extents = tuple(c.one(1, 2, 5, 9) for _ in range(axes))
    return (c.whole(1, 2), c.one(1, 3, 8, 17), *extents), extents


def pool(op: str, opset: int) -> Strategy:
    def case(c: Choices) -> Case:
        shape, extents = _images(c)
        given = _window(c, len(extents), extents)
        given["ceil_mode"] = c.whole(0, 1)
        if given["ceil_mode"]:
            # ONNX's inference counts windows that begin behind the tensor; no runtime does.
            pairs = zip(given["strides"], given["kernel_shape"], strict=True)
            given["strides"] = [min(stride, k) for stride, k in pairs]
            given["pads"][len(extents) :] = [0] * len(extents)
        if op == "AveragePool":
            given["count_include_pad"] = c.whole(0, 1)
        if op == "LpPool":
            given["p"] = c.one(1, 2, 3)
        if op == "MaxPool" and c.whole(0, 1):
            given["dilations"] = [1 if k == 1 else c.whole(1, 1) for k in given["kernel_shape"]]
        if c.whole(0, 2) == 0:
            del given["pads"]
            given["auto_pad"] = c.one("SAME_UPPER", "SAME_LOWER", "VALID")
        dtype = c.one("float32", "float64", "uint8") if op == "MaxPool" else "float32"
        x = c.array(shape, dtype, special=dtype == "uint8")
        return Case(op, opset, [x], given, False, 2e-5)

    return case


def global_pool(op: str) -> Strategy:
    def case(c: Choices) -> Case:
        x = c.array(_images(c)[0], special=False)
        return Case(op, 2 + 5 if op == "GlobalLpPool" else 13, [x], {}, False, 2e-5)

    return case


def convolution(c: Choices) -> Case:
    shape, extents = _images(c)
    group = c.one(*(g for g in (1, 1, 3, shape[1]) if shape[1] % g == 0))
    outputs = group * c.one(1, 2, 9)
    given = _window(c, len(extents), extents)
    filters = (outputs, shape[1] // group, *given["kernel_shape"])
    inputs = [c.array(shape, special=False), c.given(c.array(filters, special=False))]
    if c.whole(0, 1):
        inputs.append(c.given(c.array((outputs,), special=False)))
    if c.whole(0, 2) == 0:
        del given["pads"]
        given["auto_pad"] = c.one("SAME_UPPER", "SAME_LOWER", "VALID")
    return Case("Conv", 11, inputs, {**given, "group": group}, False, 1e-4)


def transposed_convolution(c: Choices) -> Case:
    shape, extents = _images(c)
    group = c.one(1, shape[1])
    each = c.one(1, 2, 5)
    given = _window(c, len(extents), extents)
    filters = (shape[1], each, *given["kernel_shape"])
    inputs = [c.array(shape, special=False), c.given(c.array(filters, special=False))]
    if c.whole(0, 1):
        inputs.append(c.given(c.array((group * each,), special=False)))
    return Case("ConvTranspose", 11, inputs, {**given, "group": group}, False, 1e-4)


def col2im(c: Choices) -> Case:
    image, block = (c.one(3, 5), c.one(4, 7)), (c.one(1, 2), c.one(1, 3))
    places = prod(n - k + 1 for n, k in zip(image, block, strict=True))
    x = c.array((c.whole(1, 2), c.one(1, 3) * prod(block), places), special=False)
    return Case("Col2Im", 18, [x, ints(image), ints(block)], {}, False, 2e-5)


# Products ---------------------------------------------------------------------------------------


def matmul(c: Choices) -> Case:
    dtype = c.one("float32", "float32", "float64", "int32", "int64")
    n, k, m = (c.one(1, 2, 7, 17, 33) for _ in range(3))
    batch = c.broadcast(2, 2)
    a, b = (*batch[0], n, k), (*batch[1], k, m)
    if c.whole(0, 3) == 0:
        a = (k,)
    elif c.whole(0, 3) == 0:
        b = (k,)
    inputs = [c.array(a, dtype, special=False), c.given(c.array(b, dtype, special=False))]
    return Case("MatMul", 13, inputs, {}, False, 10 * EPSILONS.get(dtype, 0.0))


def gemm(c: Choices) -> Case:
    n, k, m = (c.one(1, 2, 7, 17, 33) for _ in range(3))
    turned = {"transA": c.whole(0, 1), "transB": c.whole(0, 1)}
    a = (k, n) if turned["transA"] else (n, k)
    b = (m, k) if turned["transB"] else (k, m)
    inputs = [c.array(a, special=False), c.given(c.array(b, special=False))]
    if c.whole(0, 1):
        inputs.append(c.given(c.array(c.one((), (m,), (1, m), (n, 1), (n, m)), special=False)))
    given = {**turned, "alpha": c.one(1.0, 0.5), "beta": c.one(1.0, 0.0, 2.0)}
    return Case("Gemm", 13, inputs, given, False, 2e-4)


def einsum(c: Choices) -> Case:
    sizes = {label: c.one(1, 2, 5, 9) for label in "abcd"}
    equation = c.one(
        "ab,bc->ac", "ab->ba", "aab->b", "abc,abd->cd", "ab,cd->adbc", "a,a->", "abc->b"
    )
    parts = equation.split("->")[0].split(",")
    arrays = [c.array(tuple(sizes[label] for label in part), special=False) for part in parts]
    if equation.startswith("aab"):
        arrays[0] = c.array((sizes["a"], sizes["a"], sizes["b"]), special=False)
    return Case("Einsum", 12, arrays, {"equation": equation}, False, 1e-4)


def determinant(c: Choices) -> Case:
    n = c.one(1, 2, 3, 5)
    return Case("Det", 11, [c.array((*c.shape(0, 2), n, n), special=False)], {}, False, 1e-3)


# Quantization -----------------------------------------------------------------------------------


def matmul_integer(c: Choices) -> Case:
    n, k, m = (c.one(1, 5, 17, 33) for _ in range(3))
    # With a signed A, pairs of products overflow in onnxruntime's kernels for some processors.
    a, b = c.array((n, k), "uint8"), c.array((k, m), c.one("int8", "uint8"), special=False)
    zeros = [c.given(np.asarray(c.whole(0, 5)).astype(x.dtype)) for x in (a, b)]
    return Case("MatMulInteger", 10, [a, b, *zeros[: c.whole(0, 2)]])


def quantize(c: Choices) -> Case:
    dtype = c.one("uint8", "int8", "uint16", "int16")
    shape = c.shape(1)
    x = np.nan_to_num(c.array(shape), posinf=1e3, neginf=-1e3).astype("float32")
    scale = Constant(np.float32(c.one(0.25, 0.5, 1.0, 2.0)))
    zero = Constant(np.asarray(c.whole(0, 9)).astype(dtype))
    return Case("QuantizeLinear", 21, [x, scale, zero])


def dequantize(c: Choices) -> Case:
    dtype = c.one("uint8", "int8", "uint16", "int16")
    shape = c.shape(1, empty=False)
    axis = c.axis(len(shape))
    row = (shape[axis],) if c.whole(0, 1) else ()
    scale, zero = c.positive(row), c.array(row, dtype, special=False)
    inputs = [c.array(shape, dtype), c.given(scale), c.given(zero)]
    return Case("DequantizeLinear", 21, inputs, {"axis": axis}, False, 1e-5)


def dynamic_quantize(c: Choices) -> Case:
    x = c.array(c.shape(1, empty=False), special=False)
    return Case("DynamicQuantizeLinear", 11, [x], outputs=3)


STRATEGIES: dict[str, Strategy] = {
    **{op: pool(op, opset) for op, opset in (("AveragePool", 19), ("MaxPool", 12), ("LpPool", 18))},
    **{op: global_pool(op) for op in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")},
    **{op: scatter_elements(op) for op in ("Scatter", "ScatterElements")},
    "Col2Im": col2im,
    "Compress": compress,
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "DepthToSpace": depth_to_space,
    "DequantizeLinear": dequantize,
    "Det": determinant,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Einsum": einsum,
    "Expand": expand,
    "EyeLike": eye_like,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gemm": gemm,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "Pad": pad,
    "QuantizeLinear": quantize,
    "Range": ranges,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "ScatterND": scatter_nd,
    "Shape": shape_of,
    "Size": size_of,
    "Slice": slices,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "TopK": top_k,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unique": unique,
    "Unsqueeze": unsqueeze,
}
