"""Reductions of whole tensors made by the kernels that write these, which are not read once more.

In: a physical graph.  Out: the same, in which a kernel that writes a tensor also writes the maxima,
or minima, of parts of it, and the kernel that reduces the tensor reduces these.

    before:  conv: y = …                  rows: r[h] = max(f(y[c, h, w]))   last: m = max(r[h])
    after:   conv: y = …; parts[p, h] = max(f(y[c, h, w]))                  last: m = max(parts[k])

A part is what an iteration of the loop that threads share stores.  This is done behind the plan,
as the loop is that of the variant that was chosen; no plan costs more by it, for an element that is
reduced in a register is not loaded again.  What always holds: the operator's order changes no
result, and every element of the tensor is in one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from graphflow import cost, tir
from graphflow.arith import Var, constant_value
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.definitions import stages
from graphflow.kernels.recipes import (
    Cut,
    Tiled,
    axis_order,
    iteration_cuts,
    kernel_variants,
    parts_shape,
    reduced_element,
    with_partial_results,
)
from graphflow.layout import row_major
from graphflow.physical import PhysicalCall, PhysicalGraph, Placement, StorageSpec
from graphflow.schedule import names_of_places
from graphflow.tir import Buffer


def reduced_in_producers(physical: PhysicalGraph, target: Target) -> PhysicalGraph:
    """The graph with reductions of whole tensors in the kernels that write the tensors."""
    found = _MovedReductions(physical, target)
    for number in range(len(physical.calls)):
        found.visit(number)
    if not found.changed:
        return physical
    calls = tuple(call for call in found.calls if call is not None)
    return replace(physical, calls=calls, storages=found.storages)


class _Reduction(Struct, frozen=True):
    """A nest in a definition that reduces all elements of an input into one of another buffer, or
    all of a row into one of the row's own."""

    loops: tuple[tir.For, ...]
    update: tir.Reduce
    element: tir.Load

    @property
    def rows(self) -> tuple[Var, ...]:
        """The loops that the result depends on."""
        own = {x.var for x in self.loops}
        return tuple(v for v in self.update.indices if v in own)


class _MovedReductions:
    """The calls of a physical graph while reductions move among them."""

    def __init__(self, physical: PhysicalGraph, target: Target) -> None:
        self.calls: list[PhysicalCall | None] = [*physical.calls]
        self.definitions = [call.definition for call in physical.calls]
        self.storages = dict(physical.storages)
        self.target = target
        self.changed = False
        self.writers: dict[str, list[int]] = {}
        self.readers: dict[str, list[int]] = {}
        for number, call in enumerate(physical.calls):
            outputs = {b.name for b in call.definition.outputs}
            for name, place in call.placements.items():
                kept = self.writers if name in outputs else self.readers
                kept.setdefault(place.storage, []).append(number)

    def visit(self, number: int) -> None:
        """Move what a call reduces of whole tensors to the calls that write these, if it may."""
        call = self.calls[number]
        if call is None or not _may_change(call):
            return
        for one in _reductions(call.definition):
            last, reader = number, one
            if one.rows:
                behind = self._last_of(call, number)
                if behind is None:
                    continue
                last, reader = behind
            if self._moved(number, one, last, reader):
                return

    def _last_of(self, call: PhysicalCall, number: int) -> tuple[int, _Reduction] | None:
        """The one call that reads the results of rows, and what it reduces of these; None where
        they are read otherwise, or the call computes anything else."""
        match [*tir.writes_in(call.definition.body)]:
            case [tir.Store() as start, tir.Reduce(op) as update]:
                pass
            case _:
                return None
        storage = call.placements[update.buffer.name].storage
        readers = self.readers.get(storage, [])
        own = self.storages[storage].kind == "arena" and self.writers[storage] == [number]
        last = self.calls[readers[0]] if own and len(readers) == 1 else None
        if start.value != stages.neutral(op, update.buffer.dtype) or last is None:
            return None
        for one in _reductions(last.definition) if _may_change(last) else ():
            reads = last.placements[one.element.buffer.name].storage == storage
            if reads and not one.rows and one.update.op is op and one.update.value == one.element:
                return readers[0], one
        return None

    def _moved(self, number: int, one: _Reduction, last: int, reader: _Reduction) -> bool:
        """Whether what call `number` reduces of a tensor became a part of the call that writes it,
        and `reader`, in the call `last`, a reduction of the results."""
        call, end = self.calls[number], self.calls[last]
        assert call is not None and end is not None
        place = call.placements[one.element.buffer.name]
        writers = self.writers.get(place.storage, [])
        if len(writers) != 1:
            return False
        maker = self.calls[writers[0]]
        if maker is None or not _may_change(maker) or not isinstance(maker.recipe, Tiled):
            return False
        output = maker.definition.outputs[0]
        same = maker.placements[output.name] == place and output.shape == one.element.buffer.shape
        order = axis_order(place.layout) if place.own and same else None
        if order is None:
            return False
        cuts = iteration_cuts(self.definitions[writers[0]], maker.recipe, order)
        if cuts is None or not saves_loads(output, cuts, self.target):
            return False
        self._replace(writers[0], maker, cuts, one, last, reader)
        if number != last:
            self.calls[number] = None
        self.changed = True
        return True

    def _replace(
        self,
        number: int,
        maker: PhysicalCall,
        cuts: tuple[Cut, ...],
        one: _Reduction,
        last: int,
        reader: _Reduction,
    ) -> None:
        definition = with_partial_results(maker.definition, cuts, one.update, one.element)
        parts = definition.outputs[-1]
        storage = f"{maker.placements[maker.definition.outputs[0].name].storage}:{parts.name}"
        self.storages[storage] = StorageSpec(storage, "arena", parts.dtype, parts.size)
        layout = row_major(parts.shape)
        assert maker.variant is not None
        layouts = {**maker.variant.layouts, parts.name: layout}
        self.calls[number] = replace(
            maker,
            definition=definition,
            placements={**maker.placements, parts.name: Placement(storage, layout)},
            variant=replace(maker.variant, layouts=layouts),
        )
        end = self.calls[last]
        assert end is not None
        self.calls[last] = _reading(end, reader, parts, storage, self.target)


def saves_loads(output: Buffer, cuts: tuple[Cut, ...], target: Target) -> bool:
    """Whether folding the lanes of each part costs less than loading the tensor."""
    vectors = output.size / target.computed_lanes(output.dtype)
    loading = vectors * cost.vector_cycles(("load",), target)
    return prod(parts_shape(output.shape, cuts)) * cost.PER_ROW <= loading


def _may_change(call: PhysicalCall) -> bool:
    """Whether a call runs a kernel in each run, on whole tensors, with a recipe of the plan's."""
    plain = call.variant is not None and not call.prepare and call.definition.callee is None
    return plain and not any(call.counted.values()) and not any(call.filled.values())


def _reductions(definition: tir.PrimFunc) -> Iterator[_Reduction]:
    """The reductions of all elements of an input in a definition, in the order of the program."""
    for loop in tir.loops_of(definition.body):
        loops, body = tir.nest_of((loop,))
        match body:
            case (tir.Store(), tir.For() as inner):
                more, body = tir.nest_of((inner,))
                loops += more
            case _:
                pass
        match body:
            case (tir.Reduce() as update,) if update.op.selects:
                pass
            case _:
                continue
        element = reduced_element(update)
        if element is None:
            continue
        extents = {x.var: x.extent for x in loops if constant_value(x.start) == 0}
        whole = all(
            isinstance(v, Var) and extents.get(v) == n
            for v, n in zip(element.indices, element.buffer.shape, strict=True)
        )
        each = len(set(element.indices)) == len(loops) == len(element.indices)
        if whole and each and element.buffer in definition.inputs:
            yield _Reduction(loops, update, element)


def _reading(
    call: PhysicalCall, one: _Reduction, parts: Buffer, storage: str, target: Target
) -> PhysicalCall:
    """The call with the results of parts in place of the elements of which they are results."""
    definition = call.definition
    taken = {*names_of_places(definition)}
    flat = Buffer(stages.fresh("parts", taken), (parts.size,), parts.dtype)
    var = Var(stages.fresh("k", taken))
    update = replace(one.update, value=tir.Load(flat, (var,)))
    nest = tir.nest([(var, parts.size)], (update,))
    first = one.loops[0].var

    def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        return nest if isinstance(stmt, tir.For) and stmt.var == first else stmt

    body = tir.map_body(definition.body, change)
    read = {load.buffer for load in tir.loads_in(body)}
    inputs = [b for b in definition.inputs if b in read] + [flat]
    made = stages.with_inputs(definition, inputs, body)
    placements = {b.name: call.placements[b.name] for b in (*inputs[:-1], *made.outputs)}
    placements[flat.name] = Placement(storage, row_major(flat.shape))
    variants = kernel_variants(made, frozenset(), target)
    variant = min(variants, key=lambda each: each.work.cycles)
    return replace(
        call,
        definition=made,
        placements=placements,
        recipe=variant.recipe,
        variant=variant,
        counted={},
        filled={},
    )
