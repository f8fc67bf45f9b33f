"""Control regions: branches and loops of which a run decides whether and how often they execute.

In: an `If`, `Loop` or `Scan` node, and the tensors of the graph around it.  Out: a node of that
graph which stands for a `ControlRegion`; its bodies are graphs of their own, whose inputs are the
tensors that they read of the graph around them.  What always holds: a body is executed only where
ONNX executes it, so whatever fails in it fails only then.  A region that cannot be built is
refused, with the graph as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NoReturn

import numpy as np
import onnx

from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import UnsupportedOp, ValuesNeeded
from graphflow.frontends.control_flow.bodies import body_of, copies, inlined
from graphflow.frontends.protos.steps import (
    ImportStep,
    derived,
    existing_axis,
    names_read_inside,
    require_only_element,
)
from graphflow.frontends.tensors.called import called_kernel
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import MOST_ROOM, Counts
from graphflow.frontends.tensors.values import contents_missing
from graphflow.graph import (
    Array,
    ControlRegion,
    Node,
    OperatorGraph,
    RegionJump,
    RegionPart,
    Value,
    ValueGuard,
)
from graphflow.kernels.definitions.data_dependent import control_steps
from graphflow.kernels.definitions.movements import movement
from graphflow.tir import PrimFunc, Reduce, walk

CHEAP_ELEMENTS = 1 << 14
"""The most elements that both branches of an `If` may compute together for the one that is not
taken to cost less than it costs to divide the graph; and only without reductions."""

MOST_KNOWN = 64
"""The most elements of a constant of the graph around a body that are evaluated for it: shapes may
depend on these."""


@dataclass(slots=True)
class _Body:
    """A body as a graph of its own: the tensors in it that are its results, and for each of its
    inputs the tensor of the graph around it, None for the inputs of the body itself."""

    step: ImportStep
    context: ImportContext
    results: tuple[str, ...]
    sources: dict[str, str | None] = field(default_factory=dict)

    @property
    def graph(self) -> OperatorGraph:
        """The graph."""
        return self.context.graph

    def value(self, position: int) -> Value:
        """The result at a position, which has to be a tensor."""
        name = self.results[position]
        if name not in self.graph.values:
            raise UnsupportedOp(f"{self.step}: a body gives {name}, which is no tensor")
        return self.graph.values[name]

    def copied(self, source: str, wanted: str) -> str:
        """A copy of a tensor of the body, which may become a result; returns its name."""
        name = self.context.unique_tensor_name(wanted)
        self.run(copies(self.step, {name: source}))
        return name

    def constant(self, wanted: str, array: Array) -> str:
        """A constant that may become a result; returns its name."""
        return self.copied(self.context.new_constant(wanted, array), wanted)

    def add_result(self, name: str) -> None:
        """Add a tensor to the results."""
        self.results = (*self.results, name)

    def run(self, steps: Sequence[ImportStep]) -> None:
        """Import further steps of the body."""
        import_steps = self.context.import_steps
        assert import_steps is not None
        import_steps(self.context, steps)


def _body(
    step: ImportStep,
    attribute: str,
    context: ImportContext,
    formals: Callable[[ImportContext], Sequence[str]],
) -> _Body:
    """A body of a node; `formals` adds its own inputs to the graph and gives their names."""
    if context.import_steps is None:
        raise UnsupportedOp(f"{step}: a run decides, and only the nodes of a model are expanded")
    inner = replace(step, guard=None)
    graph = step.attribute(attribute)
    sub = ImportContext(
        OperatorGraph(),
        context.opset,
        {},
        set(),
        taken={*context.taken, *context.graph.values, *context.known},
        functions=context.functions,
        unrolled=context.unrolled,
        is_inferred=False,
        counts_lost=context.counts_lost,
        import_steps=context.import_steps,
    )
    given = tuple(formals(sub))
    sources: dict[str, str | None] = dict.fromkeys(sub.graph.inputs)
    if isinstance(graph, onnx.GraphProto):
        for name in names_read_inside(graph):
            _capture(step, name, context, sub, sources)
    body = body_of(inner, attribute, sub)
    steps, names = inlined(body, inner, given, sub)
    found = _Body(inner, sub, (), sources)
    try:
        found.run([*body.steps, *steps])
        for number, name in enumerate(names):
            found.add_result(found.copied(name, f"{step.name}/result{number}"))
    except ValuesNeeded as error:
        _ask_outside(error, context)
    context.unrolled = sub.unrolled
    return found


def _ask_outside(error: ValuesNeeded, context: ImportContext) -> NoReturn:
    """Ask for the inputs of the graph around a body on which an input of the body depends."""
    for name in error.inputs:
        if name not in context.graph.values:
            raise UnsupportedOp(str(error)) from error  # another one in each iteration
        if name not in context.graph.inputs:
            raise contents_missing(context.graph, context.known, name, str(error)) from error
    raise error


def _capture(
    step: ImportStep,
    name: str,
    context: ImportContext,
    sub: ImportContext,
    sources: dict[str, str | None],
) -> None:
    """Make a tensor of the graph around a body known in it, as a constant or an input."""
    if name in sub.known or name in sources:
        return
    value = context.graph.values.get(name)
    if value is not None and value.size <= MOST_KNOWN and context.folding.is_constant(name):
        context.constant(name)
    if name in context.known:
        sub.add_constant(name, context.known[name])
    elif name in context.sequences:
        sub.sequences[name] = context.sequences[name]
        for part in context.sequences[name].names:
            _capture(step, part, context, sub, sources)
    elif name in context.optionals:
        held = sub.optionals[name] = context.optionals[name]
        if held is not None:
            _capture(step, held, context, sub, sources)
    elif value is None or name in context.counted or name in context.sized_values:
        raise UnsupportedOp(
            f"{step}: its body reads {name}, whose shape is only known at run time, or which is no "
            "tensor"
        )
    else:
        sub.graph.add_input(name, value.dtype, value.shape)
        sources[name] = name


@dataclass(slots=True)
class _RegionBuilder:
    """A region under construction: its parts, and which tensors of the graph around it are its
    inputs and outputs."""

    step: ImportStep
    context: ImportContext
    reads: dict[str, str] = field(default_factory=dict)
    """The region's name of each tensor that it reads."""
    writes: dict[str, Value] = field(default_factory=dict)
    """The tensor of the graph around it for each output, by the region's name."""
    held: list[Value] = field(default_factory=list)
    parts: list[RegionPart[OperatorGraph]] = field(default_factory=list)
    counted: dict[str, Counts] = field(default_factory=dict)
    """The outputs with room for more elements than a run gives."""
    checked: list[ValueGuard] = field(default_factory=list)
    """What each run checks in outputs."""

    def read(self, name: str) -> str:
        """The region's name of a tensor that it reads."""
        return self.reads.setdefault(name, f"x{len(self.reads)}")

    def write(self, name: str, dtype: str, shape: tuple[int, ...]) -> str:
        """The region's name of a tensor that it makes; one without a name gets one."""
        wanted = name or self.context.unique_tensor_name(f"{self.step.name}/unused")
        slot = f"y{len(self.writes)}"
        self.writes[slot] = Value(wanted, dtype, shape)
        return slot

    def hold(self, dtype: str, shape: tuple[int, ...]) -> str:
        """A tensor of the region's own."""
        self.held.append(Value(f"t{len(self.held)}", dtype, shape))
        return self.held[-1].name

    def check(self, guard: ValueGuard, wanted: str, value: Value) -> str:
        """An output that a run checks as `guard` says; returns the region's name of it."""
        name = self.context.unique_tensor_name(wanted)
        self.checked.append(replace(guard, value=name))
        return self.write(name, value.dtype, value.shape)

    def kernel(
        self, func: PrimFunc, inputs: Sequence[str], output: str, jump: RegionJump | None = None
    ) -> None:
        """Add a kernel as a part."""
        self.parts.append(RegionPart(func, tuple(inputs), (output,), jump))

    def body(self, body: _Body, own: Sequence[str], outputs: Sequence[str]) -> None:
        """Add a body as a part; `own` are the region's names of the body's own inputs."""
        graph, given = body.graph, iter(own)
        graph.set_outputs(body.results)
        graph.guards = ()
        graph.validate()
        inputs = [next(given) if s is None else self.read(s) for s in body.sources.values()]
        self.parts.append(RegionPart(graph, tuple(inputs), tuple(outputs)))

    def add(self, decided: str) -> None:
        """Add the node that stands for the region."""
        graph, step = self.context.graph, self.step
        name = f"region{len(graph.regions)}"
        outputs = tuple(self.writes)
        graph.regions[name] = ControlRegion(
            name,
            f"{step}: {decided}",
            tuple(self.reads.values()),
            outputs,
            tuple(self.held),
            tuple(self.parts),
        )
        func = called_kernel(name, [graph.values[n] for n in self.reads], [*self.writes.values()])
        made = tuple(value.name for value in self.writes.values())
        node = self.context.unique_node_name(step.name)
        graph.add(Node(node, step.op, func, tuple(self.reads), made, (step.name,)))
        for guard in self.checked:
            graph.add_guard(guard.value, guard.lo, guard.hi, guard.subject)
        self.context.counted.update(self.counted)


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
    then, other = (_body(step, a, context, lambda _: ()) for a in ("then_branch", "else_branch"))
    names = list(step.node.output)
    if len(then.results) != len(names) or len(other.results) != len(names):
        return False  # an error, which the expansion reports
    if not may_fail and _are_cheap(then, other):
        return False
    found = [_in_one_box(then, other, k, context) for k in range(len(names))]
    if not boxes and any(box.counts for box in found):
        return False
    region = _RegionBuilder(step, context)
    condition = region.read(step.input(0))
    outputs = [region.write(n, box.dtype, box.shape) for n, box in zip(names, found, strict=True)]
    for name, box in zip(names, found, strict=True):
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
    region.kernel(decide, (condition,), flag, RegionJump(flag, False, 3))
    region.body(then, (), outputs)
    region.kernel(decide, (condition,), flag, RegionJump(flag, True, 4))
    region.body(other, (), outputs)
    region.add(f"a run executes one of its branches, as {step.input(0)} says")
    return True


def _are_cheap(*branches: _Body) -> bool:
    """Whether it costs little to compute both branches."""
    graphs = [branch.graph for branch in branches]
    if any(graph.guards or graph.regions for graph in graphs):
        return False
    nodes = [node for graph in graphs for node in graph.nodes]
    if any(isinstance(s, Reduce) for node in nodes for s in walk(node.func.body)):
        return False
    written = sum(prod(b.shape) for node in nodes for b in node.func.outputs)
    return written <= CHEAP_ELEMENTS


@dataclass(frozen=True, slots=True)
class _Box:
    """An output of a region: its element type, the room for it, and for each axis along which runs
    give fewer elements the results of both branches that count them."""

    dtype: str
    shape: tuple[int, ...]
    counts: Mapping[int, tuple[str, str]]


def _in_one_box(then: _Body, other: _Body, position: int, context: ImportContext) -> _Box:
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
    axes = [
        axis
        for axis, extents in enumerate(zip(values[0].shape, values[1].shape, strict=True))
        if extents[0] != extents[1] or any(axis in counts for counts in given)
    ]
    if not axes:
        return _Box(values[0].dtype, shape, {})
    if context.counts_lost:
        raise UnsupportedOp(context.counts_lost)
    if prod(shape) > MOST_ROOM or any(
        counts and value.shape != shape for counts, value in zip(given, values, strict=True)
    ):
        raise UnsupportedOp(f"{then.step}: output {position} has no room of constant size")
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
            _extend(body, position, value.shape, shape)
    return _Box(values[0].dtype, shape, counts)


def _as_number(body: _Body, count: str, wanted: str) -> str:
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


def _extend(body: _Body, position: int, shape: Sequence[int], room: Sequence[int]) -> None:
    """Replace a result by a larger tensor, which begins with it."""
    sub = body.context
    behind = [have - need for have, need in zip(room, shape, strict=True)]
    pads = sub.new_constant(f"{body.step.name}/pads", np.array([0] * len(shape) + behind))
    name = sub.unique_tensor_name(f"{body.results[position]}/box")
    body.run([derived(body.step, "Pad", [body.results[position], pads], [name], f"box{position}")])
    body.results = (*body.results[:position], name, *body.results[position + 1 :])


def _guarded(one: _Body, beside: _Body, region: _RegionBuilder) -> list[str]:
    """Outputs of the region that give what runs check in a branch; in the other one they are
    right."""
    outputs = []
    for number, guard in enumerate(one.graph.guards):
        value = one.graph.values[guard.value]
        wanted = f"{one.step.name}/checked{number}"
        one.add_result(one.copied(guard.value, wanted))
        beside.add_result(beside.constant(wanted, _allowed(guard, value)))
        outputs.append(region.check(guard, wanted, value))
    return outputs


def _allowed(guard: ValueGuard, value: Value) -> Array:
    """Contents of a tensor that satisfy a guard."""
    dtype = np.dtype(DTYPES[value.dtype])
    return np.full(value.shape, max(guard.lo, int(np.iinfo(dtype).min)), dtype)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A tensor of which each iteration takes or makes one row along `axis`, `reverse` ones from the
    end; `name` is empty for a result that nothing reads."""

    name: str
    axis: int = 0
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """A `Loop` or `Scan` in the same form.

    trips, condition: tensors, of one element each; empty if the node has none.
    most: the most iterations, None if nothing bounds them.
    all_trips: whether there are always so many.
    given: whether the body has the number of the iteration and the condition as its first inputs,
        and gives the next condition as its first result.
    """

    trips: str
    condition: str
    most: int | None
    all_trips: bool
    given: bool
    states: tuple[str, ...]
    taken: tuple[Scanned, ...]
    made: tuple[Scanned, ...]


def add_loop_region(step: ImportStep, form: LoopSpec, context: ImportContext) -> None:
    """Add a loop whose iterations are not unrolled.

    Raises `UnsupportedOp` where its body cannot be a graph of its own.
    """
    names = (form.trips, form.condition, *form.states, *(one.name for one in form.taken))
    if step.guard is not None or any(name in context.counted for name in names):
        raise UnsupportedOp(f"{step}: a run decides shapes of it, or whether it is executed at all")
    for name in filter(None, names):
        if name not in context.graph.values:
            raise UnsupportedOp(f"{step}: its input {name} is no tensor")
    body = _body(step, "body", context, lambda sub: _loop_inputs(step, form, context, sub))
    region = _RegionBuilder(step, context)
    first = int(form.given)
    states = [body.value(first + k) for k in range(len(form.states))]
    rows = [body.value(first + len(states) + k) for k in range(len(form.made))]
    for name, value in zip(form.states, states, strict=True):
        before = context.graph.values[name]
        if (before.dtype, before.shape) != (value.dtype, value.shape):
            raise UnsupportedOp(
                f"{step}: {name} is {before.dtype}{before.shape}, and {value.dtype}{value.shape} "
                "after an iteration, which is not built; carry tensors of one shape"
            )
    if any(name in body.context.counted for name in body.results):
        raise UnsupportedOp(
            f"{step}: its body gives a tensor whose shape is only known at run time"
        )
    made = [one for one in form.made if one.name]
    if made and form.most is None:
        raise UnsupportedOp(
            f"{step}: nothing bounds how many iterations it has, and each makes a row of "
            f"{made[0].name}, which is not built; give it a constant as its trip count"
        )
    if made and not form.all_trips and context.counts_lost:
        raise UnsupportedOp(context.counts_lost)
    if any(row.size * (form.most or 0) > MOST_ROOM for row in rows):
        raise UnsupportedOp(
            f"{step}: it makes tensors with room for more than {MOST_ROOM} elements"
        )
    ends = (
        replace(one, axis=existing_axis(step, one.axis, len(row.shape) + 1))
        for row, one in zip(rows, form.made, strict=True)
    )
    _add_loop_parts(replace(form, made=tuple(ends)), body, states, rows, region)


def _loop_inputs(
    step: ImportStep, form: LoopSpec, context: ImportContext, sub: ImportContext
) -> list[str]:
    """Add the inputs of a loop's body; the rows of what is scanned are made by kernels."""

    def added(wanted: str, dtype: str, shape: tuple[int, ...]) -> str:
        return sub.graph.add_input(sub.unique_tensor_name(wanted), dtype, shape)

    number = added(f"{step.name}/number", "int64", ())
    found = [number, sub.new_constant(f"{step.name}/true", np.array(True))] if form.given else []
    for name in form.states:
        value = context.graph.values[name]
        found.append(added(f"{step.name}/{name}", value.dtype, value.shape))
    for one in form.taken:
        value = context.graph.values[one.name]
        whole = added(f"{step.name}/{one.name}", value.dtype, value.shape)
        found.append(_row(step, whole, value, one, number, sub))
    return found


def _row(
    step: ImportStep, whole: str, value: Value, one: Scanned, number: str, sub: ImportContext
) -> str:
    """Add the kernel that takes a row of a scanned tensor."""
    row = sub.unique_tensor_name(f"{whole}/row")
    func = control_steps.take_row(value.shape, one.axis, one.reverse, value.dtype)
    node = sub.unique_node_name(f"{step.name}/{row}")
    sub.graph.add(Node(node, f"{step.op}.row", func, (whole, number), (row,), (step.name,)))
    return row


def _add_loop_parts(
    form: LoopSpec,
    body: _Body,
    states: Sequence[Value],
    rows: Sequence[Value],
    region: _RegionBuilder,
) -> None:
    """Add the parts of a loop: what comes before the first iteration, the body, and what follows
    each iteration."""
    step, values = body.step, region.context.graph.values
    names = list(step.node.output)
    names += [""] * (len(states) + len(rows) - len(names))
    carried = [region.write(n, v.dtype, v.shape) for n, v in zip(names, states, strict=False)]
    following = [region.hold(v.dtype, v.shape) for v in states]
    row_slots = [region.hold(v.dtype, v.shape) for v in rows]
    boxes = [
        region.write(name, value.dtype, _boxed(form, value, one))
        for name, value, one in zip(names[len(states) :], rows, form.made, strict=True)
    ]
    number = region.write(region.context.unique_tensor_name(f"{step.name}/trips"), "int64", ())
    if not form.all_trips:
        count = region.writes[number].name
        for name, one in zip(names[len(states) :], form.made, strict=True):
            if name:
                region.counted[name] = {one.axis: count}
    guards = [_guard_state(body, k, guard, region) for k, guard in enumerate(body.graph.guards)]
    first = [region.read(name) for name in (form.condition, form.trips) if name]
    trips = (values[form.trips].shape, values[form.trips].dtype) if form.trips else None
    condition = values[form.condition].shape if form.condition else None
    for name, slot, value in zip(form.states, carried, states, strict=True):
        region.kernel(movement.copy(value.shape, value.dtype), (region.read(name),), slot)
    for guard in guards:
        value = region.writes[guard.kept]
        region.kernel(movement.fill(value.shape, guard.allowed, value.dtype), (), guard.kept)
    region.kernel(movement.fill((), 0, "int64"), (), number)
    flag, begin = region.hold("bool", ()), len(region.parts) + 1
    moved = [*zip(following, carried, states, strict=True)]
    moved += [(guard.following, guard.kept, region.writes[guard.kept]) for guard in guards]
    end = begin + 1 + len(rows) + len(moved) + 2
    begins = control_steps.loop_begins(trips, condition)
    region.kernel(begins, first, flag, RegionJump(flag, False, end))
    wholes = [region.read(one.name) for one in form.taken]
    again = [region.hold("bool", body.value(0).shape)] if form.given else []
    kept = [guard.kept for guard in guards]
    outputs = (*again, *following, *row_slots, *(guard.following for guard in guards))
    region.body(body, (number, *carried, *wholes, *kept), outputs)
    for slot, box, row, one in zip(row_slots, boxes, rows, form.made, strict=True):
        extent = region.writes[box].shape[one.axis]
        func = control_steps.put_row(row.shape, extent, one.axis, one.reverse, row.dtype)
        region.kernel(func, (slot, number), box)
    for source, slot, value in moved:
        region.kernel(movement.copy(value.shape, value.dtype), (source,), slot)
    decides = again if not form.all_trips else []
    goes_on = control_steps.loop_goes_on(body.value(0).shape if decides else None, trips)
    region.kernel(goes_on, (*decides, number, *([region.read(form.trips)] if trips else [])), flag)
    region.kernel(control_steps.next_number(), (number,), number, RegionJump(flag, True, begin))
    assert len(region.parts) == end
    often = f"at most {form.most} times" if form.most is not None else "as long as it says"
    region.add(f"a run executes its body {often}")


@dataclass(frozen=True, slots=True)
class _GuardState:
    """What a guard of a loop's body checks, as a state: the first contents that violate it stay.

    kept, following: the region's names of it before and after an iteration; allowed: a number that
    satisfies the guard.
    """

    kept: str
    following: str
    allowed: int


def _guard_state(
    body: _Body, number: int, guard: ValueGuard, region: _RegionBuilder
) -> _GuardState:
    """Make what a guard checks a state of the loop, and an output of the region."""
    sub, step = body.context, body.step
    value = body.graph.values[guard.value]
    wanted = f"{step.name}/checked{number}"
    before = sub.graph.add_input(sub.unique_tensor_name(wanted), value.dtype, value.shape)
    body.sources[before] = None
    after = sub.unique_tensor_name(wanted)
    func = control_steps.kept_violation(value.shape, value.dtype, guard.lo, guard.hi)
    node = sub.unique_node_name(f"{wanted}/kept")
    operands = (before, guard.value)
    sub.graph.add(Node(node, f"{step.op}.check", func, operands, (after,), (step.name,)))
    body.add_result(after)
    allowed = 0 if guard.lo <= 0 <= guard.hi else int(_allowed(guard, value).reshape(-1)[0])
    following = region.hold(value.dtype, value.shape)
    return _GuardState(region.check(guard, wanted, value), following, allowed)


def _boxed(form: LoopSpec, row: Value, one: Scanned) -> tuple[int, ...]:
    """The shape of the tensor that is made of rows."""
    assert form.most is not None
    return (*row.shape[: one.axis], form.most, *row.shape[one.axis :])
