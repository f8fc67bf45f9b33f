"""Partial results of a reduction of a kernel's output, which the kernel computes too.

In: a definition, and how its output is cut into parts.  Out: the definition with a further output,
the result of each part.

    before:  y[c, h, w] = v
    after:   y[c, h, w] = v; parts[p, h] = max(f(y[32·p + k, h, w]) for all k, w)

What always holds: each element of the output is in exactly one part, and the order of the operator
changes no result.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, as_index, conjunction, less_than, terms_of
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.layout import Layout
from graphflow.schedule import names_of_places

Cut = tuple[int, int]
"""An axis of a tensor, and how many of its indices are in one part."""


class PartialResults(Struct, frozen=True):
    """The reduction of the parts of a tensor into `parts`, whose axes are those of `cuts`.

    `value` is what is reduced of an element: an expression of `element`, the load of it.
    """

    parts: tir.Buffer
    cuts: tuple[Cut, ...]
    op: tir.ReduceOp
    value: tir.Expr
    element: tir.Load

    def value_of(self, element: tir.Expr) -> tir.Expr:
        """What is reduced of an element that is not loaded."""
        return tir.exchanged(self.value, self.element, element)

    def in_memory(self, layout: Layout, stored: tuple[int, ...]) -> PartialResults:
        """The same parts by the axes of the buffer of shape `stored` that is the layout's box, of
        which neighbouring axes may be one; ScheduleError where the layout has not the tensor's own
        axes in some order, and where an axis that is cut is one with another."""
        order = axis_order(layout)
        if order is None:
            raise ScheduleError(f"{layout.describe()} has other axes than the tensor")
        box = layout.physical_shape
        kept = {(extent, prod(stored[k + 1 :])): k for k, extent in enumerate(stored)}
        cuts = list[Cut]()
        for axis, count in self.cuts:
            at = order.index(axis)
            found = kept.get((box[at], prod(box[at + 1 :])))
            if found is None:
                raise ScheduleError(f"axis {axis} is one with another in memory")
            cuts.append((found, count))
        return replace(self, cuts=tuple(cuts))


def axis_order(layout: Layout) -> tuple[int, ...] | None:
    """The axis of the tensor that each axis of its box is; None where the box has padding or an
    axis that is none of the tensor's own."""
    numbers = {var: axis for axis, var in enumerate(layout.index_map.inputs)}
    order = tuple(numbers.get(index, -1) for index in layout.index_map.outputs)  # type: ignore[call-overload]
    whole = tuple(layout.logical_shape[axis] for axis in order if axis >= 0)
    return order if whole == layout.physical_shape else None


def reduced_element(update: tir.Reduce) -> tir.Load | None:
    """The one load of which a value that is reduced is made, by operations that do not depend on
    where it is; None for other values."""
    loads = {e for e in tir.walk_expr(update.value) if isinstance(e, tir.Load)}
    if len(loads) != 1:
        return None
    (element,) = loads
    zero = stages.literal(0, element.dtype)
    rest = tir.exchanged(update.value, element, zero)
    return None if tir.expression_variables(rest) else element


def parts_shape(shape: tuple[int, ...], cuts: tuple[Cut, ...]) -> tuple[int, ...]:
    """The shape of the results of the parts of a tensor of this shape."""
    return tuple(-(-shape[axis] // count) for axis, count in cuts)


def with_partial_results(
    definition: tir.PrimFunc, cuts: tuple[Cut, ...], update: tir.Reduce, element: tir.Load
) -> tir.PrimFunc:
    """`definition` with the partial results of its first output as its last one.

    `update` says what is reduced of each `element`, which it loads, and by which operator.
    """
    reduced, taken = definition.outputs[0], {*names_of_places(definition)}
    shape = parts_shape(reduced.shape, cuts)
    parts = tir.Buffer(stages.fresh("parts", taken), shape, update.buffer.dtype)
    outer = [(Var(stages.fresh(f"p{k}", taken)), n) for k, n in enumerate(shape)]
    begins = {axis: var * count for (var, _), (axis, count) in zip(outer, cuts, strict=True)}
    inner = [
        (Var(stages.fresh(f"r{axis}", taken)), dict(cuts).get(axis, extent))
        for axis, extent in enumerate(reduced.shape)
    ]
    indices: list[IndexExpr] = [
        begins.get(axis, as_index(0)) + var for axis, (var, _) in enumerate(inner)
    ]
    spec = PartialResults(parts, cuts, update.op, update.value, element)
    stage = stages.reduction_stage(
        stages.fresh("parts_of_output", taken),
        update.op,
        parts,
        outer,
        inner,
        spec.value_of(tir.Load(reduced, tuple(indices))),
        where=conjunction(less_than(indices[axis], reduced.shape[axis]) for axis, _ in cuts),
    )
    params = (*definition.params, tir.Param(parts, tir.Role.OUTPUT))
    return replace(definition, params=params, body=(*definition.body, stage))


def partial_results(
    definition: tir.PrimFunc,
) -> tuple[tir.PrimFunc, tuple[PartialResults, ...]] | None:
    """What `with_partial_results` was given, once or several times; None for other definitions."""
    reduced, *others = definition.outputs
    count = len(others)
    if not count or len(definition.body) <= count:
        return None
    own = tuple(param for param in definition.params if param.buffer not in others)
    main = replace(definition, params=own, body=definition.body[:-count])
    again, found = main, list[PartialResults]()
    for stage in definition.body[-count:]:
        results = _results_of(stage, reduced)
        if results is None:
            return None
        update = tir.Reduce(results.op, results.parts, (), results.value)
        again = with_partial_results(again, results.cuts, update, results.element)
        found.append(results)
    return (main, tuple(found)) if again == definition else None


def _results_of(stage: tir.Stmt, reduced: tir.Buffer) -> PartialResults | None:
    """What a stage reduces of `reduced`, if it reduces parts of that at all."""
    updates = [s for s in tir.walk((stage,)) if isinstance(s, tir.Reduce)]
    element = reduced_element(updates[0]) if len(updates) == 1 else None
    if element is None or element.buffer != reduced or not updates[0].op.selects:
        return None
    update = updates[0]
    steps = [dict(terms_of(index)[0]) for index in element.indices]
    cuts = tuple(
        (axis, step[var])
        for var in update.indices
        for axis, step in enumerate(steps)
        if var in step
    )
    if len(cuts) != len(update.indices):
        return None
    return PartialResults(update.buffer, cuts, update.op, update.value, element)
