"""Loops: `Loop` is unrolled, iteration by iteration, within a budget of nodes.

Trip counts, conditions and extents that control flow depends on must be known when the model is
compiled.  A condition that the body computes is evaluated after each iteration, so it may be the
result of shape arithmetic.  A loop whose number of iterations is certain is refused before the
first one if the budget does not suffice; with a fallback it then runs as a loop, in a section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import onnx

from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.base.sizes import BOUNDLESS
from graphflow.frontends.control_flow.bodies import (
    BodyGraph,
    body_of,
    copies,
    inlined,
)
from graphflow.frontends.control_flow.loop_specs import LoopSpec, Scanned
from graphflow.frontends.control_flow.native_loops import add_loop_region
from graphflow.frontends.control_flow.sequence_rows import RowsMade, with_rows
from graphflow.frontends.control_flow.trip_bounds import most_iterations
from graphflow.frontends.protos.protos import dtype_name, known_array
from graphflow.frontends.protos.steps import (
    STANDARD,
    After,
    ImportStep,
    Item,
    derived,
    named_apart,
    names_read,
    only_element,
)
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.sized_values import with_size_data
from graphflow.frontends.tensors.values import contents_missing
from graphflow.graph import Array, Removed

UNROLLED_NODES = 10_000
"""The most nodes that unrolling may add to a model; import, planning and code generation take
longer with each."""

Known = Callable[[str], "Array | None"]
"""The contents of a tensor of the enclosing graphs, None if they are not known."""


def _contents_in(graph: onnx.GraphProto, outer: Known) -> Known:
    """The contents of the constants of a body, and of those of the graphs around it."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in STANDARD and node.output:
            tensors.update((node.output[0], a.t) for a in node.attribute if a.HasField("t"))

    def found(name: str) -> Array | None:
        tensor = tensors.get(name)
        return outer(name) if tensor is None else known_array(tensor, name)

    return found


def _runs_all_trips(body: onnx.GraphProto, known: Known) -> bool:
    """Whether the condition that a body returns is the one that it gets, or a constant true."""
    copies_of = {
        node.output[0]: node.input[0]
        for node in body.node
        if node.op_type == "Identity" and node.domain in STANDARD and node.input and node.output
    }
    name = body.output[0].name
    for _ in copies_of:
        name = copies_of.get(name, name)
    if name == body.input[1].name:
        return True
    array = known(name)
    return array is not None and array.size == 1 and bool(array.all())


def _trips(node: onnx.NodeProto, body: onnx.GraphProto, outer: Known, known: Known) -> int:
    """The number of iterations of a Loop if it is certain, else 1: there may be no more."""
    is_plain = len(body.input) > 1 and len(body.output) > 0
    count = outer(node.input[0]) if node.input and node.input[0] else None
    if not is_plain or count is None or count.size != 1 or count.dtype.kind not in "iu":
        return 1
    return max(0, int(count.reshape(()))) if _runs_all_trips(body, known) else 1


def nodes_unrolled(graph: onnx.GraphProto, outer: Known) -> int:
    """How many nodes unrolling adds for one iteration of a body, as far as it is certain."""
    known, nodes = _contents_in(graph, outer), 1
    for node in graph.node:
        nodes += 1
        if node.op_type == "Loop":
            for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
                inner = _contents_in(body, known)
                nodes += _trips(node, body, known, inner) * nodes_unrolled(body, known)
    return nodes


@dataclass(slots=True)
class Unrolled:
    """The state of unrolling a `Loop` or `Scan`: the body and the results of the iterations so
    far."""

    step: ImportStep
    body: BodyGraph
    context: ImportContext
    states: tuple[str, ...]
    """The loop-carried tensors or sequences that the next iteration starts from."""
    scanned: list[list[str]]
    """For each scan output the tensors of the iterations so far."""
    certain: int
    """The number of iterations that are certain."""

    def __post_init__(self) -> None:
        made, given = len(self.states) + len(self.scanned), len(self.step.node.output)
        if given > made:
            raise InvalidModel(
                f"{self.step}: it has {given} outputs, and its body makes {made}; remove the others"
            )
        nodes = nodes_unrolled(self.body.graph, self.context.constant)
        if self.context.unrolled + self.certain * nodes > UNROLLED_NODES:
            self._refuse(f"{self.certain} iterations of {nodes} nodes")

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedOp(
            f"{self.step} would be unrolled to more than {UNROLLED_NODES} nodes ({what}), which is "
            "not built; use a smaller trip count, or a fallback, which runs it as a loop"
        )

    def iteration(
        self, number: int, inputs: Sequence[str]
    ) -> tuple[list[ImportStep], tuple[str, ...]]:
        """The steps of one iteration, and the names of its results."""
        self.context.unrolled += 1 + len(self.body.nodes)
        if self.context.unrolled > UNROLLED_NODES:
            self._refuse(f"at iteration {number}")
        return inlined(self.body, self.step, inputs, self.context, f".{number}")

    def finish(self, axes: Sequence[int], reverse: Sequence[bool]) -> list[ImportStep]:
        """Steps that give the final states and the stacked scan outputs the names of the node's
        outputs."""
        names = list(self.step.node.output)
        count = len(self.states)
        steps = copies(self.step, named_apart(names[:count], self.states[: len(names)]))
        for position, name in enumerate(names[count:]):
            if name:
                parts = self.scanned[position]
                parts = parts[::-1] if reverse[position] else parts
                steps += self._stacked(name, parts, axes[position], count + position)
        return steps

    def _stacked(self, name: str, parts: list[str], axis: int, position: int) -> list[ImportStep]:
        if not parts:
            self._add_empty(name, axis, position)
            return []
        axes = self.context.new_constant(f"{name}/axes", np.array([axis], np.int64))
        rows = [self.context.unique_tensor_name(f"{name}/{k}") for k in range(len(parts))]
        steps = [
            derived(self.step, "Unsqueeze", [part, axes], [row], f"row_{name}_{k}")
            for k, (part, row) in enumerate(zip(parts, rows, strict=True))
        ]
        return [*steps, derived(self.step, "Concat", rows, [name], f"stack_{name}", axis=axis)]

    def _add_empty(self, name: str, axis: int, position: int) -> None:
        """An empty scan output of a loop without iterations; its shape comes from the body's
        types."""
        extra = len(self.body.graph.output) - len(self.states) - len(self.scanned)
        tensor = self.body.graph.output[position + extra].type.tensor_type
        dims = tensor.shape.dim
        if not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in dims):
            raise UnsupportedOp(
                f"{self.step} has no iteration, and the shape of its output {name} is not known, "
                f"which is not built; state the shape in the body"
            )
        shape = [dim.dim_value for dim in dims]
        shape.insert(axis % (len(shape) + 1), 0)
        self.context.add_constant(name, np.zeros(shape, dtype_name(tensor.elem_type)))


_KNOWN_BY_SHAPE = ("Shape", "Size", "SequenceLength")
"""Operators whose results are known while their inputs are not."""


def _is_foreseen(
    body: onnx.GraphProto, states: Sequence[str], is_known: Callable[[str], bool]
) -> bool:
    """Whether the conditions that a loop's body gives can be known when the model is compiled.

    `states` are the tensors that the loop starts from, and `is_known` says of a tensor of the
    graphs around the body whether its contents are.
    """
    formal = [info.name for info in body.input]
    inside = set(formal).union(tensor.name for tensor in body.initializer)
    inside.update(name for node in body.node for name in node.output)
    unknown = {f for f, state in zip(formal[2:], states, strict=False) if not is_known(state)}
    while True:
        found = set(unknown)
        for node in body.node:
            reads = () if node.op_type in _KNOWN_BY_SHAPE else names_read(node)
            if any(n in found if n in inside else not is_known(n) for n in reads):
                found.update(node.output)
        after = [info.name for info in body.output[1:]]
        found.update(f for f, name in zip(formal[2:], after, strict=False) if name in found)
        if found == unknown:
            return body.output[0].name not in unknown
        unknown = found


_UNROLLED = "it is unrolled"


def _as_region(step: ImportStep, context: ImportContext) -> Sequence[Item] | str:
    """Add a loop as a control region, if it is not certain that it can be unrolled; returns the
    steps behind it, or as text why it was not added."""
    graph = step.attribute("body")
    if not isinstance(graph, onnx.GraphProto) or len(graph.input) < 2 or not graph.output:
        return _UNROLLED
    known = _contents_in(graph, context.constant)
    trips, condition = (context.constant(n) if n else None for n in (step.input(0), step.input(1)))
    states = tuple(step.node.input[2:])
    if (condition is not None and not condition.all()) or len(graph.output) <= len(states):
        return _UNROLLED
    is_decided = (trips is None and step.input(0)) or (condition is None and step.input(1))

    def is_known(name: str) -> bool:
        return context.folding.is_constant(name) or name in context.sequences

    if not is_decided and _is_foreseen(graph, states, is_known):
        nodes = _trips(step.node, graph, context.constant, known) * nodes_unrolled(graph, known)
        if context.unrolled + nodes <= UNROLLED_NODES:
            return _UNROLLED
    most = None if trips is None else max(0, int(only_element(step, trips, "its trip count", "iu")))
    size = _size_in(step.input(0), context)
    if size:
        most = max(0, context.sizes[size].hi)
    is_certain = (condition is not None or not step.input(1)) and _runs_all_trips(graph, known)
    is_certain = is_certain and not (size and context.sizes[size].lo < 0)
    given, refusal = with_size_data(step, context), _UNROLLED
    for tensors in (True, False):
        made = with_rows(given, context, tensors)
        body, states = made.step.attribute("body"), tuple(made.step.node.input[2:])
        form = LoopSpec(
            size or step.input(0),
            step.input(1) if condition is None else "",
            _bounded(body, states, most, known, context),
            is_certain,
            True,
            states,
            (),
            tuple(Scanned(name) for name in _scan_outputs(made.step, len(states), body)),
            size,
        )
        mark = context.mark()
        try:
            refusal = refused_as_region(made.step, form, context)
        except ExtentsLost:
            if not made.behind:
                raise
        else:
            if not refusal:
                return _behind(made, context)
        if not made.behind:
            break
        context.undo(mark)  # the tensors themselves may be handed on
    return refusal


def _behind(made: RowsMade, context: ImportContext) -> Sequence[Item]:
    """Record the sequences that a loop makes as rows; returns the steps behind it."""
    for name, box in made.boxes.items():
        context.boxes[name] = box
        context.graph.removed[name] = Removed("a sequence of which a run decides the length", box)
    return made.behind


def _bounded(
    body: onnx.GraphProto,
    states: Sequence[str],
    most: int | None,
    known: Known,
    context: ImportContext,
) -> int | None:
    """The most iterations of a loop, by its trip count and by the counters in its conditions."""

    def most_of(name: str) -> int | None:
        size = _size_in(name, context)
        return context.sizes[size].hi if size else None

    counted = most_iterations(body, states, known, context.constant, most_of)
    limits = [limit for limit in (most, counted) if limit is not None and limit < BOUNDLESS]
    return min(limits, default=None)


def _scan_outputs(step: ImportStep, states: int, body: onnx.GraphProto) -> list[str]:
    """The names of a loop's outputs that are made of rows; empty ones for those that it lacks."""
    names = list(step.node.output[states:])
    return names + [""] * (len(body.output) - 1 - states - len(names))


def _size_in(name: str, context: ImportContext) -> str:
    """The tensor that holds the only element of a sized value; empty if `name` is no such value."""
    value = context.sized_values.get(name)
    if value is None or value.array.size != 1 or value.array.dtype != np.int64:
        return ""
    return value.sizes[0] if value.divisor == 1 else ""


def refused_as_region(step: ImportStep, form: LoopSpec, context: ImportContext) -> str:
    """Add a loop as a control region; returns the reason where that is refused, else nothing.

    Raises ExtentsLost with the reason where a size says how often it iterates, so that it cannot be
    unrolled.
    """
    try:
        add_loop_region(step, form, context)
    except ValuesNeeded:
        raise
    except UnsupportedOp as error:
        if form.size:
            raise ExtentsLost(str(error)) from error
        return str(error)
    return ""


def expand_loop(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """The steps of all iterations, or none if the loop became a control region.

    Where that is refused, the number of iterations must be known when the model is compiled.
    """
    refusal = _as_region(step, context)
    if not isinstance(refusal, str):
        return refusal

    def deciding(name: str, role: str, kinds: str) -> int:
        return _deciding(step, name, role, context, kinds, refusal)

    trips = deciding(step.input(0), "its trip count", "iu") if step.input(0) else None
    goes_on = bool(deciding(step.input(1), "its condition", "b")) if step.input(1) else True
    body = body_of(step, "body", context)
    states = tuple(step.node.input[2:])
    outputs = len(body.graph.output) - 1 - len(states)
    if outputs < 0:
        raise InvalidModel(f"{step}: its body returns fewer tensors than the loop carries")
    known = _contents_in(body.graph, context.constant)
    certain = _trips(step.node, body.graph, context.constant, known) if goes_on else 0
    loop = Unrolled(step, body, context, states, [[] for _ in range(outputs)], certain)
    true = context.new_constant(f"{step.name}/true", np.array(True))

    def following(number: int) -> Sequence[Item]:
        if trips is not None and number >= trips:
            return loop.finish([0] * outputs, [False] * outputs)
        index = context.new_constant(f"{step.name}/iteration", np.array(number, np.int64))
        steps, results = loop.iteration(number, (index, true, *loop.states))
        loop.states = results[1 : 1 + len(states)]
        for rows, row in zip(loop.scanned, results[1 + len(states) :], strict=True):
            rows.append(row)
        last = trips is not None and number + 1 >= trips
        reads = () if last else (results[0],)
        return [*steps, After(step, reads, step.outputs, lambda: decided(number + 1, results[0]))]

    def decided(number: int, condition: str) -> Sequence[Item]:
        if trips is not None and number >= trips:
            return following(number)
        role = f"its condition after iteration {number - 1}"
        if deciding(condition, role, "b"):
            return following(number)
        return loop.finish([0] * outputs, [False] * outputs)

    first = following(0) if goes_on else loop.finish([0] * outputs, [False] * outputs)
    return [*body.steps, *first]


def _deciding(
    step: ImportStep, name: str, role: str, context: ImportContext, kinds: str, refusal: str
) -> int:
    """The contents of a tensor that decides how a loop is unrolled; `refusal` is why a run does not
    decide that."""
    if name in context.sized_values:
        raise ExtentsLost(
            f"{step}: {role} ({name}) has elements that are only known at run time, and its "
            "iterations are unrolled; cut the model before this node"
        )
    array = context.constant(name)
    if array is not None:
        return int(only_element(step, array, role, kinds))
    error = contents_missing(context.graph, context.known, name, f"{step}: {role} ({name})")
    if refusal == _UNROLLED or isinstance(error, ValuesNeeded):
        raise error
    raise UnsupportedOp(f"{error}. A run cannot decide it either: {refusal}") from error
