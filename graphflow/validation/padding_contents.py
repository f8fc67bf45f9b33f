"""Validation of padding: what a kernel leaves in output padding that it was not told to write.

In: the task of a kernel whose plan relies on facts about the padding of its output, the logical
inputs, and the memory after a run in which the padding of all inputs was filled with constants.
Out: nothing, or `Differs`.  What is checked: where the definition, evaluated on these constants as
flow does it, gives a constant, the kernel left it in the memory.  Ranges are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from graphflow.kernels.lowering import KernelTask
from graphflow.kernels.recipes import Scheduled
from graphflow.layout import LOGICAL, Constant, Range, fact_of, output_facts, row_major
from graphflow.layout import RegionFacts as Facts
from graphflow.tir import FLOATS, Buffer
from graphflow.validation.compare import Differs
from graphflow.validation.inputs import Array
from graphflow.validation.parameter_positions import PlacedParameter

MOST_PLACES = 512
"""The most positions of padding that are looked at in one output."""

FILL = 0.0
"""What padding of inputs holds if the kernel may assume nothing of it."""


def relied_on(task: KernelTask, placed: Iterable[PlacedParameter]) -> bool:
    """Whether the plan relies on what the kernel leaves in padding because its loops run over it.

    A user's kernel states its padding itself, and these statements were proven from its body.
    """
    if task.claimed is None or isinstance(task.recipe, Scheduled):
        return False
    outputs = set(task.definition.outputs)
    return any(p.buffer in outputs and p.pad == "undef" and p.layout is not None for p in placed)


def check_claims(
    task: KernelTask,
    placed: Mapping[Buffer, PlacedParameter],
    arrays: Mapping[str, Array],
    memory: Mapping[str, Array],
) -> None:
    """Raise `Differs` unless the padding of outputs holds what the definition gives there."""
    layouts = {b.name: p.layout or row_major(b.shape) for b, p in placed.items()}
    left = output_facts(task.definition, layouts, _facts(task, placed, arrays))
    for buffer in task.definition.outputs:
        where = placed[buffer]
        if where.layout is None or where.pad != "undef":
            continue
        regions = {
            region.name: region for region in where.layout.regions() if region.name != LOGICAL
        }
        for place in _padding(where):
            point = tuple(int(k) for k in np.unravel_index(place, where.box))
            name = next(name for name, region in regions.items() if region.contains(point))
            fact = left.get((buffer.name, name))
            held = memory[buffer.name][place]
            if isinstance(fact, Constant) and held.tobytes() != fact.literal.bits():
                raise Differs(
                    f"the padding of {buffer.name} at {where.place_name(place)} must be "
                    f"{fact.literal.value}, which its definition gives where the inputs' padding "
                    f"is {FILL}, and is {held}"
                )


def _facts(
    task: KernelTask, placed: Mapping[Buffer, PlacedParameter], arrays: Mapping[str, Array]
) -> Facts:
    """Facts about what the inputs hold in that run."""
    found: dict[tuple[str, str], Constant | Range] = {}
    for buffer in task.definition.inputs:
        where = placed[buffer]
        array = arrays[buffer.name]
        if buffer.dtype in FLOATS and array.size:
            found[buffer.name, LOGICAL] = Range(float(array.min()), float(array.max()))
        if where.layout is not None and where.layout.is_padded:
            value = FILL if isinstance(where.pad, str | None) else where.pad
            number = float(value) if buffer.dtype in FLOATS else int(value)
            for region in where.layout.regions():
                if region.name != LOGICAL:
                    found[buffer.name, region.name] = fact_of(number, buffer.dtype)
    return found


def _padding(placed: PlacedParameter) -> list[int]:
    """Positions of padding, evenly spread if there are many."""
    places = np.flatnonzero(placed.elements < 0)
    return [int(k) for k in places[:: max(1, places.size // MOST_PLACES)]]
