"""The report on a compiled model, which `graphflow inspect --json` prints.

In: a `Compiled` model.  Out: a dict of plain values.  What always holds: every tensor name of the
ONNX graph is in `edges` once, and the same model and options give the same report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

from graphflow.inspect.moved_elements import movement
from graphflow.inspect.refusals import refusals
from graphflow.inspect.tensor_decisions import GRAPH_OUTPUT, TensorDecision, tensor_decisions
from graphflow.lower import StatePair
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import Conversion, LayoutPlan, Other


def report(compiled: Compiled) -> dict[str, Any]:
    """The report as plain values.

    It has the model and the target; one entry for each tensor (`edges`); `cancelled` and `refused`
    pairs of crop and pad; `refusals` of variants, and of steps of chosen variants; assumptions;
    foreign nodes; what runs check (`guards`) and cut (`trimmed`); pins; the price of the plan
    beside the next best; and a summary.

    Seconds are prices; null where none was computed.  Only those under `validation` are measured,
    and differ from run to run.
    """
    plan = compiled.plan
    edges = tensor_decisions(compiled)
    return {
        "model": compiled.name,
        "target": compiled.target.name,
        "edges": [_edge(edge) for edge in edges.values()],
        "cancelled": [
            {"edge": gone.value, "proof": "; ".join(str(proof) for proof in gone.proofs)}
            for gone in plan.cancelled
        ],
        "refused": [
            {"edge": kept.value, "reason": kept.reason, "repair": kept.repair}
            for kept in plan.refused
        ],
        "refusals": [refused.report() for refused in refusals(compiled)],
        "assumed": [*_assumed(compiled)],
        "foreign": [
            {"section": spec.name, "node": node.name, "op": node.op, "reason": node.reason}
            for spec in compiled.spec.sections
            for node in spec.section.nodes
        ],
        "guards": [
            {"edge": guard.value, "lo": guard.lo, "hi": guard.hi, "subject": guard.subject}
            for guard in compiled.graph.guards
        ],
        "trimmed": [
            {"edge": trim.output, "axis": trim.axis, "extents": trim.extents}
            for trim in compiled.graph.trims
        ],
        "states": [_state(pair) for pair, _ in compiled.lowered.states],
        "pinned": [
            {
                "edge": pin.value,
                "layout": pin.layout.describe(),
                "cost": pin.cost,
                "because": pin.because,
            }
            for pin in plan.pinned
        ],
        "seconds": plan.seconds,
        "unpinned_seconds": plan.unpinned,
        "gap": plan.gap,
        "whole": _end_to_end(plan),
        "next_best": _next_best(plan),
        "sharing": _sharing(plan),
        "validation": None if compiled.validation is None else compiled.validation.report(),
        "summary": summary(compiled, edges),
    }


def _assumed(compiled: Compiled) -> Iterator[dict[str, Any]]:
    """What the caller and the kernels assume of inputs, and what runs check of scalars."""
    for assumed in (*compiled.plan.assumed, *compiled.stated):
        yield {
            "tensor": assumed.tensor,
            "assumption": str(assumed),
            "checked": compiled.options.check_assumes,
            "used_by": [
                {"node": use.node, "value": use.value, "fact": str(use.fact)}
                for use in compiled.plan.relied
                if assumed.tensor in use.tensors
            ],
        }
    for limits in compiled.imported.scalar_limits:
        names = ", ".join(name for _, name in limits.inputs)
        for condition in limits.conditions:
            yield {"tensor": names, "assumption": condition, "checked": True, "used_by": []}


def _state(pair: StatePair) -> dict[str, Any]:
    """An input that an output repeats, and whether both may be one memory (`Executable.bind`)."""
    return {
        "input": pair.input,
        "output": pair.output,
        "in_place": not pair.refusal,
        "keeps_rows_of_axis": pair.axis,
        "why_not": pair.refusal,
    }


def _end_to_end(plan: LayoutPlan) -> dict[str, Any] | None:
    """The end-to-end times that chose this plan, if they did."""
    found = plan.end_to_end
    return None if found is None else {**asdict(found), "because": str(found)}


def _sharing(plan: LayoutPlan) -> dict[str, Any] | None:
    """Whether the threads share the kernels; None for a plan for one thread."""
    found = plan.sharing
    return None if found is None else {**asdict(found), "pays": found.pays}


def _next_best(plan: LayoutPlan) -> dict[str, Any] | None:
    """The best plan that differs in some variant, and where it differs; None if it is not known."""
    if plan.next_best is None:
        return None
    return {
        "seconds": plan.next_best,
        "differs": [
            {"node": other.node, "variant": other.variant, "instead": other.instead}
            for other in plan.differences
        ],
    }


def _edge(edge: TensorDecision) -> dict[str, Any]:
    shape = edge.physical_shape
    return {
        "name": edge.name,
        "producer": edge.producer,
        "consumers": list(edge.consumers),
        "dtype": edge.dtype,
        "logical_shape": list(edge.logical_shape),
        "where": edge.where,
        "physical_shape": None if shape is None else list(shape),
        "layout": None if edge.layout is None else edge.layout.describe(),
        "variant": edge.variant,
        "regions": [
            {"region": known.region, "fact": known.fact}
            for known in edge.regions
        ],
        "demands": [
            {
                "consumer": use.consumer,
                "layout": use.layout,
                "demand": use.demand,
                "conversion": use.conversion,
                "proofs": [str(proof) for proof in use.proofs],
            }
            for use in edge.readings
        ],
        "decided_by": edge.decided_by,
        "reason": edge.reason,
        "conversions": [_conversion(made, node) for made in edge.conversions
                        for node, _ in made.consumers],
        "others": [_other(other) for other in edge.others],
    }  # fmt: skip


def _other(other: Other) -> dict[str, Any]:
    """Another edge type that an edge could have; `extra_seconds` is null where `price` says why."""
    known = other.extra is not None and isfinite(other.extra)
    return {
        "edge_type": other.edge_type.describe(),
        "variant": other.variant,
        "extra_seconds": other.extra if known else None,
        "price": other.price(),
    }


def _conversion(made: Conversion, consumer: str) -> dict[str, Any]:
    return {
        "consumer": consumer or GRAPH_OUTPUT,
        "kind": made.kind,
        "bytes": made.bytes,
        "because": made.because,
    }


def summary(compiled: Compiled, edges: Mapping[str, TensorDecision]) -> dict[str, Any]:
    """Counts over the finished program, and the share of multiply-adds that run in vector lanes."""
    moves = movement(compiled)
    return {
        "edges": len(edges),
        "conversions": moves.conversions,
        "boundary_conversions": moves.boundary,
        "inner_conversions": moves.inner,
        "fills": moves.fills,
        "cancelled_pairs": len(compiled.plan.cancelled),
        "folded_constants": moves.folded,
        "sections": len(compiled.spec.sections),
        "foreign_nodes": sum(len(spec.section.nodes) for spec in compiled.spec.sections),
        "vectorized_share": vectorized_share(compiled),
        "replaced_kernels": sum(
            kernel.instead_of is not None for kernel in compiled.lowered.kernels.values()
        ),
        "poisoned_elements": compiled.physical.poisoned,
        "measured_prices": compiled.plan.measured_prices,
        "estimated_prices": compiled.plan.estimated_prices,
    }


def vectorized_share(compiled: Compiled) -> float:
    """The share of all multiply-adds that is in variants with channels in vector lanes.

    1.0 for a model without multiply-adds.
    """
    variants = [choice.variant for choice in compiled.plan.choices.values()]
    total = sum(variant.work.flops for variant in variants)
    vector = sum(variant.work.flops for variant in variants if variant.vectorized)
    return 1.0 if total == 0 else vector / total
