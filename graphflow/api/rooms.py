"""Shapes of a run beside the sizes of a model: which sizes a program can leave open.

In: the shapes of a run's inputs, the inputs as the model declares them, and its sizes.  Out: the
sizes within whose bounds the run is, and the shapes of a program that has room for the most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from graphflow.base.sizes import Size
from graphflow.program import OpenTensor

Given: TypeAlias = "Mapping[str, tuple[int, ...]]"


def sizes_within(
    given: Given, inputs: Sequence[OpenTensor], sizes: Sequence[Size]
) -> tuple[Size, ...]:
    """The sizes whose bounds hold for all axes that have their names."""
    return tuple(
        size
        for size in sizes
        if all(
            size.lo <= n <= size.hi
            for name, shape in given.items()
            for n, extent in zip(shape, _declared(inputs, name, shape), strict=True)
            if extent == size.name
        )
    )


def with_room(
    given: Given, inputs: Sequence[OpenTensor], sizes: Sequence[Size]
) -> dict[str, tuple[int, ...]]:
    """The shapes with the greatest extents along the axes of these sizes."""
    most: dict[int | str, int] = {size.name: size.hi for size in sizes}
    return {
        name: tuple(
            most.get(extent, n)
            for n, extent in zip(shape, _declared(inputs, name, shape), strict=True)
        )
        for name, shape in given.items()
    }


def largest_shapes(
    inputs: Sequence[OpenTensor], names: Sequence[str], sizes: Sequence[Size]
) -> dict[str, tuple[int, ...]] | None:
    """The shapes of these inputs with the most of each size; None if another extent is open too."""
    most = {size.name: size.hi for size in sizes}
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor in inputs:
        if tensor.name in names:
            extents = [n if isinstance(n, int) else most.get(n) for n in tensor.shape or ("",)]
            if None in extents:
                return None
            shapes[tensor.name] = tuple(n for n in extents if n is not None)
    return shapes if sizes else None


def _declared(
    inputs: Sequence[OpenTensor], name: str, shape: tuple[int, ...]
) -> tuple[int | str, ...]:
    """The extents that the model declares for an input; the shape where it declares another rank,
    which import refuses."""
    declared = next(tensor.shape for tensor in inputs if tensor.name == name)
    return shape if declared is None or len(declared) != len(shape) else declared
