"""A detector in the manner of YOLO and RetinaNet, including non-maximum suppression.

In: an image.  Out: boxes, scores and classes of the detections, whose number depends on the image.
TopK selects candidates, and suppression runs for each class.  Or in: images of any size, and out:
all boxes and scores, and image, class and box of each detection.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from graphflow.models.zoo.building.exporting import ExportingBuilder
from graphflow.models.zoo.building.layers import pads

CLASSES = 5
CANDIDATES = 60
KEPT = 20
"""Most boxes that suppression keeps for each class."""


def detector(seed: int, image: int = 96) -> onnx.ModelProto:
    """Heads on maps of 1/8 and 1/16 of the image; `image` is a multiple of 16."""
    b = ExportingBuilder(seed, opset=17, name="detector")
    x = b.input("images", (1, 3, image, image))
    for channels in (16, 32):
        x = b.silu(b.conv(x, channels, 3, strides=[2, 2], pads=pads(3)))
    maps = []
    for channels in (48, 64):
        x = b.silu(b.conv(x, channels, 3, strides=[2, 2], pads=pads(3)))
        maps.append(x)
    logits = b.node("Concat", [_head(b, x, CLASSES, 4.0) for x in maps], axis=1)
    offsets = b.node("Concat", [_head(b, x, 4, 0.5) for x in maps], axis=1)
    boxes = _boxes(b, offsets, image)
    scores = b.node("Sigmoid", [logits])
    boxes, scores = _best(b, boxes, scores)
    _suppress(b, boxes, scores)
    b.output("boxes", shape=("detections", 4))
    b.output("scores", shape=("detections",))
    b.output("classes", shape=("detections",), dtype="int64")
    return b.model()


def detector_any(seed: int, width: int = 32) -> onnx.ModelProto:
    """The same for a symbolic batch, height and width; centres of cells are computed from ranges.

    The maps of 1/8 and 1/16 have `width` channels.
    """
    b = ExportingBuilder(seed, opset=17, name="detector_any")
    x = b.input("images", ("batch", 3, "height", "width"))
    x = b.silu(b.conv(x, 16, 3, strides=[4, 4], pads=pads(3)))
    boxes, logits = [], []
    for stride in (8, 16):
        x = b.silu(b.conv(x, width, 3, strides=[2, 2], pads=pads(3)))
        logits.append(_head(b, x, CLASSES, 4.0))
        boxes.append(_corners(b, _head(b, x, 4, 0.5), _centres(b, x, stride), stride))
    b.node("Concat", boxes, ["boxes"], axis=1)
    b.node("Sigmoid", [b.node("Concat", logits, axis=1)], ["scores"])
    _selected(b, "boxes", "scores", ["selected"])
    b.output("boxes", shape=("batch", "cells", 4))
    b.output("scores", shape=("batch", "cells", CLASSES))
    b.output("selected", shape=("detections", 3), dtype="int64")
    return b.model()


def _centres(b: ExportingBuilder, x: str, stride: int) -> str:
    """(cells, 2): the centres of the cells of a map, in pixels."""
    height, width = b.size(x, 2), b.size(x, 3)
    grids = []
    for extent, axis in ((width, 0), (height, 1)):
        places = b.node("Range", [b.integer(0), extent, b.integer(1)])
        places = b.node("Cast", [places], to=onnx.TensorProto.FLOAT)
        centres = b.node("Mul", [b.add(places, b.number(0.5)), b.number(stride)])
        grids.append(b.expand(b.unsqueeze(b.unsqueeze(centres, axis), 2), height, width, 1))
    return b.view(b.node("Concat", grids, axis=2), -1, 2)


def _corners(b: ExportingBuilder, offsets: str, centres: str, stride: int) -> str:
    """(batch, cells, 4): centres move by half a cell, sides are about four cells long."""
    shift, growth = (f"{offsets}.{part}" for part in ("shift", "growth"))
    b.node("Split", [offsets, b.integers(2, 2)], [shift, growth], axis=2)
    centre = b.add(b.node("Mul", [shift, b.number(stride / 2)]), centres)
    half = b.node("Mul", [b.node("Exp", [growth]), b.number(stride * 2)])
    return b.node("Concat", [b.node("Sub", [centre, half]), b.add(centre, half)], axis=2)


def _head(b: ExportingBuilder, x: str, values: int, gain: float) -> str:
    """(1, cells, values) from a 1x1 convolution."""
    y = b.conv(b.silu(b.conv(x, 32, 3, pads=pads(3))), values, 1, gain=gain)
    y = b.node("Transpose", [y], perm=[0, 2, 3, 1])
    return b.reshape(y, b.size(y, 0), -1, values)


def _cells(image: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Centres (1, cells, 2) and strides (1, cells, 1) of the cells of both maps, in pixels."""
    centres, strides = [], []
    for stride in (8, 16):
        extent = image // stride
        for row in range(extent):
            for column in range(extent):
                centres.append(((column + 0.5) * stride, (row + 0.5) * stride))
                strides.append((stride,))
    return np.array([centres], np.float32), np.array([strides], np.float32)


def _boxes(b: ExportingBuilder, offsets: str, image: int) -> str:
    """(1, cells, 4) corners: centres move by half a cell, sides are about four cells long."""
    centres, strides = _cells(image)
    shift, growth = (f"{offsets}.{part}" for part in ("shift", "growth"))
    b.node("Split", [offsets, b.integers(2, 2)], [shift, growth], axis=2)
    moved = b.node("Mul", [shift, b.constant(strides / 2)])
    centre = b.add(moved, b.constant(centres))
    half = b.node("Mul", [b.node("Exp", [growth]), b.constant(strides * 2)])
    corners = [b.node("Sub", [centre, half]), b.add(centre, half)]
    together = b.node("Concat", corners, axis=2)
    return b.node("Clip", [together, b.number(0.0), b.number(float(image))])


def _best(b: ExportingBuilder, boxes: str, scores: str) -> tuple[str, str]:
    """The boxes and scores of the candidates whose best class scores highest.

    Boxes are gathered by GatherND, scores by GatherElements, as different exporters do.
    """
    best = b.node("ReduceMax", [scores], axes=[2], keepdims=0)
    index = f"{best}.index"
    b.node("TopK", [best, b.integers(CANDIDATES)], [f"{best}.top", index], axis=1)
    column = b.unsqueeze(index, 2)
    chosen = b.node("GatherND", [boxes, column], batch_dims=1)
    spread = b.node("Expand", [column, b.integers(1, CANDIDATES, CLASSES)])
    return chosen, b.node("GatherElements", [scores, spread], axis=1)


def _suppress(b: ExportingBuilder, boxes: str, scores: str) -> None:
    """Non-maximum suppression for each class, and what it selects as the outputs."""
    selected = _selected(b, boxes, scores)
    classes = b.node("Gather", [selected, b.integer(1)], ["classes"], axis=1)
    position = b.node("Gather", [selected, b.integer(2)], axis=1)
    flat = b.node("Squeeze", [boxes, b.integers(0)])
    b.node("Gather", [flat, position], ["boxes"], axis=0)
    pairs = b.node("Concat", [b.unsqueeze(position, 1), b.unsqueeze(classes, 1)], axis=1)
    b.node("GatherND", [b.node("Squeeze", [scores, b.integers(0)]), pairs], ["scores"])


def _selected(b: ExportingBuilder, boxes: str, scores: str, names: list[str] | None = None) -> str:
    """(detections, 3): image, class and box of what non-maximum suppression keeps."""
    turned = b.node("Transpose", [scores], perm=[0, 2, 1])
    limits = [b.integers(KEPT), b.literal(np.array([0.5], np.float32))]
    limits.append(b.literal(np.array([0.7], np.float32)))
    return b.node("NonMaxSuppression", [boxes, turned, *limits], names)
