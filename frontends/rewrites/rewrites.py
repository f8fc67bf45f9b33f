"""Operators that graphflow itself expands into simpler operators of the standard domain.

A rewrite takes precedence over the function by which ONNX defines the operator.  Some of those
functions compute a variance as the mean of squares minus the squared mean, which cancels for large
numbers, and some are wrong for some shapes.  A rewrite is a function that adds steps to a
`NodeRewrite`; it reads every attribute and input of the node, or refuses the node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any, NoReturn

import numpy as np

from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp
from graphflow.base.fields import replace
from graphflow.frontends.protos.payload import require_extents
from graphflow.frontends.protos.steps import ImportStep, derived
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import SizedArray
from graphflow.frontends.tensors.derived_sizes import Element, require_equal
from graphflow.frontends.tensors.folding import LARGEST
from graphflow.frontends.tensors.values import contents_missing
from graphflow.graph import Array


@dataclass(slots=True)
class NodeRewrite:
    """A node that is being rewritten, and the steps that replace it so far."""

    step: ImportStep
    context: ImportContext
    steps: list[ImportStep] = field(default_factory=list)
    declined: bool = False
    """Whether the node is to be expanded by the body in its schema."""

    def add(self, op: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Add a standard node with one output; return the output's name, `result` or a new one."""
        part = f"{op}_{len(self.steps)}"
        name = result or self.context.unique_tensor_name(f"{self.step.name}/{part}")
        self.steps.append(derived(self.step, op, inputs, [name], part, **attributes))
        return name

    def add_several(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a standard node with `count` outputs; return the new names of the outputs."""
        part = f"{op}_{len(self.steps)}"
        names = [self.context.unique_tensor_name(f"{self.step.name}/{part}") for _ in range(count)]
        self.steps.append(derived(self.step, op, inputs, names, part, **attributes))
        return names

    def split(self, source: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Add a Split along `axis`; return the names of the parts."""
        return self.add_several("Split", len(sizes), source, self.ints(sizes), axis=axis)

    def constant(self, array: Array) -> str:
        """Add a constant and return its name."""
        return self.context.new_constant(f"{self.step.name}/constant", array)

    def ints(self, numbers: Sequence[int]) -> str:
        """Add a constant int64 vector and return its name."""
        return self.constant(np.array(numbers, np.int64).reshape(-1))

    def number(self, value: float, like: str) -> str:
        """Add a constant scalar of the dtype of tensor `like` and return its name."""
        return self.constant(np.array(value, self.dtype(like)))

    def dtype(self, name: str) -> np.dtype[np.generic]:
        """The element type of a tensor that the node reads."""
        return self.context.type_of(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that the node reads; ExtentsLost if a run decides an extent."""
        return tuple(self.extent(name, axis) for axis in range(self.rank(name)))

    def extent(self, name: str, axis: int) -> int:
        """The extent of a tensor that the node reads along an axis; ExtentsLost if a run decides
        it."""
        shape = self.context.type_of(name)[1]
        if range(len(shape))[axis] in self.context.counted.get(name, {}):
            raise self.lost(name)
        return shape[axis]

    def extents(self, name: str) -> tuple[Element, ...]:
        """The shape of a tensor that the node reads: numbers, and the tensors that hold sizes;
        ExtentsLost if data decides an extent."""
        counts = self.context.counted.get(name, {})
        if not self.context.sizes.keys() >= set(counts.values()):
            raise self.lost(name)
        return tuple(counts.get(k, n) for k, n in enumerate(self.context.type_of(name)[1]))

    def lost(self, name: str) -> ExtentsLost:
        """The error for a node that needs a number of which a run decides."""
        return ExtentsLost(
            f"{self.step}: how many elements its input {name} has is only known at run time, "
            "and the node is expanded at import by this number; cut the model before this node"
        )

    def is_same(self, one: Element, other: Element) -> bool:
        """Whether two extents are equal in every run; SizesRelated where a relation between sizes
        of inputs makes them so."""
        if one != other and not (isinstance(one, int) and isinstance(other, int)):
            require_equal(self.context, one, other)
        return one == other

    def integer(self, element: Element) -> str:
        """Add a number or a size as a scalar of shape arithmetic, and return its name."""
        if isinstance(element, int):
            return self.constant(np.array(element, np.int64))
        name = self.context.unique_tensor_name(f"{self.step.name}/size")
        most = np.array(self.context.sizes[element].hi, np.int64)
        self.context.add_sized(name, SizedArray(most, {0: element}))
        return name

    def range(self, start: Element, end: Element) -> str:
        """Add the integers from `start` up to `end`, and return the name of that vector."""
        return self.add("Range", self.integer(start), self.integer(end), self.integer(1))

    def once(self, key: tuple[Hashable, ...], make: Callable[[], str]) -> str:
        """The tensor that an equal call made for an earlier node, else what `make` adds."""
        if key not in self.context.shared:
            self.context.shared[key] = make()
        return self.context.shared[key]

    def of_opset(self, opset: int) -> None:
        """Let the node added last be one of the standard domain's operators as of `opset`."""
        self.steps[-1] = replace(self.steps[-1], opsets={"": opset})

    def require_without_effect(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Refuse the node where an attribute has none of the values with which it changes nothing,
        of which the first is its default."""
        for name, without_effect in values.items():
            if self.attribute(name, without_effect[0]) not in without_effect:
                self.refuse(f"{name} = {self.attribute(name)}")

    @property
    def result(self) -> str:
        """The name of the node's first output."""
        return str(self.step.node.output[0])

    def input(self, position: int) -> str:
        """The name of the input at `position`, '' where it is not given."""
        return self.step.input(position)

    def inputs(self, count: int) -> list[str]:
        """The names of the first `count` inputs, '' for those that are not given."""
        return [self.step.input(position) for position in range(count)]

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute's Python value, `default` where it is not given."""
        return self.step.attribute(name, default)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of some attributes that the node has."""
        values = {name: self.step.attribute(name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def rank(self, name: str) -> int:
        """The number of axes of a tensor that the node reads."""
        return len(self.context.type_of(name)[1])

    def output(self, position: int) -> str:
        """The name of an output; '' if the node does not have it, or if nothing reads it."""
        names = self.step.node.output
        name = names[position] if position < len(names) else ""
        return name if name in self.context.read else ""

    def reshape(self, name: str, shape: Sequence[int], result: str = "") -> str:
        """Add a Reshape and return the name of its result."""
        return self.add("Reshape", name, self.ints(shape), result=result)

    def transpose(self, name: str, perm: Sequence[int], result: str = "") -> str:
        """Add a Transpose and return the name of its result."""
        return self.add("Transpose", name, result=result, perm=list(perm))

    def mean(self, name: str, axes: Sequence[int]) -> str:
        """Add the mean over `axes`, which stay with extent 1, and return its name."""
        return self.add("ReduceMean", name, self.ints(axes), keepdims=1)

    def require_attributes(self, *names: str) -> None:
        """Refuse attributes other than `names`, the ones that the rewrite handles."""
        others = [a.name for a in self.step.node.attribute if a.name not in names]
        if others:
            self.refuse(f"attribute {', '.join(others)}")

    def refuse_outputs(self, *positions: int) -> None:
        """Refuse the outputs at these positions if something reads them."""
        used = [self.output(position) for position in positions if self.output(position)]
        if used:
            self.refuse(f"its output {', '.join(used)} is used")

    def refuse_inputs(self, *positions: int) -> None:
        """Refuse the inputs at these positions if they are given."""
        given = [self.step.input(k) for k in positions if self.step.input(k)]
        if given:
            self.refuse(f"its input {', '.join(given)} is given")

    def refuse(self, what: str) -> NoReturn:
        """Raise `UnsupportedOp` for the node."""
        raise UnsupportedOp(
            f"{self.step}: {what}, which is not built; export the model with operators of the "
            f"standard domain"
        )


def deviations(body: NodeRewrite, name: str, axes: Sequence[int]) -> tuple[str, str, str]:
    """The mean over `axes`, the differences from it, and the variance, by name."""
    mean = body.mean(name, axes)
    difference = body.add("Sub", name, mean)
    return mean, difference, body.mean(body.add("Mul", difference, difference), axes)


def add_statistics(
    body: NodeRewrite, name: str, axes: Sequence[int], epsilon: float, mean: str, inverse: str
) -> None:
    """Compute the optional outputs `mean` and `inverse` (1 / standard deviation) unless they are
    ''."""
    if not mean and not inverse:
        return
    middle, _, variance = deviations(body, name, axes)
    if mean:
        body.add("Identity", middle, result=mean)
    if inverse:
        shifted = body.add("Add", variance, body.number(epsilon, name))
        body.add("Reciprocal", body.add("Sqrt", shifted), result=inverse)


def layer_normalization_rewrite(body: NodeRewrite) -> None:
    """The kernel makes only the first output; the others are computed separately."""
    step = body.step
    axis = body.attribute("axis", -1)
    epsilon = body.attribute("epsilon", 1e-5)
    x = body.input(0)
    rank = body.rank(x)
    inputs = [name for name in step.node.input if name]
    body.add("LayerNormalization", *inputs, result=body.result, axis=axis, epsilon=epsilon)
    axes = range(axis % rank, rank)
    add_statistics(body, x, axes, epsilon, body.output(1), body.output(2))


def _mean_variance_normalization(body: NodeRewrite) -> None:
    body.require_attributes("axes")
    x = body.input(0)
    axes = body.attribute("axes", [0, 2, 3])
    _, difference, variance = deviations(body, x, axes)
    deviation = body.add("Add", body.add("Sqrt", variance), body.number(1e-9, x))
    body.add("Div", difference, deviation, result=body.result)


def _affine_grid(body: NodeRewrite) -> None:
    """The product of each matrix of `theta` with pixel centres, or with corners if align_corners.

    The function by which ONNX defines the operator drops the batch axis of a single image.
    """
    body.require_attributes("align_corners")
    step, theta = body.step, body.input(0)
    corners = bool(body.attribute("align_corners", 0))
    size = body.context.constant(body.input(1))
    if size is None:
        asked = f"{step}: input {body.input(1)} (size)"
        raise contents_missing(body.context.graph, body.context.known, body.input(1), asked)
    if size.shape not in ((4,), (5,)):
        raise InvalidModel(f"{step}: its size is {size.tolist()}; it has to be 4 or 5 extents")
    require_extents(size.tolist(), f"{step}: its result")
    batch, _, *extents = (int(n) for n in size)
    if prod(extents) > LARGEST:
        body.refuse(f"a grid of {prod(extents)} points, more than {LARGEST}")
    if corners and 1 in extents:
        body.refuse("align_corners=1 and an extent of 1, which divides by zero")
    places = [np.linspace(-1, 1, n) if corners else (2 * np.arange(n) + 1) / n - 1 for n in extents]
    rank = len(extents)
    axes = np.meshgrid(*places, indexing="ij")[::-1]  # the last axis is x
    points = np.stack([*axes, np.ones(extents)], -1).reshape(-1, rank + 1)
    product = body.add(
        "MatMul",
        body.constant(points.astype(body.dtype(theta))),
        body.transpose(theta, (0, 2, 1)),
    )
    body.reshape(product, (batch, *extents, rank), body.result)


def _attention(body: NodeRewrite) -> None:
    """Scales queries, and then is an Attention with a scale of 1.

    The body in the schema multiplies queries and keys with the root of the scale, also those keys
    that are from earlier runs.  A scale below 1 lets no product overflow that does not without it.
    """
    step, query = body.step, body.input(0)
    shape = body.context.type_of(query)[1]
    heads = 1 if len(shape) == 4 else body.attribute("q_num_heads", 0)
    known = heads and len(shape) - 1 not in body.context.counted.get(query, {})
    scale = body.attribute("scale")
    if scale is None and known:
        scale = 1 / sqrt(max(shape[-1] // heads, 1))
    if scale is None or not 0 < scale < 1:
        body.declined = True
        return
    scaled = body.add("Mul", query, body.number(scale, query))
    given = {a.name: body.attribute(a.name) for a in step.node.attribute} | {"scale": 1.0}
    inputs = (scaled, *step.node.input[1:])
    rest = derived(step, "Attention", inputs, step.node.output, "attention", **given)
    body.steps.append(replace(rest, opsets=step.opsets))


REWRITES: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    ("", "AffineGrid"): _affine_grid,
    ("", "Attention"): _attention,
    ("", "LayerNormalization"): layer_normalization_rewrite,
    ("", "MeanVarianceNormalization"): _mean_variance_normalization,
}
"""The rewrite of each operator, by domain and name."""
