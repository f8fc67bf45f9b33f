"""Bounds of loops that count for themselves, as `while` of a script does: the trip count says
nothing, and the condition compares a counter.

In: the body of a Loop, and what is known of the tensors around it.  Out: the most iterations there
can be.  What always holds: the condition that the body gives is false in the last of these at the
latest, as one of the comparisons that it is the conjunction of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import onnx
from msgspec import Struct

from graphflow.frontends.protos.steps import STANDARD
from graphflow.graph import Array

Contents = Callable[[str], "Array | None"]

_SAME = ("Identity", "Squeeze", "Unsqueeze", "Reshape")
"""Operators whose result is what their first input is, of one element."""

_WIDE = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
"""Element types that hold every number of a progression, as long as it is in `_HELD`."""

_HELD = range(-(2**31), 2**31)
"""The integers that all of `_WIDE` hold; others wrap around where they are cast or computed."""

_LESS = {"Less": (0, 1, 0), "LessOrEqual": (0, 1, 1), "Greater": (1, 0, 0)}
_LESS["GreaterOrEqual"] = (1, 0, 1)
"""Comparisons: the operand that is less than the other one, this, and what it may be more."""


class _Progression(Struct, frozen=True):
    """An integer that is `begin + step · i` in iteration i.

    That holds in the first `held` iterations, in which it and all that it is computed from are in
    `_HELD`.
    """

    begin: int
    step: int
    held: int

    @classmethod
    def of(cls, begin: int, step: int = 0, *parts: _Progression) -> _Progression:
        """The progression that is computed from `parts`."""
        held = 0 if begin not in _HELD else len(_HELD)
        if held and step:
            room = _HELD[-1] - begin if step > 0 else begin - _HELD[0]
            held = 1 + room // abs(step)
        return cls(begin, step, min(held, *(part.held for part in parts)) if parts else held)


class _CountingBody(Struct, frozen=True):
    """A body, the nodes that make its tensors, the tensors that its states begin as, and the known
    contents of other tensors."""

    graph: onnx.GraphProto
    makers: dict[str, onnx.NodeProto]
    states: Sequence[str]
    inside: Contents
    around: Contents

    def source(self, name: str, kinds: Collection[int] = _WIDE) -> str:
        """The tensor that nodes hand on which keep it as it is, or cast it to one of `kinds`."""
        while (node := self.makers.get(name)) is not None and node.input:
            kind = next((a.i for a in node.attribute if a.name == "to"), None)
            if node.op_type not in _SAME and not (node.op_type == "Cast" and kind in kinds):
                break
            name = node.input[0]
        return name

    def comparisons(self) -> Iterator[onnx.NodeProto]:
        """The comparisons that all have to hold for the loop to go on."""
        pending = [self.graph.output[0].name]
        while pending:
            node = self.makers.get(self.source(pending.pop(), (*_WIDE, onnx.TensorProto.BOOL)))
            if node is not None and node.op_type == "And":
                pending += node.input
            elif node is not None and node.op_type in _LESS:
                yield node

    def progression(self, name: str, depth: int = 8) -> _Progression | None:
        """An integer as a progression over the iterations; None if it is not known to be one."""
        name = self.source(name)
        formals = [info.name for info in self.graph.input]
        if name == formals[0]:
            return _Progression.of(0, 1)
        if name in formals[2:]:
            return self._state(formals.index(name) - 2) if depth else None
        if (number := _only(self.inside(name))) is not None:
            return _Progression.of(number)
        node = self.makers.get(name)
        if node is None or node.op_type not in ("Add", "Sub") or not depth:
            return None
        left, right = (self.progression(one, depth - 1) for one in node.input)
        if left is None or right is None:
            return None
        sign = 1 if node.op_type == "Add" else -1
        begin, step = left.begin + sign * right.begin, left.step + sign * right.step
        return _Progression.of(begin, step, left, right)

    def _state(self, k: int) -> _Progression | None:
        """A state to which each iteration adds one number."""
        formal = self.graph.input[2 + k].name
        begin = _only(self.around(self.states[k]))
        node = self.makers.get(self.source(self.graph.output[1 + k].name))
        if begin is None or node is None or node.op_type != "Add":
            return None
        parts = [self.source(name) for name in node.input]
        steps = [_only(self.inside(name)) for name in parts if name != formal]
        if len(steps) != 1 or steps[0] is None:
            return None
        return _Progression.of(begin, steps[0], _Progression.of(steps[0]))


def _only(array: Array | None) -> int | None:
    """The only element of an array of wide integers."""
    if array is None or array.size != 1 or array.dtype not in (np.int32, np.int64):
        return None
    return int(array.reshape(()))


def most_iterations(
    graph: onnx.GraphProto,
    states: Sequence[str],
    inside: Contents,
    around: Contents,
    most_of: Callable[[str], int | None],
) -> int | None:
    """The most iterations of a loop whose condition compares a counter with a number or a size;
    None if no comparison bounds them.

    `inside` gives the known contents of tensors in the body, `around` those outside, `most_of` the
    most of a size that a tensor outside holds.
    """
    makers = {
        name: node for node in graph.node if node.domain in STANDARD for name in node.output if name
    }
    body = _CountingBody(graph, makers, states, inside, around)
    found = []
    for node in body.comparisons():
        less, more, also = _LESS[node.op_type]
        counter, limit = body.progression(node.input[less]), body.progression(node.input[more])
        most = most_of(body.source(node.input[more]))
        limit = limit if most is None else _Progression.of(most)
        if counter is None or limit is None:
            continue
        # Iteration i is followed by another one only if i · step < room.
        step, room = counter.step - limit.step, limit.begin - counter.begin + also
        if step > 0:
            trips = 1 + max(0, -(-room // step))
            found += [trips] if trips <= min(counter.held, limit.held) else []
    return min(found, default=None)
