"""TopK: the largest or smallest elements of an axis, in order."""

from __future__ import annotations

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.kernels.definitions.data_dependent import indexing, ranking

SELECTED_UP_TO = 1 / 4
"""The largest share k / n of an axis for which TopK keeps a sorted list instead of ranking.

Keeping k of n elements takes n comparisons and, in random order, about k²·ln(n/k) steps to insert.
Ranking takes n² comparisons, sixteen of which run in one vector.
"""


def _top_k(call: NodeCall) -> None:
    """`sorted=0` permits any order, so the results are sorted then too."""
    shape, dtype = call.shape(0), call.dtype()
    axis = call.axis(-1)
    largest = call.flag("largest", True)
    call.attribute("sorted", 1)
    count = int(call.required("k") if call.opset < 10 else call.constant(1, "k").reshape(-1)[0])
    if not 0 <= count <= shape[axis]:
        raise call.invalid(f"k is {count}, axis {axis} of shape {shape} has {shape[axis]} elements")
    x = call.inputs[:1]
    values, indices = (*call.outputs, "")[:2]
    indices = indices or call.context.unique_tensor_name(f"{values or call.name}.indices")
    if count <= shape[axis] * SELECTED_UP_TO or count <= 1:
        call.emit(ranking.selected(shape, axis, count, largest, dtype), x, indices, "indices")
    else:
        ranked = call.context.unique_tensor_name(f"{indices}.ranks")
        call.emit(ranking.ranks(shape, axis, largest, dtype), x, ranked, "ranks")
        call.emit(ranking.at_ranks(shape, axis, count), (ranked,), indices, "indices")
    if values:
        taken = (*shape[:axis], count, *shape[axis + 1 :])
        func = indexing.gather_elements(shape, taken, axis, dtype)
        call.emit(func, (*x, indices), values, "values")


OPERATORS: Emitters = {"TopK": _top_k}
