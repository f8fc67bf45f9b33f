"""Random ONNX models from seeds: small graphs of all kinds of operators, with odd shapes.

In: a seed.  Out: an ONNX model of float32 inputs and outputs; the same seed gives the same bytes.
A graph starts at a convolution and grows by one operator after another, applied mostly to the
newest tensor, so that there are chains, and often to older ones, so that tensors have several
readers.  Tensors without readers are outputs, and so are some inner tensors.

Models avoid what two correct implementations may do differently: the bounds of Clip are given
(onnxruntime takes the lowest number for a missing bound), and powers are not applied to powers,
because a graph whose numbers overflow tests little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx

from support.kernels.schedule_kernels import Dice
from support.padded import Net

CHANNELS = (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 23, 25, 27, 30, 33, 35,
            37, 39, 4, 8, 16, 24, 32, 40)  # fmt: skip
EXTENTS = (1, 2, 3, 4, 5, 6, 7, 9, 13)
LARGEST = 4000
"""Elements of a tensor: what takes longer than its kernel to make shows nothing more."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph; `wild` if its numbers may be large."""

    name: str
    shape: tuple[int, ...]
    wild: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


class Draft(Dice):
    """A model under construction."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.net = Net(seed)
        self.tensors: list[Tensor] = []
        self._read: set[str] = set()
        self._shown: set[str] = set()
        self._inputs = 0

    # -- choices

    def pick(self, fits: Callable[[Tensor], bool] = lambda _: True) -> Tensor | None:
        """A tensor that fits, mostly the newest one."""
        fitting = [t for t in self.tensors if fits(t)]
        if not fitting:
            return None
        return fitting[-1] if self.chance(0.55) else self.among(fitting)

    # -- tensors

    def input(self, shape: Sequence[int]) -> Tensor:
        self._inputs += 1
        return Tensor(self.net.input(f"x{self._inputs}", tuple(shape)), tuple(shape))

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        return self.net.constant(array.astype(np.float32))

    def noise(self, *shape: int) -> np.ndarray[Any, Any]:
        return self.rng.standard_normal(shape)

    def emit(
        self,
        op: str,
        operands: Sequence[Tensor | str],
        shape: Sequence[int],
        wild: bool | None = None,
        **attributes: Any,
    ) -> Tensor:
        """A node with one result; it is wild if an operand is, unless `wild` says otherwise."""
        names = [o.name if isinstance(o, Tensor) else o for o in operands]
        self._read.update(names)
        if wild is None:
            wild = any(isinstance(o, Tensor) and o.wild for o in operands)
        return Tensor(self.net.node(op, names, **attributes), tuple(shape), wild)

    def keep(self, *made: Tensor) -> None:
        self.tensors += made

    def show(self, tensor: Tensor) -> None:
        """It is an output, unless it is an input."""
        self._shown.add(tensor.name)

    def model(self) -> onnx.ModelProto:
        """What nobody reads is an output, and what is shown, and one of eight others."""
        for tensor in self.tensors:
            unread = tensor.name not in self._read or tensor.name in self._shown
            if (unread or self.chance(0.12)) and not tensor.name.startswith("x"):
                self.net.output(tensor.name)
        return self.net.model()


Step = Callable[[Draft], "Sequence[Tensor] | None"]
STEPS: dict[str, tuple[float, Step]] = {}
"""By name: how often it is taken, and what makes its tensors; None where it does not apply."""


def step(name: str, weight: float = 1.0) -> Callable[[Step], Step]:
    def register(make: Step) -> Step:
        assert name not in STEPS
        STEPS[name] = weight, make
        return make

    return register


BY_DATA = 8
"""One of so many models ends with indices that are data; the others are as they were without."""


def random_model(seed: int) -> onnx.ModelProto:
    """The model of a seed."""
    draft = Draft(seed)
    rank = 4 if draft.chance(0.9) else draft.among((3, 5))
    spatial = tuple(draft.among(EXTENTS[: 9 if rank == 4 else 5]) for _ in range(rank - 2))
    channels = draft.among(CHANNELS)
    while channels * prod(spatial) > LARGEST // 2:
        channels = draft.among(CHANNELS)
    x = draft.input((draft.between(1, 2) if draft.chance(0.3) else 1, channels, *spatial))
    draft.keep(x)
    if draft.chance(0.85):
        draft.tensors = list(_convolution(draft, x) or (x,))
    names = list(STEPS)
    weights = np.array([STEPS[name][0] for name in names])
    for _ in range(draft.between(1, 5)):
        for _ in range(20):
            made = STEPS[names[int(draft.rng.choice(len(names), p=weights / weights.sum()))]][1](
                draft
            )
            if made is not None:
                draft.keep(*made)
                break
    if seed % BY_DATA == BY_DATA - 1:
        draft.keep(*(_by_data(draft) or ()))
    return draft.model()


# Elementwise -------------------------------------------------------------------------------------

TAME = ("Relu", "Neg", "Abs", "LeakyRelu", "Elu", "HardSwish", "Softplus", "Mish", "Selu",
        "ThresholdedRelu", "Floor", "Ceil", "Round", "Identity")  # fmt: skip
BOUNDED = ("Sigmoid", "Tanh", "Erf", "HardSigmoid", "Softsign", "Sign")


@step("unary", 4)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick()
    if x is None:
        return None
    op = draft.among((*TAME, *BOUNDED, "Exp", "Exp", "Exp", "Sqrt", "Log", "Reciprocal"))
    if op == "Exp" and x.wild:
        return None
    if op in ("Sqrt", "Log") and draft.chance(0.8):
        x = draft.emit("Abs", [x], x.shape)
    wild = True if op in ("Exp", "Reciprocal") else False if op in BOUNDED else None
    return [draft.emit(op, [x], x.shape, wild)]


@step("Clip", 0.7)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick()
    if x is None:
        return None
    low, high = draft.among([(-1, 1), (0.5, 2), (0, 6), (-np.inf, 0.3), (0.2, np.inf), (2, -2)])
    bounds = [draft.constant(np.array(n)) for n in (low, high)]
    return [draft.emit("Clip", [x, *bounds], x.shape)]


@step("PRelu", 0.5)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 3)
    if x is None:
        return None
    shape = draft.among([(1,), (x.shape[1],) + (1,) * (x.rank - 2)])
    return [draft.emit("PRelu", [x, draft.constant(draft.noise(*shape))], x.shape)]


def _operand(draft: Draft, x: Tensor) -> tuple[Tensor | str, tuple[int, ...]] | None:
    """What `x` is combined with, by broadcasting, and the shape of the result."""
    kind = draft.between(0, 7)
    if kind <= 2:
        other = draft.pick(lambda t: _broadcasts(x.shape, t.shape))
        if other is None:
            return None
        return other, tuple(np.broadcast_shapes(x.shape, other.shape))
    shape = x.shape
    if x.rank >= 3:
        full, image = x.shape[1:], x.shape[2:]
        ones = (1,) * len(image)
        shape = draft.among([(), (1,), (x.shape[1], *ones), (1, x.shape[1], *ones), full, image,
                             x.shape])  # fmt: skip
    if kind == 3:
        return draft.input(shape), tuple(np.broadcast_shapes(x.shape, shape))
    return draft.constant(draft.noise(*shape)), tuple(np.broadcast_shapes(x.shape, shape))


def _broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return prod(np.broadcast_shapes(tuple(a), tuple(b))) <= LARGEST
    except ValueError:
        return False


@step("binary", 4)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick()
    if x is None:
        return None
    operand = _operand(draft, x)
    if operand is None:
        return None
    other, shape = operand
    op = draft.among(("Add", "Sub", "Mul", "Div", "Max", "Min", "Add", "Mul"))
    wild = isinstance(other, Tensor) and other.wild
    if op in ("Mul", "Div") and (wild or x.wild) and draft.chance(0.8):
        return None
    sides = [x, other] if draft.chance(0.7) else [other, x]
    wild = True if op == "Div" else None
    return [draft.emit(op, sides, shape, wild)]


@step("variadic", 0.4)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick()
    if x is None:
        return None
    others = [draft.pick(lambda t: t.shape == x.shape) or x for _ in range(draft.between(1, 2))]
    op = draft.among(("Sum", "Mean", "Max", "Min"))
    return [draft.emit(op, [x, *others], x.shape)]


@step("comparison", 0.8)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick()
    if x is None:
        return None
    operand = _operand(draft, x)
    if operand is None:
        return None
    other, shape = operand
    op = draft.among(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"))
    truth = draft.emit(op, [x, other], shape)
    if draft.chance(0.3):
        truth = draft.emit("Not", [truth], shape)
    if draft.chance(0.5):
        return [draft.emit("Cast", [truth], shape, False, to=onnx.TensorProto.FLOAT)]
    sides = [x, draft.pick(lambda t: t.shape == x.shape) or x]
    if draft.chance(0.4):
        sides[draft.between(0, 1)] = Tensor(draft.constant(draft.noise(1)), (1,))
    if draft.chance(0.3):
        sides.reverse()
    return [draft.emit("Where", [truth, *sides], shape)]


@step("integers", 0.2)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: not t.wild)
    if x is None:
        return None
    whole = draft.emit("Clip", [x, *(draft.constant(np.array(n)) for n in (-9, 9))], x.shape)
    whole = draft.emit("Cast", [whole], x.shape, to=onnx.TensorProto.INT32)
    if draft.chance(0.5):
        whole = draft.emit("Abs", [whole], x.shape)
    return [draft.emit("Cast", [whole], x.shape, to=onnx.TensorProto.FLOAT)]


# Reductions --------------------------------------------------------------------------------------

REDUCTIONS = ("ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd",
              "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")  # fmt: skip


def _axes(draft: Draft, rank: int) -> tuple[int, ...]:
    if rank < 3:
        return (draft.between(0, max(rank - 1, 0)),)
    image = tuple(range(2, rank))
    others = (image, image, (1, *image), (0, 1), (-1,), (1 - rank,))
    return draft.among((*[(1,)] * 5, *others))


def _reduced(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    gone = {axis % len(shape) for axis in axes}
    if keep:
        return tuple(1 if k in gone else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in gone)


@step("reduction", 3.5)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    op, axes, keep = draft.among(REDUCTIONS), _axes(draft, x.rank), draft.chance(0.8)
    if x.wild and op in ("ReduceProd", "ReduceSumSquare", "ReduceL2"):
        return None
    shape = _reduced(x.shape, axes, keep)
    wild = True if op in ("ReduceProd", "ReduceSumSquare") else None
    made = draft.emit(op, [x, draft.net.integers(*axes)], shape, wild, keepdims=int(keep))
    if keep and op in ("ReduceMean", "ReduceMax", "ReduceSum") and draft.chance(0.4):
        # As normalizations are written out: what is left of the mean, or of the largest.
        return [made, draft.emit("Sub", [x, made], x.shape)]
    return [made]


@step("reduced chain", 3)
def _(draft: Draft) -> Sequence[Tensor] | None:
    """An elementwise operator or two, and a reduction over what they leave in all channels.

    Often they are not fused with what comes before, so that their padding comes from its padding.
    """
    x = draft.pick(lambda t: t.rank == 4 and not t.wild)
    if x is None:
        return None
    made = x
    if draft.chance(0.7):
        draft.show(x)
    for _ in range(draft.between(1, 2)):
        op = draft.among(("Sign", "LeakyRelu", "Relu", "Exp", "Sigmoid", "Neg", "Add", "Where",
                          *["Mul", "ThresholdedRelu"] * 3))  # fmt: skip
        operands: list[Tensor | str] = [made]
        if op in ("Mul", "Add") and draft.chance(0.6):
            operands.append(draft.constant(draft.noise(x.shape[1], 1, 1)))
        elif op in ("Mul", "Add", "Where"):
            operands.append(draft.pick(lambda t: t.shape == x.shape) or x)
        if op == "Where":
            one = draft.constant(np.array([draft.among((0.0, 1.0))]))
            operands = [draft.emit("Less", operands, x.shape), one, made]
            if draft.chance(0.5):
                operands[1:] = [made, one]
        made = draft.emit(op, operands, x.shape)
    op = draft.among(("ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"))
    return [made, draft.emit(op, [made, draft.net.integers(1)], (x.shape[0], 1, *x.shape[2:]))]


@step("global pool", 0.8)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 3)
    if x is None:
        return None
    op = draft.among(("GlobalAveragePool", "GlobalMaxPool"))
    return [draft.emit(op, [x], (*x.shape[:2], *(1,) * (x.rank - 2)))]


@step("Softmax", 0.7)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank > 0)
    if x is None:
        return None
    op = draft.among(("Softmax", "Softmax", "LogSoftmax"))
    axis = draft.among((1, -1, x.rank - 1)) if x.rank > 1 else 0
    return [draft.emit(op, [x], x.shape, False, axis=axis)]


@step("normalization", 0.9)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 3)
    if x is None:
        return None
    c = x.shape[1]
    scale, shift = (draft.constant(draft.noise(c)) for _ in range(2))
    match draft.between(0, 3):
        case 0:
            axis = draft.among((1, -1))
            sides = x.shape[axis:]
            parameters = [draft.constant(draft.noise(*sides)) for _ in range(draft.between(1, 2))]
            return [draft.emit("LayerNormalization", [x, *parameters], x.shape, False, axis=axis)]
        case 1:
            return [draft.emit("InstanceNormalization", [x, scale, shift], x.shape, False)]
        case 2:
            if x.rank != 4:
                return None
            size = draft.among((1, 3, 5))
            return [draft.emit("LRN", [x], x.shape, size=size, alpha=0.1)]
        case _:
            moments = [draft.constant(n) for n in (draft.noise(c), 0.5 + draft.rng.random(c))]
            operands = [x, scale, shift, *moments]
            return [draft.emit("BatchNormalization", operands, x.shape)]


# Movement ----------------------------------------------------------------------------------------


@step("Pad", 1.2)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 2)
    if x is None:
        return None
    axes = draft.among([(1,), (x.rank - 1,), tuple(range(2, x.rank)) or (1,), (1, x.rank - 1)])
    mode = draft.among(("constant", "constant", "constant", "reflect", "edge"))
    begins, ends = [0] * x.rank, [0] * x.rank
    for axis in axes:
        most = min(3, x.shape[axis] - 1) if mode == "reflect" else 3
        begins[axis], ends[axis] = draft.between(0, most), draft.between(0, most)
        if mode == "constant" and draft.chance(0.15) and x.shape[axis] > 1:
            begins[axis] = -1
    shape = tuple(n + b + e for n, b, e in zip(x.shape, begins, ends, strict=True))
    if prod(shape) > LARGEST:
        return None
    operands: list[Tensor | str] = [x, draft.net.integers(*begins, *ends)]
    if mode == "constant" and draft.chance(0.7):
        value = draft.among((1.5, -1.0, 0.0, np.inf, -np.inf))
        operands.append(draft.constant(np.array(value)))
    return [draft.emit("Pad", operands, shape, mode=mode)]


@step("Slice", 1.5)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 2)
    if x is None:
        return None
    axis = draft.among((1, 1, *range(1, x.rank)))
    extent, jump = x.shape[axis], draft.among((1, 1, 1, 2, 3, -1, -2))
    start, stop = sorted((draft.between(0, extent), draft.between(0, extent)))
    if jump < 0:
        start, stop = stop - 1, start - 1 if start > 0 else -(1 << 40)
    elif draft.chance(0.4):
        start -= extent
    length = len(range(*slice(start, stop, jump).indices(extent)))
    if length == 0:
        return None
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    limits = [draft.net.integers(n) for n in (start, stop, axis, jump)]
    return [draft.emit("Slice", [x, *limits], shape)]


@step("Split", 0.8)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 2 and t.shape[1] > 1)
    if x is None:
        return None
    first = draft.between(1, x.shape[1] - 1)
    sizes = (first, x.shape[1] - first)
    if draft.chance(0.3) and x.shape[1] % 2 == 0:
        sizes = (x.shape[1] // 2,) * 2
    names = [f"part{len(draft.tensors)}_{k}" for k in range(2)]
    draft._read.add(x.name)
    draft.net.node("Split", [x.name, draft.net.integers(*sizes)], names, axis=1)
    return [
        Tensor(name, (x.shape[0], n, *x.shape[2:]), x.wild)
        for name, n in zip(names, sizes, strict=True)
    ]


@step("Concat", 1.2)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 2)
    if x is None:
        return None
    axis = 1 if draft.chance(0.8) else x.rank - 1

    def fits(t: Tensor) -> bool:
        sides = [n for k, n in enumerate(t.shape) if k != axis]
        return t.rank == x.rank and sides == [n for k, n in enumerate(x.shape) if k != axis]

    parts = [x, *(draft.pick(fits) or x for _ in range(draft.between(1, 2)))]
    shape = (*x.shape[:axis], sum(t.shape[axis] for t in parts), *x.shape[axis + 1 :])
    if prod(shape) > LARGEST:
        return None
    return [draft.emit("Concat", parts, shape, axis=axis)]


@step("Transpose", 0.7)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 2)
    if x is None:
        return None
    last = [0, *range(2, x.rank), 1]
    first = [0, x.rank - 1, *range(1, x.rank - 1)]
    perm = draft.among([last, first, [int(k) for k in draft.rng.permutation(x.rank)]])
    return [draft.emit("Transpose", [x], [x.shape[k] for k in perm], perm=perm)]


@step("Reshape", 0.8)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 3)
    if x is None:
        return None
    n, c, *image = x.shape
    options = [(n, c, prod(image)), (n, c * image[0], *image[1:]), (n, -1), (n, prod(image), 1, c)]
    for parts in (2, 3, 5):
        if c % parts == 0:
            options += [(n, parts, c // parts, *image), (n, c // parts, parts * image[0],
                                                         *image[1:])]  # fmt: skip
    target = draft.among(options)
    shape = tuple(np.zeros(x.shape, bool).reshape(target).shape)
    return [draft.emit("Reshape", [x, draft.net.integers(*target)], shape)]


@step("shuffle", 0.4)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank == 4 and any(t.shape[1] % n == 0 for n in (2, 3)))
    if x is None:
        return None
    n, c, h, w = x.shape
    groups = next(g for g in (3, 2) if c % g == 0)
    apart = (n, groups, c // groups, h, w)
    made = draft.emit("Reshape", [x, draft.net.integers(*apart)], apart)
    swapped = (n, c // groups, groups, h, w)
    made = draft.emit("Transpose", [made], swapped, perm=[0, 2, 1, 3, 4])
    return [draft.emit("Reshape", [made, draft.net.integers(*x.shape)], x.shape)]


@step("other movement", 0.6)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank == 4 and prod(t.shape) <= LARGEST // 4)
    if x is None:
        return None
    n, c, h, w = x.shape
    match draft.between(0, 4):
        case 0 if c % 4 == 0:
            shape = (n, c // 4, 2 * h, 2 * w)
            mode = draft.among(("DCR", "CRD"))
            return [draft.emit("DepthToSpace", [x], shape, blocksize=2, mode=mode)]
        case 1 if h % 2 == 0 and w % 2 == 0:
            return [draft.emit("SpaceToDepth", [x], (n, 4 * c, h // 2, w // 2), blocksize=2)]
        case 2:
            chosen = [draft.between(0, c - 1) for _ in range(draft.between(1, 5))]
            shape = (n, len(chosen), h, w)
            return [draft.emit("Gather", [x, draft.net.integers(*chosen)], shape, axis=1)]
        case 3:
            return [draft.emit("Tile", [x, draft.net.integers(1, 2, 1, 1)], (n, 2 * c, h, w))]
        case 4 if h == 1 or w == 1:
            shape = (n, c, 3 if h == 1 else h, 2 if w == 1 else w)
            return [draft.emit("Expand", [x, draft.net.integers(*shape)], shape)]
    return None


def _by_data(draft: Draft) -> Sequence[Tensor] | None:
    """Indices that are data; the elements there do not depend on the order of additions."""
    x = draft.pick(lambda t: t.rank == 4 and not t.wild and prod(t.shape) <= LARGEST // 4)
    if x is None:
        return None
    n, c, h, w = x.shape
    if draft.chance(0.5):
        places = draft.emit("ArgMax", [x], (n, 1, h, w), axis=1)
        return [draft.emit("GatherElements", [x, places], (n, 1, h, w), axis=1)]
    count = draft.between(1, min(c, 5))
    largest = draft.between(0, 1)
    operands = [x, draft.net.integers(count)]
    name = f"top{draft.between(0, 2**40)}"
    outputs = (name, f"{name}_places")
    shape = (n, count, h, w)
    return [draft.emit("TopK", operands, shape, axis=1, largest=largest, outputs=outputs)]


@step("Resize", 0.6)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank == 4 and prod(t.shape) <= LARGEST // 4)
    if x is None:
        return None
    n, c, h, w = x.shape
    shape = (n, c, draft.between(1, 2) * h, 2 * w)
    mode = draft.among(("nearest", "linear"))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if mode == "linear":
        how = {"coordinate_transformation_mode": draft.among(("half_pixel", "align_corners"))}
    return [draft.emit("Resize", [x, "", "", draft.net.integers(*shape)], shape, mode=mode, **how)]


# Windows and products ----------------------------------------------------------------------------


def _window(draft: Draft, image: Sequence[int], pooling: bool) -> tuple[dict[str, Any], Any] | None:
    """Attributes of a window that fits the image, and the extents it gives."""
    kernel, strides, dilations, begins, ends, extents = [], [], [], [], [], []
    up = pooling and draft.chance(0.3)
    for extent in image:
        k = draft.among((1, 2, 3, 3)) if pooling else draft.among((1, 1, 2, 3, 3))
        s, d = draft.among((1, 1, 2, 3)), draft.among((1, 1, 1, 2))
        most = k - 1 if pooling else k
        b, e = (draft.between(0, min(most, 2)) for _ in range(2))
        reach = (k - 1) * d + 1
        left = extent + b + e - reach
        if left < 0:
            k, d, b, e, left = 1, 1, 0, 0, extent - 1
        outputs = (-(-left // s) if up else left // s) + 1
        # Such a window does not count, but onnx's shape inference counts it.
        if up and (outputs - 1) * s >= extent + b:
            return None
        extents.append(outputs)
        for found, number in zip((kernel, strides, dilations, begins, ends), (k, s, d, b, e),
                                 strict=True):  # fmt: skip
            found.append(number)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides,
                                  "dilations": dilations, "pads": [*begins, *ends]}  # fmt: skip
    if up:
        attributes["ceil_mode"] = 1
    return attributes, tuple(extents)


def _convolution(draft: Draft, x: Tensor) -> Sequence[Tensor] | None:
    found = _window(draft, x.shape[2:], pooling=False)
    if found is None:
        return None
    attributes, extents = found
    n, c = x.shape[:2]
    groups = draft.among((1, 1, 1, 1, c, *(g for g in (2, 3, 5) if c % g == 0)))
    each = draft.between(1, 2) if groups > 1 else 1
    outputs = c * each if groups == c else draft.among(CHANNELS)
    outputs = max(outputs // groups, 1) * groups
    if outputs > 40 or outputs * prod(extents) * n > LARGEST:
        return None
    depth = c // groups
    fan = depth * prod(attributes["kernel_shape"])
    weight = draft.noise(outputs, depth, *attributes["kernel_shape"]) * fan**-0.5
    operands: list[Tensor | str] = [x, draft.constant(weight)]
    if draft.chance(0.6):
        operands.append(draft.constant(draft.noise(outputs)))
    return [draft.emit("Conv", operands, (n, outputs, *extents), group=groups, **attributes)]


@step("Conv", 3.5)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 3)
    return None if x is None else _convolution(draft, x)


@step("residual", 0.8)
def _(draft: Draft) -> Sequence[Tensor] | None:
    """A 1x1 convolution that keeps the shape, an operator behind it, and both added."""
    x = draft.pick(lambda t: t.rank == 4 and t.shape[1] <= 40)
    if x is None:
        return None
    c = x.shape[1]
    made = draft.emit("Conv", [x, draft.constant(draft.noise(c, c, 1, 1) * c**-0.5)], x.shape)
    other = draft.emit(draft.among(("Relu", "Sigmoid", "Neg")), [made], x.shape)
    return [made, draft.emit(draft.among(("Add", "Mul", "Max")), [x, other], x.shape)]


@step("ConvTranspose", 0.5)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank == 4 and prod(t.shape) <= LARGEST // 8)
    if x is None:
        return None
    n, c, h, w = x.shape
    k, s, outputs = draft.between(1, 3), draft.between(1, 2), draft.among(CHANNELS[:12])
    crop = draft.between(0, 1) if k == 3 else 0
    extents = [s * (extent - 1) + k - 2 * crop for extent in (h, w)]
    if min(extents) < 1 or prod(extents) * outputs * n > LARGEST:
        return None
    operands: list[Tensor | str] = [x, draft.constant(draft.noise(c, outputs, k, k) * c**-0.5)]
    if draft.chance(0.5):
        operands.append(draft.constant(draft.noise(outputs)))
    shape = (n, outputs, *extents)
    return [draft.emit("ConvTranspose", operands, shape, strides=[s, s], pads=[crop] * 4)]


@step("pool", 1.8)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 3)
    if x is None:
        return None
    found = _window(draft, x.shape[2:], pooling=True)
    if found is None:
        return None
    attributes, extents = found
    op = draft.among(("MaxPool", "AveragePool"))
    if op == "AveragePool":
        if max(attributes["dilations"]) > 1:
            return None
        del attributes["dilations"]
        attributes["count_include_pad"] = draft.between(0, 1)
    return [draft.emit(op, [x], (*x.shape[:2], *extents), **attributes)]


@step("product", 0.9)
def _(draft: Draft) -> Sequence[Tensor] | None:
    x = draft.pick(lambda t: t.rank >= 2)
    if x is None:
        return None
    features = draft.among(CHANNELS[:16])
    if draft.chance(0.5):
        weight = draft.constant(draft.noise(x.shape[-1], features) * x.shape[-1] ** -0.5)
        if prod(x.shape[:-1]) * features > LARGEST:
            return None
        return [draft.emit("MatMul", [x, weight], (*x.shape[:-1], features))]
    flat = x
    if x.rank > 2 or draft.chance(0.2):
        size = prod(x.shape[1:])
        flat = draft.emit("Flatten", [x], (x.shape[0], size))
    across = draft.chance(0.5)
    k = flat.shape[1]
    sides = (features, k) if across else (k, features)
    operands: list[Tensor | str] = [flat, draft.constant(draft.noise(*sides) * k**-0.5)]
    if draft.chance(0.5):
        operands.append(draft.constant(draft.noise(features)))
    return [draft.emit("Gemm", operands, (flat.shape[0], features), transB=int(across))]
