"""The operator graph: kernels as nodes, tensors as values.

In: values, nodes, initializers.  Out: producers, consumers, and a deterministic topological order.
What always holds between edits: each value has at most one producer, a node's inputs and outputs
are in the order of its PrimFunc's buffers, and nothing depends on the iteration order of a set.
`validate` checks the rest (shapes, dtypes, cycles, dangling names).  networkx keeps the edges, and
is not visible outside this module.  The topological order is cached until the next edit; nothing
recurses, since networks are deep.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from copy import copy
from heapq import heapify, heappop, heappush

import networkx as nx
from msgspec import Struct

from graphflow.base.errors import InvalidModel, ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.base.scalar_limits import ScalarLimits
from graphflow.base.sizes import Relation
from graphflow.foreign import ObjectSpec, Section
from graphflow.graph.control_regions import ControlRegion
from graphflow.graph.hidden import (
    DerivedSize,
    OutputTrim,
    PackedResult,
    SizeInput,
    ValueGuard,
)
from graphflow.graph.value import Array, Value, require_rank
from graphflow.kernels.recipes import FoundSchedule
from graphflow.schedule import Schedule, is_marked, require_sound
from graphflow.tir import Buffer, PrimFunc


class Node(Struct, frozen=True):
    """One call of a kernel; `inputs[k]` is bound to `func.inputs[k]`, and outputs likewise."""

    name: str
    op: str
    """The operator's name, for messages and reports; nothing may decide by it."""
    func: PrimFunc
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    origins: tuple[str, ...] = ()
    """The names of the ONNX nodes whose work this node does, in order."""
    inner: tuple[tuple[str, str], ...] = ()
    """The tensors inside a fused kernel: (value name, buffer name in `func`)."""
    offered: tuple[PrimFunc, ...] = ()
    """Kernels scheduled by a user that compute the same as `func`; each is a variant of the
    node.
    """
    only_offered: bool = False
    """Whether the offered kernels are the only variants."""
    found: tuple[FoundSchedule, ...] = ()
    """What a search found, for those of the offered kernels that are from one."""

    @property
    def bound(self) -> dict[str, str]:
        """The value that is bound to each input of the kernel, by the buffer's name."""
        return dict(zip((b.name for b in self.func.inputs), self.inputs, strict=True))

    @property
    def by_user(self) -> bool:
        """Whether a user scheduled the kernel; such a node is neither fused nor changed."""
        return len(self.offered) > len(self.found) or is_marked(self.func)

    @property
    def has_definition(self) -> bool:
        """Whether another definition may take the place of the kernel: it is one of one output."""
        return not self.by_user and self.func.callee is None and len(self.outputs) == 1


class Removed(Struct, frozen=True):
    """Why a tensor of the ONNX graph has no value any more, and which value equals it, if any."""

    reason: str
    alias_of: str | None = None


class OperatorGraph:
    """Nodes and values, with edits; see the module's docstring for what holds between edits.

    - inputs: the names of the graph inputs, in order.
    - results: the names of the model's own outputs, in order.
    - packed: outputs of the model that are sequences or optionals, of which `results` has the
      tensors.
    - guards, trims: what each run checks in integer tensors, and to what extent it cuts outputs.
    - scalar_limits: what each run checks of the graph inputs that give scalars of kernels.
    - sizes: extents of inputs that a run decides; relations: what holds between them in each run.
    - derived: sizes that a run computes from those before its first node, each from earlier ones.
    - counted: for axes of values the integer tensor
      that holds how many elements a run gives there, of as many as there is room for.
    - initializers: tensors with known contents (for graph inputs: the default), by name.
    - removed: what became of tensors of the ONNX graph that have no value any more.
    - integer_products: by tensors that are products of dequantized ones, why they are sums of
      floats; empty for those that are sums of integers.
    - rounded_products: by tensors that are products of rows which may be rounded to bytes, why
      they are sums of floats; empty for those of rounded rows.
    - unseparated_products: by tensors that are sums of products of bytes, why zero points stay in
      their sums, so that no instruction for products of bytes computes them.
    - unrounded: the type of 16 bits that a value would be rounded to, did the options not allow
      excess precision.

    A replaced node keeps its position in the order.
    """

    def __init__(self) -> None:
        self.inputs: tuple[str, ...] = ()
        self.results: tuple[str, ...] = ()
        self.packed: tuple[PackedResult, ...] = ()
        self.guards: tuple[ValueGuard, ...] = ()
        self.trims: tuple[OutputTrim, ...] = ()
        self.scalar_limits: tuple[ScalarLimits, ...] = ()
        self.sizes: tuple[SizeInput, ...] = ()
        self.relations: tuple[Relation, ...] = ()
        self.derived: tuple[DerivedSize, ...] = ()
        self.counted: Mapping[Value, Mapping[int, str]] = {}
        self.initializers: dict[str, Array] = {}
        self.removed: dict[str, Removed] = {}
        self.integer_products: dict[str, str] = {}
        self.rounded_products: dict[str, str] = {}
        self.unseparated_products: dict[str, str] = {}
        self.unrounded: dict[str, str] = {}
        self.sections: dict[str, Section] = {}
        """The foreign section that a node with a `callee` runs, by that callee."""
        self.regions: dict[str, ControlRegion[OperatorGraph]] = {}
        """The control region that a node with a `callee` stands for, by that callee."""
        self.objects_in: tuple[ObjectSpec, ...] = ()
        """Inputs of the model that are no tensors; only foreign sections read them."""
        self.objects_out: tuple[ObjectSpec, ...] = ()
        """Outputs of the model that are no tensors; only foreign sections make them."""
        self._values: dict[str, Value] = {}
        self._nodes: dict[str, Node] = {}
        self._order: dict[str, int] = {}
        self._next = 0
        self._graph = nx.MultiDiGraph()
        self._constants: frozenset[str] | None = None
        self._sorted: tuple[Node, ...] | None = None
        self._counting: tuple[object, frozenset[str]] = (None, frozenset())

    def copy(self) -> OperatorGraph:
        """An independent graph with the same nodes and values; the arrays of initializers are
        shared.
        """
        other = copy(self)
        for name, part in vars(self).items():
            if isinstance(part, dict | nx.MultiDiGraph):
                setattr(other, name, part.copy())
        return other

    @property
    def outputs(self) -> tuple[str, ...]:
        """The model's own outputs (`results`), then the tensors that guards and trims read, but for
        sizes, which are known before a run."""
        held = self.size_tensors
        cut = (trim.extents for trim in self.trims if trim.extents not in held)
        read = (*cut, *(guard.value for guard in self.guards))
        return tuple(dict.fromkeys((*self.results, *read))) if read else self.results

    @property
    def size_tensors(self) -> frozenset[str]:
        """The graph inputs that hold sizes."""
        given, derived = (one.tensor for one in self.sizes), (one.tensor for one in self.derived)
        return frozenset((*given, *derived))

    @property
    def counting(self) -> frozenset[str]:
        """The values that count elements of others, which runs read besides nodes."""
        known, names = self._counting
        if known is not self.counted:
            names = frozenset(n for counts in self.counted.values() for n in counts.values())
            self._counting = self.counted, names
        return names

    @property
    def values(self) -> Mapping[str, Value]:
        """All values by name, in the order in which they were added."""
        return self._values

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in topological order."""
        return self.topological()

    def node(self, name: str) -> Node:
        """The node called `name`; raises KeyError if there is none."""
        return self._nodes[name]

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_name: object) -> bool:
        return node_name in self._nodes

    def producer(self, value: str) -> Node | None:
        """The node that writes `value`; None for inputs and initializers."""
        for _, name in self._graph.predecessors(("value", value)):
            return self._nodes[name]
        return None

    def resolved(self, name: str) -> str | None:
        """The value that now holds the contents of the ONNX tensor `name`, None if none does."""
        target: str | None = name
        while target is not None and target not in self._values:
            removed = self.removed.get(target)
            target = None if removed is None else removed.alias_of
        return target

    def consumers(self, value: str) -> tuple[tuple[Node, int], ...]:
        """(node, input position) of each use of `value`, in the order of the nodes."""
        uses = [(name, pos) for _, (_, name), pos in self._graph.out_edges(("value", value), "pos")]
        uses.sort(key=lambda use: (self._order[use[0]], use[1]))
        return tuple((self._nodes[name], position) for name, position in uses)

    def topological(self) -> tuple[Node, ...]:
        """The nodes in topological order; of those that are ready, the one added first comes
        first.
        """
        if self._sorted is None:
            self._sorted = self._topological()
        return self._sorted

    def _topological(self) -> tuple[Node, ...]:
        readers: dict[str, list[str]] = {}
        for node in self._nodes.values():
            for value in dict.fromkeys(node.inputs):
                readers.setdefault(value, []).append(node.name)
        made = {value for node in self._nodes.values() for value in node.outputs}
        missing = {node.name: len(made & set(node.inputs)) for node in self._nodes.values()}
        # Nodes that replaced one node share its position: among them, the order of adding decides.
        rank = {name: (self._order[name], added) for added, name in enumerate(self._nodes)}
        ready = [(rank[name], name) for name, count in missing.items() if not count]
        heapify(ready)
        order: list[Node] = []
        while ready:
            node = self._nodes[heappop(ready)[1]]
            order.append(node)
            for value in node.outputs:
                for name in readers.get(value, ()):
                    missing[name] -= 1
                    if not missing[name]:
                        heappush(ready, (rank[name], name))
        if len(order) < len(self._nodes):
            cycle = [name for (kind, name), *_ in nx.find_cycle(self._graph) if kind == "node"]
            raise InvalidModel(
                f"the graph has a cycle through nodes {', '.join(cycle)}; ONNX graphs are acyclic"
            )
        return tuple(order)

    def may_rewrite(self, node: Node) -> bool:
        """Whether each run computes a node, by a definition that another one may replace."""
        return node.has_definition and not self.is_constant(node.outputs[0])

    def is_constant(self, value: str) -> bool:
        """Whether `value` depends on initializers only.

        A graph input is not constant, even if an initializer gives its default; nor is the output
        of a foreign section, which may differ from run to run.
        """
        if self._constants is None:
            known = self.initializers.keys() - set(self.inputs)
            for node in self.topological():
                if node.func.callee is None and all(name in known for name in node.inputs):
                    known.update(node.outputs)
            self._constants = frozenset(known)
        return value in self._constants

    def add_value(self, value: Value) -> None:
        """Add a tensor; raises VerifyError if there is a different one of the same name, and
        `UnsupportedOp` if it has too many axes."""
        require_rank(len(value.shape), f"tensor {value.name}")
        known = self._values.setdefault(value.name, value)
        if known != value:
            raise VerifyError(f"value {value.name} is added twice, as {known} and as {value}")
        self._graph.add_node(("value", value.name))

    def add_initializer(self, name: str, array: Array) -> None:
        """Add a tensor with known contents; for a graph input these are the default."""
        self.add_value(Value(name, array.dtype.name, array.shape))
        self.initializers[name] = array
        self._constants = None

    def free_name(self, wanted: str, taken: Container[str] = ()) -> str:
        """`wanted`, or `wanted_2` and so on where a value or a node has that name or it is
        `taken`.
        """
        name, number = wanted, 1
        while name in self._values or name in self._nodes or name in taken:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def add_input(self, name: str, dtype: str, shape: tuple[int, ...]) -> str:
        """Add a graph input behind those that there are; returns its name."""
        self.add_value(Value(name, dtype, shape))
        self.set_inputs((*self.inputs, name))
        return name

    def set_inputs(self, names: Iterable[str]) -> None:
        """Set the names of the graph inputs, in order."""
        self.inputs = tuple(names)
        self._constants = None

    def set_outputs(self, names: Iterable[str]) -> None:
        """Set the names of the model's own outputs, in order."""
        self.results = tuple(names)

    def add_guard(self, value: str, lo: int, hi: int, subject: str) -> None:
        """Make each run check that every element of an integer tensor is from `lo` to `hi`.

        Otherwise the run raises a RunError that begins with `subject`; see `ValueGuard`.  Raises
        VerifyError where the guard does not fit the tensor.
        """
        guard = ValueGuard(value, lo, hi, subject)
        guard.check(self._values)
        self.guards = (*self.guards, guard)

    def trim_output(self, output: str, axis: int, extents: str, element: int = 0) -> None:
        """Make each run cut an output along `axis` to the extent in element `element` of `extents`.

        `extents` is an integer tensor; see `OutputTrim`.
        """
        self.trims = (*self.trims, OutputTrim(output, axis, extents, element))

    def count_like(self, value: Value, other: str, axes: Mapping[int, int] | None = None) -> None:
        """Note that a run gives as many elements of `value` as of the value `other`: along `axes`,
        each with that axis of `other` (None: along all of the same number)."""
        counts = self.counted.get(self._values[other], {})
        if axes is not None:
            counts = {axis: counts[of] for axis, of in axes.items() if of in counts}
        if counts:
            self.counted = {**self.counted, value: counts}

    def remove_value(self, name: str) -> None:
        """Remove a value without a producer and without uses, and its initializer.

        Raises VerifyError where a node still writes or reads it, or elements of another value are
        counted by it, behind which anything stands.
        """
        if name in self.counting:
            counted = (value.name for value, of in self.counted.items() if name in of.values())
            if other := next((one for one in counted if one in self._values), None):
                raise VerifyError(f"value {name} counts elements of {other} and cannot be removed")
        if self._graph.degree(("value", name)):
            raise VerifyError(f"value {name} is still used and cannot be removed")
        self._graph.remove_node(("value", name))
        del self._values[name]
        self.initializers.pop(name, None)
        if self._constants is not None:
            self._constants -= {name}

    def add(self, node: Node) -> None:
        """Add a node behind all others; its outputs become values, its inputs must be values
        already.

        Raises VerifyError where names do not fit, and where a kernel of the node is not well
        formed, has a parallel or vectorized loop whose iterations are not proven independent, or
        has an assumption that cannot hold.
        """
        self._insert(node, self._next)
        self._next += 1

    def remove(self, name: str) -> Node:
        """Remove a node and return it; its values stay, without a producer."""
        node = self._nodes.pop(name)
        self._graph.remove_node(("node", name))
        self._sorted = None
        if self._constants is not None and not self._constants.isdisjoint(node.outputs):
            self._constants = None
        del self._order[name]
        return node

    def replace(self, name: str, *nodes: Node) -> None:
        """Replace the node `name` by `nodes`, at its position in the order."""
        place = self._order[name]
        self.remove(name)
        for node in nodes:
            self._insert(node, place)

    def redirect(self, old: str, new: str) -> None:
        """Make each node that reads the value `old` read `new` instead, which then counts what
        `old` did."""
        for name in dict.fromkeys(node.name for node, _ in self.consumers(old)):
            node = self.node(name)
            inputs = tuple(new if value == old else value for value in node.inputs)
            self.replace(name, replace(node, inputs=inputs))
        if old in self.counting:
            self.counted = {
                value: {axis: new if count == old else count for axis, count in counts.items()}
                for value, counts in self.counted.items()
            }

    def offer(self, name: str, *schedules: Schedule, only: bool = False) -> None:
        """Offer schedules of a node's kernel as variants, besides those that recipes make.

        Stages marked `preproc` and `postproc` are lifted out of them, so that planning may cancel
        them against those of neighbours.  With `only`, one of the offered variants is taken.  A
        node with offers is not fused.  Raises ScheduleError where a schedule is not one of the
        node's kernel.
        """
        node = self._nodes[name]
        for schedule in schedules:
            if schedule.definition != node.func:
                raise ScheduleError(
                    f"the schedule offered to {name} is one of {schedule.definition.name}, and the "
                    f"node has another kernel; begin with Schedule.of(graph.node({name!r}).func)"
                )
            if schedule.func.params != node.func.params:
                raise ScheduleError(
                    f"the schedule of {node.func.name} that is offered to {name} changes the "
                    "parameters; cache them (cache_read, cache_write) and transform the caches"
                )
        kernels = (*node.offered, *(schedule.func for schedule in schedules))
        distinct = tuple(dict.fromkeys(kernels))
        self.replace(name, replace(node, offered=distinct, only_offered=only or node.only_offered))

    def _insert(self, node: Node, place: int) -> None:
        if node.name in self._nodes:
            raise VerifyError(f"node {node.name} is added twice; node names are unique")
        _check_binding(node)
        _check_kernels(node)
        for name in node.inputs:
            if name not in self._values:
                raise VerifyError(f"node {node.name} reads {name}, which is not a value yet")
        for buffer, name in zip(node.func.outputs, node.outputs, strict=True):
            if name in self._values and self._graph.in_degree(("value", name)):
                raise VerifyError(f"node {node.name} writes {name}, which has a producer already")
            self.add_value(Value(name, buffer.dtype, buffer.shape))
        vertex = ("node", node.name)
        self._nodes[node.name] = node
        self._order[node.name] = place
        self._graph.add_node(vertex)
        for position, name in enumerate(node.inputs):
            self._graph.add_edge(("value", name), vertex, pos=position)
        for position, name in enumerate(node.outputs):
            self._graph.add_edge(vertex, ("value", name), pos=position)
        self._sorted = None
        self._note_constants(node)

    def _note_constants(self, node: Node) -> None:
        """Update the known constants for a new node, or drop them where other nodes may follow from
        it.
        """
        if node.func.callee is not None or self._constants is None:
            return
        if self._constants.issuperset(node.inputs):
            read = any(self._graph.out_degree(("value", name)) for name in node.outputs)
            self._constants = None if read else self._constants | set(node.outputs)

    def validate(self) -> None:
        """Raise VerifyError or InvalidModel where names, shapes, dtypes or the order do not fit.

        Kernels are checked as `add` does.  That accesses stay in bounds is proven when kernels are
        lowered.
        """
        for node in self.topological():
            _check_kernels(node)
            for buffer, name in zip(node.func.inputs, node.inputs, strict=True):
                _check_fit(node, buffer, self._values[name])
            for buffer, name in zip(node.func.outputs, node.outputs, strict=True):
                _check_fit(node, buffer, self._values[name])
        for name, array in self.initializers.items():
            value = self._values[name]
            if (array.dtype.name, array.shape) != (value.dtype, value.shape):
                raise VerifyError(f"initializer {name} is {array.dtype}{array.shape}, not {value}")
        given = frozenset(self.inputs)
        for name in self._values:
            self._check_source(name, given)
        missing = [name for name in (*self.inputs, *self.outputs) if name not in self._values]
        if missing:
            raise VerifyError(f"no kernel makes the graph outputs {', '.join(missing)}")
        for guard in self.guards:
            guard.check(self._values)
        for trim in self.trims:
            trim.check(self._values, self.results)

    def _check_source(self, name: str, given: Collection[str]) -> None:
        made = self._graph.in_degree(("value", name)) > 0
        external = name in given or name in self.initializers
        if made and external:
            raise VerifyError(
                f"value {name} is produced by a node and is an input or initializer too"
            )
        if not made and not external:
            raise VerifyError(f"value {name} has no producer and is no input or initializer")


def _check_binding(node: Node) -> None:
    wanted = (len(node.func.inputs), len(node.func.outputs))
    if wanted != (len(node.inputs), len(node.outputs)):
        raise VerifyError(
            f"node {node.name}: kernel {node.func.name} has {wanted[0]} inputs and {wanted[1]} "
            f"outputs, the node binds {len(node.inputs)} and {len(node.outputs)}"
        )


def _check_kernels(node: Node) -> None:
    """Check the kernels of a node for soundness, on which every later stage relies."""
    require_sound(node.func)
    for kernel in node.offered:
        if kernel.params != node.func.params:
            raise VerifyError(
                f"node {node.name}: an offered kernel has other parameters than {node.func.name}"
            )
        require_sound(kernel)


def _check_fit(node: Node, buffer: Buffer, value: Value) -> None:
    if (buffer.shape, buffer.dtype) != (value.shape, value.dtype):
        raise VerifyError(
            f"node {node.name}: buffer {buffer.name} of kernel {node.func.name} is "
            f"{buffer.dtype}{buffer.shape}, the value {value.name} is {value.dtype}{value.shape}"
        )
