"""The results of the stages as text, for `--dump` and for the debug levels.

In: a graph, a plan, a lowered program.  Out: text with one item per line; equal inputs give equal
text.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow.base.decisions import microseconds
from graphflow.graph import OperatorGraph
from graphflow.lower import Lowered
from graphflow.physical import PhysicalGraph
from graphflow.plan import LayoutPlan


def graph_text(graph: OperatorGraph) -> str:
    """Inputs, initializers, nodes and outputs, each with its logical shape."""
    return "\n".join(_graph_lines(graph))


def _graph_lines(graph: OperatorGraph) -> Iterator[str]:
    for name in graph.inputs:
        yield f"input {_typed(graph, name)}"
    for name in graph.initializers:
        yield f"initializer {_typed(graph, name)}"
    for node in graph.nodes:
        results = ", ".join(_typed(graph, name) for name in node.outputs)
        yield f"{node.name}: {node.op}({', '.join(node.inputs)}) -> {results}"
        for value, buffer in node.inner:
            yield f"    inside: {value} as {buffer}"
    for name in graph.outputs:
        hidden = "" if name in graph.results else "hidden "
        yield f"{hidden}output {_typed(graph, name)}"
    for trim in graph.trims:
        yield f"trim axis {trim.axis} of {trim.output} to {trim.extents}[{trim.element}]"
    for guard in graph.guards:
        yield f"guard {guard.value} from {guard.lo} to {guard.hi}: {guard.subject}"
    for name, removed in graph.removed.items():
        same = f", equals {removed.alias_of}" if removed.alias_of is not None else ""
        yield f"removed {name}: {removed.reason}{same}"


def _typed(graph: OperatorGraph, name: str) -> str:
    value = graph.values[name]
    return f"{name}: {value.dtype}{list(value.shape)}"


def plan_text(plan: LayoutPlan) -> str:
    """Every decision of a plan with its reason."""
    return "\n".join(_plan_lines(plan))


def _plan_lines(plan: LayoutPlan) -> Iterator[str]:
    yield f"estimate {1e6 * plan.seconds:.1f} µs, optimality gap {100 * plan.gap:.2f} %"
    if plan.next_best is not None:
        yield f"next best plan {1e6 * plan.next_best:.1f} µs"
        for other in plan.differences:
            yield f"    {other.node}: {other.instead} instead of {other.variant}"
    for pin in plan.pinned:
        cost = "" if pin.cost is None else f"costs {microseconds(pin.cost)}: "
        yield f"pinned {pin.value} to {pin.layout.describe()}: {cost}{pin.because}"
    for name, choice in plan.choices.items():
        pad = "" if choice.pad_value is None else f", writes {choice.pad_value} to the padding"
        yield f"variant {name}: {choice.variant.name}{pad}: {choice.because}"
        for not_taken in choice.others:
            alone = f"{1e6 * not_taken.seconds:.1f} µs instead of {1e6 * choice.seconds:.1f}"
            yield f"    not {not_taken.variant}: {alone}; {not_taken.price()}"
    for name, edge in plan.edges.items():
        yield f"edge {name}: {edge.edge_type.describe()}: {edge.reason} ({edge.decided_by})"
        for not_taken in edge.others:
            yield f"    not {not_taken.edge_type.describe()}: {not_taken.price()}"
    for move in plan.conversions:
        readers = ", ".join(f"{node}[{position}]" for node, position in move.consumers)
        yield (
            f"{move.kind} {move.value} for {readers}: {move.source.describe()} -> "
            f"{move.target.describe()}: {move.because}"
        )
    for gone in plan.cancelled:
        yield f"cancelled {gone.value} -> {gone.consumer}"
        yield from (f"    {proof}" for proof in gone.proofs)
    if plan.refused:
        yield refusals_text(plan)


def refusals_text(plan: LayoutPlan) -> str:
    """The pairs that were not cancelled, each with the reason and the conversion that it keeps."""
    return "\n".join(
        f"refused {kept.value} -> {kept.consumer}: {kept.reason}; {kept.repair}"
        for kept in plan.refused
    )


def physical_text(physical: PhysicalGraph) -> str:
    """The storages, then the calls in order with the place of each parameter."""
    return "\n".join(_physical_lines(physical))


def _physical_lines(physical: PhysicalGraph) -> Iterator[str]:
    for storage in physical.storages.values():
        yield f"{storage.kind} {storage.name}: {storage.dtype}[{storage.elements}]"
    for call in physical.calls:
        phase = "prepare" if call.prepare else "run"
        variant = "moves elements" if call.variant is None else call.variant.name
        because = f": {call.because}" if call.because else ""
        yield f"{phase} {call.name}, {variant}{because}"
        for name, place in call.placements.items():
            begin = f" from element {place.offset} on" if place.offset else ""
            yield f"    {name} in {place.storage}{begin} as {place.layout.describe()}"


def lowered_text(lowered: Lowered) -> str:
    """The kernels, then the steps in order with the memory that they access."""
    return "\n".join(_lowered_lines(lowered))


def _lowered_lines(lowered: Lowered) -> Iterator[str]:
    yield f"arena {lowered.arena_bytes} bytes, constants {lowered.constant_bytes} bytes"
    for symbol, kernel in lowered.kernels.items():
        steps = len(kernel.schedule.steps)
        yield f"{symbol}: {steps} steps, extent {kernel.extent}, {len(kernel.proofs)} proofs"
    for call, step in lowered.calls:
        places = ", ".join(f"{ref.space}+{ref.position}" for ref in step.buffers)
        yield f"{'prepare' if call.prepare else 'run'} {step.symbol} ({places}) for {call.name}"
