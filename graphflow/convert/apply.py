"""Applying a plan: storages for values, windows for views, calls for forms and conversions.

In: the grouped graph and its plan.  Out: a `PhysicalGraph`.  Nothing is decided here: forms,
layouts and conversions are the plan's.  Each pair of crop and pad that the plan cancels is checked
again before it is left out (`verify_plan`).
"""

from __future__ import annotations

import numpy as np

from graphflow.convert.physical import Call, PhysicalGraph, Placement, StorageSpec
from graphflow.convert.verify import verify_plan
from graphflow.errors import VerifyError
from graphflow.flow import Conversion, LayoutPlan, memory_key
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.conversion import conversion, fill_region
from graphflow.kernels.recipes import View
from graphflow.layout import LOGICAL, Constant, Layout, Undefined, row_major
from graphflow.tir import Literal


def apply_plan(graph: OperatorGraph, plan: LayoutPlan) -> PhysicalGraph:
    """The physical graph of a plan, verified.  VerifyError where the plan contradicts itself."""
    verify_plan(graph, plan)
    return _Builder(graph, plan).build()


class _Builder:
    """Storages and calls while they are collected; values are placed from the outputs backward."""

    def __init__(self, graph: OperatorGraph, plan: LayoutPlan) -> None:
        self.graph, self.plan = graph, plan
        self.storages: dict[str, StorageSpec] = {}
        self.values: dict[str, Placement] = {}
        self.copies: dict[int, Placement] = {}
        self.constants: dict[tuple[str, object], Placement] = {}
        self.prepare: list[Call] = []
        self.calls: list[Call] = []
        self.output_copies: list[tuple[str, Placement]] = []

    def build(self) -> PhysicalGraph:
        """Places everything, then writes the calls in the order of the graph."""
        for name in self.graph.inputs:
            self._storage(name, "input", self._dtype(name), self.graph.values[name].size)
            self.values[name] = Placement(name, self.plan.edges[name].label.layout)
        self._place_outputs()
        for node in reversed(self.graph.nodes):
            if node.name in self.plan.choices:
                self._place_node(node)
        for name in self.graph.inputs:
            self._convert(name)
        for node in self.graph.nodes:
            if node.name in self.plan.choices:
                self._call(node)
        for value, target in self.output_copies:
            self._copy_out(value, target)
        return PhysicalGraph(
            self.storages,
            (*self.prepare, *self.calls),
            self.values,
            self.graph.inputs,
            self.graph.outputs,
        )

    # Places --------------------------------------------------------------------------------------

    def _dtype(self, value: str) -> str:
        return self.graph.values[value].dtype

    def _storage(self, name: str, kind: str, dtype: str, elements: int) -> None:
        self.storages[name] = StorageSpec(name, kind, dtype, elements)

    def _own(self, name: str, value: str, layout: Layout, kind: str = "arena") -> Placement:
        """A storage of its own for `value`; the name is that of the value, or of a copy of it."""
        elements = layout.buffer(name, self._dtype(value)).size
        self._storage(name, kind, self._dtype(value), elements)
        return Placement(name, layout)

    def _place_outputs(self) -> None:
        for value in self.graph.outputs:
            layout = row_major(self.graph.values[value].shape)
            index = self._conversion_for("", -1, value)
            storage = f"output:{value}"
            if index is not None:
                self.copies[index] = self._own(storage, value, layout, "output")
            elif self._may_be_output(value):
                label = self.plan.edges[value].label
                self.values[value] = self._own(storage, value, label.layout, "output")
            else:
                self.output_copies.append((value, self._own(storage, value, layout, "output")))

    def _may_be_output(self, value: str) -> bool:
        """Whether the producer can write the output itself: it computes it, once, for this."""
        node = self.graph.producer(value)
        if node is None or self.graph.is_constant(value) or value in self.values:
            return False
        if isinstance(self.plan.choices[node.name].alternative.recipe, View):
            return False
        return not any(
            isinstance(self.plan.choices[user.name].alternative.recipe, View)
            for user, position in self.graph.consumers(value)
            if user.name in self.plan.choices
            and self._conversion_for(user.name, position, value) is None
        )

    def _place_node(self, node: Node) -> None:
        """Places outputs that nobody placed, and the inputs of a view inside its output."""
        choice = self.plan.choices[node.name]
        for value in node.outputs:
            if value not in self.values:
                self.values[value] = self._own(value, value, self.plan.edges[value].label.layout)
            for index, made in enumerate(self.plan.conversions):
                if made.value == value and index not in self.copies:
                    self._place_copy(index, made)
        recipe = choice.alternative.recipe
        if isinstance(recipe, View):
            self._place_windows(node, recipe)

    def _place_windows(self, node: Node, view: View) -> None:
        out = self.values[node.outputs[0]]
        whole = self.plan.edges[node.outputs[0]].label.layout
        windows = dict(view.windows)
        for position, value in enumerate(node.inputs):
            window = windows[node.func.inputs[position].name]
            place = Placement(out.storage, _inside(window, whole, out.layout, node))
            index = self._conversion_for(node.name, position, value)
            if index is not None:
                self.copies[index] = place
            elif self.graph.is_constant(value):
                self.calls.append(self._constant_copy(node, position, value, place))
            else:
                self.values[value] = place

    def _constant_copy(self, node: Node, position: int, value: str, place: Placement) -> Call:
        source = self._constant(value, row_major(self.graph.values[value].shape))
        definition = conversion(source.layout, place.layout, self._dtype(value), None)
        placements = {"src": source, "dst": place}
        because = f"a constant lies in a window of {node.name}"
        return Call(f"copy {value}", definition, placements, None, None, True, False, because)

    def _place_copy(self, index: int, made: Conversion) -> None:
        name = f"{made.value}#{index}"
        self.copies[index] = self._own(name, made.value, made.target.layout)

    def _conversion_for(self, node: str, position: int, value: str) -> int | None:
        for index, made in enumerate(self.plan.conversions):
            if made.value == value and (node, position) in made.consumers:
                return index
        return None

    # Calls ---------------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        choice = self.plan.choices[node.name]
        if not isinstance(choice.alternative.recipe, View):
            placements = {
                buffer.name: self._read(node, position, value)
                for position, (buffer, value) in enumerate(
                    zip(node.func.inputs, node.inputs, strict=True)
                )
            }
            for buffer, value in zip(node.func.outputs, node.outputs, strict=True):
                placements[buffer.name] = self.values[value]
            pad: float | str | None = choice.pad_value
            output = choice.alternative.layouts[node.func.outputs[0].name]
            if pad is None and output.is_padded:
                pad = "undef"
            labels = [self.plan.edges[value].label for value in node.outputs]
            known = any(isinstance(f, Constant) for label in labels for _, f in label.facts)
            form = choice.alternative
            self.calls.append(Call(node.name, node.func, placements, form, pad, relied=known))
        for value in node.outputs:
            self._convert(value)

    def _read(self, node: Node, position: int, value: str) -> Placement:
        form = self.plan.choices[node.name].alternative
        layout = form.layouts[node.func.inputs[position].name]
        if self.graph.is_constant(value):
            return self._constant(value, layout)
        index = self._conversion_for(node.name, position, value)
        place = self.values[value] if index is None else self.copies[index]
        # The same memory may be read under another shape: [1, C, 1, 1] is [1, 1, 1, C].
        spec = self.storages[place.storage]
        whole = layout.buffer("_", spec.dtype).size == spec.elements
        if whole and memory_key(place.layout) == memory_key(layout):
            return Placement(place.storage, layout)
        return place

    def _copy_out(self, value: str, target: Placement) -> None:
        source = self._constant(value, target.layout) if self.graph.is_constant(value) else None
        source = source or self.values[value]
        definition = conversion(source.layout, target.layout, self._dtype(value), None)
        because = "an output has memory of its own, and this one lies in other memory"
        placements = {"src": source, "dst": target}
        self.calls.append(
            Call(f"copy {value}", definition, placements, None, None, True, False, because)
        )

    def _convert(self, value: str) -> None:
        for index, made in enumerate(self.plan.conversions):
            if made.value != value:
                continue
            source = self.values[value]
            if made.kind == "fill":
                self._fill(made, source, index)
                continue
            if index not in self.copies:
                self._place_copy(index, made)
            target = self.copies[index]
            fill = _fill_value(made)
            definition = conversion(source.layout, target.layout, self._dtype(value), fill)
            placements = {"src": source, "dst": target}
            name = f"{made.kind} {value}"
            self.calls.append(
                Call(name, definition, placements, None, None, True, False, made.because)
            )

    def _fill(self, made: Conversion, source: Placement, index: int) -> None:
        """Only the padding is written, in place."""
        self.copies[index] = source
        fill = _fill_value(made)
        assert fill is not None, "a fill writes a constant"
        for region in source.layout.regions():
            if region.name == LOGICAL:
                continue
            definition = fill_region(source.layout, region, self._dtype(made.value), fill)
            target = definition.outputs[0].name
            name = f"fill {made.value}"
            placements = {target: source}
            self.calls.append(
                Call(name, definition, placements, None, None, True, False, made.because)
            )

    # Constants -----------------------------------------------------------------------------------

    def _constant(self, value: str, layout: Layout) -> Placement:
        """A constant in a layout: made once per layout, and shared."""
        key = (value, memory_key(layout))
        if key not in self.constants:
            self.constants[key] = self._made_constant(value, layout)
        return Placement(self.constants[key].storage, layout)

    def _made_constant(self, value: str, layout: Layout) -> Placement:
        plain = row_major(self.graph.values[value].shape)
        if memory_key(layout) == memory_key(plain):
            return self._plain_constant(value, plain)
        source = self._constant(value, plain)
        name = f"{value}@{len(self.constants)}"
        target = self._own(name, value, layout, "constant")
        definition = conversion(plain, layout, self._dtype(value), _zero(self._dtype(value)))
        self.prepare.append(
            Call(
                f"pack {value}", definition, {"src": source, "dst": target}, None, None, True, True
            )
        )
        return target

    def _plain_constant(self, value: str, layout: Layout) -> Placement:
        array = self.graph.initializers.get(value)
        if array is not None:
            flat = np.ascontiguousarray(array).reshape(-1)
            spec = StorageSpec(value, "constant", self._dtype(value), flat.size, flat)
            self.storages[value] = spec
            return Placement(value, layout)
        node = self.graph.producer(value)
        if node is None:
            raise VerifyError(f"the constant {value} has no contents and no producer")
        placements = {
            buffer.name: self._constant(source, row_major(self.graph.values[source].shape))
            for buffer, source in zip(node.func.inputs, node.inputs, strict=True)
        }
        for buffer, made in zip(node.func.outputs, node.outputs, strict=True):
            placements[buffer.name] = self._own(
                made, made, row_major(self.graph.values[made].shape), "constant"
            )
        self.prepare.append(Call(node.name, node.func, placements, None, None, False, True))
        return placements[node.func.outputs[0].name]


def _inside(window: Layout, whole: Layout, placed: Layout, node: Node) -> Layout:
    """A window of `whole`, where `whole` itself is placed as `placed` in a larger storage."""
    if placed == whole:
        return window
    zero = (0,) * len(whole.logical_shape)
    here = [int(str(e)) for e in placed.physical_index(zero)]
    there = [int(str(e)) for e in whole.physical_index(zero)]
    offsets = [a - b for a, b in zip(here, there, strict=True)]
    if len(window.physical_shape) != len(offsets):
        raise VerifyError(
            f"{node.name} ({node.op}) reads its output's memory under another shape, and that "
            "memory is a window of a larger one; nesting these is not built, pin the edge to a copy"
        )
    return window.windowed(offsets, placed.physical_shape)


def _fill_value(made: Conversion) -> Literal | None:
    """The constant that the target's padding must hold, if it must hold one."""
    for _, fact in made.target.facts:
        if isinstance(fact, Constant):
            return fact.literal
        assert fact == Undefined()
    return None


def _zero(dtype: str) -> Literal:
    return Literal(False if dtype == "bool" else 0, dtype)
