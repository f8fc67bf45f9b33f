"""Sequences and tensors to which each iteration of a loop appends one tensor: these become rows.

In: a Loop node that carries such states.  Out: a Loop node that makes a tensor of rows in place of
each sequence that begins empty, and of each tensor, that its body does nothing with but append to
it.  What always holds: row number i is what iteration i appends, and behind the loop a tensor is
what it began as and the rows in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.frontends.protos.steps import STANDARD, ImportStep, derived, names_read
from graphflow.frontends.tensors.context import ImportContext


class RowsMade(Struct, frozen=True):
    """A loop whose iterations make rows: the node; for each sequence that it makes the name of the
    tensor of its rows; and the steps behind it that make the tensors to which rows are appended."""

    step: ImportStep
    boxes: Mapping[str, str]
    behind: Sequence[ImportStep]


def with_rows(step: ImportStep, context: ImportContext, tensors: bool) -> RowsMade:
    """The node with rows for sequences, and with `tensors` for these too.

    A tensor of rows exists only if the node becomes a control region.
    """
    given = step.attribute("body")
    states = list(step.node.input[2:])
    appended = {
        k: item
        for k, name in enumerate(states)
        if name in context.sequences
        and not context.sequences[name].names
        and (item := _appended(given, k, "SequenceInsert"))
    }
    joined: dict[int, str] = {}
    if tensors:
        listed = range(min(len(states), len(given.output) - 1))
        joined = {k: item for k in listed if (item := _appended(given, k, "Concat"))}
        appended.update(joined)
    if not appended:
        return RowsMade(step, {}, ())
    node, body = onnx.NodeProto(), onnx.GraphProto()
    node.CopyFrom(step.node)
    body.CopyFrom(given)
    kept = [k for k in range(len(states)) if k not in appended]
    results = [*step.node.output, *[""] * (len(given.output) - 1 - len(step.node.output))]
    names = {k: results[k] for k in appended if results[k]}
    sequences = {
        k: context.unique_tensor_name(f"{name}/appended") if k in joined else name
        for k, name in names.items()
    }
    boxes = {name: context.unique_tensor_name(f"{name}/rows") for name in sequences.values()}
    del node.input[2:], node.output[:], body.input[2:], body.output[:], body.node[:]
    node.input.extend(states[k] for k in kept)
    node.output.extend([results[k] for k in kept] + results[len(states) :])
    node.output.extend(boxes[sequences[k]] if k in sequences else "" for k in appended)
    body.input.extend(given.input[2 + k] for k in kept)
    body.output.append(given.output[0])
    body.output.extend(given.output[1 + k] for k in kept)
    body.output.extend(given.output[1 + len(states) :])
    body.output.extend(onnx.ValueInfoProto(name=item) for item in appended.values())
    gone = {given.output[1 + k].name for k in appended}
    body.node.extend(n for n in given.node if not gone.intersection(n.output))
    for attribute in node.attribute:
        if attribute.name == "body":
            attribute.g.CopyFrom(body)
    behind: list[ImportStep] = []
    for k in sorted(joined.keys() & names.keys()):
        (maker,) = (one for one in given.node if given.output[1 + k].name in one.output)
        axis = next(a.i for a in maker.attribute if a.name == "axis")
        parts = [states[k], context.unique_tensor_name(f"{names[k]}/joined")]
        behind += [
            derived(step, "ConcatFromSequence", [sequences[k]], parts[1:], f"rows_{k}", axis=axis),
            derived(step, "Concat", parts, [names[k]], f"state_{k}", axis=axis),
        ]
    return RowsMade(replace(step, node=node), boxes, behind)


def _appended(body: onnx.GraphProto, state: int, operator: str) -> str:
    """The tensor that each iteration appends to a carried sequence or tensor, with which it does
    nothing else; empty if that is not so."""
    formal, result = body.input[2 + state].name, body.output[1 + state].name
    readers = [node for node in body.node if formal in names_read(node)]
    others = [info.name for k, info in enumerate(body.output) if k != 1 + state]
    if len(readers) != 1 or formal in others or result in others:
        return ""
    (node,) = readers
    appends = node.op_type == operator and node.domain in STANDARD and len(node.input) == 2
    if (
        not appends
        or formal == node.input[1]
        or list(node.output) != [result]
        or node.input[0] != formal
    ):
        return ""
    if any(result in names_read(other) for other in body.node):
        return ""
    return str(node.input[1])
