"""Branches of which a run executes one.

In: an `If` node whose condition only a run knows, and the tensors of the graph around it.  Out: a
control region with both branches.  What always holds: results of several shapes lie in boxes that
have room for each; a branch that cannot be a graph of its own is refused, with the graph as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from msgspec import Struct

from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.base.sizes import Size
from graphflow.frontends.control_flow.body_sizes import size_around
from graphflow.frontends.control_flow.native_bodies import (
    RegionBody,
    RegionBuilder,
    allowed_contents,
    placed,
    region_body,
)
from graphflow.frontends.protos.steps import (
    ImportStep,
    derived,
    require_only_element,
)
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import MOST_ROOM, Counts
from graphflow.frontends.tensors.data_sizes import add_data_size
from graphflow.graph import Node, RegionJump
from graphflow.kernels.definitions.data_dependent import control_steps
from graphflow.tir import Reduce, walk

CHEAP_ELEMENTS = 1 << 14
"""The most elements that both branches of an `If` may compute together for the one that is not
taken to cost less than it costs to divide the graph; and only without reductions."""


def add_branch_region(
    step: ImportStep, context: ImportContext, may_fail: bool, boxes: bool
) -> bool:
    """Add an `If` whose condition a run decides; False if computing both branches costs less, which
    is no choice if one `may_fail`, or if it needs boxes for results of several shapes and `boxes`
    says that there is something better.

    Raises `UnsupportedOp` where a branch cannot be a graph of its own.
    """
    dtype, shape = context.type_of(step.input(0))
    require_only_element(step, dtype, shape, "its condition", "b")
    if step.guard is not None or step.input(0) in context.counted:
        raise UnsupportedOp(f"{step}: it is in a branch that is computed in any case")
    try:
        then, other = (
            region_body(step, a, context, lambda _: ()) for a in ("then_branch", "else_branch")
        )
    except InvalidModel as error:  # of a branch that runs of these shapes may never take
        raise UnsupportedOp(str(error)) from error
    names = list(step.node.output)
    if len(then.results) != len(names) or len(other.results) != len(names):
        return False  # an error, which the expansion reports
    is_cheap = not may_fail and _are_cheap(then, other)
    found = [_in_one_box(then, other, k, context) for k in range(len(names))]
    if not any(box.counts for box in found):
        if is_cheap:
            return False
    elif not boxes:
        return False
    region = RegionBuilder(step, context)
    condition = region.read(step.input(0))
    outputs = [region.write(n, box.dtype, box.shape) for n, box in zip(names, found, strict=True)]
    for name, box in zip(names, found, strict=True):
        if name and box.sizes:
            region.counted[name] = dict(box.sizes)
        for axis, counts in box.counts.items():
            count = context.unique_tensor_name(f"{name or step.name}/count{axis}")
            outputs.append(region.write(count, "int64", ()))
            then.add_result(counts[0])
            other.add_result(counts[1])
            if name:
                region.counted.setdefault(name, {})[axis] = count
    for one, beside in ((then, other), (other, then)):
        outputs += _guarded(one, beside, region)
    flag, decide = region.hold("bool", ()), control_steps.condition_flag(shape)
    for body, unless in ((then, False), (other, True)):
        decided = len(region.parts)
        region.kernel(decide, (condition,), flag)
        region.body(body, (), outputs)
        behind = len(region.parts) + int(body is then)  # what decides again
        region.let_jump(decided, RegionJump(flag, unless, behind))
    region.add(f"a run executes one of its branches, as {step.input(0)} says")
    for name in filter(None, names):
        shape = context.graph.values[name].shape
        for axis, count in context.counted.get(name, {}).items():
            if count not in context.sizes:
                size = Size(f"the extent of axis {axis} of {name}", 0, shape[axis])
                add_data_size(context, count, size)
    return True


def _are_cheap(*branches: RegionBody) -> bool:
    """Whether it costs little to compute both branches."""
    graphs = [branch.graph for branch in branches]
    if any(graph.guards or graph.regions for graph in graphs):
        return False
    nodes = [node for graph in graphs for node in graph.nodes]
    if any(isinstance(s, Reduce) for node in nodes for s in walk(node.func.body)):
        return False
    written = sum(prod(b.shape) for node in nodes for b in node.func.outputs)
    return written <= CHEAP_ELEMENTS


class _Box(Struct, frozen=True):
    """An output of a region: its element type, the room for it, and for each axis along which runs
    give fewer elements the results of both branches that count them, or the tensor around these
    that does so for both."""

    dtype: str
    shape: tuple[int, ...]
    counts: Mapping[int, tuple[str, str]]
    sizes: Counts


def _in_one_box(then: RegionBody, other: RegionBody, position: int, context: ImportContext) -> _Box:
    """The box in which the results of both branches at a position lie; they are extended to it."""
    values = then.value(position), other.value(position)
    bodies = then, other
    if values[0].dtype != values[1].dtype or len(values[0].shape) != len(values[1].shape):
        texts = [f"{value.dtype}{value.shape}" for value in values]
        raise UnsupportedOp(
            f"{then.step}: the condition is only known at run time, and output {position} is "
            f"{texts[0]} in then_branch and {texts[1]} in else_branch, which is not built; make "
            "the condition a constant, or the branches alike"
        )
    shape = tuple(map(max, zip(values[0].shape, values[1].shape, strict=True)))
    given = [b.context.counted.get(b.results[position], {}) for b in bodies]
    sizes = _counts_of_both(then, other, position, context)
    axes = [
        axis
        for axis, extents in enumerate(zip(values[0].shape, values[1].shape, strict=True))
        if axis not in sizes
        and (extents[0] != extents[1] or any(axis in counts for counts in given))
    ]
    if axes and context.counts_lost:
        raise UnsupportedOp(context.counts_lost)
    if axes and prod(shape) > MOST_ROOM:
        raise UnsupportedOp(
            f"{then.step}: output {position} has room for more than {MOST_ROOM} elements"
        )
    counts: dict[int, tuple[str, str]] = {}
    for axis in axes:
        numbers = [
            _as_number(body, known[axis], f"count{position}.{axis}")
            if axis in known
            else body.constant(f"{body.step.name}/extent", np.array(value.shape[axis], np.int64))
            for body, value, known in zip(bodies, values, given, strict=True)
        ]
        counts[axis] = (numbers[0], numbers[1])
    for body, value in zip(bodies, values, strict=True):
        if value.shape != shape:
            _extend(body, position, shape)
    return _Box(values[0].dtype, shape, counts, sizes)


def _counts_of_both(
    then: RegionBody, other: RegionBody, position: int, context: ImportContext
) -> Counts:
    """The tensors around both branches that count the elements of both results at a position."""
    found = []
    for body in (then, other):
        counts = body.context.counted.get(body.results[position], {})
        around = {
            axis: size_around(count, context, body.graph, body.sources)
            for axis, count in counts.items()
        }
        found.append(around)
    return {axis: n for axis, n in found[0].items() if n is not None and found[1].get(axis) == n}


def _as_number(body: RegionBody, count: str, wanted: str) -> str:
    """A count of one element as an int64 without axes."""
    sub = body.context
    shape = sub.new_constant(f"{body.step.name}/{wanted}/shape", np.zeros(0, np.int64))
    wide, number = sub.unique_tensor_name(f"{wanted}/wide"), sub.unique_tensor_name(wanted)
    body.run(
        [
            derived(body.step, "Cast", [count], [wide], "wide", to=onnx.TensorProto.INT64),
            derived(body.step, "Reshape", [wide, shape], [number], "number"),
        ]
    )
    return number


def _extend(body: RegionBody, position: int, room: tuple[int, ...]) -> None:
    """Replace a result by a larger tensor, which begins with it."""
    sub, before = body.context, body.results[position]
    name = sub.unique_tensor_name(f"{before}/box")
    func, node = placed(body.value(position), room), sub.unique_node_name(name)
    operator = f"{body.step.op}.box"
    sub.graph.add(Node(node, operator, func, (before,), (name,), (body.step.name,)))
    body.results = (*body.results[:position], name, *body.results[position + 1 :])


def _guarded(one: RegionBody, beside: RegionBody, region: RegionBuilder) -> list[str]:
    """Outputs of the region that give what runs check in a branch; in the other one they are
    right."""
    outputs = []
    for number, guard in enumerate(one.graph.guards):
        value = one.graph.values[guard.value]
        wanted = f"{one.step.name}/checked{number}"
        one.add_result(one.copied(guard.value, wanted))
        beside.add_result(beside.constant(wanted, allowed_contents(guard, value)))
        outputs.append(region.check(guard, wanted, value))
    return outputs
