"""Shapes that a model records of its tensors, and what contradicts them.

In: types that a model states, and what import finds.  Out: whether they agree, or a warning.  The
types of a model's inputs and outputs are binding.  A shape that is recorded of an inner tensor is
not: editing a batch size often leaves wrong ones behind, so what is computed wins, with a warning.
Nor is that of an output if the caller chose extents of inputs: exporters write the one that it had
for the inputs that they traced; nor if it agrees with an inference of ONNX that is wrong, as that
of pools that round up is before opset 22.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import onnx

from graphflow.base.arguments import caller_level
from graphflow.frontends.protos.protos import declared_type
from graphflow.graph import OperatorGraph

Described: TypeAlias = "tuple[str, tuple[int | None, ...] | None]"
"""dtype and shape; the shape, or an extent, is None if it is not stated."""


def stated_types(infos: Iterable[onnx.ValueInfoProto]) -> dict[str, Described]:
    """The types that are stated of tensors, by name."""
    found = {info.name: declared_type(info) for info in infos}
    return {name: described for name, described in found.items() if described is not None}


def shapes_agree(
    stated: Sequence[int | None] | None, shape: Sequence[int | None], open_axis: int | None = None
) -> bool:
    """Whether two shapes may be those of one tensor; `open_axis` may differ."""
    return stated is None or (
        len(stated) == len(shape)
        and all(
            n is None or m is None or n == m or axis == open_axis
            for axis, (n, m) in enumerate(zip(stated, shape, strict=True))
        )
    )


def warn_of_contradictions(
    recorded: Mapping[str, Described], graph: OperatorGraph, counted: Collection[str]
) -> None:
    """Warn, once, if recorded shapes that are not binding contradict those of the graph's values.

    Values that are `counted` have room for more elements than a run gives them.
    """
    wrong = [
        f"{list(shape)} of tensor {name}, which is {list(graph.values[name].shape)}"
        for name, (_, shape) in recorded.items()
        if shape is not None
        and name in graph.values
        and name not in counted
        and not shapes_agree(shape, graph.values[name].shape)
    ]
    if wrong:
        others = f" (and {len(wrong) - 1} more are wrong)" if len(wrong) > 1 else ""
        warnings.warn(
            f"the model records the shape {wrong[0]}{others}; recorded shapes are ignored "
            "where they contradict what is computed. Infer the shapes of the model anew",
            stacklevel=caller_level(),
        )
