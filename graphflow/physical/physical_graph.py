"""The physical graph: storages, and the calls that fill them, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphflow.graph import Value
from graphflow.kernels.recipes import KernelVariant
from graphflow.layout import Layout
from graphflow.program import Space
from graphflow.schedule import StatedPad
from graphflow.tir import PrimFunc


@dataclass(frozen=True)
class Placement:
    """Where a tensor lies: its layout in a box that begins at element `offset` of a storage.

    `own` says that what surrounds it in the box is its padding, and no other tensor's memory.
    """

    storage: str
    layout: Layout
    offset: int = 0
    own: bool = True


@dataclass(frozen=True)
class StorageSpec:
    """One allocation: `kind` is the space that it lies in, `elements` of `dtype`.

    `contents` are the initial elements of a constant, in memory order.
    """

    name: str
    kind: Space
    dtype: str
    elements: int
    contents: NDArray[np.generic] | None = None


@dataclass(frozen=True)
class PhysicalCall:
    """One kernel to run: a definition, a placement for each parameter, and how it is made.

    `variant` is the variant whose recipe makes it, None for movement made by the compiler.
    `pad_value` is the constant to write to the output's padding, `undef` to leave anything there,
    or None to leave it untouched.  `moves` marks calls that only move or fill elements; `prepare`
    those that run once, when the program is loaded.  `relied` says that the plan rests on what the
    call leaves in the padding of its output.
    """

    name: str
    definition: PrimFunc
    placements: Mapping[str, Placement]
    variant: KernelVariant | None
    pad_value: StatedPad = None
    moves: bool = False
    prepare: bool = False
    because: str = ""
    relied: bool = False


@dataclass(frozen=True)
class PhysicalGraph:
    """Everything that lowering needs.

    `values` says where each value of the graph lies, as its producer wrote it.  `poisons` are the
    extra scalar inputs of poison mode, among `inputs`, and `poisoned` the elements they overwrite.
    """

    storages: Mapping[str, StorageSpec]
    calls: tuple[PhysicalCall, ...]
    values: Mapping[str, Placement]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    poisons: tuple[Value, ...] = ()
    poisoned: int = 0
