"""The positions of a kernel's logical elements in the boxes of its parameters.

In: the task of a kernel.  Out: for each parameter a `PlacedParameter`: the flat position of
each element in its box, and for all other positions what the kernel may assume there, or must leave
there.  The definition of a conversion is physical already, so there every position of the box is an
element.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from graphflow.arith import Extremum, FloorDiv, FloorMod, IndexExpr, Var, terms_of
from graphflow.kernels.lowering import KernelTask
from graphflow.layout import Layout, logical_vars, row_major
from graphflow.schedule import PadFunction, StatedPad
from graphflow.tir import DTYPES, Buffer
from graphflow.validation.elements import Unsolved
from graphflow.validation.inputs import Array


class PlacedParameter(Struct, frozen=True, dict=True):
    """A parameter: its `buffer` in the definition, and its physical layout, if it has one.

    `pad` is what positions without an element hold (inputs: a number, or `undef`) or must hold
    afterwards (outputs: a number, `undef` for anything, None for what was there).
    """

    buffer: Buffer
    layout: Layout | None = None
    pad: StatedPad = None

    @property
    def size(self) -> int:
        """The number of positions of the box."""
        return self.buffer.size if self.layout is None else int(np.prod(self.layout.physical_shape))

    @cached_property
    def positions(self) -> Array:
        """The flat position in the box of each element, in logical order."""
        if self.layout is None:
            return np.arange(self.size)
        axes = logical_vars(len(self.layout.logical_shape))
        grid = np.indices(self.layout.logical_shape, sparse=True)
        values = dict(zip(axes, grid, strict=True))
        flat = self.layout.buffer("box", "float32").flat_index(self.layout.physical_index(axes))
        return np.broadcast_to(_evaluated(flat, values), self.layout.logical_shape).reshape(-1)

    @cached_property
    def elements(self) -> Array:
        """The logical position of the element at each position of the box, −1 if there is none."""
        found = np.full(self.size, -1, np.int64)
        found[self.positions] = np.arange(self.buffer.size)
        return found

    @property
    def box(self) -> tuple[int, ...]:
        """The extents of the box."""
        return self.buffer.shape if self.layout is None else self.layout.physical_shape

    def packed(self, logical: Array, undefined: Any) -> Array:
        """The box with these elements, and at all other positions what the kernel may assume."""
        if self.layout is None or self.layout == row_major(self.buffer.shape):
            return logical
        free = undefined if isinstance(self.pad, str | None) else self.pad
        box = np.full(self.size, free, DTYPES[self.buffer.dtype])
        box[self.positions] = logical.reshape(-1)
        return box

    def element_name(self, position: int) -> str:
        """The name, for messages, of the element at a logical position."""
        index = np.unravel_index(position, self.buffer.shape)
        return f"{self.buffer.name}[{', '.join(str(int(k)) for k in index)}]"

    def place_name(self, position: int) -> str:
        """The name, for messages, of a position of the box."""
        index = ", ".join(str(int(k)) for k in np.unravel_index(position, self.box))
        name = "" if self.layout is None else f" of {self.layout.describe()}"
        return f"[{index}]{name}"


def placed_params(task: KernelTask) -> Iterator[PlacedParameter]:
    """The position of each parameter of the definition, in order.

    Raises `Unsolved` for padding that is a function of the index, which no plan asks for.
    """
    given = {name: (layout, pad) for name, layout, pad in task.placements}
    for param in task.definition.params:
        layout, pad = given.get(param.buffer.name, (None, None))
        if isinstance(pad, PadFunction):
            raise Unsolved(f"the padding of {param.buffer.name} is a function")
        yield PlacedParameter(param.buffer, layout, pad)


def _evaluated(expr: IndexExpr, values: dict[Var, Array]) -> Array:
    """`arith.evaluate` for arrays of values."""
    match expr:
        case Var():
            return values[expr]
        case FloorDiv():
            return _evaluated(expr.numerator, values) // expr.divisor
        case FloorMod():
            return _evaluated(expr.numerator, values) % expr.divisor
        case Extremum():
            pick = np.minimum if expr.kind == "min" else np.maximum
            parts = [_evaluated(operand, values) for operand in expr.operands]
            return np.asarray(pick.reduce(np.broadcast_arrays(*parts)))
    terms, constant = terms_of(expr)
    total = np.asarray(constant, np.int64)
    for atom, k in terms:
        total = total + k * _evaluated(atom, values)
    return total
