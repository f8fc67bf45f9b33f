"""Random ONNX models in which kernels of special kinds are legal, however small they are.

In: a seed.  Out: an ONNX model; the same seed gives the same bytes.

- `random_wide_model`: 3×3 convolutions whose channels fill several vectors, with what is fused
  around them.
- `random_attention`: attentions over some rows, with masks of all kinds, and what exporters write
  around them.
- `random_reduced_model`: tensors that are reduced as a whole behind the kernels that write them, as
  dynamic quantization does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.utils import Extractor

from support.models.fuzzing import STEPS, Draft, Tensor

LOWEST = float(np.finfo(np.float32).min)
EXCLUDING = (-np.inf, LOWEST, -1e9, -1e4)
ROWS, KEYS, DEPTHS = (
    (8, 16, 16, 17, 19, 32, 33, 40),
    (8, 9, 16, 24, 31, 33, 40, 70),
    (1, 3, 8, 16, 20),
)
WIDE = (16, 32, 32, 40, 48, 58, 64, 64, 70, 80, 96)

AROUND = ("unary", "Clip", "PRelu", "binary", "variadic", "comparison", "normalization", "Split",
          "Concat", "Transpose", "pool", "global pool", "residual", "reduction", "Slice", "Pad",
          "product")  # fmt: skip


def random_wide_model(seed: int) -> onnx.ModelProto:
    """One to three wide convolutions, other operators between."""
    draft = Draft(seed)
    image = draft.between(2, 13), draft.between(2, 13)
    x = draft.input((draft.among((1, 1, 2)), draft.among(WIDE), *image))
    draft.keep(x)
    for _ in range(draft.between(1, 2)):
        for _ in range(draft.between(0, 2)):
            draft.keep(*(STEPS[draft.among(AROUND)][1](draft) or ()))
        wide = draft.pick(lambda t: t.rank == 4 and t.shape[1] >= 16 and min(t.shape[2:]) > 1)
        draft.keep(*_wide_convolution(draft, wide or x))
    for _ in range(draft.between(0, 3)):
        draft.keep(*(STEPS[draft.among(AROUND)][1](draft) or ()))
    return draft.model()


def _wide_convolution(draft: Draft, x: Tensor) -> Sequence[Tensor]:
    n, c, *image = x.shape
    pads = [1] * 4 if draft.chance(0.7) else [draft.between(0, 2) for _ in range(4)]
    extents = [image[k] + pads[k] + pads[k + 2] - 2 for k in (0, 1)]
    if min(extents) < 1:
        pads, extents = [1] * 4, image
    m = c if draft.chance(0.4) else draft.among(WIDE)
    operands: list[Tensor | str] = [x, draft.constant(draft.noise(m, c, 3, 3) * (9 * c) ** -0.5)]
    if draft.chance(0.6):
        operands.append(draft.constant(draft.noise(m)))
    made = draft.emit("Conv", operands, (n, m, *extents), pads=pads)
    if made.shape == x.shape and draft.chance(0.5):
        kept = draft.emit("Add", [made, x], x.shape)
        return [made, draft.emit("Relu", [kept], x.shape)] if draft.chance(0.5) else [kept]
    if draft.chance(0.4):
        return [draft.emit(draft.among(("Relu", "Sigmoid", "HardSwish")), [made], made.shape)]
    return [made]


# Attention ----------------------------------------------------------------------------------------


def random_attention(seed: int) -> onnx.ModelProto:
    """One attention or two, the second on the results of the first."""
    draft = Draft(seed)
    rows, depth = draft.among(ROWS), draft.among(DEPTHS)
    lead = draft.among(((), (1,), (2,), (3,), (1, 2), (2, 2)))
    x = draft.input((*lead, rows, depth))
    for _ in range(draft.between(1, 2)):
        x = _attention(draft, x)
        if draft.chance(0.3):
            x = draft.emit("Relu", [x], x.shape)
        draft.keep(x)
    return draft.model()


def _attention(draft: Draft, q: Tensor) -> Tensor:
    *lead, rows, depth = q.shape
    keys = rows if draft.chance(0.5) else draft.among(KEYS)
    k = _keys(draft, (*lead, keys, depth))
    if draft.chance(0.5):
        scale = draft.constant(np.array(depth**-0.5))
        q = draft.emit("Mul", [q, scale], q.shape)
    scores = draft.emit("MatMul", [q, k], (*lead, rows, keys))
    if draft.chance(0.4):
        op = draft.among(("Mul", "Div"))
        scores = draft.emit(op, [scores, draft.constant(np.array(1.3))], scores.shape)
    if draft.chance(0.15):
        scores = draft.emit("Tanh", [scores], scores.shape)
    if draft.chance(0.3):
        shape = draft.among(((rows, keys), (1, keys), (rows, 1), scores.shape))
        bias = draft.input(shape) if draft.chance(0.5) else draft.constant(draft.noise(*shape))
        scores = draft.emit("Add", [scores, bias], scores.shape)
    if draft.chance(0.8):
        scores = _masked(draft, scores)
    weights = draft.emit("Softmax", [scores], scores.shape, axis=-1)
    if draft.chance(0.1):
        draft.keep(draft.among((scores, weights)))
        draft.show(draft.tensors[-1])
    width = depth if draft.chance(0.6) else draft.among(DEPTHS)
    shape = (*lead, keys, width)
    v = (
        draft.input(shape)
        if draft.chance(0.7)
        else Tensor(draft.constant(draft.noise(*shape)), shape)
    )
    return draft.emit("MatMul", [weights, v], (*lead, rows, width))


def _keys(draft: Draft, shape: tuple[int, ...]) -> Tensor:
    """Keys with the terms of products before them: transposed, given so, or constant."""
    *lead, keys, depth = shape
    across = (*lead, depth, keys)
    match draft.between(0, 3):
        case 0:
            return draft.input(across)
        case 1:
            return Tensor(draft.constant(draft.noise(*across)), across)
    rank = len(shape)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return draft.emit("Transpose", [draft.input(shape)], across, perm=perm)


def _masked(draft: Draft, scores: Tensor) -> Tensor:
    """The scores, where a mask excludes keys: a constant one, or one that the inputs decide."""
    *lead, rows, keys = scores.shape
    low = draft.among(EXCLUDING)
    shape = draft.among(((rows, keys), (rows, keys), (1, keys), (keys,), (*lead, rows, keys)))
    seen = (
        _seen(draft, rows, keys) if len(shape) > 1 and shape[-2] == rows else _seen(draft, 1, keys)
    )
    seen = np.broadcast_to(seen, shape) if len(shape) > 1 else seen[0]
    if draft.chance(0.6):
        if draft.chance(0.5):
            mask = draft.net.constant(seen)
            return _where(draft, mask, scores, low)
        added = draft.constant(np.where(seen, 0.0, low))
        return draft.emit("Add", [scores, added], scores.shape)
    # What an input decides: the constant tells where it is looked at.
    bounds = draft.constant(np.where(seen, -np.inf, draft.among((np.inf, np.inf, 1.0))))
    found = draft.emit("Greater", [draft.input(shape), bounds], shape)
    if draft.chance(0.5):
        return _where(draft, found.name, scores, low)
    parts = [draft.constant(np.array(n)) for n in (0.0, low)]
    added_too = draft.emit("Where", [found, *parts], shape)
    return draft.emit("Add", [scores, added_too], scores.shape)


def _where(draft: Draft, mask: str, scores: Tensor, low: float) -> Tensor:
    return draft.emit("Where", [mask, scores, draft.constant(np.array(low))], scores.shape)


def _seen(draft: Draft, rows: int, keys: int) -> np.ndarray:
    """Which keys each row sees: those up to it, around it, up to a length, any, or none."""
    i, j = np.arange(rows)[:, None], np.arange(keys)[None]
    match draft.between(0, 5):
        case 0 | 1:
            seen = j <= i + max(0, keys - rows) if rows > 1 else j < draft.between(1, keys)
        case 2:
            reach = draft.between(0, 9)
            seen = abs(i * keys // rows - j) <= reach
        case 3:
            seen = (j >= draft.between(0, keys - 1)) & (i >= 0)
        case 4:
            seen = draft.rng.random((rows, keys)) < draft.among((0.05, 0.5))
        case _:
            begin = draft.between(0, keys - 1)
            seen = (j >= begin) & (j < draft.between(begin + 1, keys)) & (i >= 0)
    if draft.chance(0.8):
        seen = seen | ((j == 0) & ~seen.any(1, keepdims=True))
    return np.asarray(seen)


# Reductions of whole tensors ----------------------------------------------------------------------


@dataclass(frozen=True)
class ReducedModel:
    """A model that returns a tensor and what is reduced of it; `behind` is given that tensor."""

    model: onnx.ModelProto
    behind: onnx.ModelProto
    stored: str


def random_reduced_model(seed: int) -> ReducedModel:
    """The models of a seed; what is computed of the tensor depends on no order of operations."""
    draft = Draft(seed)
    stored = _producer(draft)
    reduced = _reductions(draft, stored, np.random.default_rng((seed, 1)))
    draft.net.output(*reduced, stored.name)
    model = draft.net.model()
    behind = Extractor(model).extract_model([stored.name], reduced)
    return ReducedModel(model, behind, stored.name)


def _producer(draft: Draft) -> Tensor:
    """What one kernel writes."""
    if draft.chance(0.3):
        shape = tuple(draft.among(ROWS) for _ in range(draft.between(1, 3)))
        x = draft.input(shape)
        made = draft.emit(
            "MatMul", [x, draft.constant(draft.noise(shape[-1], 24))], (*shape[:-1], 24)
        )
    else:
        c, m = draft.among((1, 3, 8, 16, 20, 33)), draft.among(WIDE)
        image = draft.between(1, 12), draft.between(1, 12)
        x = draft.input((draft.between(1, 2), c, *image))
        k = draft.among((1, 1, 3))
        group = c if draft.chance(0.2) else 1
        m = c if group > 1 else m
        weight = draft.constant(draft.noise(m, c // group, k, k) * (c * k * k) ** -0.5)
        shape = (x.shape[0], m, *image)
        made = draft.emit("Conv", [x, weight], shape, pads=[k // 2] * 4, group=group)
    for _ in range(draft.between(0, 2)):
        op = draft.among(("Relu", "Neg", "Sigmoid", "Abs", "HardSwish"))
        made = draft.emit(op, [made], made.shape)
    if made.rank > 2 and draft.chance(0.2):
        perm = [0, *range(2, made.rank), 1]
        made = draft.emit("Transpose", [made], [made.shape[k] for k in perm], perm=perm)
    return made


def _reductions(draft: Draft, x: Tensor, rng: np.random.Generator) -> list[str]:
    """The results of one or two reductions of all elements, or of dynamic quantizations with what
    reads these."""
    net, found = draft.net, list[str]()
    for number in range(int(rng.integers(1, 3))):
        of = x.name
        if rng.random() < 0.3:
            of = net.node(str(rng.choice(("Neg", "Abs", "Relu"))), [of])
        if rng.random() < 0.4:
            op = str(rng.choice(("ReduceMax", "ReduceMin")))
            found.append(net.node(op, [of], keepdims=int(rng.integers(2))))
            continue
        names = [f"{name}_{number}" for name in ("q", "scale", "zero")]
        net.node("DynamicQuantizeLinear", [of], names)
        found += names if rng.random() < 0.5 else names[1:]
        shape, options = (x.shape[-1], 20), dict[str, Any]()
        if x.rank == 4 and rng.random() < 0.6:
            k = int(rng.choice((1, 3)))
            shape, options = (20, x.shape[1], k, k), {"pads": [k // 2] * 4}
        weight = net.constant(rng.integers(-127, 128, shape).astype(np.int8))
        op = "ConvInteger" if options else "MatMulInteger"
        found.append(net.node(op, [names[0], weight, names[2]], **options))
    return found
