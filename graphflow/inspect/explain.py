"""Explain the decisions about one tensor in words, as `graphflow explain` prints them.

In: a `Compiled` model and a tensor's name.  Out: text: a plain sentence, the decision and its
reason, the producer, the alternatives, the readers, then what was converted, cancelled and refused
around the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow.base.decisions import microseconds, unknown_tensor
from graphflow.graph import Node
from graphflow.inspect.plain_sentence import plain_sentence
from graphflow.inspect.refusals import refusals
from graphflow.inspect.tensor_decisions import (
    GRAPH_OUTPUT,
    TensorDecision,
    readers_text,
    run_sizes,
    tensor_decisions,
)
from graphflow.kernels.recipes import Scheduled
from graphflow.layout import LOGICAL
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import Choice, Pinned

INTEGER_PRODUCT = (
    "a sum of integers, which is exact, scaled once; quantized, it is at most one step from the "
    "exact number"
)

ROUNDED_PRODUCT = (
    "a sum of integers in each block, of rows rounded to bytes as the model permits: an element is "
    "off by at most 1/254 of the largest magnitude of its block"
)


def explain(compiled: Compiled, name: str, full: bool = False) -> str:
    """The text about the tensor `name`: every decision about it, with reasons and proofs.

    With `full`, also the variants of its producer that were refused, and the refused steps of the
    chosen one.  Raises InvalidModel where the model has no such tensor; the message lists similar
    names.
    """
    edges = tensor_decisions(compiled)
    if name not in edges:
        raise unknown_tensor(name, edges)
    lines = [*_lines(compiled, edges[name])]
    if full:
        maker = edges[name].producer
        lines += [refused.line() for refused in refusals(compiled) if maker in refused.nodes]
    return "\n".join(lines)


def explanations(compiled: Compiled) -> dict[str, str]:
    """The text of `explain` (not `full`) for every tensor, by name."""
    return {
        name: "\n".join(_lines(compiled, edge)) for name, edge in tensor_decisions(compiled).items()
    }


def _lines(compiled: Compiled, edge: TensorDecision) -> Iterator[str]:
    shape = ", ".join(map(str, edge.logical_shape))
    yield plain_sentence(edge)
    yield f"  tensor    {edge.dtype}[{shape}], {edge.where}"
    yield f"  because   {edge.reason} ({edge.decided_by})"
    if edge.layout is not None:
        yield f"  layout    {edge.layout.describe()}, in memory {list(edge.layout.physical_shape)}"
        yield from _regions(edge)
    yield from (f"  {word:9} {text}" for word, text in edge_notes(compiled, edge))
    if edge.producer is not None:
        yield from _producer(compiled, edge.producer)
    for other in edge.others:
        yield f"  instead   {other.edge_type.describe()}: {other.price()} (variant {other.variant})"
    for use in edge.readings:
        reader = use.consumer
        if use.buffer:
            reader += f" as input {use.position} ({use.buffer})"
        through = "" if use.conversion is None else f", from the {use.conversion} below"
        yield f"  read by   {reader}, in {use.layout}{through}; demand on the padding: {use.demand}"
        yield from (f"            proof: {proof}" for proof in use.proofs)
    yield from _pairs(compiled, edge)


def edge_notes(compiled: Compiled, edge: TensorDecision) -> Iterator[tuple[str, str]]:
    """What a run, the user and other nodes have to do with a tensor: pairs of a word and a text."""
    yield from _sizes(compiled, edge)
    if edge.name in compiled.graph.integer_products:
        why_not = compiled.graph.integer_products[edge.name]
        yield "product", f"a sum of floats: {why_not}" if why_not else INTEGER_PRODUCT
    if edge.name in compiled.graph.rounded_products:
        why_not = compiled.graph.rounded_products[edge.name]
        yield "product", f"of rows that are not rounded: {why_not}" if why_not else ROUNDED_PRODUCT
    if edge.name in compiled.graph.unseparated_products:
        reason = compiled.graph.unseparated_products[edge.name]
        yield "product", f"not by instructions for products of bytes: {reason}"
    if edge.name in compiled.graph.unrounded:
        narrow = compiled.graph.unrounded[edge.name]
        yield "rounding", f"to {narrow} is left out where kernels read it: excess precision"
    yield from _partial_results(compiled, edge)
    if edge.pinned is not None:
        yield "pinned", f"to {edge.pinned.layout.describe()}; {cost_text(edge.pinned)}"
    if compiled.plan.end_to_end is not None:
        yield "the plan", f"has {compiled.plan.end_to_end}"
    for assumed in compiled.plan.assumed:
        if assumed.tensor == edge.name:
            yield "assumed", f"{assumed}, by the user"
    for relied in compiled.plan.relied:
        if relied.value == edge.name:
            origins = ", ".join(relied.tensors)
            yield "relied on", f"by {relied.node}: {relied.fact}, as follows from {origins}"


def _partial_results(compiled: Compiled, edge: TensorDecision) -> Iterator[tuple[str, str]]:
    """What the kernel that writes a tensor reduces it to."""
    if edge.producer is None:
        return
    own = len(compiled.graph.node(edge.producer).outputs)
    for parts in compiled.lowered.outputs.get(edge.producer, ())[own:]:
        what = f"where it is stored, to {parts.size} results of its parts"
        yield "reduced", f"{what}; nothing reads it once more for the greatest or least of all"


def _sizes(compiled: Compiled, edge: TensorDecision) -> Iterator[tuple[str, str]]:
    """What a run decides of the extents of a tensor."""
    for axis, size in run_sizes(compiled, edge.name):
        yield (
            f"axis {axis}",
            f"has room for {size.hi} elements; a run gives {size.name} of them"
            f" ({size.lo} or more); those behind hold anything, and no element that a run gives"
            " is computed from them, proven for all sizes",
        )


def cost_text(pin: Pinned) -> str:
    """The cost of a pin in words, with the reason."""
    if pin.cost is None:
        return pin.because
    return f"it costs {microseconds(pin.cost)}: {pin.because}"


def _regions(edge: TensorDecision) -> Iterator[str]:
    """A line for each region and what it holds, the logical region first."""
    if not any(known.region == LOGICAL for known in edge.regions):
        yield f"  region    {LOGICAL}: the elements, about which nothing is known"
    for known in edge.regions:
        yield f"  region    {known.region}: {known.fact}"


def _producer(compiled: Compiled, producer: str) -> Iterator[str]:
    choice = compiled.plan.choices.get(producer)
    node = compiled.graph.node(producer)
    origins = ", ".join(node.origins)
    yield f"  made by   {producer} ({node.op})" + (f" for {origins}" if origins else "")
    region = compiled.graph.regions.get(node.func.callee or "")
    if region is not None:
        yield f"  decided   {region.decided}"
    if choice is None:
        return
    yield f"  variant   {choice.variant.name}, {1e6 * choice.seconds:.1f} µs: {choice.because}"
    yield from _search(node, choice)
    if choice.pad_value is not None:
        yield f"  epilogue  writes {choice.pad_value} to the padding"
    for other in choice.others:
        alone = f"{1e6 * other.seconds:.1f} µs alone{', measured' if other.measured else ''}"
        yield f"  not       {other.variant}, {alone}; {other.price()}"


def _search(node: Node, choice: Choice) -> Iterator[str]:
    """What a search found for the chosen variant, and the times of a recipe beside it; nothing for
    a variant that is from no search.
    """
    recipe = choice.variant.recipe
    for found in node.found:
        if isinstance(recipe, Scheduled) and recipe.kernel == found.kernel:
            yield f"  searched  {found}"
            others = [other for other in choice.others if other.measured]
            if choice.measured and others:
                best = min(others, key=lambda other: other.seconds)
                yield (
                    f"            {1e6 * choice.seconds:.1f} µs in the plan, "
                    f"{1e6 * best.seconds:.1f} µs as its recipe makes it ({best.variant})"
                )


def _pairs(compiled: Compiled, edge: TensorDecision) -> Iterator[str]:
    for made in edge.conversions:
        yield (
            f"  {made.kind:9} for {readers_text(made)}: {made.source.describe()} -> "
            f"{made.target.describe()}, {made.bytes} bytes, {1e6 * made.seconds:.1f} µs "
            f"{'measured' if made.measured else 'estimated'}, because {made.because}"
        )
    for gone in compiled.plan.cancelled:
        if gone.value == edge.name:
            before = gone.consumer or GRAPH_OUTPUT
            yield f"  cancelled crop and pad before {before}, {gone.layout.describe()}"
            yield from (f"            proof: {proof}" for proof in gone.proofs)
    for kept in compiled.plan.refused:
        if kept.value == edge.name:
            before = kept.consumer or GRAPH_OUTPUT
            yield f"  refused   pair before {before}: {kept.reason}; instead {kept.repair}"
