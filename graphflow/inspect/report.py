"""The report on a compiled model, which `graphflow inspect --json` prints.

In: a `Compiled` model.  Out: a dict of plain values.  What always holds: every tensor name of the
ONNX graph is in `edges` once, and the same model and options give the same report.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, prod
from typing import Any

from graphflow.base.decisions import REPORT_SCHEMA
from graphflow.inspect.independent_rows import dependence_of_rows
from graphflow.inspect.plain_sentence import plain_sentence
from graphflow.inspect.program_report import program_report
from graphflow.inspect.refusals import refusals
from graphflow.inspect.report_totals import totals
from graphflow.inspect.tensor_decisions import (
    GRAPH_OUTPUT,
    TensorDecision,
    run_sizes,
    tensor_decisions,
)
from graphflow.lower import StatePair
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import Conversion, Other
from graphflow.tir import DTYPES


def report(compiled: Compiled) -> dict[str, Any]:
    """The report as plain values.

    It has the version of its JSON Schema, which `graphflow inspect --schema` prints; the model and
    the target; one entry for each tensor (`edges`); the `program` that runs; `cancelled` and
    `refused` pairs of crop and pad; `refusals` of variants, and of steps of chosen variants;
    assumptions; foreign nodes; what runs check (`guards`) and cut (`trimmed`); along which sizes
    the `rows` of results are independent; pins; the price of the plan beside the next best; and a
    summary.

    Seconds are prices; null where none was computed.  Only those under `validation` are measured,
    and differ from run to run.
    """
    plan = compiled.plan
    edges = tensor_decisions(compiled)
    return {
        "schema": REPORT_SCHEMA,
        "model": compiled.name,
        "target": compiled.target.name,
        "edges": [_edge(compiled, edge) for edge in edges.values()],
        "program": program_report(compiled),
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
        "rows": [
            {"size": size.size.name, "independent": not why_not, "why_not": why_not}
            for size in compiled.imported.sizes
            for why_not in (dependence_of_rows(compiled.imported, size),)
        ],
        "integer_products": [
            {"edge": name, "integers": not why_not, "why_not": why_not}
            for name, why_not in compiled.graph.integer_products.items()
        ],
        "rounded_products": [
            {"edge": name, "integers": not why_not, "why_not": why_not}
            for name, why_not in compiled.graph.rounded_products.items()
        ],
        "unseparated_products": [
            {"edge": name, "reason": reason}
            for name, reason in compiled.graph.unseparated_products.items()
        ],
        "unrounded": [
            {"edge": name, "type": dtype} for name, dtype in compiled.graph.unrounded.items()
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
        "validation": None if compiled.validation is None else compiled.validation.report(),
        **totals(compiled),
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


def _edge(compiled: Compiled, edge: TensorDecision) -> dict[str, Any]:
    shape = edge.physical_shape
    known = DTYPES.get(edge.dtype)
    return {
        "name": edge.name,
        "operator": _operator(compiled, edge.name),
        "producer": edge.producer,
        "consumers": list(edge.consumers),
        "dtype": edge.dtype,
        "logical_shape": list(edge.logical_shape),
        "sizes": [
            {"axis": axis, "name": size.name, "least": size.lo, "most": size.hi}
            for axis, size in run_sizes(compiled, edge.name)
        ],
        "where": edge.where,
        "physical_shape": None if shape is None else list(shape),
        "bytes": None if shape is None or known is None else prod(shape) * known.itemsize,
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
        "sentence": plain_sentence(edge),
        "conversions": [_conversion(made, node) for made in edge.conversions
                        for node, _ in made.consumers],
        "others": [_other(other) for other in edge.others],
    }  # fmt: skip


def _operator(compiled: Compiled, name: str) -> str | None:
    """The operator of the node of the imported model that makes a tensor."""
    imported = compiled.imported
    node = imported.producer(name) if name in imported.values else None
    return None if node is None else node.op


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
        "edge_type": made.target.describe(),
        "bytes": made.bytes,
        "seconds": made.seconds,
        "because": made.because,
    }
