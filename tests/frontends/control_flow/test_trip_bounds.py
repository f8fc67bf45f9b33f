"""Tests of loops that end by a counter of their own: how often they iterate at most."""

import numpy as np
import pytest

from graphflow.frontends.control_flow.trip_bounds import most_iterations
from support.control_flow import native
from support.texts import parsed

F32 = np.float32

CONDITIONS = {
    "counter before its step": ("go = Less(k, cap)", 12),
    "counter behind its step": ("go = Less(k2, cap)", 11),
    "or equal": ("go = LessOrEqual(k2, cap)", 12),
    "greater": ("go = Greater(cap, k2)", 11),
    "or equal, greater": ("go = GreaterOrEqual(cap, k2)", 12),
    "number of the iteration": ("j = Add(i, one) go = Less(j, cap)", 11),
    "number, less a constant": ("j = Sub(i, one) go = Less(j, cap)", 13),
    "and another": (
        "l = Less(k2, cap) m = Greater(h2, least) n = And(m, l) go = Cast <to = 9> (n)",
        11,
    ),
    "down": ("go = Greater(k2, cap)", None),
    "data": ("go = Greater(h2, least)", None),
    "or": ("l = Less(k2, cap) m = Greater(h2, least) go = Or(l, m)", None),
    "of bytes": ("b = Cast <to = 2> (k2) l = Cast <to = 7> (b) go = Less(l, cap)", None),
    "size": ("go = Less(k2, outside)", 30),
    "of 32 bits": ("b = Cast <to = 6> (k2) go = Less(b, cap)", 11),
    "of more than they hold": ("go = Less(k2, far)", None),
    "that wraps around": ("b = Cast <to = 6> (below) go = Less(k2, b)", None),
    "that is computed of what wraps": (
        "b = Cast <to = 6> (below) e = Cast <to = 7> (b) f = Sub(e, below) go = Less(k2, f)",
        None,
    ),
}
TEXT = """g (float x, float least, int64 outside) => (float[n] y) {{
    y, last, count = Loop (big, yes, none, zero, x) <
        body = b (int64 i, bool c, float[q] before, int64 k, float h)
            => (bool go, float[r] behind, int64 k2, float h2) {{
            g = Cos(h) h2 = Mul(g, h) row = Unsqueeze(h2, first)
            behind = Concat <axis = 0> (before, row) k2 = Add(k, one) {condition} }}> }}"""
NUMBERS = {
    "big": np.array(2**63 - 1), "yes": np.array(True), "none": np.zeros(0, F32),
    "zero": np.array(0), "one": np.array(1), "cap": np.array(11), "first": np.array([0]),
    "far": np.array(2**31 + 5), "below": np.array(10 - 2**32),
}  # fmt: skip


@pytest.mark.parametrize("which", CONDITIONS)
def test_a_comparison_of_a_counter_bounds_a_loop(which):
    condition, most = CONDITIONS[which]
    model = parsed(TEXT.format(condition=condition), **NUMBERS)
    (loop,) = model.graph.node
    known = {name: np.asarray(array) for name, array in NUMBERS.items()}
    found = most_iterations(
        loop.attribute[0].g, loop.input[2:], known.get, known.get, {"outside": 30}.get
    )
    assert found == most


@pytest.mark.parametrize("which", ["counter before its step", "or equal", "and another"])
def test_a_loop_that_counts_for_itself_may_make_a_list(which):
    condition, _ = CONDITIONS[which]
    if which != "and another":
        condition = condition.replace("go =", "l =") + " m = Greater(h2, least) go = And(m, l)"
    model = parsed(TEXT.format(condition=condition), **NUMBERS)
    feeds = [
        {"x": np.array(1.3, F32), "least": np.array(least, F32), "outside": np.array(1)}
        for least in (-9, 0.05, 0.2, 0.3, 5)
    ]
    exe = native(model, *feeds, poison=True)
    lengths = {exe.run(given)["y"].shape for given in feeds}
    assert len(lengths) > 2


COUNTED = """g (float x, float least) => (float y) {{
    y, count = Loop (, yes, x, begin) <
        body = b (int64 i, bool c, float h, int32 k) => (bool go, float h2, int32 k2) {{
            h2 = Cos(h) k2 = Add(k, step) l = Less(k2, cap) m = Greater(h2, least)
            go = And(l, m) }}> }}"""


@pytest.mark.parametrize(
    ("begin", "step", "cap", "most"),
    [(0, 2**29, 2**30, 2), (0, 2**30, 2**31 - 1, None), (2**31 - 5, 3, 2**31 - 1, None)],
)
def test_a_counter_that_wraps_around_bounds_nothing(begin, step, cap, most):
    """It is below the greatest integer again, and the loop goes on."""
    numbers = {"begin": begin, "step": step, "cap": cap}
    known = {name: np.array(number, np.int32) for name, number in numbers.items()}
    model = parsed(COUNTED.format(), yes=np.array(True), **known)
    (loop,) = model.graph.node
    graph, states = loop.attribute[0].g, loop.input[2:]
    assert most_iterations(graph, states, known.get, known.get, {}.get) == most
