"""The variants of each node: those of recipes, those a user scheduled, those for a user's layouts.

In: the graph, the target, the pins; and once edge types are known, the layouts in which inputs can
be had.  Out: `KernelVariant`s, and the variants that recipes refused.  Nothing is chosen here.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.flow.candidates.whole_vectors import least_of_sizes
from graphflow.graph import (
    Node,
    OperatorGraph,
    constant_inputs,
    contents,
    finite_inputs,
    known_inputs,
)
from graphflow.kernels.recipes import (
    KernelContext,
    KernelVariant,
    MemoryKey,
    Offers,
    RefusedVariant,
    Scheduled,
    Staged,
    View,
    given_variants,
    kernel_variants,
    memory_key,
    placed_variant,
    reads_offered,
    refused_variants,
    scheduled_variants,
)
from graphflow.layout import Equal, Fact, Layout, fact_of, families, serves
from graphflow.plan import EdgeType
from graphflow.schedule import is_marked
from graphflow.tir import PrimFunc


class NodeVariants(Struct, frozen=True):
    """The variants of every node, before edge types are propagated.

    `without_parts` are the nodes without views of parts in padded layouts of no family.
    """

    of_node: Mapping[str, tuple[KernelVariant, ...]]
    without_parts: Set[str] = frozenset()

    def demanded(self) -> tuple[float, ...]:
        """The constants that some variant demands in the padding of an input, ascending.

        Producers may write these constants to their padding.
        """
        constants = {
            float(demand.literal.value)
            for variants in self.of_node.values()
            for variant in variants
            for demand in variant.demands.values()
            if isinstance(demand, Equal)
        }
        return tuple(sorted(constants))


def variants_of(
    graph: OperatorGraph,
    target: Target,
    facts: Mapping[str, Fact] | None = None,
    pins: Mapping[str, Layout] | None = None,
) -> NodeVariants:
    """The variants of every node that runs; nodes whose outputs are all constant run beforehand.

    `facts` are the facts about the contents of each value, by default those that follow from the
    graph alone.  Where `pins` are given, variants that no reader can use with them may be missing.
    """
    known = contents(graph) if facts is None else facts
    without_parts = frozenset[str]() if pins is None else _without_readers_of_parts(graph, pins)
    by_node: dict[str, tuple[KernelVariant, ...]] = {}
    for node in graph.nodes:
        if not all(graph.is_constant(value) for value in node.outputs):
            parts = node.name not in without_parts
            by_node[node.name] = node_variants(graph, node, target, known, (), parts)
    return NodeVariants(by_node, without_parts)


def _without_readers_of_parts(graph: OperatorGraph, pins: Mapping[str, Layout]) -> frozenset[str]:
    """The nodes whose output nobody can read in a padded layout of no family; see `_readable`.

    None where layouts of no family may come from a user.
    """
    if pins or any(node.offered or is_marked(node.func) for node in graph.nodes):
        return frozenset()
    return frozenset(node.name for node in graph.nodes if not _has_readers_of_parts(graph, node))


def _has_readers_of_parts(graph: OperatorGraph, node: Node) -> bool:
    return any(reads_offered(reader.func) for reader, _ in graph.consumers(node.outputs[0]))


def node_variants(
    graph: OperatorGraph,
    node: Node,
    target: Target,
    facts: Mapping[str, Fact],
    offered: Offers = (),
    parts: bool = True,
) -> tuple[KernelVariant, ...]:
    """The variants of recipes and of users for one node.

    See `KernelContext` for `offered` and `parts`.
    """
    constants = constant_inputs(graph, node)
    kernels = node.offered or ((node.func,) if is_marked(node.func) else ())
    scheduled = [
        variant
        for kernel in kernels
        for variant in _scheduled(node, kernel, constants, facts, target)
    ]
    if node.only_offered:
        return tuple(scheduled)
    context = context_of(graph, node, facts, offered, parts)
    return (*kernel_variants(node.func, constants, target, context), *scheduled)


def context_of(
    graph: OperatorGraph,
    node: Node,
    facts: Mapping[str, Fact],
    offered: Offers = (),
    parts: bool = True,
) -> KernelContext:
    """What the graph says of a node's variants."""
    return KernelContext(
        known_inputs(graph, node, facts),
        offered,
        parts,
        runs=_has_whole_runs(graph, node),
        joins=_is_between_boundaries(graph, node),
        sized=_sized_axes(graph, node),
        fewest=_fewest(graph, node),
    )


def _is_between_boundaries(graph: OperatorGraph, node: Node) -> bool:
    """Whether a node reads nothing but what the caller gives and constants, and the caller gets all
    of its outputs.

    There row-major variants save conversions.  Elsewhere they moved one from the boundary into the
    graph: the price says a hundredth less, which is less than it is exact to.
    """
    given = all(v in graph.inputs or graph.is_constant(v) for v in node.inputs)
    return given and all(v in graph.outputs for v in node.outputs)


def _sized_axes(graph: OperatorGraph, node: Node) -> frozenset[int]:
    """The axes of a node's outputs of which a run gives the first elements."""
    values = [graph.values[name] for name in node.outputs]
    return frozenset(axis for value in values for axis in graph.counted.get(value, {}))


def _fewest(graph: OperatorGraph, node: Node) -> tuple[tuple[int, int], ...]:
    """The axes of a node's first output that a size counts which its kernel does not read, with the
    fewest elements that a run gives there."""
    counts = graph.counted.get(graph.values[node.outputs[0]], {})
    least = least_of_sizes(graph) if counts else {}
    others = ((axis, count) for axis, count in counts.items() if count not in node.inputs)
    return tuple((axis, least.get(count, 0)) for axis, count in sorted(others))


def _has_whole_runs(graph: OperatorGraph, node: Node) -> bool:
    """Whether a run gives whole rows of a node's outputs along their last axis, if not all of a
    vector."""
    values = [graph.values[value] for value in node.outputs]
    return not any(
        len(value.shape) > 1 and len(value.shape) - 1 in graph.counted.get(value, {})
        for value in values
    )


def _scheduled(
    node: Node,
    kernel: PrimFunc,
    constants: frozenset[str],
    facts: Mapping[str, Fact],
    target: Target,
) -> tuple[KernelVariant, ...]:
    """The variants that a user's scheduled kernel is.

    Raises ScheduleError where the kernel assumes an input to be finite and that is not proven, or
    needs padding of a constant that packing does not write.
    """
    variants = scheduled_variants(kernel, target)
    variant = variants[0]  # the others rest on no more, and demand less
    assert isinstance(variant.recipe, Scheduled)
    finite = finite_inputs(node, variant.recipe.finite, facts)
    for name in variant.recipe.finite:
        if name not in finite:
            raise ScheduleError(
                f"{node.name} ({node.op}): {variant.name} rests on {name} being finite, and that "
                "is not proven; it is for a constant without NaN and infinity, and where it "
                "follows from assumptions about inputs (assume=)"
            )
    for name, demand in variant.demands.items():
        zero = fact_of(0, node.func.param(name).dtype)
        if name in constants and not serves(zero, demand):
            raise ScheduleError(
                f"{node.name} ({node.op}): {variant.name} needs the padding of the constant {name} "
                f"{demand}, and constants are padded with zeros"
            )
    return variants


EdgeTypes: TypeAlias = "Mapping[str, tuple[EdgeType, ...]]"
"""For each value the edge types in which it can be produced."""

UserLayouts: TypeAlias = "Mapping[tuple[int, ...], Mapping[MemoryKey, Layout]]"
"""Layouts outside the families that a user pinned or scheduled for, by shape and memory key."""


def user_layouts(
    graph: OperatorGraph, variants: NodeVariants, pins: Mapping[str, Layout], target: Target
) -> UserLayouts:
    """The layouts that are pinned, or that a user's kernel has, and that belong to no family."""
    wanted = [(layout, graph.values[name].dtype) for name, layout in pins.items()]
    for node, options in variants.of_node.items():
        for variant in options:
            if isinstance(variant.recipe, Scheduled):
                func = graph.node(node).func
                wanted += [(layout, func.param(n).dtype) for n, layout in variant.layouts.items()]
    by_shape: dict[tuple[int, ...], dict[MemoryKey, Layout]] = {}
    for layout, dtype in wanted:
        key = memory_key(layout)
        if key not in _of_families(layout.logical_shape, dtype, target):
            by_shape.setdefault(layout.logical_shape, {}).setdefault(key, layout)
    return by_shape


def variants_with(
    graph: OperatorGraph,
    node: Node,
    variants: NodeVariants,
    edge_types: EdgeTypes,
    pins: Mapping[str, Layout],
    layouts: UserLayouts,
    target: Target,
    facts: Mapping[str, Fact],
) -> tuple[tuple[KernelVariant, ...], tuple[RefusedVariant, ...]]:
    """The variants of a node whose inputs can be had in these edge types, and the refused variants.

    Adds to the variants of the families: those that read a layout of no family which an input has,
    those for layouts of users, and one that meets all pins around the node.
    """
    options, parts = variants.of_node[node.name], node.name not in variants.without_parts
    offered = offers_of(graph, node, edge_types, layouts, target)
    if offered:
        options = node_variants(graph, node, target, facts, offered, parts)
    in_layouts = _in_user_layouts(graph, node, edge_types, pins, layouts, target)
    options += _made(in_layouts)
    pinned = _as_pinned(node, options, pins, target)
    options = _readable(graph, node, options, pins, layouts, target)
    refused = [variant for variant in (*in_layouts, *pinned) if isinstance(variant, RefusedVariant)]
    if not node.only_offered:
        context = context_of(graph, node, facts, offered, parts)
        refused += refused_variants(node.func, constant_inputs(graph, node), target, context)
    return options + _made(pinned), tuple(dict.fromkeys(refused))


def _readable(
    graph: OperatorGraph,
    node: Node,
    options: tuple[KernelVariant, ...],
    pins: Mapping[str, Layout],
    layouts: UserLayouts,
    target: Target,
) -> tuple[KernelVariant, ...]:
    """The options without the views in layouts that no reader of the output can read.

    A part of a blocked tensor may be a view of it in a layout of no family, and of another one for
    each offset.  A split into many parts would have hundreds of them; where all readers only move
    elements, a variant that copies to a layout of a family does the same.
    """
    value = node.outputs[0]
    if value in pins or _has_readers_of_parts(graph, node):
        return options
    output = node.func.outputs[0]
    usual = _of_families(output.shape, output.dtype, target) | set(layouts.get(output.shape, ()))
    return tuple(
        variant
        for variant in options
        if not isinstance(variant.recipe, View)
        or not variant.layouts[output.name].is_padded
        or memory_key(variant.layouts[output.name]) in usual
    )


def _made(variants: tuple[KernelVariant | RefusedVariant, ...]) -> tuple[KernelVariant, ...]:
    return tuple(variant for variant in variants if isinstance(variant, KernelVariant))


def _in_user_layouts(
    graph: OperatorGraph,
    node: Node,
    edge_types: EdgeTypes,
    pins: Mapping[str, Layout],
    layouts: UserLayouts,
    target: Target,
) -> tuple[KernelVariant | RefusedVariant, ...]:
    """Variants that write a user's layout, or that read one which an input has or is pinned to."""
    if node.only_offered or not layouts:
        return ()
    wanted: list[tuple[str, tuple[Layout, ...]]] = []
    for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
        there = {memory_key(edge_type.layout) for edge_type in edge_types.get(value, ())}
        if value in pins:
            there.add(memory_key(pins[value]))
        known = layouts.get(buffer.shape, {})
        wanted.append((buffer.name, tuple(known[key] for key in known if key in there)))
    for buffer in node.func.outputs:
        wanted.append((buffer.name, tuple(layouts.get(buffer.shape, {}).values())))
    offers = tuple((name, known) for name, known in wanted if known)
    if not offers:
        return ()
    constants = constant_inputs(graph, node)
    variants = given_variants(node.func, constants, target, offers)
    pinned = tuple((n, x) for n, x in _pinned(node, pins) if n not in constants)
    if len(pinned) > 1:  # different pins need a variant that converts between them
        exact = placed_variant(node.func, pinned, target)
        variants += () if exact is None else (exact,)
    return variants


def respects(node: Node, variant: KernelVariant, pins: Mapping[str, Layout]) -> bool:
    """Whether a variant reads and writes each pinned value of its node in the pinned layout."""
    if not pins:
        return True
    bound = (
        *zip(node.func.inputs, node.inputs, strict=True),
        *zip(node.func.outputs, node.outputs, strict=True),
    )
    return all(
        memory_key(variant.layouts[buffer.name]) == memory_key(pins[value])
        for buffer, value in bound
        if value in pins
    )


def _as_pinned(
    node: Node,
    options: tuple[KernelVariant, ...],
    pins: Mapping[str, Layout],
    target: Target,
) -> tuple[KernelVariant | RefusedVariant, ...]:
    """The variant, made stage by stage, whose parameters have the layouts that their values are
    pinned to.

    Empty where one of `options` meets the pins already.  Empty too where pins of one shape differ
    and the kernel has tiled variants only: these already say which layouts the kernel can combine.
    """
    pinned = _pinned(node, pins)
    if not pinned or node.only_offered or any(respects(node, variant, pins) for variant in options):
        return ()
    alike = {layout.logical_shape: memory_key(layout) for _, layout in pinned}
    differ = any(memory_key(layout) != alike[layout.logical_shape] for _, layout in pinned)
    if differ and not any(isinstance(variant.recipe, Staged) for variant in options):
        return ()
    exact = placed_variant(node.func, pinned, target)
    return () if exact is None else (exact,)


def _pinned(node: Node, pins: Mapping[str, Layout]) -> tuple[tuple[str, Layout], ...]:
    """The parameters of a node that are bound to pinned values, with the pinned layouts."""
    bound = (
        *zip(node.func.inputs, node.inputs, strict=True),
        *zip(node.func.outputs, node.outputs, strict=True),
    )
    return tuple((b.name, pins[v]) for b, v in bound if v in pins)


def offers_of(
    graph: OperatorGraph,
    node: Node,
    edge_types: EdgeTypes,
    layouts: UserLayouts,
    target: Target,
) -> Offers:
    """By parameter, the layouts of no family and of no user in which the input can be had."""
    by_input: dict[str, tuple[Layout, ...]] = {}
    for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
        if not graph.is_constant(value):
            usual = _of_families(buffer.shape, buffer.dtype, target) | set(
                layouts.get(buffer.shape, ())
            )
            available = {
                memory_key(edge_type.layout): edge_type.layout for edge_type in edge_types[value]
            }
            unusual = tuple(layout for key, layout in available.items() if key not in usual)
            if unusual:
                by_input[buffer.name] = unusual
    return tuple(by_input.items())


@lru_cache(maxsize=4096)
def _of_families(shape: tuple[int, ...], dtype: str, target: Target) -> frozenset[MemoryKey]:
    usual = families(len(shape), target.computed_lanes(dtype), target)
    made = (family.instantiate(shape) for family in usual)
    return frozenset(memory_key(layout) for layout in made if layout is not None)
