"""NonMaxSuppression: picks boxes by score; the number of results is trimmed at each run."""

from __future__ import annotations

from collections.abc import Callable

from graphflow.base.errors import InvalidModel
from graphflow.frontends.call import NodeCall
from graphflow.kernels.definitions import compaction, movement, suppression


def _non_max_suppression(call: NodeCall) -> None:
    """The largest number of boxes for each class decides an extent, so it must be known."""
    boxes, scores = call.shape(0), call.shape(1)
    centered = bool(call.attribute("center_point_box", 0))
    fits = len(boxes) == len(scores) == 3 and boxes[2] == 4
    if not fits or (boxes[0], boxes[1]) != (scores[0], scores[2]):
        raise InvalidModel(
            f"{call.title}: boxes of shape {boxes} and scores of shape "
            f"{scores} have to be [batches, boxes, 4] and [batches, classes, boxes]"
        )
    batches, classes, count = scores
    wanted = call.constant(2, "max_output_boxes_per_class").reshape(-1) if call.has(2) else [0]
    most = max(min(int(wanted[0]), count), 0)
    func = suppression.box_sides(batches, count, centered)
    name = call.part_name("sides")
    inputs = [call.emit(func, call.inputs[:1], name, "sides"), call.inputs[1]]
    for position in (3, 4):
        if call.has(position):
            inputs.append(_one_element(call, position))
    given = (call.has(3), call.has(4))
    func = suppression.picked_boxes(batches, classes, count, most, given)
    name = call.part_name("picked")
    picked = call.emit(func, inputs, name, "picked")
    name = call.part_name("count")
    total = call.emit(
        compaction.count_of((batches, classes, most), "int64", 0), (picked,), name, "count"
    )
    func = suppression.listed_boxes(batches, classes, most)
    call.emit_bounded(func, (picked,), call.outputs[0], 0, total)


def _one_element(call: NodeCall, position: int) -> str:
    """A threshold as a vector of one element; models have scalars too."""
    given = call.value(position)
    if given.shape == (1,):
        return given.name
    name = call.part_name(f"threshold{position}")
    func = movement.reshape(given.shape, (1,), given.dtype)
    return call.emit(func, (given.name,), name, f"threshold{position}")


SUPPRESSION: dict[str, Callable[[NodeCall], None]] = {"NonMaxSuppression": _non_max_suppression}
