"""Tests of native code against the interpreter, and of elementary functions against numpy."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow.codegen as codegen
from graphflow.arith import (
    IndexExpr,
    IndexLike,
    Var,
    as_index,
    at_least_zero,
    const,
    equal,
    floor_div,
    floor_mod,
    less_than,
    maximum,
    minimum,
    within,
)
from graphflow.base.dtypes import STORED
from graphflow.base.errors import CodegenError
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, compile_object, emit_assembly, host_target
from graphflow.codegen.emit import emit_ir
from graphflow.codegen.math import ERROR_ULPS
from graphflow.codegen.target_machine import object_code
from graphflow.tir import (
    DTYPES,
    FLOATS,
    TRIGONOMETRIC,
    Allocate,
    Assume,
    Binary,
    Block,
    Buffer,
    Cast,
    Comparison,
    Expr,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    LoopKind,
    Param,
    PrimFunc,
    Reduce,
    ReduceOp,
    Role,
    Select,
    Stmt,
    Store,
    Unary,
    Undef,
    float32,
    interpret,
    map_body,
    parse,
    rename_buffers,
    walk,
)
from support.native import Array, Native
from support.strategies import FLOAT_KERNELS, INTEGER_KERNELS, input_arrays, primfuncs
from support.targets import in_turn

TARGETS = (host_target(), avx2_target())
i, j, k, v, o = (Var(name) for name in "ijkvo")


def loop(var: Var, stop: IndexLike, *body: Stmt, kind: str = "serial", start: IndexLike = 0) -> For:
    return For(var, as_index(start), as_index(stop), LoopKind(kind), body)


def kernel(inputs: list[Buffer], outputs: list[Buffer], *body: Stmt) -> PrimFunc:
    params = [Param(b, Role.INPUT) for b in inputs] + [Param(b, Role.OUTPUT) for b in outputs]
    return PrimFunc("k", tuple(params), body)


def numbers(buffer: Buffer, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if buffer.dtype == "bool":
        return rng.integers(0, 2, buffer.shape).astype(bool)
    if buffer.dtype.startswith("float"):
        return rng.standard_normal(buffer.shape).astype(buffer.dtype)
    info = np.iinfo(buffer.dtype)
    return rng.integers(max(info.min, -100), 100, buffer.shape).astype(buffer.dtype)


def check(
    func: PrimFunc,
    arrays: dict[str, Array] | None = None,
    slices: tuple[tuple[int, int], ...] = ((0, 1),),
    rtol: float = 2e-6,
    targets: tuple[Target, ...] = TARGETS,
) -> dict[str, Array]:
    """Native results equal the interpreter's; those of the last target are returned."""
    given_arrays = arrays or {b.name: numbers(b, n) for n, b in enumerate(func.inputs)}
    expected = interpret(func, given_arrays)
    got: dict[str, Array] = {}
    for target in targets:
        got = Native(func, target)(given_arrays, slices)
        for name, want in expected.items():
            np.testing.assert_allclose(got[name], want, rtol=rtol, atol=rtol)
    return got


# ---- whole kernels


def register_tile(lanes: int, pixels: int, steps: int, channels: int) -> PrimFunc:
    """Weighted sums in a register tile: y[p, c] = Σ x[p, s]·w[s, c], with a tail of channels."""
    vectors = -(-channels // lanes)
    x, w = Buffer("x", (4 * pixels, steps)), Buffer("w", (steps, vectors * lanes))
    y = Buffer("y", (4 * pixels, channels))
    acc = Buffer("acc", (pixels, vectors, lanes), scope="register")

    def tile(tag: str, body: Callable[[Var, Var, Var], Stmt]) -> Stmt:
        a, b, c = Var("a" + tag), Var("b" + tag), Var("c" + tag)
        inner = loop(b, vectors, loop(c, lanes, body(a, b, c), kind="vectorized"), kind="unrolled")
        return loop(a, pixels, inner, kind="unrolled")

    product = lambda a, b, c: Binary(  # noqa: E731
        "mul", Load(x, (o * pixels + a, k)), Load(w, (k, b * lanes + c))
    )
    body = (
        Allocate(acc),
        tile("0", lambda a, b, c: Store(acc, (a, b, c), float32(0.0))),
        loop(k, steps, tile("1", lambda a, b, c: Reduce(
            ReduceOp.ADD, acc, (a, b, c), product(a, b, c)))),
        tile("2", lambda a, b, c: If(
            less_than(b * lanes + c, channels),
            (Store(y, (o * pixels + a, b * lanes + c), Load(acc, (a, b, c))),),
        )),
    )  # fmt: skip
    return kernel([x, w], [y], loop(o, 4, Block("tiles", body), kind="parallel"))


@pytest.mark.parametrize("channels", [32, 20, 33])
def test_register_tile(channels: int) -> None:
    check(register_tile(16, 3, 5, channels), slices=((0, 4),), rtol=1e-5)


def test_parallel_slices_do_their_part_only() -> None:
    func = register_tile(8, 2, 3, 8)
    whole = check(func, slices=((2, 4), (0, 1), (1, 2)), rtol=1e-5)["y"]
    arrays = {b.name: numbers(b, n) for n, b in enumerate(func.inputs)}
    untouched = Native(func, host_target())(arrays, ((1, 2),))["y"].view(np.uint32)
    assert (untouched[[0, 1, 4, 5]] == 0xA5A5A5A5).all()
    np.testing.assert_array_equal(untouched[2:4].view(np.float32), whole[2:4])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_register_tile_stays_in_registers(target: Target) -> None:
    lanes = target.lanes("float32")
    text = emit_assembly(register_tile(lanes, 5, 64, 2 * lanes), "k", target)
    fused = re.findall(r"vfmadd\S+ps", text)
    assert len(fused) == 10
    register = "zmm" if target.vector_bytes == 64 else "ymm"
    narrow = emit_assembly(register_tile(8, 5, 64, 16), "k", target)
    for code in (text, narrow):
        assert not re.findall(rf"mov\S+\s+[^\n]*(\(%rsp|%{register}\d+, [^\n]*\(%r[sb]p)", code)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_vectors_that_are_spilled_lie_within_cache_lines(target: Target) -> None:
    """Without an aligned stack some runs have each spill cross two lines, and others none."""
    lanes = target.lanes("float32")
    text = emit_assembly(register_tile(lanes, target.vector_registers, 64, 2 * lanes), "k", target)
    register = "zmm" if target.vector_bytes == 64 else "ymm"
    spilled = re.findall(rf"(vmov[au]ps)\s+%{register}\d+, -?\d*\(%rsp\)", text)
    assert spilled and set(spilled) == {"vmovaps"}


def test_an_iteration_loads_each_element_of_an_input_once() -> None:
    """Of 4 rows and 2 vectors 4 numbers and 2 vectors for each of the sums' steps, not 8 and 8."""
    func = register_tile(8, 4, 16, 16)
    text = emit_ir(func, "k", replace(host_target(), vector_bytes=32))
    assert len(re.findall(r"= load float,", text)) == 4
    loads = re.findall(r"= load <8 x float>, ptr (%\w+)", text)
    locals_ = set(re.findall(r"(%v\d+) = getelementptr float, ptr %local", text)) | {"%local"}
    assert len([place for place in loads if place not in locals_]) == 2


def test_what_a_kernel_stores_is_loaded_again() -> None:
    x, y, z = Buffer("x", (2,)), Buffer("y", (2,)), Buffer("z", (2, 3))
    first, second = as_index(0), as_index(1)
    body = [
        Store(y, (first,), Load(x, (first,))),
        Store(z, (first, i), Load(y, (first,))),
        Store(y, (first,), Binary("add", Load(y, (first,)), Load(x, (second,)))),
        Store(z, (second, i), Load(y, (first,))),
    ]
    start = Store(y, (second,), Load(x, (second,)))
    check(kernel([x], [y, z], start, loop(i, 3, *body, kind="unrolled")))


def test_an_address_is_that_of_the_loop_around() -> None:
    """The same index in two loops over one variable: `i // 4` is 0 in the first alone."""
    x, y, z = Buffer("x", (3, 2)), Buffer("y", (4, 2)), Buffer("z", (8, 2))

    def copied(to: Buffer, extent: int) -> Stmt:
        store = Store(to, (i, j), Load(x, (floor_div(i + 3 * j, 4), j)))
        return loop(i, extent, loop(j, 2, store, kind="unrolled"))

    check(kernel([x], [y, z], copied(y, 4), copied(z, 8)))


def test_emitter_knows_no_operator() -> None:
    sources = sorted(Path(codegen.__file__).parent.rglob("*.py"))
    assert len(sources) >= 7
    forbidden = re.compile(
        r"conv(?!ert)|pool|gemm|matmul|relu|batch.?norm|layer.?norm|soft(max|plus)|winograd"
        r"|depthwise|concat|nhwc|nchw|channel|pixel|kernel_shape|stride_[hw]",
        re.IGNORECASE,
    )
    for source in sources:
        found = forbidden.findall(source.read_text())
        assert not found, f"{source.name}: {found}"


# ---- vectors, tails and masks


@pytest.mark.parametrize("extent", range(1, 18))
@pytest.mark.parametrize("scope", ["global", "register"])
def test_lane_tails(extent: int, scope: str) -> None:
    x, y = Buffer("x", (3, extent)), Buffer("y", (3, extent))
    if scope == "global":
        value = Binary("add", Load(x, (i, v)), IndexValue(v * 3 + i, "float32"))
        check(kernel([x], [y], loop(i, 3, loop(v, extent, Store(y, (i, v), value),
                                               kind="vectorized"))))  # fmt: skip
        return
    t = Buffer("t", (3, extent), scope="register")
    w = Var("w")
    check(kernel(
        [x], [y], Allocate(t),
        loop(i, 3, loop(v, extent, Store(t, (i, v), Load(x, (i, v))), kind="vectorized"),
             kind="unrolled"),
        loop(j, 3, loop(w, extent, Store(y, (j, w), Load(t, (j, extent - 1 - w))),
                        kind="vectorized"), kind="unrolled"),
    ))  # fmt: skip


@pytest.mark.parametrize("low, high", [(0, 16), (3, 16), (0, 11), (5, 9), (7, 7)])
def test_predicate_masks(low: int, high: int) -> None:
    """Lanes outside neither read nor write: x and y are only `high - low` long."""
    n = max(high - low, 1)
    x, y = Buffer("x", (n,)), Buffer("y", (n,))
    store = Store(y, (v - low,), Load(x, (v - low,)))
    clear = loop(i, n, Store(y, (i,), float32(-1.0)))
    check(kernel([x], [y], clear, loop(v, 16, If(within(v, low, high), (store,)),
                                       kind="vectorized")))  # fmt: skip


def test_masks_known_beforehand_are_stores_of_fewer_lanes() -> None:
    """AVX2 has no cheap masked stores; what is left out may lie outside of the buffer."""
    for first, count in ((0, 7), (1, 6), (3, 1)):
        x, y = Buffer("x", (count,)), Buffer("y", (count,))
        store = Store(y, (v - first,), Load(x, (v - first,)))
        inside = If(within(v, first, first + count), (store,))
        func = kernel([x], [y], loop(v, 8, inside, kind="vectorized"))
        check(func)
        slow = replace(avx2_target(), cycles_per_masked_store=12.0)
        assert "masked.store" not in emit_ir(func, "k", slow)


def test_zeros_outside_of_a_mask_are_those_that_its_load_leaves() -> None:
    x, y = Buffer("x", (10,)), Buffer("y", (16,))
    for other, chosen in ((0.0, False), (-0.0, True), (1.0, True)):
        value = Select(within(v, 0, 10), Load(x, (v,)), float32(other))
        func = kernel([x], [y], loop(v, 16, Store(y, (v,), value), kind="vectorized"))
        check(func)
        ir = emit_ir(func, "k", avx2_target())
        assert "masked.load" in ir and ("select" in ir) == chosen


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
@pytest.mark.parametrize("local", [False, True])
def test_vectors_of_which_all_lanes_run_are_stored_whole(dtype: str, local: bool) -> None:
    """Where a store under a mask takes long.  Lanes that do not run keep what was there: the last
    vectors end behind 20 elements, or begin there."""
    x, y = Buffer("x", (20,), dtype), Buffer("y", (20,), dtype)
    kept = Buffer("kept", (32,), dtype, "scratch") if local else y
    at = 8 * i + v
    inside = If(within(at, 0, 20), (Store(kept, (at,), Load(x, (at,))),))
    stored = loop(i, 4, loop(v, 8, inside, kind="vectorized"))
    before, after = (
        (
            Allocate(kept),
            loop(j, 32, Store(kept, (j,), Literal(7 if "int" in dtype else 7.0, dtype))),
        ),
        (loop(j, 20, Store(y, (j,), Load(kept, (j,)))),),
    )
    func = kernel([x], [y], *((*before, stored, *after) if local else (stored,)))
    check(func)
    usual = avx2_target()
    slow = replace(usual, cycles_per_masked_store=12.0)
    tested = "reduce.and" in emit_ir(func, "k", replace(usual, cycles_per_masked_store=2.0))
    assert "reduce.and" in emit_ir(func, "k", slow)
    assert tested == (dtype in {"uint8", "int16"}), "for the load"
    check(func, targets=(slow,))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bool", "float16"])
def test_vectors_of_which_all_lanes_run_are_loaded_whole(dtype: str) -> None:
    """AVX2 has no masks for less than words: a test and a load for each lane.  The last vectors
    end behind 20 elements, or begin there."""
    x, y = Buffer("x", (20,), dtype), Buffer("y", (20,), dtype)
    at = 8 * i + v
    inside = If(within(at, 0, 20), (Store(y, (at,), Load(x, (at,))),))
    func = kernel([x], [y], loop(i, 4, loop(v, 8, inside, kind="vectorized")))
    check(func)
    wide, narrow = host_target(), avx2_target()
    assert "reduce.and" in emit_ir(func, "k", narrow)
    if "+avx512bw" in wide.features:
        assert "reduce.and" not in emit_ir(func, "k", wide)


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_the_only_lane_of_a_truncated_vector_is_stored_alone(dtype: str) -> None:
    """LLVM would store a word there: the elements behind it belong to the next iteration."""
    x, y = Buffer("x", (3, 17), "int32"), Buffer("y", (3, 17), dtype)
    last = Store(y, (i, v + 16), Cast(Load(x, (i, v + 16)), dtype))
    func = kernel(
        [x], [y],
        loop(j, 3, loop(v, 16, Store(y, (2 - j, v), Cast(Load(x, (2 - j, v)), dtype)),
                        kind="vectorized")),
        loop(i, 3, loop(v, 16, If(within(v, 0, 1), (last,)), kind="vectorized")),
    )  # fmt: skip
    check(func)
    assert "masked.store" not in emit_ir(func, "k", host_target())


@pytest.mark.parametrize("scope", ["global", "register"])
def test_predicate_masks_decided_at_run_time(scope: str) -> None:
    x, y, t = Buffer("x", (4, 7)), Buffer("y", (4, 16)), Buffer("t", (16,), scope="register")
    target = (t, (v,)) if scope == "register" else (y, (i, v))
    inside = within(v - i, 0, 7)
    choice = If(inside, (Store(*target, Load(x, (i, v - i))),), (Store(*target, float32(9.0)),))
    w = Var("w")
    copy = loop(w, 16, Store(y, (i, w), Load(t, (w,))), kind="vectorized")
    body = [loop(v, 16, choice, kind="vectorized")]
    if scope == "register":
        body = [Allocate(t), *body, copy]  # type: ignore[list-item]
    check(kernel([x], [y], loop(i, 4, *body)))


def test_select_reads_only_the_side_taken() -> None:
    x, y = Buffer("x", (6,)), Buffer("y", (5, 8))
    padded = Select(within(i + v - 3, 0, 6), Load(x, (i + v - 3,)), float32(0.5))
    for kind in ("serial", "vectorized", "unrolled"):
        check(kernel([x], [y], loop(i, 5, loop(v, 8, Store(y, (i, v), padded), kind=kind))))


def test_data_conditions() -> None:
    x, y = Buffer("x", (40,)), Buffer("y", (40,))
    at = (o * 10 + v,)
    negative = Comparison("lt", Load(x, at), float32(0.0))
    then = (Store(y, at, Binary("mul", Load(x, at), float32(-2.0))),)
    orelse = (Store(y, at, Binary("add", Load(x, at), float32(10.0))),)
    for kind in ("serial", "vectorized"):
        check(kernel([x], [y], loop(o, 4, loop(v, 10, If(negative, then, orelse), kind=kind))))


MASKED = """
@primfunc
def k(x: DTYPE[LANES, 6], z: DTYPE[LANES, 6], y: out[DTYPE[6, LANES]]):
    for i in serial(0, 6):
        for j in vectorized(0, LANES):
            y[i, j] = VALUE
            if data(x[j, i] < DTYPE(0)):
                y[i, j] = z[j, i]
"""


@pytest.mark.parametrize(
    "dtype, lanes, value",
    [
        ("i64", 3, "select(data(x[j, i] == i64(3)), i64(5), z[j, i])"),
        ("i32", 3, "z[j, i] / x[j, i]"),
        ("i32", 7, "z[j, i] / x[j, i]"),
    ],
)
def test_masks_read_lane_by_lane_and_at_once(dtype: str, lanes: int, value: str) -> None:
    """A sign is tested by moving it to a mask register; LLVM may forget that it is read again."""
    text = MASKED.replace("VALUE", value).replace("LANES", str(lanes)).replace("DTYPE", dtype)
    func = parse(text)
    values = np.array([-(2**31), -4, -3, -1, 0, 1, 2, 3, 7])
    for seed in range(8):
        rng = np.random.default_rng(seed)
        drawn = {b.name: rng.choice(values, b.shape).astype(b.dtype) for b in func.inputs}
        check(func, drawn)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_idle_lanes_are_not_stored_where_a_quotient_of_the_lane_decides(target: Target) -> None:
    """`Native` checks that nothing beyond the buffer is written."""
    func = parse("""@primfunc
def kernel(x: bool[3, 2], y: out[bool[2, 4, 7]]):
    for i in unrolled(0, 2):
        for j in serial(0, 4):
            for k in vectorized(0, 7):
                if 2*j < 4 and 2*j + j // 3 >= 5 and min(3, max(-4, i)) == k // 4 and j < 1:
                    y[i, j, k] = x[((j - k) % 4 + k) % 3, (j + k) % 2]
                else:
                    y[i, j, k] = x[j % 3, i % 2]
""")
    x = np.array([[True, False], [False, True], [True, True]])
    assert (Native(func, target)({"x": x})["y"] == interpret(func, {"x": x})["y"]).all()


def test_lanes_of_masks_are_read_from_a_sum() -> None:
    """Where there are mask registers, and not elsewhere: see `IrBuilder.readable`."""
    func = parse(MASKED.replace("VALUE", "z[j, i]").replace("LANES", "4").replace("DTYPE", "i64"))
    for target in TARGETS:
        text = emit_ir(func, "k", target)
        assert ("avx512.kadd" in text) == ("+avx512dq" in target.features.split(","))
    plain = kernel([Buffer("x", (4,))], [Buffer("y", (4,))],
                   loop(v, 4, Store(Buffer("y", (4,)), (v,), Load(Buffer("x", (4,)), (v,))),
                        kind="vectorized"))  # fmt: skip
    assert "avx512.kadd" not in emit_ir(plain, "k", TARGETS[0])


@pytest.mark.parametrize("width", [2, 4, 8, 16, 32])
def test_lanes_of_bools(width: int) -> None:
    """Stored apart, folded, and as a mask that may be empty, at each width of mask registers."""
    x, y = Buffer("x", (3, width), "int8"), Buffer("y", (3, 2 * width), "bool")
    some = Buffer("some", (3,), "bool")
    negative = Comparison("lt", Load(x, (i, v)), Literal(0, "int8"))
    body = loop(i, 3, Store(some, (i,), Literal(False, "bool")),
                loop(j, 2 * width, Store(y, (i, j), Literal(False, "bool"))),
                loop(v, width, Store(y, (i, v * 2), negative),
                     Reduce(ReduceOp.MAX, some, (i,), negative),
                     If(negative, (Store(y, (i, v * 2 + 1), Literal(True, "bool")),)),
                     kind="vectorized"))  # fmt: skip
    check(kernel([x], [y, some], body))


def test_no_lane_reads_an_empty_buffer() -> None:
    x, z, y = Buffer("x", (0, 3)), Buffer("z", (5,)), Buffer("y", (5,))
    inside = Comparison("gt", Load(z, (v,)), float32(1e9))
    value = Select(within(v + i, 0, 0), Load(x, (v + i, const(0))), float32(2.0))
    stores = (Store(y, (v,), value), If(inside, (Store(y, (v,), Load(x, (const(0), v // 2))),)))
    func = kernel([x, z], [y], loop(i, 2, loop(v, 5, *stores, kind="vectorized")))
    check(func)
    assert "getelementptr float, ptr %p0" not in emit_ir(func, "k", TARGETS[0])


def test_condition_is_read_before_either_side_runs() -> None:
    y = Buffer("y", (8,))
    x = Buffer("x", (8,))
    body = (
        loop(i, 8, Store(y, (i,), Load(x, (i,)))),
        loop(v, 8, If(
            Comparison("gt", Load(y, (v,)), float32(0.0)),
            (Store(y, (v,), float32(-1.0)),),
            (Store(y, (v,), float32(1.0)),),
        ), kind="vectorized"),
    )  # fmt: skip
    check(kernel([x], [y], *body))


@pytest.mark.parametrize(
    "index",
    [v * 2, v * 3 + 1, -v + 47, floor_div(v, 3), floor_mod(v, 5) * 2, minimum(v, 7), const(4)],
    ids=str,
)
def test_gathers(index: IndexExpr) -> None:
    x, y = Buffer("x", (48,)), Buffer("y", (14,))
    check(kernel([x], [y], loop(v, 14, Store(y, (v,), Load(x, (index,))), kind="vectorized")))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("step", range(2, 6))
def test_lanes_that_skip_elements_end_with_the_buffer(step: int, dtype: str) -> None:
    """The first lane reads the first element, the last one the last, in every row."""
    for extent in (2, 5, 8, 13, 16, 31):
        row = step * (extent - 1) + 1
        x, y = Buffer("x", (2, row), dtype), Buffer("y", (2, extent), dtype)
        lanes = loop(v, extent, Store(y, (i, v), Load(x, (i, v * step))), kind="vectorized")
        check(kernel([x], [y], loop(i, 2, lanes)))


@pytest.mark.parametrize("low, high", [(0, 16), (3, 16), (0, 11), (5, 9), (7, 8), (7, 7)])
def test_lanes_that_skip_elements_under_a_mask(low: int, high: int) -> None:
    """Idle lanes read nothing: x is as long as the lanes that run need."""
    for step, first in ((2, 0), (2, 1), (3, 1), (4, 3)):
        x, y = Buffer("x", (first + step * max(high - low - 1, 0) + 1,)), Buffer("y", (16,))
        clear = loop(i, 16, Store(y, (i,), float32(-1.0)))
        store = Store(y, (v,), Load(x, ((v - low) * step + first,)))
        guarded = If(within(v, low, high), (store,))
        check(kernel([x], [y], clear, loop(v, 16, guarded, kind="vectorized")))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16", "int64"])
@pytest.mark.parametrize("lanes", [3, 5, 8, 16, 32])
def test_lanes_that_skip_elements_where_a_run_decides(lanes: int, dtype: str) -> None:
    """Lanes in front of x and behind it read nothing, and those of which a datum says so."""
    for step in (2, 3, 4):
        x, y = Buffer("x", (step * lanes - 3,), dtype), Buffer("y", (6, lanes), dtype)
        m = Buffer("m", (lanes,))
        place = v * step - i
        element = Load(x, (place,))
        positive = Comparison("gt", Load(m, (v,)), float32(0))
        store = If(within(place, 0, x.shape[0]), (If(positive, (Store(y, (i, v), element),)),))
        clear = loop(v, lanes, Store(y, (i, v), Literal(1, dtype)), kind="vectorized")
        store_lanes = loop(v, lanes, store, kind="vectorized")
        func = kernel([x, m], [y], loop(i, 6, clear, store_lanes))
        check(func)
        text = emit_ir(func, "k", PROCESSORS["zen4"])
        assert "masked.load" in text and "select i1" not in text, "no lane is loaded by itself"


def test_taps_of_a_window_share_what_they_load() -> None:
    """Of 16 windows of two elements, two vectors are loaded; lanes far apart are loaded singly."""
    x, y = Buffer("x", (8, 64)), Buffer("y", (16,))

    def loads(step: int) -> int:
        pair = Binary("add", Load(x, (k, v * step)), Load(x, (k, v * step + 1)))
        lanes = loop(v, 16, Store(y, (v,), pair), kind="vectorized")
        target = replace(host_target(), vector_bytes=64)
        text = emit_ir(kernel([x], [y], loop(k, 4, lanes)), "k", target)
        return len(set(re.findall(r"= (load (?:float|<16 x float>), ptr .*)", text)))

    assert loads(2) <= 4 and loads(5) == 32


def test_scatter_and_last_lane_wins() -> None:
    x, y, z = Buffer("x", (13,)), Buffer("y", (40,)), Buffer("z", (2,))
    clear = (loop(i, 40, Store(y, (i,), float32(0.0))), loop(j, 2, Store(z, (j,), float32(0.0))))
    lanes = loop(v, 13, Store(y, (v * 3 + 1,), Load(x, (v,))),
                 Store(z, (floor_div(v, 8),), Load(x, (v,))), kind="vectorized")  # fmt: skip
    check(kernel([x], [y, z], *clear, lanes))


@pytest.mark.parametrize("op", list(ReduceOp))
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "int32", "uint8", "uint16", "int64", "uint64", "bool"]
)
@pytest.mark.parametrize("extent", [8, 11])
def test_folds_over_lanes(op: ReduceOp, dtype: str, extent: int) -> None:
    x, y = Buffer("x", (3, extent), dtype), Buffer("y", (2,), dtype)
    start = loop(j, 2, Store(y, (j,), Cast(Literal(1, "int32"), dtype)))
    whole = Reduce(op, y, (const(0),), Load(x, (i, v)))
    some = If(less_than(v, i * 4), (Reduce(op, y, (const(1),), Load(x, (i, v))),))
    check(kernel([x], [y], start, loop(i, 3, loop(v, extent, whole, some, kind="vectorized"))),
          rtol=1e-5)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp.MIN])
def test_folds_of_special_values(op: ReduceOp, dtype: str) -> None:
    """NaN in any lane decides, and -0.0 is below 0.0, whichever lanes they are in."""
    for extent in (2, 3, 4, 7, 16, 29):
        x, y = Buffer("x", (4 * extent, extent), dtype), Buffer("y", (4 * extent,), dtype)
        start = Store(y, (i,), Literal(-np.inf if op is ReduceOp.MAX else np.inf, dtype))
        lanes = loop(v, extent, Reduce(op, y, (i,), Load(x, (i, v))), kind="vectorized")
        array = np.repeat([[-1.0], [0.0], [-0.0], [1.0]], extent, 0) * np.ones(extent)
        array[np.arange(4 * extent), np.tile(np.arange(extent), 4)] = np.repeat(
            [np.nan, -0.0, 0.0, -np.inf], extent
        )
        given_arrays = {"x": array.astype(dtype)}
        got = check(kernel([x], [y], loop(i, 4 * extent, start, lanes)), given_arrays)["y"]
        want = interpret(kernel([x], [y], loop(i, 4 * extent, start, lanes)), given_arrays)["y"]
        np.testing.assert_array_equal(
            np.signbit(got), np.signbit(want) | np.isnan(got) & np.signbit(got)
        )


@pytest.mark.parametrize(("name", "scalar"), [("zen4", 0), ("zen3", 1)])
def test_folds_of_extrema_are_no_chain_of_scalars(name: str, scalar: int) -> None:
    """With AVX2 LLVM takes the last two lanes as scalars and branches on the sign of one."""
    x, y = Buffer("x", (16,)), Buffer("y", (1,))
    lanes = loop(v, 16, Reduce(ReduceOp.MAX, y, (const(0),), Load(x, (v,))), kind="vectorized")
    text = emit_assembly(
        kernel([x], [y], Store(y, (const(0),), float32(0.0)), lanes), "k", PROCESSORS[name]
    )
    assert text.count("testl") == scalar and "sets" not in text


def test_reduction_into_elements_that_lanes_share() -> None:
    x, y = Buffer("x", (16,)), Buffer("y", (4,))
    clear = loop(i, 4, Store(y, (i,), float32(0.0)))
    lanes = loop(v, 16, If(
        Comparison("gt", Load(x, (v,)), float32(-0.5)),
        (Reduce(ReduceOp.ADD, y, (floor_mod(v, 4),), Load(x, (v,))),),
    ), kind="vectorized")  # fmt: skip
    check(kernel([x], [y], clear, lanes))


def test_vectorized_loop_around_others() -> None:
    """A uniform inner loop keeps the lanes; one whose bounds differ by lane does not."""
    x, y = Buffer("x", (9, 12)), Buffer("y", (12,))
    clear = Store(y, (v,), float32(0.0))
    add = Reduce(ReduceOp.ADD, y, (v,), Load(x, (i, v)))
    check(kernel([x], [y], loop(v, 12, clear, loop(i, 9, add), kind="vectorized")))
    some = loop(i, minimum(v, 9), add)
    check(kernel([x], [y], loop(v, 12, clear, some, kind="vectorized")))


# ---- indices and loops


def test_floor_and_modulo_of_negative_numbers() -> None:
    y = Buffer("y", (21, 4), "int64")
    parts = [(i - 10) // 4, (i - 10) % 4, (i - 10) // 3, (i - 10) % 3]
    stores = [Store(y, (i, const(n)), IndexValue(part)) for n, part in enumerate(parts)]
    got = check(kernel([], [y], loop(i, 21, *stores)))["y"]
    want = np.arange(21) - 10
    np.testing.assert_array_equal(got, np.stack([want // 4, want % 4, want // 3, want % 3], 1))
    inner = [Store(y, (o * 7 + v, const(n)),
                   IndexValue(as_index((o * 7 + v - 10) // c if n % 2 else (o * 7 + v - 10) % c)))
             for n, c in enumerate((4, 4, 3, 3))]  # fmt: skip
    check(kernel([], [y], loop(o, 3, loop(v, 7, *inner, kind="vectorized"))))


def test_loops_that_run_no_time() -> None:
    x, y = Buffer("x", (6,)), Buffer("y", (6, 6))
    clear = loop(o, 6, loop(k, 6, Store(y, (o, k), float32(0.0))))
    triangle = loop(i, 6, loop(j, i, Store(y, (i, j), Load(x, (j,)))))
    never = loop(v, 0, Store(y, (v, v), float32(1.0)), kind="vectorized")
    check(kernel([x], [y], clear, triangle, never))
    window = loop(i, 6, loop(j, minimum(i + 2, 6), Store(y, (i, j), Load(x, (j,))),
                             start=maximum(i - 1, 0)))  # fmt: skip
    check(kernel([x], [y], clear, window))


def test_unrolled_predicates_leave_no_branch() -> None:
    x, y = Buffer("x", (4,)), Buffer("y", (4,))
    first = If(equal(i, 0), (Store(y, (i,), float32(7.0)),), (Store(y, (i,), Load(x, (i - 1,))),))
    func = kernel([x], [y], loop(i, 4, first, kind="unrolled"))
    check(func)
    assert "br i1" not in emit_ir(func, "k", host_target())


def test_rank_zero_and_empty_buffers() -> None:
    s, y, e = Buffer("s", ()), Buffer("y", ()), Buffer("e", (0, 3))
    empty = loop(i, 0, loop(j, 3, Store(e, (i, j), Load(s, ()))))
    check(kernel([s], [y, e], Store(y, (), Load(s, ())), empty))


def test_local_buffers_with_indices_known_at_run_time() -> None:
    x, y = Buffer("x", (5, 20)), Buffer("y", (5, 20))
    t = Buffer("t", (5, 20), scope="scratch")
    fill = loop(i, 5, loop(o, 2, loop(v, 10, Store(t, (i, o * 10 + v), Load(x, (i, o * 10 + v))),
                                      kind="vectorized")))  # fmt: skip
    q = Var("q")
    read = loop(j, 5, loop(q, 20, Store(y, (j, q), Load(t, (4 - j, 19 - q)))))
    check(kernel([x], [y], Allocate(t), fill, read))


# ---- operators and dtypes

COMPUTED = tuple(dtype for dtype in DTYPES if dtype not in STORED)
"""The others are only cast: tests/codegen/test_stored.py."""


@pytest.mark.parametrize("dtype", [d for d in COMPUTED if d != "float32"])
@pytest.mark.parametrize(
    "op", ["add", "sub", "mul", "div", "max", "min", "pow", "and", "or", "xor"]
)
def test_binary_operators(op: str, dtype: str) -> None:
    defined = {
        "bool": ("max", "min", "and", "or", "xor"),
        "float64": ("add", "sub", "mul", "div", "max", "min", "pow"),
    }.get(dtype, ("add", "sub", "mul", "div", "max", "min", "pow", "xor"))
    if op not in defined:
        return
    a, b, y = (Buffer(name, (21,), dtype) for name in "aby")
    arrays = {"a": numbers(a, 1), "b": numbers(b, 2)}
    if op == "div":
        arrays["b"][arrays["b"] == 0] = 1
    if op == "pow":
        arrays["b"] = np.abs(arrays["b"]) % 9
        arrays["a"] = np.abs(arrays["a"]) if dtype == "float64" else arrays["a"]
    value = Binary(op, Load(a, (v,)), Load(b, (v,)))
    for kind in ("serial", "vectorized"):
        func = kernel([a, b], [y], loop(v, 21, Store(y, (v,), value), kind=kind))
        check(func, arrays, rtol=1e-12)


@pytest.mark.parametrize("dtype", COMPUTED)
@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons(op: str, dtype: str) -> None:
    a, b, y = Buffer("a", (24,), dtype), Buffer("b", (24,), dtype), Buffer("y", (24,), "bool")
    left, right = numbers(a, 1), numbers(b, 2)
    right[::3] = left[::3]
    if dtype.startswith("float"):
        left[1] = right[2] = left[5] = right[5] = np.nan
    value = Comparison(op, Load(a, (v,)), Load(b, (v,)))
    func = kernel([a, b], [y], loop(v, 24, Store(y, (v,), value), kind="vectorized"))
    check(func, {"a": left, "b": right})


@pytest.mark.parametrize("source", COMPUTED)
def test_casts(source: str) -> None:
    x = Buffer("x", (20,), source)
    outputs = [Buffer(f"y_{t}", (20,), t) for t in COMPUTED]
    values = numbers(x, 3)
    if source.startswith("float"):
        values = (np.abs(values) * 20).astype(source)
    stores = [Store(y, (v,), Cast(Load(x, (v,)), y.dtype)) for y in outputs]
    check(kernel([x], outputs, loop(v, 20, *stores, kind="vectorized")), {"x": values})


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64"])
def test_shifts(dtype: str) -> None:
    """By as many bits as there are, or more, nothing is left but copies of the sign."""
    bits = 8 * np.dtype(dtype).itemsize
    info = np.iinfo(dtype)
    x = np.array([1, 5, info.max, info.min], dtype)
    counts = [0, 1, bits - 1, bits, bits + 1, 100, info.max, -1 if info.min else 2]
    a, b = Buffer("a", (4, 8), dtype), Buffer("b", (4, 8), dtype)
    outputs = [Buffer(op, (4, 8), dtype) for op in ("shl", "shr")]
    stores = [Store(y, (i, v), Binary(y.name, Load(a, (i, v)), Load(b, (i, v)))) for y in outputs]
    func = kernel([a, b], outputs, loop(i, 4, loop(v, 8, *stores, kind="vectorized")))
    arrays = {"a": np.tile(x[:, None], (1, 8)), "b": np.tile(np.array(counts, dtype), (4, 1))}
    got = check(func, arrays, rtol=0)
    assert got["shl"][0].tolist()[:5] == [1, 2, int(np.asarray(1 << bits - 1).astype(dtype)), 0, 0]
    assert got["shr"][3][3] == (-1 if info.min else 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_remainder(dtype: str) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 5.5, -5.5, 1e30, 1e-45, 3, -0.7, 3e38]
    pairs = pairs_of(np.array([*special, 0.1, 7], dtype))
    a, b, y = (Buffer(name, pairs["a"].shape, dtype) for name in "aby")
    size = pairs["a"].size
    body = Store(y, (o * 16 + v,), Binary("fmod", Load(a, (o * 16 + v,)), Load(b, (o * 16 + v,))))
    func = kernel([a, b], [y], loop(o, size // 16, loop(v, 16, body, kind="vectorized")))
    want = interpret(func, pairs)["y"]
    got = check(func, pairs, rtol=0)["y"]
    numbers = ~np.isnan(want)  # NaN has a sign too, but no meaning hangs on it
    signs = np.signbit(got)[numbers], np.signbit(want)[numbers]
    np.testing.assert_array_equal(*signs, err_msg="signs of zeros")


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_remainders_of_any_bits(target: Target) -> None:
    """Quotients that fit 53 bits in all lanes, that round up to whole numbers, and larger ones."""
    rng, size = np.random.default_rng(5), 4096
    near = rng.standard_normal((3, size)).astype("float32")
    tenths = (np.round(near[2] * 50) * 0.1).astype("float32")
    words = rng.integers(0, 2**32, (2, size)).astype("uint32").view("float32")
    a = np.concatenate([near[0] * 1000, tenths, words[0]])
    b = np.concatenate([near[1], np.full(size, 0.1, "float32"), words[1]])
    x, y, z = (Buffer(name, a.shape) for name in "xyz")
    at = (o * 16 + v,)
    body = Store(z, at, Binary("fmod", Load(x, at), Load(y, at)))
    func = kernel([x, y], [z], loop(o, a.size // 16, loop(v, 16, body, kind="vectorized")))
    with np.errstate(all="ignore"):
        want = np.fmod(a, b)
    np.testing.assert_array_equal(Native(func, target)({"x": a, "y": b}, ((0, 1),))["z"], want)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits(dtype: str) -> None:
    """Also of denormals, of NaN with a payload, and of the sign of zero."""
    x = np.array([0.0, -0.0, 1e-45, -1.5, np.inf, -np.inf, 7, np.finfo(dtype).tiny / 2], dtype)
    words = x.view(f"uint{8 * x.itemsize}").copy()
    words[6] = words[4] + 5  # a NaN
    a = Buffer("a", (8,), dtype)
    y = Buffer("y", (8,), words.dtype.name)
    func = kernel([a], [y], loop(v, 8, Store(y, (v,), Unary("bits", Load(a, (v,))))))
    vectorized = kernel(
        [a], [y], loop(v, 8, Store(y, (v,), Unary("bits", Load(a, (v,)))), kind="vectorized")
    )
    for each in (func, vectorized):
        np.testing.assert_array_equal(check(each, {"a": words.view(dtype)}, rtol=0)["y"], words)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_large_unsigned_numbers(dtype: str) -> None:
    """Numbers of which the highest bit is set are no negative ones."""
    high = int(np.iinfo(dtype).max)
    x = np.array([0, 1, high, high - 1, high // 2, high // 2 + 1, 7, high // 3], dtype)
    a, b = (Buffer(name, (8, 8), dtype) for name in "ab")
    loads = Load(a, (i, v)), Load(b, (i, v))
    integers = ("add", "sub", "mul", "div", "max", "min", "and", "or", "xor", "shl", "shr")
    values: list[Expr] = [Binary(op, *loads) for op in integers]
    values += [Comparison(op, *loads) for op in ("lt", "ge")]
    values += [Binary("max", loads[0], Literal(high, dtype)), Unary("neg", loads[0])]
    values += [Unary("abs", loads[0]), Unary("not", loads[0])]
    values += [Cast(loads[0], target) for target in ("float32", "float64", "int64", "int8")]
    outputs = [Buffer(f"y{n}", (8, 8), value.dtype) for n, value in enumerate(values)]
    stores = [Store(y, (i, v), value) for y, value in zip(outputs, values, strict=True)]
    func = kernel([a, b], outputs, loop(i, 8, loop(v, 8, *stores, kind="vectorized")))
    check(func, {"a": np.tile(x, (8, 1)), "b": np.tile(x[:, None], (1, 8))}, rtol=0)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("source", FLOATS)
def test_floats_that_fit_unsigned_integers(source: str, dtype: str) -> None:
    """What does not fit is any number, and nothing traps."""
    x, y = Buffer("x", (8,), source), Buffer("y", (8,), dtype)
    limit = float(np.iinfo(dtype).max) / 2 + 1  # 2^63 for uint64, which int64 does not hold
    fitting = np.array([0, 1.75, 200, limit, limit * 1.5, 0.5, 3, 99], source)
    other = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1, 2 * limit, -0.5], source)
    func = kernel([x], [y], loop(v, 8, Store(y, (v,), Cast(Load(x, (v,)), dtype)),
                                 kind="vectorized"))  # fmt: skip
    check(func, {"x": fitting}, rtol=0)
    for target in TARGETS:
        Native(func, target)({"x": other})


def test_integer_division_truncates_and_never_traps() -> None:
    a, b, y = (Buffer(name, (6,), "int32") for name in "aby")
    low = np.iinfo(np.int32).min
    arrays = {"a": np.array([-7, 7, low, 5, -7, low], np.int32),
              "b": np.array([2, -2, -1, 1, -2, 1], np.int32)}  # fmt: skip
    value = Binary("div", Load(a, (v,)), Load(b, (v,)))
    func = kernel([a, b], [y], loop(v, 6, Store(y, (v,), value), kind="vectorized"))
    got = check(func, arrays)["y"]
    np.testing.assert_array_equal(got, [-3, -3, low, 5, 3, low])
    zeros = {"a": arrays["a"], "b": np.zeros(6, np.int32)}
    np.testing.assert_array_equal(Native(func, host_target())(zeros)["y"], np.zeros(6))


def test_division_does_not_trap_in_idle_lanes() -> None:
    """Registers that were never written may hold zero; the divisors gathered here fill 15 of 16."""
    for lanes in (3, 7, 15):
        a, b = Buffer("a", (lanes, 6), "int32"), Buffer("b", (lanes, 6), "int32")
        y = Buffer("y", (6, lanes), "int32")
        value = Binary("div", Load(a, (v, i)), Load(b, (v, i)))
        func = kernel([a, b], [y], loop(i, 6, loop(v, lanes, Store(y, (i, v), value),
                                                   kind="vectorized")))  # fmt: skip
        values = np.array([-(2**31), -1, 0, 1, 2, 7, 3, -3], np.int32)
        for seed in range(8):
            rng = np.random.default_rng(seed)
            check(func, {name: rng.choice(values, (lanes, 6)) for name in "ab"})


SPECIALS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e38, 1e-45], np.float32)


def pairs_of(values: Array) -> dict[str, Array]:
    return {"a": np.repeat(values, len(values)), "b": np.tile(values, len(values))}


def bits(values: Array) -> Array:
    """Bit patterns, all NaNs alike."""
    return np.where(np.isnan(values), 0x7FC00000, values.view(np.uint32))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_extrema_of_special_values(op: str, kind: str) -> None:
    n = len(SPECIALS)
    a, b, y = (Buffer(name, (n * n,)) for name in "aby")
    value = Binary(op, Load(a, (i * n + v,)), Load(b, (i * n + v,)))
    func = kernel([a, b], [y], loop(i, n, loop(v, n, Store(y, (i * n + v,), value), kind=kind)))
    arrays = pairs_of(SPECIALS)
    want = bits(interpret(func, arrays)["y"])
    for target in TARGETS:
        np.testing.assert_array_equal(bits(Native(func, target)(arrays)["y"]), want)


@pytest.mark.parametrize("bound", [0.0, -0.0, 6.0, -1.5, math.inf, math.nan])
def test_extrema_with_a_constant(bound: float) -> None:
    x, y, z = Buffer("x", (9,)), Buffer("y", (4, 9)), Buffer("z", (9,))
    stores = []
    for n, op in enumerate(("max", "min")):
        sides = (Load(x, (v,)), float32(bound))
        stores += [Store(y, (const(2 * n), v), Binary(op, *sides)),
                   Store(y, (const(2 * n + 1), v), Binary(op, *reversed(sides)))]  # fmt: skip
    rectified = Select(Comparison("lt", Load(x, (v,)), float32(bound)), float32(bound),
                       Load(x, (v,)))  # fmt: skip
    func = kernel([x], [y, z], loop(v, 9, *stores, Store(z, (v,), rectified), kind="vectorized"))
    want = interpret(func, {"x": SPECIALS})
    for target in TARGETS:
        got = Native(func, target)({"x": SPECIALS})
        for name in ("y", "z"):
            np.testing.assert_array_equal(bits(got[name]), bits(want[name]))


def test_choosing_the_larger_is_one_instruction() -> None:
    x, y = Buffer("x", (16,)), Buffer("y", (16,))
    value = Select(Comparison("lt", Load(x, (v,)), float32(0.0)), float32(0.0), Load(x, (v,)))
    func = kernel([x], [y], loop(v, 16, Store(y, (v,), value), kind="vectorized"))
    if host_target().vector_bytes == 64:
        text = emit_assembly(func, "k", host_target())
        assert len(re.findall("vmaxps", text)) == 1
        assert "vcmp" not in text


# ---- elementary functions

SIGMOID = lambda x: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))  # noqa: E731
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float, list[tuple[float, float]]]] = {
    "exp": (np.exp, 1.0, [(-104, 89), (-1, 1)]),
    "log": (np.log, 1.5, [(0, 4), (0.9, 1.1), (0, 1e30)]),
    "tanh": (np.tanh, ERROR_ULPS["tanh"], [(-10, 10), (-0.7, 0.7)]),
    "erf": (np.vectorize(math.erf, otypes=[float]), ERROR_ULPS["erf"], [(-5, 5), (-1.1, 1.1)]),
    "sigmoid": (SIGMOID, 2.5, [(-104, 89), (-4, 1)]),
    "sqrt": (np.sqrt, 0.51, [(0, 100)]),
    "sin": (np.sin, 0.51, [(-10, 10), (-2e9, 2e9), (-1e-4, 1e-4)]),
    "cos": (np.cos, 0.51, [(-10, 10), (-2e9, 2e9), (1.57, 1.571)]),
    "tan": (np.tan, 0.51, [(-10, 10), (-2e9, 2e9), (1.57, 1.571)]),
    "asin": (np.arcsin, ERROR_ULPS["asin"], [(-1.1, 1.1)]),
    "acos": (np.arccos, ERROR_ULPS["acos"], [(-1.1, 1.1)]),
    "atan": (np.arctan, ERROR_ULPS["atan"], [(-10, 10)]),
    "sinh": (np.sinh, 0.51, [(-90, 90), (-1, 1)]),
    "cosh": (np.cosh, 0.51, [(-90, 90), (-1, 1)]),
    "asinh": (np.arcsinh, 0.51, [(-10, 10)]),
    "acosh": (np.arccosh, 0.51, [(0.9, 3)]),
    "atanh": (np.arctanh, 0.51, [(-1.1, 1.1)]),
    "floor": (np.floor, 0.0, [(-9, 9)]),
    "ceil": (np.ceil, 0.0, [(-9, 9)]),
    "round": (np.rint, 0.0, [(-9, 9)]),
    "abs": (np.abs, 0.0, [(-9, 9)]),
    "neg": (np.negative, 0.0, [(-9, 9)]),
}
SAMPLES = 1 << 12
EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38, 88.72, 88.73,
     -87.3, -87.4, -103.9, -104.5, 0.5, 1.5, 2.5, -0.5, -1.5, 1, -1, 0.55, -0.55, 0.9277],
    np.float32,
)  # fmt: skip


def samples(ranges: list[tuple[float, float]]) -> Array:
    rng = np.random.default_rng(1)
    parts = [rng.uniform(a, b, SAMPLES).astype(np.float32) for a, b in ranges]
    anything = rng.integers(0, 2**32, SAMPLES, dtype=np.uint32).view(np.float32)
    values = np.concatenate([EDGES, *parts, anything])
    return values[: len(values) // 16 * 16]


def mapped(values: list[Array], build: Callable[..., Expr], target: Target, lanes: int) -> Array:
    buffers = [Buffer(f"x{n}", x.shape) for n, x in enumerate(values)]
    y = Buffer("y", values[0].shape)
    at = (o * lanes + v,)
    store = Store(y, at, build(*(Load(b, at) for b in buffers)))
    body = loop(o, len(values[0]) // lanes, loop(v, lanes, store, kind="vectorized"))
    arrays = {b.name: x for b, x in zip(buffers, values, strict=True)}
    return Native(kernel(buffers, [y], body), target)(arrays)["y"]


def assert_ulps(got: Array, want: Array, limit: float, inputs: Array) -> None:
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        finite = np.isfinite(want) & np.isfinite(rounded) & np.isfinite(got)
        size = np.where(finite, np.abs(rounded), np.float32(1.0))
        spacing = np.spacing(np.maximum(size, np.float32(2**-126))).astype(np.float64)
        error = np.where(finite, np.abs(got.astype(np.float64) - want), 0.0) / spacing
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{error[worst]} ulp at {inputs[worst]!r}"
    same = (np.isnan(want) & np.isnan(got)) | (rounded == got)
    wrong = ~finite & ~same
    assert not wrong.any(), (inputs[wrong][:5], got[wrong][:5], want[wrong][:5])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target, lanes", [(TARGETS[0], 16), (TARGETS[1], 8), (TARGETS[0], 1)],
                         ids=["avx512", "avx2", "scalar"])  # fmt: skip
def test_accuracy(name: str, target: Target, lanes: int) -> None:
    reference, limit, ranges = FUNCTIONS[name]
    x = samples(ranges)
    got = mapped([x], lambda e: Unary(name, e), target, lanes)
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
    assert_ulps(got, want, limit, x)


def test_exact_values() -> None:
    x = np.array([0.0, -0.0] * 8, np.float32)
    for target in TARGETS:
        for name, want in (("exp", 1.0), ("sigmoid", 0.5), ("tanh", x), ("erf", x), ("round", x)):
            got = mapped([x], lambda e, name=name: Unary(name, e), target, 16)  # type: ignore[misc]
            np.testing.assert_array_equal(bits(got), bits(np.full(16, want, np.float32)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_power(target: Target) -> None:
    rng = np.random.default_rng(2)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, 3, -3, 2.5, -2.5,
                        1e-45, 1e30], np.float32)  # fmt: skip
    edge = pairs_of(special)
    x = np.concatenate([edge["a"], rng.uniform(0, 10, 4096), rng.uniform(-3, 3, 4096)])
    y = np.concatenate([edge["b"], rng.uniform(-30, 30, 4096), rng.integers(-20, 20, 4096)])
    x, y = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    assert_ulps(mapped([x, y], lambda a, b: Binary("pow", a, b), target, 16), want, 1.0, x)
    for exponent in (1.0, 2.0, 3.0, 0.5, -1.0, 0.75):
        with np.errstate(all="ignore"):
            want = np.power(x.astype(np.float64), np.full(len(x), exponent))
        got = mapped(
            [x],
            lambda a, e=exponent: Binary("pow", a, float32(e)),
            target,
            16,  # type: ignore[misc]
        )
        assert_ulps(got, want, 2.0, x)


def test_float64_functions() -> None:
    names = ("exp", "log", "tanh", "erf", "sqrt", "sigmoid", *TRIGONOMETRIC)
    x = Buffer("x", (12,), "float64")
    outputs = [Buffer(f"y_{n}", (12,), "float64") for n in names]
    stores = [Store(y, (v,), Unary(n, Load(x, (v,)))) for n, y in zip(names, outputs, strict=True)]
    arrays = {"x": np.linspace(0.1, 6, 12)}
    check(kernel([x], outputs, loop(v, 12, *stores, kind="vectorized")), arrays, rtol=1e-14)


# ---- refusals


@pytest.mark.parametrize(
    "body, reason",
    [
        ((Store(Buffer("y", (4,)), (const(0),), Undef("float32")),), "undef"),
        ((Assume(at_least_zero(i), Comparison("eq", float32(0.0), float32(0.0))),), "assume"),
        ((loop(i, 2, loop(v, i + 1, Store(Buffer("y", (4,)), (v,), float32(0.0)),
                          kind="vectorized")),), "extent must be a constant"),
        ((loop(v, 1000, Store(Buffer("y", (4,)), (v,), float32(0.0)), kind="vectorized"),),
         "divide it first"),
        ((Store(Buffer("y", (4,)), (i,), float32(0.0)),), "no loop around it"),
        ((Store(Buffer("z", (4,)), (const(0),), float32(0.0)),), "neither a parameter"),
        ((Allocate(Buffer("z", (4,))),), "scope global"),
        ((Allocate(Buffer("z", (4_000_000,), scope="scratch")),), "bytes of stack"),
        ((loop(i, 2, Store(Buffer("y", (4,)), (i,), float32(0.0))),
          loop(j, 2, Store(Buffer("y", (4,)), (j,), float32(0.0)), kind="parallel")),
         "every thread writes y, beside"),
    ],
)  # fmt: skip
def test_refusals(body: tuple[Stmt, ...], reason: str) -> None:
    with pytest.raises(CodegenError, match=reason):
        compile_object(kernel([], [Buffer("y", (4,))], *body), "k", host_target())


def test_same_input_same_bytes() -> None:
    """LLVM is told the instructions of a target, and no caches."""
    func = register_tile(16, 3, 5, 20)
    one, other = (emit_ir(func, "k", TARGETS[0]) for _ in range(2))
    assert one == other
    with_other_caches = replace(TARGETS[0], name="other", l2_bytes=1 << 16)
    assert object_code(one, TARGETS[0]) == object_code(other, with_other_caches)


# ---- random kernels


def runnable(func: PrimFunc) -> PrimFunc:
    """A scheduled kernel as one the emitter takes: no parallel loop, local intermediates."""

    def serial(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
            return replace(stmt, kind=LoopKind.SERIAL)
        return stmt

    inner = {
        s.buffer: replace(s.buffer, scope="scratch")
        for s in walk(func.body)
        if isinstance(s, Allocate) and s.buffer.scope == "global"
    }
    return replace(func, body=rename_buffers(map_body(func.body, serial), inner))


def parallel_extent(func: PrimFunc) -> int:
    extents = [s.extent for s in walk(func.body)
               if isinstance(s, For) and s.kind is LoopKind.PARALLEL]  # fmt: skip
    return extents[0] or 0 if extents else 1


# Contraction may change the last bit, and a comparison, floor or cast would make that a whole
# number; so the floats neither multiply nor turn into integers.


@settings(max_examples=90)
@given(st.data(), st.sampled_from(TARGETS), st.sampled_from(["scheduled", "lowered"]))
def test_random_kernels(data: st.DataObject, target: Target, stage: str) -> None:
    options = data.draw(st.sampled_from([FLOAT_KERNELS, INTEGER_KERNELS]))
    func = data.draw(primfuncs(replace(options, stage=stage)))
    if stage == "scheduled":
        func = runnable(func)
    arrays = input_arrays(func, special=True)
    check(func, arrays, ((0, parallel_extent(func)),), targets=(target,))


@st.composite
def random_kernels(draw: st.DrawFn) -> PrimFunc:
    """Two outer loops and an inner one of any kind; affine, floored and modular addresses, guards,
    a local intermediate, and a reduction."""
    rows, lanes = draw(st.integers(1, 4)), draw(st.integers(1, 19))
    kinds = st.sampled_from(["serial", "vectorized", "unrolled"])
    x = Buffer("x", (64,))
    y, z = Buffer("y", (rows, lanes)), Buffer("z", (rows,))
    scope = draw(st.sampled_from(["register", "scratch"]))
    t = Buffer("t", (rows, lanes), scope=scope)

    def indices(a: Var, b: Var) -> IndexExpr:
        base = draw(st.integers(-3, 3)) * a + draw(st.integers(-3, 3)) * b
        base = base + draw(st.integers(-9, 9))
        return draw(st.sampled_from([base, base // 3, base % 7, maximum(base, a), base // 4 + a]))

    def element(a: Var, b: Var) -> Expr:
        index = indices(a, b)
        fallback = draw(st.sampled_from([float32(0.25), IndexValue(b, "float32")]))
        return Select(within(index, 0, 64), Load(x, (index,)), fallback)

    def value(a: Var, b: Var) -> Expr:
        op = draw(st.sampled_from(["add", "mul", "max", "sub"]))
        return Binary(op, element(a, b), element(a, b))

    def guarded(stmt: Stmt, a: Var, b: Var) -> Stmt:
        condition = draw(st.sampled_from([
            at_least_zero(indices(a, b)), equal(floor_mod(b, 2), 0),
            Comparison("gt", element(a, b), float32(0.0)),
        ]))  # fmt: skip
        return If(condition, (stmt,)) if draw(st.booleans()) else stmt

    a, b, c, d, e, f = (Var(f"l{n}") for n in range(6))
    outer = draw(st.sampled_from(["serial", "unrolled"]))
    first = loop(a, rows, loop(b, lanes, Store(t, (a, b), value(a, b)), kind=draw(kinds)),
                 kind=outer)  # fmt: skip
    change = guarded(Reduce(draw(st.sampled_from([ReduceOp.ADD, ReduceOp.MAX])), t, (c, d),
                            value(c, d)), c, d)  # fmt: skip
    second = loop(c, rows, loop(d, lanes, change, kind=draw(kinds)), kind=outer)
    third = loop(e, rows, Store(z, (e,), float32(0.5)),
                 loop(f, lanes, Store(y, (e, f), Load(t, (e, f))),
                      guarded(Reduce(ReduceOp.ADD, z, (e,), Load(t, (e, f))), e, f),
                      kind=draw(kinds)), kind=outer)  # fmt: skip
    return kernel([x], [y, z], Allocate(t), first, second, third)


@settings(max_examples=60)
@given(random_kernels(), st.sampled_from(TARGETS))
def test_random_addresses(func: PrimFunc, target: Target) -> None:
    check(func, rtol=1e-4, targets=(target,))


@in_turn("op lanes", ["exp", "log", "tanh", "erf", "sigmoid"], [3, 5, 7], targets=TARGETS)
def test_libm_is_called_with_defined_lanes(op: str, lanes: int, target: Target) -> None:
    """LLVM deletes a kernel that hands an idle lane's poison to a function that it knows."""
    x, y = Buffer("x", (lanes, 4), "float64"), Buffer("y", (4, lanes), "float64")
    store = Store(y, (i, v), Unary(op, Load(x, (v, i))))
    func = kernel([x], [y], loop(i, 4, loop(v, lanes, store, kind="vectorized")))
    arrays = {"x": np.linspace(0.5, 2, 4 * lanes).reshape(lanes, 4)}
    found = Native(func, target)(arrays)["y"]
    np.testing.assert_allclose(found, interpret(func, arrays)["y"], rtol=1e-12)


# -- lets


LETS = """
def k(x: f32[13], n: i32[13], y: out[f32[13]], m: out[i32[13]], p: out[bool[13]]):
    for i in KIND(0, 13):
        with let(x[i] * f32(2.0)) as twice:
            with let(index(i, i32) + n[i]) as count:
                with let(twice[()] < f32(1.0)) as small:
                    p[i] = small[()]
                    if data(small[()]):
                        m[i] = count[()] * count[()]
                        y[i] = twice[()]
                    else:
                        m[i] = i32(7)
                        for j in serial(0, 2):
                            with let(twice[()] + index(j, f32)) as more:
                                y[i] = more[()] + more[()]
"""


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled", "parallel"])
def test_lets_of_floats_integers_and_bools(kind: str) -> None:
    slices = ((0, 6), (6, 13)) if kind == "parallel" else ((0, 1),)
    func = parse("@primfunc" + LETS.replace("KIND", kind))
    check(func, slices=slices)
    assert "alloca" not in emit_ir(func, "k", host_target())


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_a_call_is_given_the_value_of_a_let(kind: str) -> None:
    text = """
        @instruction
        def add1(a: f32[()], c: inout[f32[()]]):
            c[()] += a[()]

        @primfunc
        def k(x: f32[4], y: out[f32[4]]):
            for i in KIND(0, 4):
                y[i] = x[i]
                with let(x[i] * x[i]) as square:
                    add1(square[()], y[i])
        """
    check(parse(text.replace("KIND", kind)))


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=lambda t: t.name)
def test_a_product_of_float64_that_is_rounded_is_not_contracted_with_a_sum(target: Target) -> None:
    func = parse("""
    @primfunc
    def k(a: f32[64], b: f32[64], c: f32[64], y: out[f32[64]]):
        t = alloc(f32[16], register)
        for i in serial(0, 4):
            for v in vectorized(0, 16):
                t[v] = cast(f32, cast(f64, a[16*i + v]) * cast(f64, b[16*i + v]))
            for u in vectorized(0, 16):
                y[16*i + u] = cast(f32, cast(f64, t[u]) + cast(f64, c[16*i + u]))
    """)
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(64).astype("float32") for name in "abc"}
    got = Native(func, target)(given)["y"]
    np.testing.assert_array_equal(got, given["a"] * given["b"] + given["c"])


NEAR_LANES = {
    "positions of a resize": ("(23*i + 7*v) // 95", 40, True),
    "that stop at the last element": ("min((23*i + 7*v) // 95 + 1, 39)", 40, True),
    "of a line in each row": ("40*(i % 3) + (2*v + i) // 5", 120, True),
    "known but for the row": ("8*(i // 32) + v // 2", 40, True),
    "of a buffer shorter than a vector": ("(i + v) // 64", 4, False),
    "that fall": ("31 - (i + v) // 8", 40, False),
    "that a remainder scatters": ("(i + 3*v) % 40", 40, False),
    "beyond a vector": ("(5*v + i) // 2", 90, False),
    "beyond a vector, but known": ("5*v // 2 + i // 16", 60, True),
}


@in_turn("name", NEAR_LANES)
@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_lanes_near_the_first_are_permuted(target: Target, name: str, dtype: str) -> None:
    """The vector from the first lane's element on ends at the end of the buffer at the latest."""
    index, size, is_near = NEAR_LANES[name]
    lanes = target.lanes("float32")
    func = parse(f"""
@primfunc
def near(x: {dtype}[{size}], y: out[{dtype}[96, {lanes}]]):
    for i in serial(0, 96):
        for v in vectorized(0, {lanes}):
            y[i, v] = x[{index}]
""")
    check(func, targets=(target,))
    assert ("vperm" in emit_assembly(func, "near", target)) == is_near


@in_turn("extent", [3, 5, 7])
def test_idle_lanes_are_near_none(target: Target, extent: int) -> None:
    func = parse(f"""
@primfunc
def near(x: f32[24], y: out[f32[64, {extent}]]):
    for i in serial(0, 64):
        for v in vectorized(0, {extent}):
            y[i, v] = x[(i + v) // 3]
""")
    check(func, targets=(target,))
