"""The physical graph: storages, placements of tensors in them, and calls in execution order.

`convert` makes it from a plan, `lower` makes kernels and steps of it.  What always holds: every
placement of a call names a storage of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from graphflow.graph import ControlRegion, Value
from graphflow.kernels.recipes import KernelVariant, Recipe
from graphflow.layout import Layout
from graphflow.plan import ThreadSharing
from graphflow.program import Space
from graphflow.schedule import StatedPad
from graphflow.tir import PrimFunc


class Placement(Struct, frozen=True):
    """The memory of a tensor: its layout, in a box that begins at element `offset` of a storage.

    `own` says that the rest of the box is the tensor's padding, and not the memory of other
    tensors.
    """

    storage: str
    layout: Layout
    offset: int = 0
    own: bool = True


class StorageSpec(Struct, frozen=True):
    """One allocation of `elements` elements of `dtype`.

    `kind` is `input`, `output`, `arena` or `constant`; `contents` are the initial elements of a
    constant, in memory order, or None.
    """

    name: str
    kind: Space
    dtype: str
    elements: int
    contents: NDArray[np.generic] | None = None


class PhysicalCall(Struct, frozen=True):
    """One kernel to run: a definition, a placement for each parameter, and how the kernel is made.

    - recipe: how the kernel is made.
    - variant: the variant that has this recipe; None for data movement added by the compiler.
    - pad_value: the constant to write to the output's padding; `undef` if anything may be written;
      None if it must not be touched.
    - moves: whether the call only moves or fills elements.
    - prepare: whether it runs once, when the program is loaded.
    - because: why a conversion is made, for the report.
    - relied: whether the plan relies on what the call leaves in its output's padding.
    - counted: for axes of parameters the value that holds how many elements a run gives there.
    - filled: for axes of inputs the value that holds how many elements a run gives there, and the
      number behind these.
    - saved: the estimated seconds that threads save by sharing it, if they share any; None where
      the caller runs it alone.
    """

    name: str
    definition: PrimFunc
    placements: Mapping[str, Placement]
    recipe: Recipe
    variant: KernelVariant | None = None
    pad_value: StatedPad = None
    moves: bool = False
    prepare: bool = False
    because: str = ""
    relied: bool = False
    counted: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    filled: Mapping[str, Mapping[int, tuple[str, float]]] = field(default_factory=dict)
    saved: float | None = 0.0


class PhysicalGraph(Struct, frozen=True):
    """Everything that lowering needs.

    `values` has the placement of each value as its producer wrote it.  `poisons` are the extra
    scalar inputs of poison mode, which are in `inputs` too, and `poisoned` is the number of
    elements that they overwrite in a run.  `sharing` says whether threads share kernels; None where
    nothing was decided, and they share all.  `regions` are the control regions that calls run, by
    the callee of their definitions.
    """

    storages: Mapping[str, StorageSpec]
    calls: tuple[PhysicalCall, ...]
    values: Mapping[str, Placement]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    poisons: tuple[Value, ...] = ()
    poisoned: int = 0
    sharing: ThreadSharing | None = None
    regions: Mapping[str, ControlRegion[PhysicalGraph]] = field(default_factory=dict)
