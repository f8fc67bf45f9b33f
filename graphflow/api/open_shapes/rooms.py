"""Shapes of a run beside the sizes of a model: which sizes a program can leave open.

In: the shapes of a run's inputs, the inputs as the model declares them, and its sizes.  Out: the
sizes within whose bounds the run is, and the shapes of a program that has room for the most.  An
input of one integer that states a size has it behind its shape, as the extent of an axis more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphflow.base.fields import replace
from graphflow.base.sizes import BOUNDLESS, Size
from graphflow.program import OpenTensor
from graphflow.runtime import stated_integer

Given: TypeAlias = "Mapping[str, tuple[int, ...]]"

LARGEST = {"int32": int(np.iinfo("int32").max), "int64": BOUNDLESS - 1}
"""The greatest most of a size that an input of each element type states."""


class Rooms:
    """The axes of a model's inputs that have sizes as their extents."""

    def __init__(self, inputs: Sequence[OpenTensor], sizes: Sequence[Size]) -> None:
        self._sizes = tuple(sizes)
        by_name = {size.name: size for size in sizes}
        self._ranks = {tensor.name: len(tensor.shape or ()) for tensor in inputs}
        self._axes = {
            tensor.name: tuple(
                (axis, by_name[extent])
                for axis, extent in enumerate(tensor.shape or ())
                if isinstance(extent, str) and extent in by_name
            )
            for tensor in inputs
        }

    def sizes_within(self, given: Given) -> tuple[Size, ...]:
        """The sizes whose bounds hold for all axes that have their names."""
        beyond = {
            size
            for name, shape in given.items()
            for axis, size in self._axes_of(name, shape)
            if not size.lo <= shape[axis] <= size.hi
        }
        return tuple(size for size in self._sizes if size not in beyond)

    def with_room(self, given: Given, sizes: Sequence[Size]) -> dict[str, tuple[int, ...]]:
        """The shapes with the greatest extents along the axes of these sizes."""
        shapes = {}
        for name, shape in given.items():
            extents = list(shape)
            for axis, size in self._axes_of(name, shape):
                if size in sizes:
                    extents[axis] = size.hi
            shapes[name] = tuple(extents)
        return shapes

    def _axes_of(self, name: str, shape: tuple[int, ...]) -> tuple[tuple[int, Size], ...]:
        """The axes of an input and their sizes; none where it is declared with another rank, which
        import refuses."""
        return self._axes[name] if len(shape) == self._ranks[name] else ()


def stating_sizes(inputs: Sequence[OpenTensor], sizes: Sequence[Size]) -> dict[str, Size]:
    """The inputs of one integer that have the names of sizes; one of a single value is none."""
    return {
        tensor.name: size
        for tensor in inputs
        for size in sizes
        if tensor.name == size.name and size.lo < size.hi and _is_integer(tensor)
    }


def _is_integer(tensor: OpenTensor) -> bool:
    is_single = tensor.shape is not None and set(tensor.shape) <= {1}
    return is_single and tensor.dtype in LARGEST


def within_element_types(inputs: Sequence[OpenTensor], sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The sizes, of which none that an integer states has a most that its type does not hold."""
    most = {tensor.name: LARGEST[tensor.dtype] for tensor in inputs if _is_integer(tensor)}
    return tuple(
        replace(size, hi=min(size.hi, most[size.name]))
        if size.name in most and size.hi != BOUNDLESS
        else size
        for size in sizes
    )


def with_elements(inputs: Sequence[OpenTensor], stating: Mapping[str, Size]) -> list[OpenTensor]:
    """The inputs, of which those that state sizes have these as extents of a last axis more."""
    return [
        replace(tensor, shape=(*(tensor.shape or ()), tensor.name))
        if tensor.name in stating
        else tensor
        for tensor in inputs
    ]


def with_element(array: Any) -> tuple[int, ...]:
    """The shape of an array that states a size, and behind it the size."""
    return (*getattr(array, "shape", ()), stated_integer(array))


def largest_shapes(
    inputs: Sequence[OpenTensor], names: Sequence[str], sizes: Sequence[Size]
) -> dict[str, tuple[int, ...]] | None:
    """The shapes of these inputs with the most of each size; None if another extent is open too."""
    most = {size.name: size.hi for size in sizes if size.is_bounded}
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor in inputs:
        if tensor.name in names:
            extents = [n if isinstance(n, int) else most.get(n) for n in tensor.shape or ("",)]
            if None in extents:
                return None
            shapes[tensor.name] = tuple(n for n in extents if n is not None)
    return shapes if sizes else None
