"""Convolutions in transformed tiles: expansions that multiply less (Winograd's minimal filtering).

In: a graph of fusion groups with the expansions that are known, and facts about its values.  Out:
for each group that begins with a convolution of 3×3 weights and stride 1, or of 3 along sequences,
and for its expansions, further ones that read transformed weights, with tiles of 2 and of 4 outputs
along each axis; those of 16-bit integers with tiles of 2 alone, whose matrices have integers.

    before:  y = Conv(x, w, b)
    after:   y = b + Aᵀ ((G w Gᵀ) ⊙ (Bᵀ d B)) A     for each tile of y and window d of x

The transformed weights are computed by a node of their own, hence once, when the program is loaded.
`kernels/definitions/windows/filtered_convolution.py` has the kernels, and says which elements of an
image they do not transform.  What must be proven of constants: weights are so small that no sum
overflows of elements that are transformed, and first values are so small that adding them does not.
Of integers it must be proven that transformed elements and weights fit into 16 bits, and multiples
of sums of products into 32; then the results are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import transformed_lanes
from graphflow.graph.expansions import Expansion, Expansions
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.kernels.definitions.windows.filtered_convolution import (
    LIMIT,
    FilteredConvolution,
    filtered_convolution,
    transformed_weights,
)
from graphflow.kernels.definitions.windows.filtering import POINTS, filtering
from graphflow.kernels.definitions.windows.plain_convolution import (
    SIDES,
    Convolution,
    NotFilterable,
    plain_convolution,
)
from graphflow.kernels.recipes import TRANSFORMED_TILES, RefusedVariant
from graphflow.layout import Constant, Fact, Range
from graphflow.schedule import Refusal, fresh_name
from graphflow.tir import PrimFunc, buffers_of, loads_in

WORD_LIMIT, SUM_LIMIT = 2.0**15, 2.0**31
"""Integers of 16 and of 32 bits are less than these in magnitude, or the negative of one."""

MOST = 2.0**125
"""Sums stay below this, so that adding the first value, which does too, does not overflow."""

ERRORS = {
    1: {2: "about 4e-7", 4: "about 8e-7"},
    2: {2: "about 5e-7", 4: "about 2e-6"},
}
"""By the number of axes and the extent of a tile the norm of the error over that of the result,
against float64, on inputs and weights of unit variance: measured with 64 to 512 channels."""


def filtering_convolutions(
    known: Expansions, facts: Mapping[str, Fact], target: Target
) -> Expansions:
    """`known` and the expansions of convolutions in transformed tiles, whose channels fill whole
    vectors of `target`.

    `facts` are those about the contents of the values of the graph of `known`.
    """
    wide = known.graph.copy()
    constants: list[str] = []
    found: dict[str, list[Expansion]] = {}
    refused: dict[str, tuple[RefusedVariant, ...]] = {}
    for node in known.graph.nodes:
        for definition in known.definitions(node):
            site = _site(known.graph, definition)
            if site is None:
                continue
            reason = _unbounded(site, definition.node, facts)
            if CHANNELS in _counts(known.graph, definition.node, site):
                reason = "a run gives a part of the channels, and tiles combine all of them"
            if reason:
                refused[node.name] = (RefusedVariant(TRANSFORMED_TILES, Refusal("", reason)),)
                continue
            for expansion, made in _filtering(wide, definition, site, target):
                found.setdefault(node.name, []).append(expansion)
                if made.name not in wide:
                    wide.add(made)
                    constants.append(made.name)
    return replace(
        known,
        graph=wide,
        constants=(*known.constants, *constants),
        of_node=known.adding(found),
        refused={
            **known.refused,
            **{name: (*known.refused.get(name, ()), *why) for name, why in refused.items()},
        },
    )


def _site(graph: OperatorGraph, definition: Expansion) -> Convolution | None:
    """The convolution that a definition of a node begins with; None where it is no plain one, or
    where the kernel has to stay."""
    if definition.through or not graph.may_rewrite(definition.node):
        return None
    try:
        return plain_convolution(definition.node.func)
    except NotFilterable:
        return None


def _filtering(
    wide: OperatorGraph, definition: Expansion, site: Convolution, target: Target
) -> Iterator[tuple[Expansion, Node]]:
    """The expansions of one definition of a node, each with the node of its weights."""
    outputs, channels = site.w.shape[:2]
    lanes = target.computed_lanes("float32")
    if not site.sums_integers:
        lanes = transformed_lanes((channels, outputs), target)
    given = _counts(wide, definition.node, site)
    sides = {axis: count for axis, count in given.items() if axis in SIDES}
    counts = _count_params(definition.node, sides)
    for tile in _extents(site):
        made = filtered_convolution(
            definition.node.func, site, tile, lanes, tuple((a, n) for a, (n, _) in counts.items())
        )
        func = transformed_weights(site.w.shape, tile, site.w.dtype, lanes)
        yield _expansion(wide, definition, made, func, site, tile, dict(counts.values()))


def _count_params(node: Node, counts: Mapping[int, str]) -> dict[int, tuple[str, str]]:
    """By side the parameter of a kernel that counts it, one that there is or a new one, with the
    tensor that it is bound to."""
    taken = {buffer.name for buffer in buffers_of(node.func)}
    params = {count: name for name, count in node.bound.items()}
    for count in counts.values():
        if count not in params:
            params[count] = fresh_name("given", taken.__contains__)
            taken.add(params[count])
    return {axis: (params[count], count) for axis, count in counts.items()}


CHANNELS = 1
"""The axis of an image along which its channels lie."""


def _counts(graph: OperatorGraph, node: Node, site: Convolution) -> Mapping[int, str]:
    """For each axis of the images of which a run gives a part, the tensor that counts it."""
    return graph.counted.get(graph.values[node.bound[site.x.name]], {})


def _extents(site: Convolution) -> list[int]:
    """The extents of tiles in which a convolution may be computed."""
    return [m for m in POINTS if filtering(m).keeps_integers or not site.sums_integers]


def _unbounded(site: Convolution, node: Node, facts: Mapping[str, Fact]) -> str:
    """Why a sum might overflow that is transformed, or that is not; empty if none does, as the
    weights and first values are constants, and small enough."""
    bound = node.bound
    if site.sums_integers:
        return _unbounded_integers(site, bound, facts)
    weights, channels = bound[site.w.name], site.w.shape[1]
    for tile in POINTS:
        filters = site.filters(tile)
        grown = prod(x.data_gain * x.weight_gain * x.output_gain for x in filters)
        most = float(max(grown, site.taps)) * channels * _magnitude(facts[weights]) * LIMIT * 2
        if not most <= MOST:
            return f"{weights} has no bound, or one that is too large"
    for load in loads_in((site.start,)):
        first = bound[load.buffer.name]
        if not _magnitude(facts[first]) <= MOST:
            return f"{first} has no bound, or one that is too large"
    return ""


def _unbounded_integers(
    site: Convolution, bound: Mapping[str, str], facts: Mapping[str, Fact]
) -> str:
    """Why a transformed element or weight might not fit into its type, or the multiple of a sum;
    empty if all do.

    Sums of 32 bits are those of integers modulo 2³², so that of the sums it matters only that the
    last one, which is divided, is the integer itself.
    """
    data, weights = _magnitude(facts[bound[site.x.name]]), _magnitude(facts[bound[site.w.name]])
    for tile in _extents(site):
        filters = site.filters(tile)
        times = prod(how.scale for how in filters)
        if not data * float(prod(how.data_gain for how in filters)) < WORD_LIMIT:
            return f"the elements of {bound[site.x.name]} have no bound, or one that is too large"
        if not weights * times * float(prod(how.weight_gain for how in filters)) < WORD_LIMIT:
            return f"{bound[site.w.name]} has no bound, or one that is too large"
        if not times * site.taps * site.x.shape[1] * data * weights < SUM_LIMIT:
            return f"sums over {site.x.shape[1]} channels times {times} might not fit into 32 bits"
    return ""


def _magnitude(fact: Fact) -> float:
    """The most that an element is in magnitude; infinity where that is not known."""
    match fact:
        case Range():
            return max(abs(float(fact.lo)), abs(float(fact.hi)))
        case Constant():
            return abs(float(fact.literal.value))
        case _:
            return float("inf")


def _expansion(
    wide: OperatorGraph,
    definition: Expansion,
    made: FilteredConvolution,
    transformation: PrimFunc,
    site: Convolution,
    tile: int,
    counts: Mapping[str, str],
) -> tuple[Expansion, Node]:
    node = definition.node
    weight = node.bound[site.w.name]
    name = wide.free_name(f"{weight}.transformed{tile}")
    weights = Node(name, "TransformWeights", transformation, (weight,), (name,))
    bound = {**node.bound, **counts, made.transformed: name}
    taking = replace(
        node,
        func=made.func,
        inputs=tuple(bound[buffer.name] for buffer in made.func.inputs),
        offered=(),
        found=(),
    )
    axes = len(site.pads)
    error = "exactly" if site.sums_integers else f"with an error of {ERRORS[axes][tile]} in norm"
    outputs = "×".join([str(tile)] * axes)
    because = f"its convolution is computed in transformed tiles of {outputs} outputs, {error}"
    because = f"{definition.because}; {because}" if definition.because else because
    return replace(definition, node=taking, because=because), weights
