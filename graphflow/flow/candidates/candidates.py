"""Enumerate the candidates of every node: its variants with the edge types of their operands.

In: the graph, the cost model, the pins.  Out: `Candidates`: the candidates of each node, and for
each value the edge types that some candidate produces.  Edge types start at the graph inputs
(row-major) and are followed through the nodes in topological order, so only edge types that can
occur are listed.  Facts about the padding of an output come from evaluating the body on the padding
of its inputs; in addition the producer may write any constant that some variant demands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain, product
from typing import TypeAlias

from msgspec import Struct, field

from graphflow.base.dtypes import FLOATING
from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.cost import NO_WORK, CostModel, clearly_less
from graphflow.flow.candidates.expansion_variants import ExpansionVariants
from graphflow.flow.candidates.pricing import VariantPrices
from graphflow.flow.candidates.requirements import (
    UNUSED,
    InputAliasing,
    OperandRequirement,
    OutputAliasing,
    Production,
    weakest_edge_type,
)
from graphflow.flow.candidates.side_by_side import side_by_side, without_sharing
from graphflow.flow.candidates.variants import respects, user_layouts, variants_of, variants_with
from graphflow.flow.candidates.whole_vectors import beyond_runs, beyond_share
from graphflow.graph import Expansion, Expansions, Node, OperatorGraph, contents
from graphflow.kernels.recipes import (
    Foreign,
    KernelVariant,
    Padding,
    RefusedVariant,
    Scheduled,
    Tiled,
    View,
    left_facts,
    memory_key,
    moved_bytes,
)
from graphflow.layout import (
    Constant,
    Equal,
    Fact,
    Family,
    Layout,
    Number,
    Undefined,
    dtype_limits,
    fact_of,
    row_major,
)
from graphflow.plan import EdgeType, edge_type_key, edge_type_of, padding_regions
from graphflow.tir import moves_of


class Unsatisfiable(LayoutConflict):
    """It was proven that no plan meets the constraints.

    Any other LayoutConflict of the solver means that none was found in time, which proves nothing.
    """


class Candidate(Struct, frozen=True):
    """One variant of one node together with the edge types of its operands.

    `requirements` has an entry for each input that is not constant, `gives` an edge type for each
    output value.  `pad_value` is the constant that the epilogue writes to the output's padding,
    None if it writes none.  `seconds` is the price of one execution, `measured` or estimated.
    `read` are the parameters whose contents (not only padding) the facts of the output follow from.
    `expansion` is what takes the place of the node, if anything does; then the variant is one of
    it, `requirements` are on values of the graph, and `kernel_requirements` on the inputs of its
    own kernel.  `family` is that of an output which stays unmoved.
    """

    node: str
    variant: KernelVariant
    requirements: tuple[OperandRequirement, ...]
    gives: tuple[tuple[str, EdgeType], ...]
    pad_value: float | None
    seconds: float
    output_aliasing: OutputAliasing = OutputAliasing.FREE
    measured: bool = False
    read: frozenset[str] = frozenset()
    expansion: Expansion | None = None
    kernel_requirements: tuple[OperandRequirement, ...] = ()
    family: Family | None = None

    @property
    def unmoved(self) -> bool:
        """Whether the output is not computed: its readers read what it would be moved from."""
        return self.output_aliasing is OutputAliasing.UNMOVED

    @property
    def definition(self) -> Node | None:
        """The node that the variant is one of, if it takes the place of the graph's."""
        return None if self.expansion is None else self.expansion.node

    def productions(self) -> Iterator[tuple[str, Production]]:
        """How the candidate leaves each output value."""
        for value, edge_type in self.gives:
            yield value, Production(edge_type, self.output_aliasing, self.family)

    @property
    def rests_on(self) -> frozenset[str]:
        """The parameters about whose contents the variant, or a fact of its output, assumes
        something.
        """
        recipe = self.variant.recipe
        return self.read | (recipe.rests_on if isinstance(recipe, Tiled) else frozenset())


class Candidates(Struct, frozen=True):
    """All candidates by node, and all edge types in which each value can be produced.

    `refused` has, by node, the variants that a step of their recipe refused, with the reason.
    """

    of_node: Mapping[str, tuple[Candidate, ...]]
    edge_types: Mapping[str, tuple[EdgeType, ...]]
    refused: Mapping[str, tuple[RefusedVariant, ...]] = field(default_factory=dict)


def enumerate_candidates(
    graph: OperatorGraph,
    cost: CostModel,
    pins: Mapping[str, Layout],
    relaxed: Set[str] = frozenset(),
    facts: Mapping[str, Fact] | None = None,
    expansions: Expansions | None = None,
) -> Candidates:
    """All candidates of all nodes that run, in topological order, priced by `cost`.

    `pins` are the layouts that values must have; candidates of the nodes named in `relaxed` ignore
    them.  `facts` are the facts about the contents of each value, by default those that follow from
    the graph alone.  `expansions` are those of the graph, None for candidates without any.  Of
    candidates with equal requirements and productions the cheapest is kept.

    Raises Unsatisfiable where the pins leave a node without a candidate.
    """
    if expansions is None:
        expansions = Expansions(graph)
    facts = contents(expansions.graph) if facts is None else facts
    target = cost.target
    variants = variants_of(graph, target, facts, pins)
    wanted = variants.demanded()
    edge_types: dict[str, tuple[EdgeType, ...]] = {
        name: (edge_type_of(row_major(graph.values[name].shape)),) for name in graph.inputs
    }
    layouts = user_layouts(graph, variants, pins, target)
    expansion_variants = ExpansionVariants(expansions, pins, target, facts)
    at_once = side_by_side(graph.nodes, variants.of_node)
    found: dict[str, tuple[Candidate, ...]] = {}
    refused: dict[str, tuple[RefusedVariant, ...]] = {}
    for node in graph.nodes:
        if node.name not in variants.of_node:
            continue
        candidates: dict[object, Candidate] = {}
        options, refused[node.name] = variants_with(
            graph, node, variants, edge_types, pins, layouts, target, facts
        )
        refused[node.name] += expansion_variants.refused(node)
        free = [v for v in options if node.name in relaxed or respects(node, v, pins)]
        kernels = at_once.get(node.name, 1)
        own = _of_variants(graph, node, free, edge_types, wanted, cost, kernels)
        for candidate in chain(
            own, _of_expansions(expansion_variants, node, edge_types, wanted, cost)
        ):
            key = _key(candidate)
            kept = candidates.get(key)
            if kept is None or clearly_less(candidate.seconds, kept.seconds):
                candidates[key] = candidate
        if not candidates:
            raise Unsatisfiable(f"{node.name} ({node.op}) has no variant with the pins around it")
        found[node.name] = tuple(candidates.values())
        for value in node.outputs:
            produced = [
                edge_type
                for c in found[node.name]
                for v, edge_type in c.gives
                if v == value and not c.unmoved
            ]
            edge_types[value] = tuple(
                {edge_type_key(edge_type): edge_type for edge_type in produced}.values()
            )
    return Candidates(found, edge_types, refused)


def _key(candidate: Candidate) -> object:
    """What distinguishes a candidate from others of its node, apart from its price."""
    recipe = candidate.variant.recipe
    return (
        recipe if isinstance(recipe, Scheduled) else None,
        candidate.output_aliasing,
        candidate.family,
        tuple([
            (n.position, n.value, memory_key(n.layout), n.facts, n.demand, n.input_aliasing,
             n.family)
            for n in candidate.requirements
        ]),
        tuple([(v, edge_type_key(edge_type)) for v, edge_type in candidate.gives]),
    )  # fmt: skip


def _of_variants(
    graph: OperatorGraph,
    node: Node,
    options: Sequence[KernelVariant],
    edge_types: Mapping[str, tuple[EdgeType, ...]],
    wanted: Sequence[float],
    cost: CostModel,
    kernels: int = 1,
) -> Iterator[Candidate]:
    """The candidates of these variants of a node; `wanted` are the constants that some variant of
    the graph demands in padding, `kernels` how many threads may run at once, this one included.

    One thread alone shares nothing, so it has no variants in phases.
    """
    options = [v for v in options if cost.threads > 1 or not v.work.meetings]
    prices = VariantPrices(node.func, options, wanted, cost)
    bound = enumerate(zip(node.func.inputs, node.inputs, strict=True))
    reads = tuple((k, b.name, value) for k, (b, value) in bound if not graph.is_constant(value))
    dtype = node.func.outputs[0].dtype
    writable = tuple(filter(None, (_constant_of(value, dtype) for value in wanted)))
    output, value = node.func.outputs[0].name, node.outputs[0]
    for variant in options:
        factor = beyond_runs(graph, value, variant.layouts[output], cost.target)
        factor *= beyond_share(graph, value, variant.smaller_runs)
        factor *= without_sharing(variant, kernels, cost)
        for candidate in _of_variant(node, variant, reads, edge_types, writable, prices):
            yield (
                candidate if factor == 1 else replace(candidate, seconds=factor * candidate.seconds)
            )


def _of_expansions(
    expansion_variants: ExpansionVariants,
    node: Node,
    edge_types: Mapping[str, tuple[EdgeType, ...]],
    wanted: Sequence[float],
    cost: CostModel,
) -> Iterator[Candidate]:
    """The candidates of a node's expansions, and those in which its output stays unmoved."""
    graph = expansion_variants.expansions.graph
    for expansion, options in expansion_variants.options(node, edge_types):
        # Of tensors that are read through movement the layouts are known, and nothing of padding.
        weakest = {**edge_types, **dict.fromkeys(expansion.sources, ())}
        kept = (row_major(graph.values[value].shape) for value in expansion.absorbed)
        dtype = expansion.node.func.outputs[0].dtype
        saved = sum(cost.handed_on_seconds(moved_bytes(layout, dtype) // 2) for layout in kept)
        for candidate in _of_variants(graph, expansion.node, options, weakest, wanted, cost):
            for requirements in expansion_variants.through(expansion, candidate.requirements):
                yield replace(
                    candidate,
                    seconds=_beside_separate(candidate, saved),
                    requirements=requirements,
                    expansion=expansion,
                    kernel_requirements=candidate.requirements,
                )
    for value, family, requirements in expansion_variants.unmoved(node):
        layout = row_major(graph.values[value].shape)
        yield Candidate(
            node.name,
            UNMOVED,
            requirements,
            ((value, edge_type_of(layout)),),
            None,
            0.0,
            OutputAliasing.UNMOVED,
            family=family,
        )


def _beside_separate(candidate: Candidate, saved: float) -> float:
    """The price of a candidate that saves so many seconds which prices leave out.

    Separate kernels take their prices and what is left out, so the estimate of the one that does
    their work is made less in the same proportion.
    """
    seconds = candidate.seconds
    return seconds if candidate.measured or not saved else seconds * seconds / (seconds + saved)


UNMOVED = KernelVariant(
    "not computed: its readers read what it would be moved from",
    {},
    frozenset(),
    {},
    Padding.NONE,
    View(()),
    NO_WORK,
    False,
)
"""The variant of a node whose output stays unmoved; it executes nothing."""


Read: TypeAlias = tuple[int, str, str]
"""An operand that is not constant: input position, parameter name, value name."""


def _of_variant(
    node: Node,
    variant: KernelVariant,
    reads: tuple[Read, ...],
    edge_types: Mapping[str, tuple[EdgeType, ...]],
    writable: tuple[Constant, ...],
    prices: VariantPrices,
) -> list[Candidate]:
    output, value = node.func.outputs[0], node.outputs[0]
    layout = variant.layouts[output.name]
    # Facts are derived, and padding is written, for the first output alone.
    others = tuple(
        (name, edge_type_of(variant.layouts[buffer.name]))
        for buffer, name in zip(node.func.outputs[1:], node.outputs[1:], strict=True)
    )
    requirements = _requirements(variant, reads)
    if isinstance(variant.recipe, View | Foreign):
        gives, price = ((value, edge_type_of(layout)), *others), prices.price(variant, None)
        return [
            Candidate(node.name, variant, required, gives, None, price.seconds, output_aliasing)
            for required, output_aliasing in _aliasings(variant.recipe, requirements)
        ]
    by_user = isinstance(variant.recipe, Scheduled)
    output_aliasing = (
        OutputAliasing.CONTIGUOUS if by_user and layout.is_padded else OutputAliasing.FREE
    )
    regions = padding_regions(layout)

    def candidate(
        facts: Mapping[str, Fact], using: tuple[OperandRequirement, ...], pad: float | None
    ) -> Candidate:
        edge_type = EdgeType(layout, tuple((r, facts[r]) for r in regions))
        price = prices.price(variant, pad)
        gives = ((value, edge_type), *others)
        return Candidate(
            node.name, variant, using, gives, pad, price.seconds, output_aliasing, price.measured
        )

    left: dict[str, Fact] = dict.fromkeys(regions, Undefined())
    if variant.padding is Padding.EVALUATED and any(
        isinstance(n.demand, Equal) for n in requirements
    ):
        left = _evaluated(node, variant, {n.position: weakest_edge_type(n) for n in requirements})
    found = [candidate(left, requirements, None)]
    if not regions or others or variant.padding is Padding.KEPT:
        return found
    for constant in writable:
        literal = constant.literal.value
        found.append(candidate(dict.fromkeys(regions, constant), requirements, literal))
    if variant.padding is Padding.EVALUATED:
        for known in _known_inputs(requirements, edge_types):
            facts = _evaluated(node, variant, known)
            if any(fact != Undefined() for fact in facts.values()):
                using = tuple(replace(n, facts=known[n.position].facts) for n in requirements)
                found.append(candidate(facts, using, None))
    return found


def _requirements(
    variant: KernelVariant, reads: tuple[Read, ...]
) -> tuple[OperandRequirement, ...]:
    """The requirements of a variant on each input that is not constant."""
    return tuple([
        OperandRequirement(k, value, variant.layouts[name], variant.demands.get(name, UNUSED))
        for k, name, value in reads
    ])  # fmt: skip


def _constant_of(value: Number, dtype: str) -> Constant | None:
    """`value` as a constant of this dtype; None where the dtype cannot represent it."""
    if dtype not in FLOATING:
        low, high = dtype_limits(dtype)
        if not low <= value <= high or value != int(value):
            return None
        value = bool(value) if dtype == "bool" else int(value)
    else:
        value = float(value)
    return fact_of(value, dtype)


def _aliasings(
    recipe: View | Foreign, requirements: tuple[OperandRequirement, ...]
) -> Iterator[tuple[tuple[OperandRequirement, ...], OutputAliasing]]:
    """The memory that operands have to be in and the output is in, each way it is possible."""
    if isinstance(recipe, Foreign):
        yield from ((r, OutputAliasing.CONTIGUOUS) for r in _in_one_piece(requirements))
        return
    for input_aliasing, output_aliasing in _view_aliasings(recipe):
        yield _all_in(requirements, input_aliasing), output_aliasing


def _in_one_piece(
    requirements: Sequence[OperandRequirement],
) -> Iterator[tuple[OperandRequirement, ...]]:
    """The requirements of a callee that knows no strides: all operands in place, or one copied, or
    all.

    A value that another reader needs inside its output, as a box, can only be copied.
    """
    in_place = _all_in(requirements, InputAliasing.CONTIGUOUS)
    copied = _all_in(requirements, InputAliasing.COPIED)
    yield in_place
    if len(requirements) > 1:
        for k in range(len(requirements)):
            yield (*in_place[:k], copied[k], *in_place[k + 1 :])
    if requirements:
        yield copied


def _all_in(
    requirements: Sequence[OperandRequirement], aliasing: InputAliasing
) -> tuple[OperandRequirement, ...]:
    return tuple(replace(requirement, input_aliasing=aliasing) for requirement in requirements)


def _view_aliasings(view: View) -> Iterator[tuple[InputAliasing, OutputAliasing]]:
    """How a view's inputs and output may share memory: as boxes, and as contiguous pieces."""
    if all(link.window is not None for link in view.links):
        yield (
            (InputAliasing.HOLDS_OUTPUT, OutputAliasing.INSIDE_INPUT)
            if view.outward
            else (InputAliasing.INSIDE_OUTPUT, OutputAliasing.FREE)
        )
    if all(link.offset is not None for link in view.links):
        inward = InputAliasing.INSIDE_OUTPUT_CONTIGUOUS, OutputAliasing.CONTIGUOUS
        yield (
            (InputAliasing.HOLDS_OUTPUT_CONTIGUOUS, OutputAliasing.INSIDE_INPUT_CONTIGUOUS)
            if view.outward
            else inward
        )


def _known_inputs(
    requirements: Sequence[OperandRequirement], edge_types: Mapping[str, tuple[EdgeType, ...]]
) -> list[dict[int, EdgeType]]:
    """Every combination of edge types that the inputs can have in the required layouts.

    An input with a demand of a constant has that constant, whatever its producer leaves.
    """
    options: list[list[tuple[int, EdgeType]]] = []
    for requirement in requirements:
        if isinstance(requirement.demand, Equal):
            options.append([(requirement.position, weakest_edge_type(requirement))])
            continue
        fitting = [
            edge_type
            for edge_type in edge_types[requirement.value]
            if memory_key(edge_type.layout) == memory_key(requirement.layout)
        ]
        if not fitting:
            fitting = [edge_type_of(requirement.layout)]
        options.append([(requirement.position, edge_type) for edge_type in fitting])
    return [dict(chosen) for chosen in product(*options)]


def _evaluated(
    node: Node, variant: KernelVariant, known: Mapping[int, EdgeType]
) -> dict[str, Fact]:
    """The facts about the output's padding that follow from these edge types of the inputs."""
    facts: dict[tuple[str, str], Fact] = {}
    for k, buffer in enumerate(node.func.inputs):
        layout = variant.layouts[buffer.name]
        zero = fact_of(0, buffer.dtype)  # packing fills the padding of constants with zeros
        input_facts = dict(known[k].facts) if k in known else None
        for region in padding_regions(layout):
            facts[buffer.name, region] = (
                zero if input_facts is None else input_facts.get(region, Undefined())
            )
    output = node.func.outputs[0]
    regions = padding_regions(variant.layouts[output.name])
    if not facts and moves_of(node.func):
        # Elements alone are moved there, and no single value is known of all of them.
        return dict.fromkeys(regions, Undefined())
    result = left_facts(node.func, variant, facts)
    return {
        region: _constant_or_undefined(result.get((output.name, region), Undefined()))
        for region in regions
    }


def _constant_or_undefined(fact: Fact) -> Fact:
    """The fact if it is a constant, else Undefined.

    Weaker facts (ranges) are dropped, since no demand asks for them and each would be an edge type
    of its own.
    """
    return fact if isinstance(fact, Constant) else Undefined()
