"""Apply a plan: storages for values, placements inside storages for views, calls for the rest.

In: the graph of fusion groups and its plan.  Out: a `PhysicalGraph` whose calls run the chosen
variants, the conversions and the packing of constants.  What always holds: variants, layouts and
conversions are those of the plan, which `verify_plan` checks first, each cancelled pair of crop and
pad included.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.convert.packing_order import packing_order
from graphflow.convert.verify_plan import verify_plan
from graphflow.convert.windows import inner_place, placed_inside
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.conversion import computed_in, conversion, ends_in_turns, fill_region
from graphflow.kernels.lowering import Fills, fills_of
from graphflow.kernels.recipes import Foreign, Staged, View, memory_key
from graphflow.layout import LOGICAL, Constant, Layout, row_major
from graphflow.physical import PhysicalCall, PhysicalGraph, Placement, StorageSpec
from graphflow.plan import CopyKind, LayoutPlan, SharingUnit, copied_constant
from graphflow.program import Space
from graphflow.schedule import StatedPad
from graphflow.tir import Literal, PrimFunc, only_moves


def apply_plan(graph: OperatorGraph, plan: LayoutPlan) -> PhysicalGraph:
    """The physical graph of a verified plan.  Raises VerifyError where the plan contradicts
    itself.
    """
    verify_plan(graph, plan)
    return _Builder(graph, plan).build()


class _Builder:
    """The storages, placements and calls of one physical graph while they are collected."""

    def __init__(self, graph: OperatorGraph, plan: LayoutPlan) -> None:
        self.graph, self.plan = graph, plan
        self.storages: dict[str, StorageSpec] = {}
        self.values: dict[str, Placement] = {}
        self.copies: dict[int, Placement] = {}
        self.constants: dict[tuple[str, object], Placement] = {}
        self.prepare: list[PhysicalCall] = []
        self.calls: list[PhysicalCall] = []
        self.output_copies: list[tuple[str, Placement]] = []
        self.inside = placed_inside(graph, plan)

    def build(self) -> PhysicalGraph:
        """Place every value and copy, then write the calls in the order of the graph."""
        for name in self.graph.inputs:
            self._storage(name, "input", self._dtype(name), self.graph.values[name].size)
            self.values[name] = Placement(name, self.plan.edges[name].edge_type.layout)
        self._place_outputs()
        for value in self.plan.edges:
            self._place(value)
        self._place_copies()
        for name in self.graph.inputs:
            self._convert(name)
        for node in self.graph.nodes:
            if node.name in self.plan.choices:
                self._call(node)
        for value, target in self.output_copies:
            self._copy_out(value, target)
        return PhysicalGraph(
            self.storages,
            (*packing_order(self.prepare, self.calls, self.storages), *self.calls),
            self.values,
            self.graph.inputs,
            self.graph.outputs,
            sharing=self.plan.sharing,
        )

    # Places --------------------------------------------------------------------------------------

    def _dtype(self, value: str) -> str:
        return self.graph.values[value].dtype

    def _counted(self, value: str) -> Mapping[int, str]:
        """The axes of a value along which a run gives fewer elements, with the values that count
        them."""
        return self.graph.counted.get(self.graph.values[value], {})

    def _filled(self, value: str) -> Fills:
        """The axes of a value behind whose elements there is a known number, with the values that
        count these elements."""
        node = self.graph.producer(value) if self.graph.counted else None
        if node is None:
            return {}
        counts = dict(zip((b.name for b in node.func.inputs), node.inputs, strict=True))
        return {axis: (counts[n], fill) for axis, (n, fill) in fills_of(node.func).items()}

    def _storage(self, name: str, kind: Space, dtype: str, elements: int) -> None:
        self.storages[name] = StorageSpec(name, kind, dtype, elements)

    def _own(self, name: str, value: str, layout: Layout, kind: Space = "arena") -> Placement:
        """A new storage with this `name` that holds `value` in `layout`, and the placement
        in it.
        """
        elements = layout.buffer(name, self._dtype(value)).size
        self._storage(name, kind, self._dtype(value), elements)
        return Placement(name, layout)

    def _place_outputs(self) -> None:
        """Make a storage for each graph output.

        An output that needs no conversion is computed in it directly.  Constants are copied at the
        end.  Raises VerifyError for an output that is inside another tensor or is a graph input.
        """
        for value in self.graph.outputs:
            layout = row_major(self.graph.values[value].shape)
            index = self.plan.conversion_for("", -1, value)
            storage = f"output:{value}"
            if index is not None:
                self.copies[index] = self._own(storage, value, layout, "output")
            elif self.graph.is_constant(value):
                self.output_copies.append((value, self._own(storage, value, layout, "output")))
            elif value in self.values or value in self.inside:
                raise VerifyError(f"the graph output {value} is not in a storage of its own")
            else:
                edge_type = self.plan.edges[value].edge_type
                self.values[value] = self._own(storage, value, edge_type.layout, "output")

    def _place(self, value: str) -> None:
        """Place `value`, and first the tensors that contain it, from the outermost inward."""
        chain = [value]
        while chain[-1] not in self.values and chain[-1] in self.inside:
            chain.append(self.inside[chain[-1]].outer)
        root = chain[-1]
        if root not in self.values:
            self.values[root] = self._own(root, root, self.plan.edges[root].edge_type.layout)
        for name in reversed(chain[:-1]):
            inside = self.inside[name]
            self.values[name] = inside.placed(self.values[inside.outer])

    def _place_copies(self) -> None:
        """Place the copies: those inside a view's output, then those with a storage of their own.

        Constants that are inputs of a view are copied into its output.
        """
        for name, choice in self.plan.choices.items():
            view, node = choice.variant.recipe, self.graph.node(name)
            if not isinstance(view, View) or view.outward:
                continue
            for position, value in enumerate(node.inputs):
                inside = inner_place(node, choice.variant, position)
                index = self.plan.conversion_for(name, position, value)
                if index is not None:
                    self.copies[index] = inside.placed(self.values[inside.outer])
                elif self.graph.is_constant(value):
                    place = inside.placed(self.values[inside.outer])
                    layout = choice.variant.layouts[node.func.inputs[position].name]
                    self.calls.append(self._constant_copy(name, value, layout, place))
        for index, made in enumerate(self.plan.conversions):
            if index not in self.copies and made.kind != CopyKind.FILL:
                name = f"{made.value}#{index}"
                self.copies[index] = self._own(name, made.value, made.target.layout)

    def _constant_copy(
        self, view: str, value: str, layout: Layout, place: Placement
    ) -> PhysicalCall:
        """The copy of a constant into the output of a view; it was packed in that layout before."""
        source = self._constant(value, layout)
        because = f"a constant is an input of the view {view} and is copied into its output"
        return self._copy(value, source, place, because)

    def _copy(self, value: str, source: Placement, target: Placement, because: str) -> PhysicalCall:
        """A copy of a constant that moves whole rows, as both sides have one layout."""
        name = copied_constant(value)
        definition = conversion(source.layout, target.layout, self._dtype(value), None)
        placements = {"src": source, "dst": target}
        return PhysicalCall(
            name,
            definition,
            placements,
            Staged(),
            moves=True,
            because=because,
            saved=self._saved(name),
        )

    # Calls ---------------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        choice = self.plan.choices[node.name]
        if not isinstance(choice.variant.recipe, View):
            placements = {
                buffer.name: self._read(node, position, value)
                for position, (buffer, value) in enumerate(
                    zip(node.func.inputs, node.inputs, strict=True)
                )
            }
            for buffer, value in zip(node.func.outputs, node.outputs, strict=True):
                placements[buffer.name] = self.values[value]
            pad: StatedPad = choice.pad_value
            layouts = choice.variant.layouts
            if pad is None and any(layouts[b.name].is_padded for b in node.func.outputs):
                pad = "undef"
            edge_types = [self.plan.edges[value].edge_type for value in node.outputs]
            known = any(
                isinstance(f, Constant) for edge_type in edge_types for _, f in edge_type.facts
            )
            variant = choice.variant
            if isinstance(variant.recipe, Foreign):
                self._check_contiguous(node, placements)
            values = zip(
                (*node.func.inputs, *node.func.outputs), (*node.inputs, *node.outputs), strict=True
            )
            counted = {buffer.name: self._counted(value) for buffer, value in values}
            self.calls.append(
                PhysicalCall(
                    node.name,
                    node.func,
                    placements,
                    variant.recipe,
                    variant,
                    pad,
                    relied=known,
                    counted=counted,
                    filled={
                        buffer.name: self._filled(value)
                        for buffer, value in zip(node.func.inputs, node.inputs, strict=True)
                    },
                    saved=self._saved(node.name),
                )
            )
        for value in node.outputs:
            self._convert(value)

    def _saved(self, unit: SharingUnit) -> float | None:
        found = self.plan.sharing
        return 0.0 if found is None else found.gains.get(unit, 0.0) if found.shares(unit) else None

    def _check_contiguous(self, node: Node, placements: Mapping[str, Placement]) -> None:
        """Raise VerifyError where a tensor of a foreign callee, which knows no strides, is not
        contiguous.
        """
        values = (*node.inputs, *node.outputs)
        for buffer, value in zip((*node.func.inputs, *node.func.outputs), values, strict=True):
            layout = placements[buffer.name].layout
            if memory_key(layout) != memory_key(row_major(buffer.shape)):
                raise VerifyError(
                    f"{node.name} ({node.op}) takes {value} as contiguous memory, and the plan has "
                    f"it as {layout.describe()}, a part of another tensor"
                )

    def _read(self, node: Node, position: int, value: str) -> Placement:
        variant = self.plan.choices[node.name].variant
        layout = variant.layouts[node.func.inputs[position].name]
        if self.graph.is_constant(value):
            return self._constant(value, layout)
        index = self.plan.conversion_for(node.name, position, value)
        place = self.values[value] if index is None else self.copies[index]
        # The same memory may be read under another shape: [1, C, 1, 1] and [1, 1, 1, C] are equal.
        if memory_key(place.layout) == memory_key(layout):
            return replace(place, layout=layout)
        return place

    def _copy_out(self, value: str, target: Placement) -> None:
        source = self._constant(value, target.layout)
        because = "a graph output has a storage of its own, and this one is a constant"
        self.calls.append(self._copy(value, source, target, because))

    def _convert(self, value: str) -> None:
        for index, made in self.plan.conversions_of(value):
            source = self.values[value]
            if made.kind == CopyKind.FILL:
                self._fill(index, source)
                continue
            target, fill = self.copies[index], made.target.constant
            if fill is None and target.own and ends_in_turns(target.layout):
                # Nobody relies on the padding, and with it whole vectors are stored.
                fill = _zero(self._dtype(value))
            definition = conversion(source.layout, target.layout, self._dtype(value), fill)
            self._converts(index, definition, {"src": source, "dst": target})

    def _fill(self, index: int, source: Placement) -> None:
        """The calls that write a constant to each padding region of a value, in place."""
        self.copies[index] = source
        made = self.plan.conversions[index]
        fill = made.target.constant
        assert fill is not None, "a fill writes a constant"
        for region in source.layout.regions():
            if region.name == LOGICAL:
                continue
            definition = fill_region(source.layout, region, self._dtype(made.value), fill)
            self._converts(index, definition, {definition.outputs[0].name: source})

    def _converts(
        self, index: int, definition: PrimFunc, placements: Mapping[str, Placement]
    ) -> None:
        """A call for a conversion of the plan."""
        made = self.plan.conversions[index]
        self.calls.append(
            PhysicalCall(
                f"{made.kind} {made.value}",
                definition,
                placements,
                made.recipe,
                moves=True,
                because=made.because,
                counted={definition.outputs[0].name: self._counted(made.value)},
                saved=self._saved(index),
            )
        )

    # Constants -----------------------------------------------------------------------------------

    def _constant(self, value: str, layout: Layout) -> Placement:
        """A constant in a layout; it is packed once for each memory key and shared by its
        readers.
        """
        key = (value, memory_key(layout))
        if key not in self.constants:
            self.constants[key] = self._made_constant(value, layout)
        return Placement(self.constants[key].storage, layout)

    def _made_constant(self, value: str, layout: Layout) -> Placement:
        plain = row_major(self.graph.values[value].shape)
        if memory_key(layout) == memory_key(plain):
            return self._plain_constant(value, plain)
        if (value, memory_key(plain)) not in self.constants:
            packed = self._computed_in(value, layout)
            if packed is not None:
                return packed
        placements = {"src": self._constant(value, plain)}
        definition = conversion(plain, layout, self._dtype(value), _zero(self._dtype(value)))
        return self._packs(value, layout, definition, placements, moves=True)

    def _computed_in(self, value: str, layout: Layout) -> Placement | None:
        """A constant that an elementwise kernel computes, computed in a layout; None for others."""
        node = self.graph.producer(value)
        if node is None:
            return None
        definition = computed_in(node.func, layout, _zero(self._dtype(value)))
        if definition is None:
            return None
        return self._packs(
            value, layout, definition, self._operands(node), moves=only_moves(node.func)
        )

    def _packs(
        self,
        value: str,
        layout: Layout,
        definition: PrimFunc,
        operands: Mapping[str, Placement],
        moves: bool,
    ) -> Placement:
        """The place of a constant in a layout, which a call before the first run makes."""
        target = self._own(f"{value}@{len(self.constants)}", value, layout, "constant")
        placements = {**operands, definition.outputs[0].name: target}
        self.prepare.append(
            PhysicalCall(
                f"pack {value}", definition, placements, Staged(), moves=moves, prepare=True
            )
        )
        return target

    def _operands(self, node: Node) -> dict[str, Placement]:
        """The constants that a node reads, by parameter."""
        return {
            buffer.name: self._constant(source, row_major(self.graph.values[source].shape))
            for buffer, source in zip(node.func.inputs, node.inputs, strict=True)
        }

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
        placements = self._operands(node)
        for buffer, made in zip(node.func.outputs, node.outputs, strict=True):
            plain = row_major(self.graph.values[made].shape)
            placements[buffer.name] = self._own(made, made, plain, "constant")
            self.constants[made, memory_key(plain)] = placements[buffer.name]
        self.prepare.append(PhysicalCall(node.name, node.func, placements, Staged(), prepare=True))
        return self.constants[value, memory_key(layout)]


def _zero(dtype: str) -> Literal:
    return Literal(False if dtype == "bool" else 0, dtype)
