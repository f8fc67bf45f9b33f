"""Tests of the stored element types: float16, bfloat16, float8, float4, integers of 4 and 2 bits.
Casts equal those of numpy and ml_dtypes bit by bit, except for the payload of a NaN."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.arith import Var, const
from graphflow.base.dtypes import CARRIERS, DTYPES, STORED, STORED_FLOATS, STORED_INTEGERS, largest
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.layout import Range, value_fact
from support.native import Native, flushed_denormals

TARGETS = (host_target(), avx2_target())
I, V = Var("i"), Var("v")
PAIRS = [(stored, carrier) for stored in STORED for carrier in CARRIERS[stored]]


def casting(size: int, source: str, target: str, lanes: int = 16) -> tir.PrimFunc:
    """`y = cast(x)`, a vector at a time."""
    x, y = tir.Buffer("x", (size,), source), tir.Buffer("y", (size,), target)
    at = (I * lanes + V,)
    body = tir.For(
        V,
        const(0),
        const(lanes),
        tir.LoopKind.VECTORIZED,
        (tir.Store(y, at, tir.Cast(tir.Load(x, at), target)),),
    )
    outer = tir.For(I, const(0), const(size // lanes), tir.LoopKind.SERIAL, (body,))
    return tir.PrimFunc(
        "k", (tir.Param(x, tir.Role.INPUT), tir.Param(y, tir.Role.OUTPUT)), (outer,)
    )


def all_codes(dtype: str) -> Any:
    """Every value of a stored type, at least 16 of them."""
    kind = DTYPES[dtype]
    bits = 16 if kind.itemsize == 2 else {"float4_e2m1fn": 4, "int4": 4, "uint4": 4}.get(dtype, 8)
    bits = 2 if dtype in ("int2", "uint2") else bits
    codes = np.arange(max(1 << bits, 16)) % (1 << bits)
    return codes.astype(f"u{kind.itemsize}").view(kind)


def same(got: Any, want: Any) -> None:
    """Equal bit by bit, or both NaN."""
    kind = f"u{want.dtype.itemsize}"
    with np.errstate(all="ignore"):
        wide = [a.astype("float64") for a in (got, want)]
    alike = (got.view(kind) == want.view(kind)) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    wrong = np.flatnonzero(~alike)
    assert not wrong.size, (wrong[:5], got[wrong[:5]], want[wrong[:5]])


@pytest.mark.parametrize("stored, carrier", PAIRS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_every_value_is_loaded(stored: str, carrier: str, target: Any) -> None:
    x = all_codes(stored)
    got = Native(casting(x.size, stored, carrier), target)({"x": x})["y"]
    same(got, x.astype(carrier))


def near_boundaries(stored: str, carrier: str) -> Any:
    """Each number of the type, the middle to the next, their neighbours; specials; any bits."""
    values = np.sort(all_codes(stored).astype("float64"))
    values = np.unique(values[np.isfinite(values)])
    if stored in ("float16", "bfloat16"):
        values = values[::37]
    middles = (values[1:] + values[:-1]) / 2
    top = largest(stored)
    beyond = [top * (1 + k / 64) for k in range(40)]
    edges = np.concatenate([values, middles, beyond, np.negative(beyond)]).astype(carrier)
    infinite = np.asarray(np.inf, carrier)
    above, below = np.nextafter(edges, infinite), np.nextafter(edges, -infinite)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, 1e-39], carrier)
    bits = np.random.default_rng(0).integers(0, 2**32, 2048, dtype=np.uint32)
    anything = bits.view(np.float32).astype(carrier)
    found = np.concatenate([edges, above, below, special, anything])
    return np.resize(found, -(-found.size // 16) * 16)


@pytest.mark.parametrize("stored, carrier", [p for p in PAIRS if p[0] in STORED_FLOATS])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_floats_are_rounded_once_to_even(stored: str, carrier: str, target: Any) -> None:
    with np.errstate(all="ignore"):
        x = near_boundaries(stored, carrier)
        want = x.astype(DTYPES[stored])
        same(Native(casting(x.size, carrier, stored), target)({"x": x})["y"], want)
        same(Native(casting(x.size, carrier, stored, 1), target)({"x": x})["y"], want)
    x = x[np.abs(x) > 1e-37]  # denormals of float32 may count as zeros
    x = x[: x.size // 16 * 16]
    with flushed_denormals(), np.errstate(all="ignore"):
        flushed = Native(casting(x.size, carrier, stored), target)({"x": x})["y"]
        want = x.astype(DTYPES[stored])
    same(flushed, want)


def test_float64_is_rounded_to_float16_once() -> None:
    """2049 + 2⁻³⁰ lies above the middle of two float16; as a float32 it would lie on it."""
    x = np.array(
        [2049 + 2.0**-30, 2049, 2051 - 2.0**-30, 65519.999999999, 2.0**-25 * (1 + 2**-40)] * 16
    )
    for target in TARGETS:
        got = Native(casting(80, "float64", "float16"), target)({"x": x})["y"]
        assert got[:5].tolist() == [2050, 2048, 2050, 65504, 2.0**-24]


@pytest.mark.parametrize("stored", STORED_INTEGERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_integers_keep_their_lowest_bits(stored: str, target: Any) -> None:
    carrier = CARRIERS[stored][0]
    x = np.arange(256).astype("uint8").view(carrier)
    same(Native(casting(256, carrier, stored), target)({"x": x})["y"], x.astype(DTYPES[stored]))


@pytest.mark.parametrize("dtype", STORED)
def test_text_literals_and_the_interpreter(dtype: str) -> None:
    x, y = tir.Buffer("x", (16,), dtype), tir.Buffer("y", (16,), dtype)
    load = tir.Load(x, (V,))
    value = tir.Select(
        tir.Comparison("lt", tir.IndexValue(V), tir.Literal(5, "int64")),
        load,
        tir.Literal(1, dtype),
    )
    body = tir.For(V, const(0), const(16), tir.LoopKind.VECTORIZED, (tir.Store(y, (V,), value),))
    func = tir.PrimFunc("k", (tir.Param(x, tir.Role.INPUT), tir.Param(y, tir.Role.OUTPUT)), (body,))
    tir.verify(func, "lowered")
    assert tir.parse(tir.to_text(func)) == func
    arrays = {"x": all_codes(dtype)[-16:]}
    want = tir.interpret(func, arrays)["y"]
    for target in TARGETS:
        same(Native(func, target)(arrays)["y"], want)


@pytest.mark.parametrize("dtype", STORED)
def test_nothing_is_computed_in_stored_types(dtype: str) -> None:
    x, y = tir.Buffer("x", (1,), dtype), tir.Buffer("y", (1,), dtype)
    load, flag = tir.Load(x, (const(0),)), tir.Buffer("b", (1,), "bool")

    def refused(stmt: Any, reason: str) -> None:
        params = [
            tir.Param(b, tir.Role.INPUT if b == x else tir.Role.OUTPUT) for b in (x, stmt.buffer)
        ]
        with pytest.raises(VerifyError, match=reason):
            tir.verify(tir.PrimFunc("k", tuple(params), (stmt,)), "lowered")

    at = (const(0),)
    refused(tir.Store(y, at, tir.Binary("add", load, load)), "add does not take")
    refused(tir.Store(y, at, tir.Binary("max", load, load)), "max does not take")
    refused(tir.Store(y, at, tir.Unary("neg", load)), "neg does not take")
    refused(tir.Store(flag, at, tir.Comparison("lt", load, load)), "lt does not take")
    refused(tir.Reduce(tir.ReduceOp.MAX, y, at, load), "in which nothing is computed")
    refused(
        tir.Store(tir.Buffer("w", (1,), "int32"), at, tir.Cast(load, "int32")),
        "is cast to and from",
    )
    refused(tir.Store(y, at, tir.IndexValue(const(0), dtype)), "is a number, not a")


@pytest.mark.parametrize("stored", STORED_FLOATS)
def test_facts_of_casts_cover_them(stored: str) -> None:
    load = tir.Load(tir.Buffer("x", (), "float32"), ())
    cast = tir.Cast(load, stored)
    for lo, hi in ((-1.0, 1.0), (0.3, 0.4), (-0.0, 5.0), (-1e-9, 1e-9), (1.0, 1e9), (-500.0, 2.0)):
        fact = value_fact(cast, lambda _, held=Range(lo, hi): held)  # noqa: B008
        for number in np.linspace(lo, hi, 33).astype("float32"):
            with np.errstate(all="ignore"):
                value = float(number.astype(DTYPES[stored]))
            assert not isinstance(fact, Range) or fact.holds(value), (fact, number, value)


def rounded_twice(size: int, first: str, second: str) -> tir.PrimFunc:
    """`y = (a first b) second c`, each rounded to float16."""
    names = {"add": "+", "sub": "-", "mul": "*", "div": "/"}

    def combined(op: str, left: str, right: str) -> str:
        return f"cast(f16, cast(f32, {left}) {names[op]} cast(f32, {right}))"

    return tir.parse(f"""
    @primfunc
    def k(a: f16[{size}], b: f16[{size}], c: f16[{size}], y: out[f16[{size}]]):
        t = alloc(f16[16], register)
        for i in serial(0, {size // 16}):
            for v in vectorized(0, 16):
                t[v] = {combined(first, "a[16*i + v]", "b[16*i + v]")}
            for u in vectorized(0, 16):
                y[16*i + u] = {combined(second, "t[u]", "c[16*i + u]")}
    """)


OPERATIONS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
}  # fmt: skip


@pytest.mark.parametrize("first", OPERATIONS)
@pytest.mark.parametrize("second", OPERATIONS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_each_operation_on_float16_is_rounded(first: str, second: str, target: Any) -> None:
    """A product is not contracted with a sum behind its rounding, where the processor computes in
    float16 either; denormals, which a run that flushes those of float32 keeps, NaN and infinities
    included."""
    rng = np.random.default_rng(0)
    codes = all_codes("float16")
    a, b, c = (rng.permutation(codes) for _ in range(3))
    b[: b.size // 2] = rng.standard_normal(b.size // 2).astype("float16")
    a[: b.size // 4] = rng.standard_normal(b.size // 4).astype("float16")
    c[: b.size // 8] = rng.standard_normal(b.size // 8).astype("float16")
    kernel, given_arrays = (
        Native(rounded_twice(a.size, first, second), target),
        {"a": a, "b": b, "c": c},
    )
    with np.errstate(all="ignore"):
        want = OPERATIONS[second](OPERATIONS[first](a, b), c)
    same(kernel(given_arrays)["y"], want)
    with flushed_denormals():
        flushed = kernel(given_arrays)["y"]
    same(flushed, want)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 0xFFFF), min_size=48, max_size=48), st.sampled_from(["add", "sub"]))
def test_any_float16_are_rounded_after_each_operation(codes: list[int], second: str) -> None:
    a, b, c = np.array(codes, np.uint16).view(np.float16).reshape(3, 16)
    with np.errstate(all="ignore"):
        want = OPERATIONS[second](a * b, c)
    for target in TARGETS:
        same(Native(rounded_twice(16, "mul", second), target)({"a": a, "b": b, "c": c})["y"], want)


@pytest.mark.parametrize(
    ("name", "computes"),
    [("graniterapids", True), ("sapphirerapids", True), ("zen4", False), ("haswell", False)],
)
def test_processors_that_compute_in_float16(name: str, computes: bool) -> None:
    """No operation is contracted there, and others widen."""
    code = emit_assembly(rounded_twice(64, "mul", "add"), "k", PROCESSORS[name])
    assert not re.search(r"vfm\w+ph", code)
    assert bool(re.search(r"vmulph", code)) == bool(re.search(r"vaddph", code)) == computes
    assert bool(re.search(r"vmulps", code)) != computes


@pytest.mark.parametrize("features", ["", "+avx512f,+avx512bw,+avx512vl,+avx512fp16"])
def test_no_operation_is_contracted_whatever_features_are_stated(features: str) -> None:
    """Without any, LLVM uses those that the name of the processor implies."""
    target = replace(PROCESSORS["sapphirerapids"], name="own", features=features)
    code = emit_assembly(rounded_twice(64, "mul", "add"), "k", target)
    assert not re.search(r"vfm\w+ph", code) and "vmulph" in code
