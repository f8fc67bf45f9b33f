"""How long each scheduling primitive takes on a kernel of ten loops, and the schedules of a model.

    python benchmarks/schedule_primitives.py [--only NAME] [--model zoo:resnet50]

The kernel is a convolution with its start value, a bias and an activation.  A primitive is applied
to kernels of several sizes, so that no proof is one that is known already; median and worst are of
these, in milliseconds, and those whose median exceeds the budget are marked.  With a model, the
times of its kernels' schedules are added, those of one compilation with empty caches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.arith import Var
from graphflow.codegen import instruction
from graphflow.layout import blocked
from graphflow.models import named
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.schedule import PadValue, Schedule
from graphflow.tir import Call, buffers_of, loops_of, parse, parse_predicate, walk

BUDGET = 5.0
"""Milliseconds that a primitive may take."""

SIZES = (25, 28, 29, 31, 33)
"""Heights and widths of the kernels that a primitive is applied to."""

KERNEL = """
@primfunc
def k(x: f32[8, {n}, {n}], w: f32[16, 8, 3, 3], b: f32[16], y: out[f32[16, {m}, {m}]]):
    v = alloc(f32[16], scratch)
    t = alloc(f32[16, {m}, {m}], scratch)
    with block("bias"):
        for z in serial(0, 16):
            v[z] = b[z]
    with block("conv"):
        for c in serial(0, 16):
            for h in serial(0, {m}):
                for i in serial(0, {m}):
                    t[c, h, i] = f32(0.0)
                    for r in serial(0, 8):
                        for s in serial(0, 3):
                            for u in serial(0, 3):
                                t[c, h, i] += x[r, h + s, i + u] * w[c, r, s, u]
    with block("relu"):
        for a in serial(0, 16):
            for d in serial(0, {m}):
                for e in serial(0, {m}):
                    y[a, d, e] = max(t[a, d, e] + v[a], f32(0.0))
"""

BANDS = """
@primfunc
def k(x: f32[8, {n}, {n}], w: f32[8, 8, 3, 3], b: f32[8, 8, 3, 3], y: out[f32[8, {m}, {m}]]):
    t = alloc(f32[8, {o}, {o}], scratch)
    for g in serial(0, {o}):
        for c in serial(0, 8):
            for i in serial(0, {o}):
                t[c, g, i] = f32(0.0)
                for r in serial(0, 8):
                    for s in serial(0, 3):
                        for u in serial(0, 3):
                            t[c, g, i] += x[r, g + s, i + u] * w[c, r, s, u]
        if 2 <= g:
            for d in serial(0, 8):
                for e in serial(0, {m}):
                    y[d, g - 2, e] = f32(0.0)
                    for p in serial(0, 8):
                        for q in serial(0, 3):
                            for v in serial(0, 3):
                                y[d, g - 2, e] += t[p, g - 2 + q, e + v] * b[d, p, q, v]
"""
"""Two convolutions, of which the second works on a row once the three that it needs are there."""

STAGES = """
@primfunc
def k(x: f32[{n}, 16], y: out[f32[{n}, 16]]):
    s = alloc(f32[16], scratch)
    t = alloc(f32[16], scratch)
    u = alloc(f32[2], scratch)
    v = alloc(f32[16], scratch)
    with block("ends"):
        u[0] = x[0, 0]
        u[1] = x[{n} - 1, 15]
    for i in serial(0, {n}):
        for a in serial(0, 16):
            s[a] = x[i, a]
            v[a] = x[i, a]
        for b in serial(0, 16):
            y[i, b] = s[b] + u[0]
        for c in serial(0, 16):
            t[c] = x[i, c] * u[1]
        for d in serial(0, 16):
            y[i, d] += t[d]
            y[i, d] += x[i, d]
"""
"""Loops one after another, with two buffers that are not needed at the same time, one with constant
indices, and one that nothing reads."""


def bands(size: int) -> Schedule:
    """Two convolutions in one loop over rows."""
    return Schedule.of(parse(BANDS.format(n=size, o=size - 2, m=size - 4)))


def stages(size: int) -> Schedule:
    """The kernel with several buffers."""
    return Schedule.of(parse(STAGES.format(n=size)))


def first(size: int) -> Schedule:
    """The kernel with inputs of this height and width."""
    return Schedule.of(parse(KERNEL.format(n=size, m=size - 2)))


def guarded(size: int) -> Schedule:
    """With a loop over blocks of 5, which needs a condition."""
    return first(size).divide_loop("e", 5, ("eo", "ei"), "guard")


def cut(size: int) -> Schedule:
    """With one loop in two pieces."""
    return first(size).cut_loop("a", 8, "_rest")


def rows(size: int) -> Schedule:
    """With a buffer that each row has for itself."""
    return first(size).fission("i", 1, "_sum", 2).stage_mem("h_sum", "t", "p", ("i_sum",))


def padded(size: int, value: PadValue = 0.0) -> Schedule:
    """With an output in blocks of 8 columns, whose padding holds a value."""
    return first(size).transform_layout("y", blocked((16, size - 2, size - 2), 2, 8), value)


def along(size: int, value: PadValue = 0.0) -> Schedule:
    """With loops along the blocks of such an output."""
    return padded(size, value).sequential_buffer_access("relu", "y", ("p0", "p1", "p2", "p3"))


def free(size: int) -> Schedule:
    """The same, where its padding may hold anything."""
    return along(size, "undef")


def bound(size: int) -> Schedule:
    """With a value in a buffer of its own."""
    return first(size).bind_expr("e", "v", "one")


def cached(size: int) -> Schedule:
    """With a copy of the output."""
    return first(size).cache_write("y", "q")


def called(size: int) -> Schedule:
    """With a call of a kernel."""
    return first(size).extract_subproc("e", "row")


def faster(s: Schedule) -> Schedule:
    """A schedule of the called kernel."""
    call = next(stmt for stmt in walk(s.func.body) if isinstance(stmt, Call))
    row = Schedule.of(call.definition)
    return row.mark_unrolled(next(loops_of(row.func.body)).var.name)


def overcomputed(size: int) -> Schedule:
    """The output in blocks of columns, computed in its padding too."""
    return free(size).remove_branching_through_overcompute("p0", wrap=True)


def columns(s: Schedule) -> int:
    """How many columns the output has without its padding."""
    return next(b.shape[2] for b in buffers_of(s.func) if b.name == "t")


def lanes(size: int) -> Schedule:
    """With eight channels together, as the instruction `fma8` has them."""
    s = first(size).transform_layout("w", lambda c, r, s, u: (c // 8, r, s, u, c % 8))
    s = s.transform_layout("t", lambda c, h, i: (c // 8, h, i, c % 8))
    s = s.fission("i", 1, "_sum", 3).divide_loop("c_sum", 8, ("co", "ci"), "perfect")
    s = s.reorder_loops(("h_sum", "i_sum", "r", "s", "u", "ci"))
    return s.simplify()


@dataclass(frozen=True)
class Case:
    """One application: the schedule before it, and the step."""

    step: Callable[[Schedule], Schedule]
    begin: Callable[[int], Schedule] = first


CASES: dict[str, Case] = {
    "absorb_padding": Case(lambda s: s.absorb_padding("relu", "y"), along),
    "add_loop": Case(lambda s: s.add_loop("z", "again", 2)),
    "assume_finite": Case(lambda s: s.assume_finite("w", "weights")),
    "assume_reciprocal": Case(lambda s: s.assume_reciprocal("w", "weights")),
    "bind_expr": Case(lambda s: s.bind_expr("e", "v", "one")),
    "cache_read": Case(lambda s: s.cache_read("x", "q")),
    "cache_write": Case(lambda s: s.cache_write("y", "q")),
    "call_eqv": Case(lambda s: s.call_eqv("row", faster(s)), called),
    "commute_expr": Case(lambda s: s.commute_expr("e[0]", "t[a, d, e] + v[a]")),
    "compute_at": Case(lambda s: s.compute_at("bias", "a")),
    "cut_loop": Case(lambda s: s.cut_loop("h", 4, "_rest")),
    "delete_buffer": Case(lambda s: s.delete_buffer("v"), stages),
    "divide_dim": Case(lambda s: s.divide_dim("t", 0, 4)),
    "divide_loop": Case(lambda s: s.divide_loop("h", 5, ("ho", "hi"), "guard")),
    "divide_with_recompute": Case(lambda s: s.divide_with_recompute("d", 3, 6, ("do", "di"))),
    "eliminate_dead_code": Case(lambda s: s.eliminate_dead_code()),
    "expand_dim": Case(lambda s: s.expand_dim("v", 16, 0)),
    "extract_subproc": Case(lambda s: s.extract_subproc("e", "row")),
    "fission": Case(lambda s: s.fission("i", 1, "_sum", 3)),
    "flatten_buffer": Case(lambda s: s.flatten_buffer("t")),
    "fuse": Case(lambda s: s.fuse("conv", "relu")),
    "inline": Case(lambda s: s.inline("row"), called),
    "inline_assign": Case(lambda s: s.inline_assign("e[1]"), bound),
    "join_loops": Case(lambda s: s.join_loops("a", "a_rest"), cut),
    "lift_alloc": Case(lambda s: s.lift_alloc("p"), rows),
    "lift_conditions": Case(lambda s: s.lift_conditions("eo"), guarded),
    "lift_scope": Case(lambda s: s.lift_scope("e")),
    "lift_stages": Case(lambda s: s.lift_stages("y"), cached),
    "mark_unrolled": Case(lambda s: s.mark_unrolled("u")),
    "merge_conditions": Case(lambda s: s.merge_conditions(), guarded),
    "merge_writes": Case(lambda s: s.merge_writes("d[0]", "d[1]"), stages),
    "mult_dim": Case(lambda s: s.mult_dim("t", 1, 2)),
    "mult_loops": Case(lambda s: s.mult_loops("d", "e", "de")),
    "name_statement": Case(lambda s: s.name_statement("i[0]", "start")),
    "parallelize_loop": Case(lambda s: s.parallelize_loop("c")),
    "partition_loop": Case(lambda s: s.partition_loop("eo"), guarded),
    "rearrange_dim": Case(lambda s: s.rearrange_dim("t", (1, 2, 0))),
    "remove_branching_through_overcompute": Case(
        lambda s: s.remove_branching_through_overcompute("p0", wrap=True), free
    ),
    "remove_loop": Case(
        lambda s: s.remove_loop("again"), lambda n: first(n).add_loop("z", "again", 2)
    ),
    "remove_no_op": Case(lambda s: s.remove_no_op()),
    "remove_overcompute_through_branching": Case(
        lambda s: s.remove_overcompute_through_branching("p3", f"8*p2 + p3 < {columns(s)}"),
        overcomputed,
    ),
    "reorder_loops": Case(lambda s: s.reorder_loops(("u", "s", "r"))),
    "reorder_stmts": Case(lambda s: s.reorder_stmts("bias", "conv")),
    "replace": Case(lambda s: s.replace("ci", instruction("fma8")), lanes),
    "replace_known_loads": Case(lambda s: s.replace_known_loads()),
    "resize_dim": Case(lambda s: s.resize_dim("t", 2, 40)),
    "resize_dim in bands": Case(lambda s: s.resize_dim("t", 1, 3, 0, True), bands),
    "restrict_loop": Case(lambda s: s.restrict_loop("ei"), guarded),
    "reuse_buffer": Case(lambda s: s.reuse_buffer("s", "t"), stages),
    "reverse_compute_at": Case(lambda s: s.reverse_compute_at("relu", "conv")),
    "rewrite_expr": Case(lambda s: s.rewrite_expr("e[0]", Var("a"), (Var("a") + 16) % 16)),
    "rfactor": Case(lambda s: s.rfactor("r", "u", "t", 3, "sums")),
    "sequential_buffer_access": Case(
        lambda s: s.sequential_buffer_access("relu", "y", ("p0", "p1", "p2", "p3")), padded
    ),
    "set_memory": Case(lambda s: s.set_memory("t", "global")),
    "set_precision": Case(lambda s: s.set_precision("v", "float64")),
    "shift_loop": Case(lambda s: s.shift_loop("h", 3)),
    "simplify": Case(lambda s: s.simplify(), guarded),
    "sink_alloc": Case(lambda s: s.sink_alloc("p", "h_sum"), lambda n: rows(n).lift_alloc("p")),
    "specialize": Case(lambda s: s.specialize("e", (parse_predicate("a < 8"),))),
    "split_condition": Case(lambda s: s.split_condition("ei"), guarded),
    "stage_mem": Case(lambda s: s.stage_mem("d", "y", "p", ("e",))),
    "stage_window": Case(lambda s: s.stage_window("h", "x", "p")),
    "state_padding": Case(lambda s: s.state_padding("y", 0.0), cached),
    "transform_layout": Case(
        lambda s: s.transform_layout("y", lambda c, h, i: (h, i, c // 8, c % 8))
    ),
    "unroll_buffer": Case(lambda s: s.unroll_buffer("u", 0), stages),
    "unroll_loop": Case(lambda s: s.unroll_loop("u")),
    "vectorize_loop": Case(lambda s: s.vectorize_loop("e")),
}
"""An application of most primitives; the others differ from one of these in little."""


def milliseconds(case: Case) -> Iterator[float]:
    """The time of the step on each of the kernels."""
    for size in SIZES:
        schedule = case.begin(size)
        started = time.process_time()
        case.step(schedule)
        yield 1e3 * (time.process_time() - started)


def primitives(only: str) -> Table:
    """Median and worst by primitive."""
    table = Table("primitive", "median ms", "worst ms", "")
    for name, case in CASES.items():
        if only in name:
            times = list(milliseconds(case))
            mark = "over the budget" if median(times) > BUDGET else ""
            table.add_row(name, f"{median(times):.2f}", f"{max(times):.2f}", mark)
    return table


def schedules(model: str) -> Table:
    """The time that the schedules of a model's kernels take in all, and the longest."""
    options = gf.Options(workers=0, cache="off")
    made = compile_graph(CompileRequest(named(model), name=model, options=options))
    times = made.timings["steps"]["schedule"]
    table = Table("kernel", "ms to schedule")
    for symbol in sorted(times, key=lambda s: -times[s])[:8]:
        table.add_row(symbol, f"{1e3 * times[symbol]:.1f}")
    table.add_row(f"all {len(times)}", f"{1e3 * sum(times.values()):.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--model", default="")
    given = parser.parse_args()
    console = Console()
    console.print(primitives(given.only))
    if given.model:
        console.print(schedules(given.model))


if __name__ == "__main__":
    main()
