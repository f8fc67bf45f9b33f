"""Scans: a `Scan` is unrolled, or becomes a loop where a run decides how many rows it takes.

In: a Scan of opset 9 or later.  Out: the steps of one iteration for each row of what it scans, or a
control region.  What always holds: an iteration takes the rows that ONNX gives it, from the front
or from the end of as many as a run gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx

from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp
from graphflow.base.fields import replace
from graphflow.frontends.control_flow.bodies import body_of
from graphflow.frontends.control_flow.loop_specs import LoopSpec, Scanned
from graphflow.frontends.control_flow.unrolling import (
    UNROLLED_NODES,
    Unrolled,
    nodes_unrolled,
    refused_as_region,
)
from graphflow.frontends.protos.steps import ImportStep, Item, derived
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.derived_sizes import require_equal
from graphflow.frontends.tensors.sized_values import with_size_data


def expand_scan(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """The steps of a Scan of opset 9 or later, one iteration for each slice of the scanned
    inputs."""
    if step.opset < 9:
        raise UnsupportedOp(
            f"{step}: Scan of opset 8, with a batch axis, is not built; convert the model to opset "
            f"9 or later"
        )
    body = body_of(step, "body", context)
    count = step.attribute("num_scan_inputs")
    states = tuple(step.node.input[: len(step.node.input) - count])
    sources = tuple(step.node.input[len(states) :])
    outputs = len(body.graph.output) - len(states)
    if not 0 < count <= len(step.node.input) or outputs < 0:
        raise InvalidModel(
            f"{step}: {count} of its {len(step.node.input)} inputs are scanned, and its body gives "
            f"{len(body.graph.output)} tensors; it has to give one for each other input"
        )
    axes = _listed(step, "scan_input_axes", count)
    backward = _listed(step, "scan_input_directions", count)
    out_axes = _listed(step, "scan_output_axes", outputs)
    directions = _listed(step, "scan_output_directions", outputs)
    shapes = [context.type_of(name)[1] for name in sources]
    for name, shape, axis in zip(sources, shapes, axes, strict=True):
        if not -len(shape) <= axis < len(shape):
            raise InvalidModel(
                f"{step}: its input {name} of shape {list(shape)} has no axis {axis}"
            )
    scanned = [(n, axis % len(shape)) for n, shape, axis in zip(sources, shapes, axes, strict=True)]
    size = _scanned_size(step, scanned, context)
    if size and any((*backward, *directions)):
        return _with_reversed(step, scanned, out_axes, context)
    lengths = {shape[axis] for (_, axis), shape in zip(scanned, shapes, strict=True)}
    if len(lengths) != 1:
        raise InvalidModel(f"{step}: its scanned inputs have lengths {sorted(lengths)}")
    (length,) = lengths
    nodes = length * nodes_unrolled(body.graph, context.constant)
    if size or context.unrolled + nodes > UNROLLED_NODES:
        names = [*step.node.output, *[""] * (len(body.graph.output) - len(step.node.output))]
        given = with_size_data(step, context)
        form = LoopSpec(
            size or context.new_constant(f"{step.name}/length", np.array(length, np.int64)),
            "",
            length,
            True,
            False,
            tuple(given.node.input[: len(states)]),
            tuple(
                Scanned(name, axis, bool(way))
                for (name, axis), way in zip(scanned, backward, strict=True)
            ),
            tuple(
                Scanned(name, axis, bool(way))
                for name, axis, way in zip(names[len(states) :], out_axes, directions, strict=True)
            ),
            size,
        )
        if not refused_as_region(given, form, context):
            return ()
    loop = Unrolled(step, body, context, states, [[] for _ in range(outputs)], length)
    items: list[Item] = [*body.steps]
    for number in range(length):
        slices: list[str] = []
        for source, axis, reverse in zip(sources, axes, backward, strict=True):
            position = length - 1 - number if reverse else number
            slices.append(_taken(step, source, axis, position, items, context))
        steps, results = loop.iteration(number, (*loop.states, *slices))
        items += steps
        loop.states = results[: len(states)]
        for rows, row in zip(loop.scanned, results[len(states) :], strict=True):
            rows.append(row)
    return [*items, *loop.finish(out_axes, [bool(way) for way in directions])]


def _with_reversed(
    step: ImportStep,
    scanned: Sequence[tuple[str, int]],
    out_axes: Sequence[int],
    context: ImportContext,
) -> Sequence[Item]:
    """A Scan that begins nowhere at an end, of inputs and with outputs that Slices reverse.

    The end is that of as many elements as a run gives, which a Slice knows.
    """
    node = onnx.NodeProto()
    node.CopyFrom(step.node)
    lists = {a.name: [*a.ints] for a in node.attribute if a.name.endswith("_directions")}
    kept = [attribute for attribute in step.node.attribute if attribute.name not in lists]
    del node.attribute[:]
    node.attribute.extend(kept)
    states = len(node.input) - len(scanned)

    def reverse(source: str, result: str, axis: int) -> ImportStep:
        ends = (-1, np.iinfo(np.int64).min, axis, -1)
        numbers = [
            context.new_constant(f"{step.name}/end", np.array([end], np.int64)) for end in ends
        ]
        return derived(step, "Slice", [source, *numbers], [result], f"reverse_{result}")

    before, behind = list[Item](), list[Item]()
    for k, (way, (name, axis)) in enumerate(
        zip(lists.get("scan_input_directions", ()), scanned, strict=False)
    ):
        if way:
            node.input[states + k] = context.unique_tensor_name(f"{name}/reversed")
            before.append(reverse(name, node.input[states + k], axis))
    for k, (way, axis) in enumerate(
        zip(lists.get("scan_output_directions", ()), out_axes, strict=False)
    ):
        if way and states + k < len(node.output) and (result := node.output[states + k]):
            node.output[states + k] = context.unique_tensor_name(f"{result}/reversed")
            behind.append(reverse(node.output[states + k], result, axis))
    return [*before, replace(step, node=node), *behind]


def _scanned_size(
    step: ImportStep, scanned: Sequence[tuple[str, int]], context: ImportContext
) -> str:
    """The size that says how many elements all scanned inputs have along their axes; empty if none
    does.

    Raises ExtentsLost if it may be another one for some of them, or data decides it, SizesRelated
    where it is the same in all runs that satisfy a relation.
    """
    counts = {context.counted.get(name, {}).get(axis, "") for name, axis in scanned}
    for first, second in pairwise(sorted(counts - {""})):
        require_equal(context, first, second)
    if len(counts) > 1 or not counts <= {"", *context.sizes}:
        raise ExtentsLost(
            f"{step}: how many elements its inputs {', '.join(name for name, _ in scanned)} have "
            "along the scanned axes is only known at run time, and may differ; cut the model "
            "before this node, or give these axes one name"
        )
    return counts.pop()


def _listed(step: ImportStep, attribute: str, count: int) -> list[int]:
    """The attribute's list of `count` numbers; zeros if the node does not state it."""
    stated = list(step.attribute(attribute) or [0] * count)
    if len(stated) != count:
        raise InvalidModel(f"{step}: {attribute} has {len(stated)} numbers for {count} tensors")
    return stated


def _taken(
    step: ImportStep,
    source: str,
    axis: int,
    position: int,
    items: list[Item],
    context: ImportContext,
) -> str:
    """The name of slice `position` of `source` along `axis`; the steps that take it are added to
    `items`."""
    index = context.new_constant(f"{step.name}/position", np.array(position, np.int64))
    name = context.unique_tensor_name(f"{source}.{position}")
    part = f"slice_{source}_{position}"
    items.append(derived(step, "Gather", [source, index], [name], part, axis=axis))
    return name
