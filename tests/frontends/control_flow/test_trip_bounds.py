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
