"""Constants folded into the operands of a sum: expansions that multiply before a run.

In: a graph of fusion groups.  Out: an expansion of each group in which constants scale and shift a
sum of products, and do so through its constant operands.

    before:  y = Conv(x, w, b) · a + c
    after:   y = Conv(x, w · a, b · a + c)

The scaled operand is computed by a node of its own, hence once, when the program is loaded; the
factor and the first value are computed here.  `kernels/definitions/linear_algebra/scaled_sum.py`
has the condition on kernels and the error bound, which holds if nothing overflows or underflows.
Therefore the elements of all constants have to be known, and no factor, and no product of a factor
and a weight other than zero, may be zero, infinite, NaN or below the smallest normal number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.fields import replace
from graphflow.graph.canonicalize import CONSTANT_LIMIT
from graphflow.graph.contents import constant_inputs
from graphflow.graph.expansions import Expansion, Expansions
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.structure import elements_touched
from graphflow.graph.value import Array
from graphflow.kernels.definitions.linear_algebra import scaled_sum
from graphflow.tir import interpret, only_moves

BITS: Mapping[str, type[np.unsignedinteger[Any]]] = {"float32": np.uint32, "float64": np.uint64}
"""Unsigned integers as wide as a float; without the sign they are ordered as magnitudes are."""

SMALLEST_NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022}
"""Below this, numbers have fewer digits, and products may have lost all."""


class NotFoldable(Exception):
    """Why the constants of a node cannot be folded."""


class FoldedConstants(Struct, frozen=True):
    """An expansion, and the constants that it reads: initializers, and nodes of the same name."""

    expansion: Expansion
    arrays: Mapping[str, Array]
    nodes: tuple[Node, ...]


def folding_constants(graph: OperatorGraph) -> Expansions:
    """The expansions of the groups of `graph` whose constants can be folded."""
    foldings = {}
    taken = set[str]()
    for node in graph.nodes:
        try:
            folding = folding_of(graph, node, taken)
        except NotFoldable:
            continue
        foldings[node.name] = folding
        taken.update(folding.arrays, (made.name for made in folding.nodes))
    if not foldings:
        return Expansions(graph)
    wide, constants = graph.copy(), list[str]()
    for folding in foldings.values():
        for name, array in folding.arrays.items():
            wide.add_initializer(name, array)
        for node in folding.nodes:
            wide.add(node)
        constants += [*folding.arrays, *(node.name for node in folding.nodes)]
    found = {name: (folding.expansion,) for name, folding in foldings.items()}
    return Expansions(wide, tuple(constants), found)


def folding_of(graph: OperatorGraph, node: Node, taken: Set[str] = frozenset()) -> FoldedConstants:
    """The expansion of one node; raises NotFoldable with the reason if there is none.

    What it adds has names that neither the graph has nor are `taken`.
    """
    if not node.has_definition:
        raise NotFoldable(f"{node.name} is not computed by a definition of one output")
    if only_moves(node.func) or graph.is_constant(node.outputs[0]):
        raise NotFoldable(f"{node.name} computes nothing in a run")
    if not all(buffer.size for buffer in (*node.func.inputs, *node.func.outputs)):
        raise NotFoldable(f"{node.name} has an empty operand")
    try:
        scaled = scaled_sum.scaled_sum(node.func, constant_inputs(graph, node))
    except scaled_sum.NotScalable as error:
        raise NotFoldable(f"{node.name}: {error}") from None
    return _Folder(graph, node, scaled, taken).folding()


FOLDED = "constants that scale and shift its sum are folded into its operands"


class _Folder:
    def __init__(
        self, graph: OperatorGraph, node: Node, found: scaled_sum.ScaledSum, taken: Set[str]
    ) -> None:
        self._graph, self._node, self._found, self._taken = graph, node, found, taken
        self._bound = node.bound
        self._arrays: dict[str, Array] = {}
        self._nodes: dict[str, Node] = {}

    def folding(self) -> FoldedConstants:
        node, found = self._node, self._found
        factor = self._vector("factor", found.factor)
        if not _normal(self._elements(factor)).all():
            raise NotFoldable(f"a factor of {node.name} is zero, subnormal or not finite")
        shift = None
        if found.shift is not None:
            shift = self._vector("shift", found.shift)
            if not np.isfinite(self._elements(shift)).all():
                raise NotFoldable(f"a summand of {node.name} is not finite")
        inputs = []
        for what in found.inputs:
            match what:
                case scaled_sum.ScaledWeight():
                    inputs.append(self._scaled(what, factor))
                case scaled_sum.Shift():
                    assert shift is not None
                    inputs.append(shift)
                case str():
                    inputs.append(self._bound[what])
        if all(made.inputs[1] != factor for made in self._nodes.values()):
            self._arrays.pop(factor, None)
        why = f"computed by scaled operands of {node.op} {node.name}"
        gone = {value: why for value, buffer in node.inner if buffer in found.gone}
        taking = replace(
            node,
            func=found.func,
            inputs=tuple(inputs),
            inner=tuple((v, b) for v, b in node.inner if b not in found.gone),
            offered=(),
            found=(),
        )
        return FoldedConstants(
            Expansion(taking, gone=gone, because=FOLDED), self._arrays, tuple(self._nodes.values())
        )

    def _elements(self, value: str) -> Array:
        """The elements of a constant; raises NotFoldable where they are not known."""
        array = self._arrays.get(value)
        if array is None and value not in self._graph.inputs:
            array = self._graph.initializers.get(value)
        if array is None:
            raise NotFoldable(f"the elements of {value} are not known before the program is loaded")
        return array

    def _free(self, wanted: str) -> str:
        return self._graph.free_name(wanted, {*self._taken, *self._arrays, *self._nodes})

    def _vector(self, role: str, vector: scaled_sum.Vector) -> str:
        """The value with the elements of a vector: one that there is, or a new initializer."""
        if vector.operand is not None:
            return self._bound[vector.operand]
        func = vector.kernel()
        operands = {b.name: self._elements(self._bound[b.name]) for b in func.inputs}
        if elements_touched(func) > CONSTANT_LIMIT:
            raise NotFoldable(f"the {role} has more than {CONSTANT_LIMIT} elements")
        name = self._free(f"{self._node.name}.{role}")
        (self._arrays[name],) = interpret(func, operands).values()
        return name

    def _scaled(self, what: scaled_sum.ScaledWeight, factor: str) -> str:
        """The value of a scaled weight, which a new node computes."""
        value = self._bound[what.name]
        weight, scale = self._elements(value), self._elements(factor)
        reason = _not_scalable(weight, scale, what.axes)
        if reason:
            raise NotFoldable(f"{value} times the factor of {self._node.name} {reason}")
        name = self._free(f"{self._node.name}.{value}.scaled")
        func = scaled_sum.scaled_weight(weight.shape, scale.shape, what.axes, weight.dtype.name)
        self._nodes[name] = Node(name, "Scale", func, (value, factor), (name,))
        return name


def _normal(array: Array) -> NDArray[np.bool_]:
    size: NDArray[Any] = np.abs(array)
    return np.asarray(np.isfinite(size) & (size >= SMALLEST_NORMAL[array.dtype.name]))


def _not_scalable(weight: Array, factor: Array, axes: Sequence[int]) -> str:
    """Why elements of the product are not what scaling rounds well; empty if all are.

    Of the weights that one factor scales the largest and the least that is not zero decide.
    """
    unsigned = BITS[weight.dtype.name]
    top = unsigned(np.iinfo(unsigned).max)
    others = tuple(k for k in range(weight.ndim) if k not in axes)
    # The axes of the factor in front, in its order.
    moved = np.moveaxis(weight, (*axes, *others), range(weight.ndim))
    bits = np.ascontiguousarray(moved).view(unsigned) & (top >> unsigned(1))
    bits = bits.reshape((*moved.shape[: len(axes)], -1))
    largest: NDArray[Any] = bits.max(axis=-1, initial=unsigned(0)).view(weight.dtype)
    bits -= unsigned(1)  # a zero becomes the largest number
    least = bits.min(axis=-1, initial=top)
    scale: NDArray[Any] = np.abs(factor.reshape(least.shape))
    with np.errstate(all="ignore"):
        if not np.isfinite(largest * scale).all():
            return "is not finite"
        fewest = (least + unsigned(1)).view(weight.dtype) * scale
        small = fewest < SMALLEST_NORMAL[weight.dtype.name]
    return "is zero or subnormal where the weight is not zero" if small[least != top].any() else ""
