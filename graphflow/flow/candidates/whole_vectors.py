"""What variants compute beyond the elements of a run, where these fill vectors along a size.

In: the layout of a kernel's output, of which a run gives fewer elements than there is room for.
Out: a factor on its price, which is one for the most.  What always holds: it is 1 where no run
computes more than it gives, so that prices without sizes are what they were.

The runs of a size are taken to have each extent equally often, as nothing else is known of them.
A step for 1 to 16 tokens whose lanes are tokens computes 16 of them in each run; in the mean of all
runs that is 1.9 times of what one computes whose lanes are channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphflow.arith import variables
from graphflow.base.target import Target
from graphflow.cost import PARTS
from graphflow.graph import OperatorGraph
from graphflow.layout import Layout


def beyond_runs(graph: OperatorGraph, value: str, layout: Layout, target: Target) -> float:
    """What a kernel computes of an output in this layout over what runs give of it, in the mean."""
    tensor = graph.values[value]
    counts = graph.counted.get(tensor, {})
    if not counts:
        return 1.0
    least = least_of_sizes(graph)
    indices = zip(layout.index_map.outputs, layout.physical_shape, strict=True)
    index, extent = next((pair for pair in reversed(list(indices)) if pair[1] > 1), (None, 1))
    if index is None:
        return 1.0
    lanes = min(target.computed_lanes(tensor.dtype), extent)
    within = variables(index)
    factors = (
        mean_of_vectors(max(least.get(count, 1), 0), tensor.shape[axis], lanes)
        for axis, count in counts.items()
        if layout.index_map.inputs[axis] in within
    )
    return max(factors, default=1.0)


def beyond_share(graph: OperatorGraph, value: str, smaller_runs: Sequence[float]) -> float:
    """By how much runs exceed their share of the price of a variant, which is one for the most: the
    geometric mean over the parts of the sides that runs may have."""
    tensor = graph.values[value]
    least = least_of_sizes(graph)
    bounds = [
        (least.get(count, 1), tensor.shape[axis])
        for axis, count in graph.counted.get(tensor, {}).items()
        if axis > 0
    ]
    ratios = [1.0]
    for part, ratio in zip(PARTS[1:], smaller_runs, strict=False):
        if all(lo * part <= hi for lo, hi in bounds):
            ratios.append(ratio)
    return prod(ratios) ** (1 / len(ratios))


def least_of_sizes(graph: OperatorGraph) -> dict[str, int]:
    """The least that each tensor is that holds a size."""
    least = {one.tensor: one.size.lo for one in graph.sizes}
    return least | {one.tensor: one.size.lo for one in graph.derived}


def mean_of_vectors(least: int, most: int, lanes: int) -> float:
    """The elements in whole vectors over the elements alone, of all extents together."""
    vectors, given = (
        step * (_vectors_up_to(most, step) - _vectors_up_to(least - 1, step)) for step in (lanes, 1)
    )
    return vectors / given if given else 1.0


def _vectors_up_to(most: int, lanes: int) -> int:
    """The sum of n / lanes, rounded up, over n up to `most`."""
    whole, rest = divmod(max(most, 0), lanes)
    return lanes * whole * (whole + 1) // 2 + rest * (whole + 1)
