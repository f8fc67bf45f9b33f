"""`prefetch`: where it applies, what it refuses, and what later steps make of the call."""

from collections.abc import Callable

import numpy as np
import pytest

import graphflow as gf
from graphflow.arith import Var, less_than, minimum
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.codegen.emit import emit_ir
from graphflow.schedule import Handle, Schedule, prefetch, replace
from graphflow.tir import PREFETCH16, Call, LoopKind, PrimFunc, loops_of, parse, to_text, verify
from support.native import Native
from support.schedule_checks import kernel, same

PARAMS = "x: f32[6, 5], w: f32[4, 5, 32], y: out[f32[6, 4, 32]]"
PRODUCT = """
for panel in serial(0, 4):
    for row in serial(0, 6):
        for z in serial(0, 32):
            y[row, panel, z] = f32(0.0)
        for k in serial(0, 5):
            for c in serial(0, 32):
                y[row, panel, c] += x[row, k] * w[panel, k, c]
"""
panel, row, k, c = map(Var, ("panel", "row", "k", "c"))
NEXT = (minimum(panel + 1, 3), k, (16, 16))
LINE = "prefetch16(w[min(3, panel + 1), k, 16:32])"


def product() -> Schedule:
    return Schedule.of(kernel(PRODUCT, PARAMS))


def fetching() -> Schedule:
    return product().prefetch("k", "w", NEXT)


def lines(s: Schedule) -> list[str]:
    """The lines of the kernel that are calls of the instruction."""
    found = to_text(s.func).splitlines()
    return [line.strip() for line in found if line.strip().startswith("prefetch16(")]


def test_a_line_is_fetched_at_the_end_of_each_iteration() -> None:
    s = fetching()
    text = same(product().func, s)
    assert f"w[panel, k, c]\n                {LINE}\n" in text
    assert "@instruction\ndef prefetch16(line: f32[16]):\n    pass\n" in text
    assert parse(text) == s.func
    (made,) = s.made["call"]
    assert s[made] == "prefetch16"
    assert [proof.proven for proof in s.steps[-1].proofs] == [True, True]


def test_its_trace_makes_it_again() -> None:
    s = fetching().cut_loop("panel", 3, "_end").simplify()
    names: dict[str, Callable[[PrimFunc], Schedule]] = {}
    exec(s.trace(), names)  # type: ignore[arg-type]
    assert names["schedule"](s.definition).func == s.func


def test_a_second_call_gets_a_name_of_its_own() -> None:
    s = fetching().prefetch("k", "w", (panel, k, (0, 16)))
    assert lines(s) == [LINE, 'prefetch16(w[panel, k, 0:16], name="prefetch16_2")']
    same(product().func, s)


def test_a_line_that_is_used_soon_goes_to_the_first_cache() -> None:
    s = product().prefetch("k", "w", NEXT, True)
    same(product().func, s)
    assert s.made["call"] and f"prefetch16_near{LINE.removeprefix('prefetch16')}" in to_text(s.func)
    far, near = (emit_ir(x.func, "k", host_target()) for x in (fetching(), s))
    assert "i32 0, i32 2, i32 1" in far and "i32 0, i32 3, i32 1" in near


def test_another_kernel_of_the_name_is_refused() -> None:
    other = "@instruction\ndef prefetch16(line: out[f32[16]]):\n    line[0] = f32(0.0)\n\n\n"
    body = PRODUCT.strip("\n").replace("\n", "\n    ")
    func = parse(f"{other}@primfunc\ndef k({PARAMS}):\n    prefetch16(y[0, 0, 0:16])\n    {body}\n")
    with pytest.raises(ScheduleError, match="calls another kernel prefetch16 already"):
        prefetch(func, "k", "w", NEXT)


# Later steps --------------------------------------------------------------------------------------

STEPS: dict[str, tuple[Callable[[Schedule], Schedule], list[str]]] = {
    "divide_loop": (
        lambda s: s.divide_loop("k", 2, ("ko", "ki"), "cut"),
        [
            "prefetch16(w[min(3, panel + 1), 2*ko + ki, 16:32])",
            'prefetch16(w[min(3, panel + 1), ki_tail + 4, 16:32], name="prefetch16_tail")',
        ],
    ),
    "cut_loop": (
        lambda s: s.cut_loop("row", 4, "_end"),
        [LINE, f'{LINE[:-1].replace("k,", "k_end,")}, name="prefetch16_end")'],
    ),
    "cut_loop of panels": (
        lambda s: s.cut_loop("panel", 3, "_end").simplify(),
        [
            "prefetch16(w[panel + 1, k, 16:32])",
            'prefetch16(w[3, k_end, 16:32], name="prefetch16_end")',
        ],
    ),
    "fission": (
        lambda s: s.fission("row", 1, "_2"),
        ["prefetch16(w[min(3, panel + 1), k, 16:32])"],
    ),
    "fission before the call": (
        lambda s: s.fission("k", 1, "_2"),
        ["prefetch16(w[min(3, panel + 1), k_2, 16:32])"],
    ),
    "reorder_loops": (lambda s: s.reorder_loops(("panel", "row")), [LINE]),
    "unroll_loop": (
        lambda s: s.unroll_loop("panel"),
        [
            "prefetch16(w[1, k, 16:32])",
            'prefetch16(w[2, k_1, 16:32], name="prefetch16_1")',
            'prefetch16(w[3, k_2, 16:32], name="prefetch16_2")',
            'prefetch16(w[3, k_3, 16:32], name="prefetch16_3")',
        ],
    ),
    "mult_loops": (
        lambda s: s.mult_loops("panel", "row", "tile").parallelize_loop("tile"),
        ["prefetch16(w[min(3, tile // 6 + 1), k, 16:32])"],
    ),
    "specialize": (
        lambda s: s.specialize("row", (less_than(panel, 3),)),
        [LINE, f'{LINE[:-1].replace("k,", "k_1,")}, name="prefetch16_1")'],
    ),
    "vectorize_loop": (lambda s: s.vectorize_loop("c"), [LINE]),
    "stage_mem": (lambda s: s.stage_mem("k", "y", "t", ("c",)), [LINE]),
    "stage_window of the buffer": (lambda s: s.stage_window("row", "w", "v"), [LINE]),
    "inline": (lambda s: s.inline("prefetch16"), []),
    "simplify": (lambda s: s.simplify(), [LINE]),
    "remove_no_op": (lambda s: s.remove_no_op(), [LINE]),
    "eliminate_dead_code": (lambda s: s.eliminate_dead_code(), [LINE]),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_later_step_keeps_the_call(step: str) -> None:
    apply, want = STEPS[step]
    s = apply(fetching())
    same(product().func, s)
    assert lines(s) == want


@pytest.mark.parametrize("step", ["layout", "precision", "axes", "scope"])
def test_a_step_that_takes_the_buffer_away_is_refused(step: str) -> None:
    """No rewrite of accesses reaches its window; the message says what to do."""
    func = kernel(
        "u = alloc(f32[4, 32])\nfor a in serial(0, 4):\n    for b in serial(0, 32):\n"
        "        u[a, b] = w[a, 0, b]\nfor i in serial(0, 4):\n    for j in serial(0, 32):\n"
        "        y[0, i, j] = u[i, j]",
        PARAMS,
    )
    s = Schedule.of(func).prefetch("a", "u", (minimum(Var("a") + 1, 3), (0, 16)))
    steps: dict[str, Callable[[Schedule], Schedule]] = {
        "layout": lambda s: s.transform_layout("u", lambda i, j: (j, i)),
        "precision": lambda s: s.set_precision("u", "float64"),
        "axes": lambda s: s.divide_dim("u", 1, 16),
        "scope": lambda s: s.rearrange_dim("u", (1, 0)),
    }
    with pytest.raises(ScheduleError, match=r"calls: prefetch16, .* names u: .* inline the call"):
        steps[step](s)
    same(func, steps[step](s.inline("prefetch16")))


def test_a_step_that_takes_the_buffer_of_a_kernel_that_prefetches_away_is_refused() -> None:
    func = kernel("for j in serial(0, 4):\n    y[0, 0, j] = x[0, j]", PARAMS)
    s = Schedule.of(func).prefetch("j", "w", (0, 0, (0, 16))).extract_subproc("j", "part")
    with pytest.raises(ScheduleError, match=r"calls: part, .* names w: .* inline the call"):
        s.transform_layout("w", lambda i, j, k: (j, i, k))


def test_a_variable_that_a_step_takes_away_is_put_in_or_the_step_is_refused() -> None:
    func = kernel(
        "for i in serial(0, 2):\n    for j in serial(0, 4):\n        y[0, 0, j] = x[0, j]", PARAMS
    )
    s = Schedule.of(func).prefetch("j", "w", (Var("i"), 0, (0, 16)))
    with pytest.raises(ScheduleError, match="the body of i depends on i"):
        s.remove_loop("i")
    assert lines(s.unroll_loop("i"))[0] == "prefetch16(w[0, 0, 0:16])"


def test_the_call_goes_with_a_buffer_that_nothing_reads() -> None:
    func = kernel(
        "t = alloc(f32[16])\nfor i in serial(0, 4):\n    t[i] = x[0, i]\n"
        "for j in serial(0, 4):\n    y[0, 0, j] = x[0, j]",
        PARAMS,
    )
    s = Schedule.of(func).prefetch("j", "t", ((0, 16),)).prefetch("j", "w", (0, 0, (0, 16)))
    for done in (s.delete_buffer("t"), s.eliminate_dead_code(), s.remove_no_op()):
        assert lines(done) == ['prefetch16(w[0, 0, 0:16], name="prefetch16_2")']
        same(func, done)


@pytest.mark.parametrize(("writes", "left"), [(1, 1), (2, 0)])
def test_what_is_removed_around_the_call(writes: int, left: int) -> None:
    """A store without an effect goes by itself, a loop of several as a whole."""

    def loop(name: str) -> str:
        stores = (f"    y[0, {n}, {name}] = x[0, {name}]\n" for n in range(writes))
        return f"for {name} in serial(0, 4):\n{''.join(stores)}"

    func = kernel(loop("i") + loop("j"), PARAMS)
    s = Schedule.of(func).prefetch("i", "w", (Var("i"), 0, (0, 16))).remove_no_op("i")
    assert len(lines(s)) == left
    same(func, s)


def test_the_call_stays_in_a_stage_that_is_computed_elsewhere() -> None:
    func = kernel(
        "t = alloc(f32[5])\nwith block('first'):\n    for a in serial(0, 5):\n"
        "        t[a] = x[0, a]\nfor i in serial(0, 5):\n    y[0, 0, i] = t[i]",
        PARAMS,
    )
    s = Schedule.of(func).prefetch("a", "w", (0, Var("a"), (0, 16))).compute_at("first", "i")
    assert len(lines(s)) == 1
    same(func, s)


def test_a_kernel_of_its_own_gets_what_it_fetches() -> None:
    """Nothing in the loop reads w."""
    func = kernel("for i in serial(0, 4):\n    y[i, 0, 0] = x[i, 0]", PARAMS)
    s = Schedule.of(func).prefetch("i", "w", (Var("i"), 0, (0, 16))).extract_subproc("i", "part")
    text = same(func, s)
    assert "def part(x: f32[6, 5], y: inout[f32[6, 4, 32]], w: f32[4, 5, 32]):" in text
    assert "prefetch16(w[i, 0, 0:16])" in text
    assert "llvm.prefetch" in emit_ir(s.func, "k", host_target())
    same(func, s.inline("part"))


def test_no_statement_is_replaced_by_what_performs_nothing() -> None:
    with pytest.raises(ScheduleError, match=r"prefetch16 has `nothing` where the statement has"):
        product().apply(replace, "c", PREFETCH16)


# In a register tile -------------------------------------------------------------------------------

MATMUL = """
for i in serial(0, 8):
    for p in serial(0, 4):
        for c in serial(0, 32):
            y[i, p, c] = f32(0.0)
            for k in serial(0, 5):
                y[i, p, c] += x[i, k] * w[p, k, c]
"""


def register_tile() -> tuple[Schedule, tuple[Handle, ...]]:
    """Rows by fours with their sums in registers, as recipes make them, and the loops over panels,
    over row tiles, and over the reduction."""
    func = kernel(MATMUL, PARAMS.replace("f32[6", "f32[8"))
    s = Schedule.of(func).reorder_loops(("p", "i"))
    s = s.divide_loop("i", 4, ("row", "r"), "perfect")
    s = s.divide_loop("c", 16, ("half", "lane"), "perfect")
    s = s.stage_mem("row", "y", "t", ("r", "half", "lane"), "register")
    s = s.fission("lane", 1, "_sum", lifts=3)
    s = s.reorder_loops(("k", "r_sum", "half_sum", "lane_sum"))
    for end in ("_sum", "", "_out"):
        s = s.mark_unrolled(f"r{end}").mark_unrolled(f"half{end}").vectorize_loop(f"lane{end}")
    return s, tuple(map(s.handle, ("p", "row", "k")))


def bordered(s: Schedule, outer: Handle, rows: Handle, inner: Handle) -> Schedule:
    return s.cut_loop(s[rows], 1, "_end").simplify().parallelize_loop(s[outer])


def in_threads(s: Schedule, outer: Handle, rows: Handle, inner: Handle) -> Schedule:
    s = s.mult_loops(s[outer], s[rows], "tile").parallelize_loop("tile")
    return s.specialize(s[inner], (less_than(Var("tile"), 6),)).simplify()


@pytest.mark.parametrize("finish", [bordered, in_threads])
@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_the_next_panel_is_fetched_in_the_loop_over_the_reduction(
    finish: Callable[..., Schedule], target: Target
) -> None:
    """Each row tile fetches its share of the panel behind, which no tile has read before."""
    s, (outer, rows, inner) = register_tile()
    ahead = minimum(Var(s[outer]) + 1, 3)
    s = s.prefetch(s[inner], "w", (ahead, Var(s[inner]), (16 * Var(s[rows]), 16)))
    s = finish(s, outer, rows, inner)
    same(s.definition, s)
    verify(s.func, "lowered")
    ir = emit_ir(s.func, "k", target)
    loops = loops_of(s.func.body)
    fetching = [x for x in loops if any(isinstance(y, Call) for y in x.body)]
    assert len(fetching) == 2 and all(x.var.name.startswith("k") for x in fetching)
    assert ir.count("call void @llvm.prefetch.p0(ptr %") == 2
    assert ir.count(", i32 0, i32 2, i32 1)") == 2
    random = np.random.default_rng(1)
    x, w = random.random((8, 5), "f"), random.random((4, 5, 32), "f")
    (threads,) = (x.extent or 0 for x in loops_of(s.func.body) if x.kind is LoopKind.PARALLEL)
    got = Native(s.func, target)({"x": x, "w": w}, ((0, 3), (3, threads)))["y"]
    np.testing.assert_allclose(got, np.einsum("ik,pkc->ipc", x, w), rtol=1e-5)


def test_a_hint_beside_a_parallel_loop_is_work_that_threads_would_repeat() -> None:
    text = "for i in serial(0, 16):\n    y[i] = x[i] + f32(1.0)"
    s = Schedule.of(kernel(text, "x: f32[16], y: out[f32[16]]"))
    s = s.prefetch("i", "x", ((0, 16),)).fission("i", 1, "_h").parallelize_loop("i")
    x = np.arange(16, dtype="float32")
    exe = gf.build(s, threads=2, options=gf.Options(cache="off"))
    np.testing.assert_array_equal(exe.run({"x": x})["y"], x + 1)
