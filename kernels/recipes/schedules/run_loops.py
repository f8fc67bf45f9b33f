"""The loops of an elementwise kernel that walks memory in runs.

In: a nest in the order of the output's memory, and the length of a run.  Out: the same iterations
in the same order, in a nest whose innermost loop is one run.  ScheduleError where a step is
refused: loops that do not follow each other directly.
"""

from __future__ import annotations

from graphflow.schedule import Handle, Schedule, divide_loop, mult_loops, simplify


def in_runs(s: Schedule, axes: tuple[Handle, ...], run: int) -> tuple[Schedule, tuple[Handle, ...]]:
    """`for i: for j in (0, n): S` → `for p: for k in (0, run): S[i, j → …]`: the same elements in
    the same order, the innermost loop as long as a run.

    It joins as few of the innermost loops as have a multiple of `run` iterations together.
    """
    present = list(s.present(axes))
    while (s.loop(present[-1]).extent or 0) % run and len(present) > 1:
        inner, outer = present.pop(), present.pop()
        s = s.apply(mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner))
        present += s.made["loop"]
    if s.loop(present[-1]).extent != run:
        lane = present.pop()
        parts = (s.fresh("{}p", lane), s.fresh("{}r", lane))
        s = s.apply(divide_loop, s[lane], run, parts, "perfect")
        present += s.made["parts"]
    return s.apply(simplify), tuple(present)
