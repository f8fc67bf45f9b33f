"""Bodies of branches and loops as graphs of their own, and the control region that executes them.

In: a node with bodies of which a run decides whether and how often they execute.  Out: for each
body a graph, whose inputs are the tensors that it reads of the graph around it; and a node of that
graph which stands for a `ControlRegion`.  What always holds: a body is executed only where ONNX
executes it, so whatever fails in it fails only then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import onnx

from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import UnsupportedOp, ValuesNeeded
from graphflow.base.fields import replace
from graphflow.frontends.control_flow.bodies import body_of, copies, inlined
from graphflow.frontends.control_flow.body_sizes import (
    Sources,
    give_sizes,
    share_sizes,
    size_around,
)
from graphflow.frontends.protos.steps import (
    ImportStep,
    names_read_inside,
)
from graphflow.frontends.tensors.called import called_kernel
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import Counts
from graphflow.frontends.tensors.sized_data import give_size_data
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
from graphflow.kernels.definitions.data_dependent.control_steps import computed_size
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.tir import PrimFunc

MOST_KNOWN = 64
"""The most elements of a constant of the graph around a body that are evaluated for it: shapes may
depend on these."""


@dataclass(slots=True)
class RegionBody:
    """A body as a graph of its own: the tensors in it that are its results, and for each of its
    inputs the tensor of the graph around it, None for the inputs of the body itself."""

    step: ImportStep
    context: ImportContext
    results: tuple[str, ...]
    sources: Sources = field(default_factory=dict)
    given: tuple[str, ...] = ()
    """Its tensors, numbers and constants that are the body's own inputs."""

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

    def sizes_of(self, position: int, around: ImportContext, but: Collection[int] = ()) -> Counts:
        """The counts of the result at a position along axes `but` some, as tensors of the graph
        around the body.

        Raises `UnsupportedOp` for one that the body computes from data, which may be another one
        in each iteration.
        """
        found: Counts = {}
        for axis, count in self.context.counted.get(self.results[position], {}).items():
            if axis in but:
                continue
            outer = size_around(count, around, self.graph, self.sources)
            if outer is None:
                raise UnsupportedOp(
                    f"{self.step}: its body gives a tensor whose shape is only known at run time"
                )
            found[axis] = outer
        return found

    def copied(self, source: str, wanted: str) -> str:
        """A copy of a tensor of the body, which may become a result; returns its name."""
        name = self.context.unique_tensor_name(wanted)
        self.run(copies(self.step, {name: source}))
        if name in self.context.sized_values:
            give_size_data(self.context, name)
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


def region_body(
    step: ImportStep,
    attribute: str,
    context: ImportContext,
    formals: Callable[[ImportContext], Sequence[str]],
) -> RegionBody:
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
        is_body=True,
        counts_lost=context.counts_lost,
        import_steps=context.import_steps,
    )
    sources: Sources = {}
    share_sizes(context, sub, sources)
    given = tuple(formals(sub))
    known = sources.keys() | {one.tensor for one in sub.graph.derived}
    sources.update(dict.fromkeys(name for name in sub.graph.inputs if name not in known))
    if isinstance(graph, onnx.GraphProto):
        for name in names_read_inside(graph):
            _capture(step, name, context, sub, sources)
    body = body_of(inner, attribute, sub)
    steps, names = inlined(body, inner, given, sub)
    found = RegionBody(inner, sub, (), sources, given)
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
    sources: Sources,
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
    elif name in context.boxes:
        sub.boxes[name] = context.boxes[name]
        _capture(step, context.boxes[name], context, sub, sources)
    elif name in context.optionals:
        held = sub.optionals[name] = context.optionals[name]
        if held is not None:
            _capture(step, held, context, sub, sources)
    elif name in context.sized_values:
        sub.add_sized(name, context.sized_values[name])
    elif value is None:
        raise UnsupportedOp(f"{step}: its body reads {name}, which is no tensor")
    else:
        sub.graph.add_input(name, value.dtype, value.shape)
        sources[name] = name
        counts = context.counted.get(name, {})
        for count in counts.values():
            _capture(step, count, context, sub, sources)
        if counts:
            sub.counted[name] = dict(counts)


@dataclass(slots=True)
class RegionBuilder:
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
        self,
        func: PrimFunc,
        inputs: Sequence[str],
        output: str,
        jump: RegionJump | None = None,
    ) -> None:
        """Add a kernel as a part."""
        self.parts.append(RegionPart(func, tuple(inputs), (output,), jump))

    def hand_on(self, made: str, kept: str, value: Value, counted: Mapping[int, str]) -> None:
        """Copy what a body made to the room `kept`, from which it is read in the next iteration;
        `counted` are the region's names of its sizes."""
        room = self.writes[kept].shape
        func, is_alike = placed(value, room), value.shape == room
        self.parts.append(RegionPart(func, (made,), (kept,), None, counted, is_alike))

    def let_jump(self, number: int, jump: RegionJump) -> None:
        """Have a jump follow a kernel that was added."""
        self.parts[number] = replace(self.parts[number], jump=jump)

    def body(
        self, body: RegionBody, own: Sequence[str], outputs: Sequence[str]
    ) -> Mapping[str, str]:
        """Add a body as a part, behind kernels that compute sizes which it has in each execution;
        `own` are the region's names of the body's own inputs.

        Returns the region's names of all tensors that the body is given.
        """
        graph, given = body.graph, iter(own)
        graph.set_outputs(body.results)
        graph.guards = ()
        anew = give_sizes(self.context, body.context, body.sources, body.results)
        graph.validate()
        slots: dict[str, str] = {}
        for name in graph.inputs:
            if name in body.sources:
                source = body.sources[name]
                slots[name] = next(given) if source is None else self.read(source)
        for one in anew:
            slots[one.tensor] = self.hold("int64", ())
            operands = [slots[name] for name in one.operands]
            func = computed_size(one.formula, len(operands))
            self.kernel(func, operands, slots[one.tensor])
        inputs = tuple(slots[name] for name in graph.inputs)
        self.parts.append(RegionPart(graph, inputs, tuple(outputs)))
        return slots

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


def allowed_contents(guard: ValueGuard, value: Value) -> Array:
    """Contents of a tensor that satisfy a guard."""
    dtype = np.dtype(DTYPES[value.dtype])
    return np.full(value.shape, max(guard.lo, int(np.iinfo(dtype).min)), dtype)


def placed(value: Value, room: tuple[int, ...]) -> PrimFunc:
    """The kernel that copies a tensor to the beginning of a room, or as much of it as fits."""
    if value.shape == room:
        return movement.copy(room, value.dtype)
    behind = [have - need for have, need in zip(room, value.shape, strict=True)]
    return selection.pad(value.shape, [0] * len(room), behind, dtype=value.dtype)
