"""Einsum: operands are contracted two at a time, as a matrix product between transposes and
reshapes.

Sums over labels of a single operand, and diagonals, are taken first.  Whether the transposes and
reshapes around the products become views is left to the layout plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from graphflow.base.errors import InvalidModel
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import filled, require_same
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.linear_algebra import einsum, linear
from graphflow.kernels.definitions.movements import movement

Labels = tuple[str, ...]


class _LabeledOperand(Struct, frozen=True):
    """A tensor of the graph with one label for each axis."""

    name: str
    shape: tuple[int, ...]
    labels: Labels

    def extent(self, label: str) -> int:
        return self.shape[self.labels.index(label)]


def _einsum(call: NodeCall) -> None:
    if not call.inputs or not all(map(call.has, range(len(call.inputs)))):
        raise InvalidModel(f"{call.title} needs at least one operand, and none may be left out")
    shapes = [call.shape(k) for k in range(len(call.inputs))]
    terms, result = _parsed(call, [len(shape) for shape in shapes])
    extents = einsum.label_extents(shapes, terms)
    operands = [
        _without_repeated(call, _LabeledOperand(*each), extents)
        for each in zip(call.inputs, shapes, terms, strict=True)
    ]
    found = operands[0]
    for number, other in enumerate(operands[1:], start=2):
        wanted = {label for later in operands[number:] for label in later.labels} | set(result)
        found = _contracted(call, _summed(call, found, wanted | set(other.labels)),
                            _summed(call, other, wanted | set(found.labels)), wanted)  # fmt: skip
    found = _transposed(call, _summed(call, found, set(result)), result)
    call.emit(movement.copy(found.shape, call.dtype()), (found.name,))


def _parsed(call: NodeCall, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result; axes of an ellipsis are numbered from the
    last."""
    equation = str(call.required("equation")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise call.invalid(
            f"equation {equation} has {len(texts)} terms, the node {len(ranks)} inputs"
        )
    widths = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    for text, width in zip(texts, widths, strict=True):
        if width < 0 or (width > 0 and "..." not in text):
            raise call.invalid(
                f"term {text} of equation {equation} does not fit an "
                f"input of rank {len(text.replace('...', '')) + width}"
            )
    most = max((w for text, w in zip(texts, widths, strict=True) if "..." in text), default=0)
    terms = [_labels(call, text, width) for text, width in zip(texts, widths, strict=True)]
    if arrow:
        return terms, _labels(call, right, most)
    letters = [label for term in terms for label in term if label.isalpha()]
    once = sorted(label for label in set(letters) if letters.count(label) == 1)
    return terms, (*_labels(call, "..." if most else "", most), *once)


def _labels(call: NodeCall, text: str, width: int) -> Labels:
    before, dots, after = text.partition("...")
    if not all(c.isascii() and c.isalpha() for c in before + after):
        raise call.invalid(f"term {text} is not made of letters and at most one ellipsis")
    between = [str(width - axis) for axis in range(width)] if dots else []
    return (*before, *between, *after)


def _without_repeated(
    call: NodeCall, operand: _LabeledOperand, extents: dict[str, int]
) -> _LabeledOperand:
    """The operand with the diagonals of repeated labels, and without axes of extent 1 that are
    broadcast."""
    kept = [n == extents[label] for n, label in zip(operand.shape, operand.labels, strict=True)]
    if not all(kept):
        labels = tuple(label for label, keep in zip(operand.labels, kept, strict=True) if keep)
        shape = tuple(extents[label] for label in labels)
        operand = _reshaped(call, operand, shape, labels)
    distinct = tuple(dict.fromkeys(operand.labels))
    return operand if distinct == operand.labels else _reduced(call, operand, distinct, "diagonal")


def _summed(call: NodeCall, operand: _LabeledOperand, wanted: set[str]) -> _LabeledOperand:
    kept = tuple(label for label in operand.labels if label in wanted)
    return operand if kept == operand.labels else _reduced(call, operand, kept, "sum")


def _reduced(
    call: NodeCall, operand: _LabeledOperand, labels: Labels, part: str
) -> _LabeledOperand:
    func = einsum.einsum([operand.shape], [operand.labels], labels, call.dtype())
    read = _filled(call, operand, {label for label in operand.labels if label not in labels}, part)
    name = call.emit_part(func, (read,), part)
    return _LabeledOperand(name, func.outputs[0].shape, labels)


def _filled(call: NodeCall, operand: _LabeledOperand, summed: set[str], part: str) -> str:
    """An operand with zeros in place of what a run does not give along labels that are summed
    over."""
    axes = [axis for axis, label in enumerate(operand.labels) if label in summed]
    if any(axis in call.context.counted.get(operand.name, {}) for axis in axes):
        call.drops_counts = True
    return filled(call, operand.name, 0, f".{part}", axes)


def _contracted(
    call: NodeCall, a: _LabeledOperand, b: _LabeledOperand, wanted: set[str]
) -> _LabeledOperand:
    """The product of two operands, summed over the shared labels that are not in `wanted`."""
    if any(operand.name in call.context.counted for operand in (a, b)):
        return _contracted_where_counted(call, a, b, wanted)
    both = [label for label in a.labels if label in b.labels]
    batch = tuple(label for label in both if label in wanted)
    depth = tuple(label for label in both if label not in wanted)
    rows = tuple(label for label in a.labels if label not in both)
    columns = tuple(label for label in b.labels if label not in both)
    lead = tuple(a.extent(label) for label in batch)
    k = prod(a.extent(label) for label in depth)
    row_extents = tuple(a.extent(label) for label in rows)
    column_extents = tuple(b.extent(label) for label in columns)
    m, n = prod(row_extents), prod(column_extents)
    a = _transposed(call, a, (*batch, *rows, *depth))
    b = _transposed(call, b, (*batch, *depth, *columns))
    if depth:
        a, b = _reshaped(call, a, (*lead, m, k)), _reshaped(call, b, (*lead, k, n))
        func = linear.matmul(a.shape, b.shape, call.dtype())
    else:
        a, b = _reshaped(call, a, (*lead, m, 1)), _reshaped(call, b, (*lead, 1, n))
        func = elementwise.binary("mul", a.shape, b.shape, call.dtype())
    name = call.emit_part(func, (a.name, b.name), "product")
    product = _LabeledOperand(name, func.outputs[0].shape, ())
    labels = (*batch, *rows, *columns)
    return _reshaped(call, product, (*lead, *row_extents, *column_extents), labels)


def _contracted_where_counted(
    call: NodeCall, a: _LabeledOperand, b: _LabeledOperand, wanted: set[str]
) -> _LabeledOperand:
    """The same without joining axes, as a run decides extents of them.

    Both factors are filled, as zero times what lies behind may be NaN.
    """
    depth = {label for label in a.labels if label in b.labels and label not in wanted}
    for label in sorted(depth):
        left, right = (
            call.context.counted.get(one.name, {}).get(one.labels.index(label)) for one in (a, b)
        )
        require_same(call, left, right, "along a label it is multiplied with")
    labels = tuple(n for n in dict.fromkeys((*a.labels, *b.labels)) if n not in depth)
    func = einsum.einsum([a.shape, b.shape], [a.labels, b.labels], labels, call.dtype())
    read = [_filled(call, one, depth, f"factor{k}") for k, one in enumerate((a, b))]
    name = call.emit_part(func, read, "product")
    return _LabeledOperand(name, func.outputs[0].shape, labels)


def _transposed(call: NodeCall, operand: _LabeledOperand, labels: Labels) -> _LabeledOperand:
    if set(labels) != set(operand.labels) or len(labels) != len(operand.labels):
        raise call.invalid(
            f"the result has labels {list(labels)}, the operands give {list(operand.labels)}"
        )
    order = tuple(operand.labels.index(label) for label in labels)
    name = call.transposed(operand.name, order, "transpose", call.dtype())
    return _LabeledOperand(name, tuple(operand.shape[axis] for axis in order), labels)


def _reshaped(
    call: NodeCall, operand: _LabeledOperand, shape: tuple[int, ...], labels: Labels = ()
) -> _LabeledOperand:
    name = call.reshaped(operand.name, shape, "reshape", call.dtype())
    return _LabeledOperand(name, shape, labels)


OPERATORS: Emitters = {"Einsum": _einsum}
