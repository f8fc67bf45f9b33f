"""Random models over a batch and a length that are sizes.

In: a seed.  Out: a model, bounds of both sizes, and six pairs of extents, with the least and the
greatest among them.  The models are made of what networks over sequences do along a length:
products, attention, reductions, running sums, slices, joins, windows, masks, shapes, orders and
steps that depend on those before.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx

from graphflow.models.builder import ModelBuilder
from support.fuzz.sized_fuzz import SizedModel

BATCH, LENGTH = "b", "n"

Extent: TypeAlias = "int | str"
"""A number, or an expression in the two sizes."""

Shape: TypeAlias = "tuple[Extent, ...]"


def draw_sequence(seed: int) -> SizedModel:
    """A random model over sequences."""
    rng = random.Random(seed)
    least = rng.choice((0, 1, 1, 2, 3))
    sizes = {BATCH: (1, rng.choice((1, 2, 3))), LENGTH: (least, rng.choice((5, 8, 17, 20)))}
    ends = [{name: bounds[k] for name, bounds in sizes.items()} for k in (0, 1)]
    others = [{name: rng.randint(*bounds) for name, bounds in sizes.items()} for _ in range(4)]
    drawing = _Drawing(rng, ModelBuilder(seed), (*ends, *others))
    return SizedModel(drawing.model(rng.randint(2, 9)), sizes, drawing.runs)


@dataclass
class _Drawing:
    """A model under construction: its tensors with their shapes as the runs will have them."""

    rng: random.Random
    builder: ModelBuilder
    runs: tuple[Mapping[str, int], ...]
    tensors: dict[str, Shape] = field(default_factory=dict)

    def model(self, steps: int) -> onnx.ModelProto:
        width = self.rng.choice((3, 4, 8, 17))
        shape: Shape = self.rng.choice(((BATCH, LENGTH, width), (BATCH, width, LENGTH)))
        self.tensors[self.builder.input("x", shape)] = shape
        if self.rng.random() < 0.3:
            self.tensors[self.builder.input("z", shape)] = shape
        kinds = _KINDS if min(run[LENGTH] for run in self.runs) else _KINDS_OF_EMPTY
        for _ in range(steps):
            name = self.rng.choice(list(self.tensors)[-3:])
            self.rng.choice(kinds)(self, name, self.tensors[name])
        made = [name for name in self.tensors if name not in ("x", "z")] or ["x"]
        for name in made[-2:]:
            out = self.builder.node("Identity", [name])
            self.builder.output(
                out, shape=tuple(f"{out}.{k}" for k in range(len(self.tensors[name])))
            )
        return self.builder.model()

    # Parts of nodes -------------------------------------------------------------------------------

    def node(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> None:
        self.tensors[self.builder.node(op, inputs, **attributes)] = shape

    def integers(self, *values: int) -> str:
        return self.builder.constant(np.array(values, np.int64))

    def least(self, extent: Extent) -> int:
        return min(_value(extent, run) for run in self.runs)

    def axis(self, shape: Shape, test: Callable[[Extent], bool] = lambda _: True) -> int | None:
        """An axis whose extent passes a test, one that is a size more often."""
        axes = [k for k, extent in enumerate(shape) if test(extent)]
        sized = [k for k in axes if isinstance(shape[k], str)]
        return self.rng.choice(sized * 3 + axes) if axes else None

    def ending_with_number(self, name: str, shape: Shape) -> tuple[str, Shape]:
        """The tensor, transposed if its last extent is a size and another one is not."""
        axis = self.axis(shape, lambda extent: isinstance(extent, int))
        if axis is None or isinstance(shape[-1], int):
            return name, shape
        order = [*(k for k in range(len(shape)) if k != axis), axis]
        return self.builder.node("Transpose", [name], perm=order), tuple(shape[k] for k in order)


def _value(extent: Extent, run: Mapping[str, int]) -> int:
    return extent if isinstance(extent, int) else int(eval(extent, dict(run)))


# What networks do ---------------------------------------------------------------------------------


def _plain(d: _Drawing, name: str, shape: Shape) -> None:
    d.node(d.rng.choice(("Relu", "Neg", "Tanh", "Sigmoid", "Abs")), [name], shape)


def _both(d: _Drawing, name: str, shape: Shape) -> None:
    alike = [other for other, known in d.tensors.items() if known == shape]
    d.node(d.rng.choice(("Add", "Mul", "Sub", "Max")), [name, d.rng.choice(alike)], shape)


def _product(d: _Drawing, name: str, shape: Shape) -> None:
    name, shape = d.ending_with_number(name, shape)
    if len(shape) > 1 and isinstance(shape[-1], int):
        width = d.rng.choice((1, 4, 5, 16))
        d.node("MatMul", [name, d.builder.weight(shape[-1], width)], (*shape[:-1], width))


def _attention(d: _Drawing, name: str, shape: Shape) -> None:
    name, shape = d.ending_with_number(name, shape)
    if len(shape) < 2 or not isinstance(shape[-1], int):
        return
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = d.builder.node("Transpose", [name], perm=order)
    scores = d.builder.node("MatMul", [name, turned])
    d.node("MatMul", [d.builder.node("Softmax", [scores], axis=-1), name], shape)


def _transposed(d: _Drawing, name: str, shape: Shape) -> None:
    order = d.rng.sample(range(len(shape)), len(shape))
    d.node("Transpose", [name], tuple(shape[k] for k in order), perm=order)


def _reduced(d: _Drawing, name: str, shape: Shape, kinds: tuple[str, ...] = ()) -> None:
    axis, kept = d.axis(shape), d.rng.random() < 0.5
    if axis is None:
        return
    kind = d.rng.choice(kinds or ("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceMin"))
    rest = tuple(1 if k == axis else n for k, n in enumerate(shape) if kept or k != axis)
    if kind == "ReduceSum":
        d.node(kind, [name, d.integers(axis)], rest, keepdims=int(kept))
    else:
        d.node(kind, [name], rest, axes=[axis], keepdims=int(kept))


def _summed(d: _Drawing, name: str, shape: Shape) -> None:
    _reduced(d, name, shape, ("ReduceSum", "ReduceL1", "ReduceSumSquare"))


def _softmax(d: _Drawing, name: str, shape: Shape) -> None:
    if shape:
        d.node(d.rng.choice(("Softmax", "LogSoftmax")), [name], shape, axis=d.axis(shape))


def _running(d: _Drawing, name: str, shape: Shape) -> None:
    axis = d.axis(shape)
    if axis is not None:
        flags = {flag: d.rng.randint(0, 1) for flag in ("exclusive", "reverse")}
        d.node("CumSum", [name, d.builder.literal(np.int64(axis))], shape, **flags)


def _sliced(d: _Drawing, name: str, shape: Shape) -> None:
    axis = d.axis(shape, lambda extent: d.least(extent) >= 2)
    if axis is None:
        return
    cut = d.rng.randint(1, d.least(shape[axis]) - 1)
    huge = np.iinfo(np.int64).max
    extent = shape[axis]
    rest: Extent = extent - cut if isinstance(extent, int) else f"({extent}-{cut})"
    bounds = ((0, cut, cut), (-cut, huge, cut), (cut, huge, rest), (0, -cut, rest))
    start, end, left = d.rng.choice(bounds)
    inputs = [name, d.integers(start), d.integers(end), d.integers(axis)]
    d.node("Slice", inputs, (*shape[:axis], left, *shape[axis + 1 :]))


def _joined(d: _Drawing, name: str, shape: Shape) -> None:
    axis = d.axis(shape)
    if axis is None:
        return
    rest = (*shape[:axis], *shape[axis + 1 :])
    fitting = [
        other
        for other, known in d.tensors.items()
        if len(known) == len(shape) and (*known[:axis], *known[axis + 1 :]) == rest
    ]
    parts = [name, *d.rng.choices(fitting, k=d.rng.randint(1, 2))] if fitting else [name]
    extents = [shape[axis], *(d.tensors[part][axis] for part in parts[1:])]
    numbers = [n for n in extents if isinstance(n, int)]
    total: Extent = sum(numbers)
    if len(numbers) < len(extents):
        total = f"({'+'.join(map(str, extents))})"
    d.node("Concat", parts, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)


def _window(d: _Drawing, name: str, shape: Shape) -> None:
    """A convolution or pooling along the last axis."""
    if len(shape) != 3 or not isinstance(shape[1], int):
        return
    taps, stride = d.rng.choice(((1, 1), (3, 1), (3, 2), (2, 2), (4, 3)))
    pads = [d.rng.randint(0, taps - 1), d.rng.randint(0, taps - 1)]
    extent: Extent = f"(({shape[2]}+{sum(pads) - taps})//{stride}+1)"
    if d.least(f"({shape[2]}+{sum(pads) - taps})") < 0:
        return
    if isinstance(shape[2], int):
        extent = _value(extent, {})
    strides = {"strides": [stride], "pads": pads}
    kind = d.rng.choice(("Conv", "MaxPool", "AveragePool"))
    if kind == "Conv":
        width = d.rng.choice((2, 4))
        weight = d.builder.weight(width, shape[1], taps)
        d.node(kind, [name, weight], (shape[0], width, extent), **strides)
    else:
        d.node(kind, [name], (*shape[:2], extent), kernel_shape=[taps], **strides)


def _padded(d: _Drawing, name: str, shape: Shape) -> None:
    axis = d.axis(shape)
    if axis is None:
        return
    begin, end = d.rng.randint(0, 2), d.rng.randint(0, 2)
    pads = [0] * (2 * len(shape))
    pads[axis], pads[len(shape) + axis] = begin, end
    extent = shape[axis]
    wider: Extent = extent + begin + end if isinstance(extent, int) else f"({extent}+{begin + end})"
    d.node("Pad", [name, d.integers(*pads)], (*shape[:axis], wider, *shape[axis + 1 :]))


def _same_window(d: _Drawing, name: str, shape: Shape) -> None:
    """A window along the last axis that has as many places as strides fit into the extent."""
    if len(shape) != 3 or not isinstance(shape[1], int):
        return
    taps, stride = d.rng.choice(((3, 2), (2, 2), (4, 3), (3, 1)))
    extent: Extent = f"(({shape[2]}+{stride - 1})//{stride})"
    if isinstance(shape[2], int):
        extent = _value(extent, {})
    where = {"strides": [stride], "auto_pad": d.rng.choice(("SAME_UPPER", "SAME_LOWER"))}
    if d.rng.random() < 0.5:
        weight = d.builder.weight(2, shape[1], taps)
        d.node("Conv", [name, weight], (shape[0], 2, extent), **where)
    else:
        d.node("MaxPool", [name], (*shape[:2], extent), kernel_shape=[taps], **where)


def _ranked(d: _Drawing, name: str, shape: Shape) -> None:
    """The first elements of an order, as many as there are at most."""
    axis, most = d.axis(shape), d.rng.randint(1, 6)
    if axis is None:
        return
    extent = shape[axis]
    wanted: Extent = min(extent, most) if isinstance(extent, int) else f"min({extent},{most})"
    last = d.builder.node("Shape", [name], start=axis, end=axis + 1)
    number = d.builder.node("Min", [last, d.integers(most)])
    outputs = [f"values{len(d.tensors)}", f"places{len(d.tensors)}"]
    largest = d.rng.randint(0, 1)
    name = d.builder.node("TopK", [name, number], outputs, axis=axis, largest=largest)
    d.tensors[name] = (*shape[:axis], wanted, *shape[axis + 1 :])


def _normalized(d: _Drawing, name: str, shape: Shape) -> None:
    """A layer normalization over the last axes, of which some may be sizes."""
    if shape:
        axis = d.rng.randrange(len(shape))
        scale = d.builder.weight(*(1 for _ in shape[axis:]))
        d.node("LayerNormalization", [name, scale], shape, axis=axis, epsilon=0.1)


def _picked(d: _Drawing, name: str, shape: Shape) -> None:
    """The elements at places that data decides, counted from the front or the back."""
    axis = d.axis(shape)
    if axis is None:
        return
    options = {"axis": axis, "keepdims": 1, "select_last_index": d.rng.randint(0, 1)}
    places = d.builder.node(d.rng.choice(("ArgMax", "ArgMin")), [name], **options)
    if d.rng.random() < 0.5:
        extent = d.builder.node("Shape", [name], start=axis, end=axis + 1)
        places = d.builder.node("Sub", [places, _as_data(d, extent)])
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    d.node("GatherElements", [name, places], one, axis=axis)


def _as_data(d: _Drawing, extent: str) -> str:
    """An extent as a tensor that kernels compute with: the sum of as many ones."""
    value = onnx.numpy_helper.from_array(np.ones(1, np.int64))
    ones = d.builder.node("ConstantOfShape", [extent], value=value)
    return d.builder.node("ReduceSum", [ones, d.integers(0)], keepdims=1)


def _recurrent(d: _Drawing, name: str, shape: Shape) -> None:
    """Steps along the first axis."""
    if len(shape) != 3 or not isinstance(shape[2], int) or not shape[2]:
        return
    width = d.rng.choice((2, 5))
    weights = [d.builder.weight(1, 3 * width, n) for n in (shape[2], width)]
    options = {"hidden_size": width, "direction": d.rng.choice(("forward", "reverse"))}
    d.node("GRU", [name, *weights], (shape[0], 1, shape[1], width), **options)


def _heads(d: _Drawing, name: str, shape: Shape) -> None:
    """The last axis is split, and one of its halves is moved ahead of the axis before it."""
    name, shape = d.ending_with_number(name, shape)
    if len(shape) == 3 and isinstance(shape[-1], int) and shape[-1] % 2 == 0 and shape[-1]:
        split = d.builder.node("Reshape", [name, d.integers(0, 0, 2, shape[-1] // 2)])
        ahead = (shape[0], 2, shape[1], shape[2] // 2)
        d.node("Transpose", [split], ahead, perm=[0, 2, 1, 3])


def _masked(d: _Drawing, name: str, shape: Shape) -> None:
    """What stands behind a place along the last axis is replaced."""
    if not shape:
        return
    last = d.builder.node("Shape", [name], start=len(shape) - 1)
    zero, one = (d.builder.literal(np.int64(k)) for k in (0, 1))
    count = d.builder.node("Squeeze", [last, d.integers(0)])
    places = d.builder.node("Range", [zero, count, one])
    far = d.builder.node("Less", [places, d.builder.literal(np.int64(d.rng.randint(0, 9)))])
    d.node("Where", [far, name, d.builder.literal(np.float32(-1.5))], shape)


def _repeated(d: _Drawing, name: str, shape: Shape) -> None:
    """A row that is repeated as often as the tensor has elements along an axis, and added."""
    row = d.builder.weight(*(1 for _ in shape))
    wide = d.builder.node("Expand", [row, d.builder.node("Shape", [name])])
    d.node("Add", [name, wide], shape)


def _positions(d: _Drawing, name: str, shape: Shape) -> None:
    """A table of positions, cut to an extent, is added."""
    axis = d.axis(shape, lambda extent: isinstance(extent, str))
    if axis is None or axis == len(shape) - 1 or not isinstance(shape[-1], int):
        return
    most = max(_value(shape[axis], run) for run in d.runs)
    if most == 0 or any(isinstance(n, str) for n in shape[axis + 1 :]):
        return
    table = d.builder.weight(most + 2, *(int(n) for n in shape[axis + 1 :]))
    end = d.builder.node("Shape", [name], start=axis, end=axis + 1)
    rows = d.builder.node("Slice", [table, d.integers(0), end, d.integers(0)])
    d.node("Add", [name, rows], shape)


def _merged(d: _Drawing, name: str, shape: Shape) -> None:
    """The first two axes become one."""
    if len(shape) > 2 and all(isinstance(n, int) for n in shape[2:]):
        rows: Extent = f"({shape[0]}*{shape[1]})"
        if all(isinstance(n, int) for n in shape[:2]):
            rows = _value(rows, {})
        d.node("Reshape", [name, d.integers(-1, *(int(n) for n in shape[2:]))], (rows, *shape[2:]))


_KINDS_OF_EMPTY = (
    _plain, _both, _product, _attention, _transposed, _summed, _softmax, _running, _sliced, _joined,
    _padded, _heads, _masked, _repeated, _positions,
)  # fmt: skip
"""Those that ONNX defines for empty tensors."""

_KINDS = (
    *_KINDS_OF_EMPTY, _reduced, _reduced, _window, _window, _merged, _same_window, _ranked,
    _normalized, _picked, _recurrent,
)  # fmt: skip
