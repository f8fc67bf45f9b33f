"""Random ONNX models of softmaxes, norms and reductions, with what is fused around them.

In: a seed.  Out: an ONNX model of float32 inputs and outputs; the same seed gives the same bytes.
`fuzzing.random_model` draws convolutional networks, where these operators are rare and run over
channels mostly; here they run over any axes of tensors of two to four axes, in rows shorter and
longer than a vector, of one element too, and several of them read each other.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx

from support.models.fuzzing import REDUCTIONS, Draft, Tensor

EXTENTS = (1, 2, 3, 5, 7, 9, 13, 17, 19, 33, 58, 70)
LARGEST = 6000
"""Elements of a tensor: what takes longer than its kernel to make shows nothing more."""

AROUND = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Add", "Sub", "Mul", "Max", "Scale", "Shift")

STAGE_SPECIALS = 0.4
"""The share of seeds with special numbers in their inputs."""


def random_stage_model(seed: int) -> onnx.ModelProto:
    """The model of a seed: two to four stages, each with elementwise operators before or after."""
    draft = Draft(seed)
    x = draft.input(_shape(draft))
    draft.keep(x)
    if x.rank == 4 and draft.chance(0.5):
        draft.keep(_pointwise_convolution(draft, x))
    for _ in range(draft.between(1, 3)):
        _elementwise(draft)
        draft.keep(*_stage(draft))
        if draft.chance(0.6):
            _elementwise(draft)
    return draft.model()


def _shape(draft: Draft) -> tuple[int, ...]:
    """Two to four extents, mostly odd ones, whose product is not too large."""
    while True:
        rank = draft.among((2, 3, 4, 4))
        shape = tuple(draft.among(EXTENTS) for _ in range(rank))
        if 2 < prod(shape) <= LARGEST:
            return shape


def _pointwise_convolution(draft: Draft, x: Tensor) -> Tensor:
    """Channels that convolutions like to have in blocks."""
    channels = draft.among((3, 8, 10, 17, 20))
    weights = draft.constant(draft.noise(channels, x.shape[1], 1, 1) / x.shape[1] ** 0.5)
    return draft.emit("Conv", [x, weights], (x.shape[0], channels, *x.shape[2:]))


def _elementwise(draft: Draft) -> None:
    x = draft.pick()
    assert x is not None
    op = draft.among(AROUND)
    operands: list[Tensor | str] = [x]
    if op in ("Scale", "Shift"):
        ends = tuple(draft.among((1, n)) for n in x.shape)[draft.between(0, x.rank) :]
        operands.append(draft.constant(draft.noise(*ends)))
        op = "Mul" if op == "Scale" else "Add"
    elif op in ("Add", "Sub", "Mul", "Max"):
        shape = x.shape
        operands.append(draft.pick(lambda t: t.shape == shape) or x)
    if op == "Mul" and any(t.wild for t in operands if isinstance(t, Tensor)):
        return
    draft.keep(draft.emit(op, operands, x.shape))


def _stage(draft: Draft) -> Sequence[Tensor]:
    x = draft.pick(lambda t: not t.wild and prod(t.shape) > 1)
    if x is None:
        x = draft.input(_shape(draft))
    match draft.among(("softmax", "softmax", "layer", "instance", "group", "lp", "reduce", "reduce",
                       "by hand")):  # fmt: skip
        case "softmax":
            op = draft.among(("Softmax", "Softmax", "LogSoftmax"))
            return [draft.emit(op, [x], x.shape, False, axis=draft.between(-x.rank, x.rank - 1))]
        case "layer":
            axis = draft.between(max(0, x.rank - 3), x.rank - 1)
            sides = x.shape[axis:]
            parameters = [draft.constant(draft.noise(*sides)) for _ in range(draft.between(1, 2))]
            return [draft.emit("LayerNormalization", [x, *parameters], x.shape, False, axis=axis)]
        case "instance" if x.rank >= 3:
            parameters = [draft.constant(draft.noise(x.shape[1])) for _ in range(2)]
            return [draft.emit("InstanceNormalization", [x, *parameters], x.shape, False)]
        case "group" if x.rank >= 3:
            return [_group_normalization(draft, x)]
        case "lp":
            axis, p = draft.between(-x.rank, x.rank - 1), draft.between(1, 2)
            return [draft.emit("LpNormalization", [x], x.shape, False, axis=axis, p=p)]
        case "by hand":
            return _normalized_by_hand(draft, x)
    return [_reduction(draft, x, draft.among(REDUCTIONS), draft.chance(0.7))]


def _group_normalization(draft: Draft, x: Tensor) -> Tensor:
    """As exporters write it before opset 21: through a reshape, with a scale of each channel."""
    n, c, *image = x.shape
    groups = draft.among([g for g in range(1, c + 1) if c % g == 0])
    inner = (n, groups, prod(x.shape) // (n * groups))
    ones = [draft.constant(array(groups)) for array in (np.ones, np.zeros)]
    rows = draft.emit("Reshape", [x, draft.net.integers(*inner)], inner)
    rows = draft.emit("InstanceNormalization", [rows, *ones], inner, False)
    made = draft.emit("Reshape", [rows, draft.net.integers(*x.shape)], x.shape, False)
    scale = draft.constant(draft.noise(c, *(1 for _ in image)))
    return draft.emit("Mul", [made, scale], x.shape)


def _reduction(draft: Draft, x: Tensor, op: str, keep: bool) -> Tensor:
    """Over one axis or several, next to each other or not."""
    axes = sorted({draft.between(0, x.rank - 1) for _ in range(draft.between(1, x.rank))})
    if op == "ReduceProd":
        op = "ReduceMax"
    shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    if not keep:
        shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
    wild = True if op == "ReduceSumSquare" else None
    return draft.emit(op, [x, draft.net.integers(*axes)], shape, wild, keepdims=int(keep))


def _normalized_by_hand(draft: Draft, x: Tensor) -> Sequence[Tensor]:
    """(x − mean) / sqrt(variance + ε), as it is exported without an operator of its own."""
    last = x.rank - 1
    reduced = draft.among([(last,), (min(1, last),), tuple(sorted({0, last}))])
    axes = draft.net.integers(*reduced)
    shape = tuple(1 if k in reduced else n for k, n in enumerate(x.shape))
    tiny = draft.constant(np.array(1e-3))
    mean = draft.emit("ReduceMean", [x, axes], shape, keepdims=1)
    rest = draft.emit("Sub", [x, mean], x.shape)
    squares = draft.emit("Mul", [rest, rest], x.shape)
    variance = draft.emit("ReduceMean", [squares, axes], shape, keepdims=1)
    deviation = draft.emit("Sqrt", [draft.emit("Add", [variance, tiny], shape)], shape)
    return [draft.emit("Div", [rest, deviation], x.shape, False)]
