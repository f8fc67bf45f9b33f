"""TopK: the largest or smallest elements of an axis, in order."""

from __future__ import annotations

from math import inf, nan

from graphflow.base.errors import ExtentsLost
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_also, filled_input, sizes_in
from graphflow.frontends.tensors.derived_sizes import Element, lesser, require_at_least
from graphflow.kernels.definitions.data_dependent import indexing, ranking
from graphflow.kernels.definitions.movements import movement
from graphflow.layout import dtype_limits
from graphflow.tir import FLOATS


def _top_k(call: NodeCall) -> None:
    """`sorted=0` permits any order, so the results are sorted then too."""
    shape, dtype = call.shape(0), call.dtype()
    axis = call.axis(-1)
    largest = call.flag("largest", True)
    call.attribute("sorted", 1)
    count = int(call.required("k") if call.opset < 10 else call.constant(1, "k").reshape(-1)[0])
    if not 0 <= count <= shape[axis]:
        raise call.invalid(f"k is {count}, axis {axis} of shape {shape} has {shape[axis]} elements")
    number = sizes_in(call, 1).get(0, count)
    _require_as_many(call, axis, number)
    x = (filled_input(call, 0, (axis,), _last_in_order(dtype, largest)),)
    values, indices = (*call.outputs, "")[:2]
    indices = indices or call.context.unique_tensor_name(f"{values or call.name}.indices")
    if ranking.ranking_pays(shape[axis], count, dtype):
        ranked = call.context.unique_tensor_name(f"{indices}.ranks")
        call.emit(ranking.ranks(shape, axis, largest, dtype), x, ranked, "ranks")
        call.emit(ranking.at_ranks(shape, axis, count), (ranked,), indices, "indices")
    else:
        call.emit(ranking.selected(shape, axis, count, largest, dtype), x, indices, "indices")
    if isinstance(number, str):
        count_also(call, indices, {axis: number})
    if values:
        taken = (*shape[:axis], count, *shape[axis + 1 :])
        func = indexing.gather_elements(shape, taken, axis, dtype)
        call.emit(func, (*x, indices), values, "values")


def _require_as_many(call: NodeCall, axis: int, number: Element) -> None:
    """Refuse the node if an axis may have fewer elements in a run than the `number` wanted.

    Of a stated number, each run checks that there are as many: in a run with fewer the model is
    invalid.
    """
    context, given = call.context, call.elements_along(0, axis)
    if lesser(context, given, number) == number:
        return
    if isinstance(given, str) and given in context.sizes and isinstance(number, int):
        require_at_least(context, given, number)  # which a relation says sooner
        found = call.emit_part(movement.copy((), "int64"), (given,), "elements")
        subject = f"the number of elements of axis {axis} of {call.inputs[0]}, of which it takes"
        context.graph.add_guard(
            found, number, call.shape(0)[axis], f"{call.title}: {subject} {number},"
        )
        return
    reason = f"{call.title}: {number} elements of axis {axis} of {call.inputs[0]} are wanted"
    raise ExtentsLost(f"{reason}, and it may have fewer in a run; cut the model before this node")


def _last_in_order(dtype: str, largest: bool) -> float:
    """What stands behind all elements in the order, or is equal to those that it stands behind."""
    if dtype in FLOATS:
        return -inf if largest else nan
    least, most = dtype_limits(dtype)
    return least if largest else most


OPERATORS: Emitters = {"TopK": _top_k}
