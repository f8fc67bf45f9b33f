"""NonMaxSuppression: picks boxes by score; the number of results is trimmed at each run."""

from __future__ import annotations

from math import nan

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import filled_input, require_same_count
from graphflow.kernels.definitions.data_dependent import compaction, suppression


def _non_max_suppression(call: NodeCall) -> None:
    """The largest number of boxes for each class decides an extent, so it must be known.

    Scores that are NaN do not count, so they stand behind those that a run gives.
    """
    boxes, scores = call.shape(0), call.shape(1)
    centered = call.flag("center_point_box")
    fits = len(boxes) == len(scores) == 3 and boxes[2] == 4
    if not fits or (boxes[0], boxes[1]) != (scores[0], scores[2]):
        raise call.invalid(
            f"boxes of shape {boxes} and scores of shape "
            f"{scores} have to be [batches, boxes, 4] and [batches, classes, boxes]"
        )
    batches, classes, count = scores
    wanted = call.constant(2, "max_output_boxes_per_class").reshape(-1) if call.has(2) else [0]
    most = max(min(int(wanted[0]), count), 0)
    for left, right in ((0, 0), (1, 2)):
        require_same_count(call, left, right, "its boxes have scores in")
    given_boxes = filled_input(call, 0, range(3), 0.0)
    given_scores = filled_input(call, 1, range(3), nan)
    given = [position for position in (3, 4) if call.has(position)]
    # Thresholds are vectors of one element, or scalars.
    thresholds = [call.reshaped(call.inputs[k], (1,), f"threshold{k}", of=call.name) for k in given]
    func = suppression.picked_boxes(
        batches, classes, count, most, (3 in given, 4 in given), centered
    )
    inputs = (given_boxes, given_scores, *thresholds)
    picked = call.emit_part(func, inputs, "picked", call.name)
    func = compaction.count_of((batches, classes, most), "int64", 0)
    total = call.emit_part(func, (picked,), "count", call.name)
    func = suppression.listed_boxes(batches, classes, most)
    call.emit_bounded(func, (picked,), call.outputs[0], 0, total)


OPERATORS: Emitters = {"NonMaxSuppression": _non_max_suppression}
