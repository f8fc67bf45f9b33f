"""Sequences to which each iteration of a loop appends one tensor: the tensors become rows.

In: a Loop node that carries sequences.  Out: a Loop node that makes a tensor of rows in place of
each sequence that begins empty and that its body does nothing with but append to it.  What always
holds: row number i is what iteration i appends.
"""

from __future__ import annotations

from dataclasses import replace

import onnx

from graphflow.frontends.protos.steps import STANDARD, ImportStep, names_read
from graphflow.frontends.tensors.context import ImportContext


def with_rows_for_sequences(
    step: ImportStep, context: ImportContext
) -> tuple[ImportStep, dict[str, str]]:
    """The node with rows, and for each sequence that it makes the name of the tensor of its rows.

    A tensor of rows exists only if the node becomes a control region.
    """
    given = step.attribute("body")
    states = list(step.node.input[2:])
    appended = {
        k: item
        for k, name in enumerate(states)
        if name in context.sequences
        and not context.sequences[name].names
        and (item := _appended(given, k))
    }
    if not appended:
        return step, {}
    node, body = onnx.NodeProto(), onnx.GraphProto()
    node.CopyFrom(step.node)
    body.CopyFrom(given)
    kept = [k for k in range(len(states)) if k not in appended]
    results = [*step.node.output, *[""] * (len(given.output) - 1 - len(step.node.output))]
    boxes = {
        name: context.unique_tensor_name(f"{name}/rows") for k in appended if (name := results[k])
    }
    del node.input[2:], node.output[:], body.input[2:], body.output[:], body.node[:]
    node.input.extend(states[k] for k in kept)
    node.output.extend([results[k] for k in kept] + results[len(states) :])
    node.output.extend(boxes.get(results[k], "") for k in appended)
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
    return replace(step, node=node), boxes


def _appended(body: onnx.GraphProto, state: int) -> str:
    """The tensor that each iteration appends to a carried sequence, with which it does nothing
    else; empty if that is not so."""
    formal, result = body.input[2 + state].name, body.output[1 + state].name
    readers = [node for node in body.node if formal in names_read(node)]
    others = [info.name for k, info in enumerate(body.output) if k != 1 + state]
    if len(readers) != 1 or formal in others or result in others:
        return ""
    (node,) = readers
    appends = node.op_type == "SequenceInsert" and node.domain in STANDARD and len(node.input) == 2
    if not appends or list(node.output) != [result] or node.input[0] != formal:
        return ""
    if any(result in names_read(other) for other in body.node):
        return ""
    return str(node.input[1])
