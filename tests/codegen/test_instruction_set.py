"""Instructions: each maps to its operation where it may, and computes what its definition says."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from graphflow.base.dtypes import DTYPES
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target, instruction, instructions_of
from graphflow.codegen.call_operands import CallOperands
from graphflow.codegen.emit import emit_ir
from graphflow.tir import PREFETCH16, PREFETCH16_NEAR, PrimFunc, interpret, parse, to_text
from support.native import Native

TARGETS = (host_target(), avx2_target())


def caller(call: str, name: str, params: str, around: str = "") -> PrimFunc:
    definition = to_text(instruction(name)).replace("@primfunc", "@instruction")
    body = "\n".join("    " + line for line in [*around.splitlines(), call] if line)
    return parse(f"{definition}\n\n@primfunc\ndef k({params}):\n{body}\n")


def is_mapped(func: PrimFunc, target: Target) -> bool:
    """Whether the call in a kernel is emitted as an operation, not as the definition's body."""
    store = CallOperands.store
    with patch.object(CallOperands, "store", autospec=True, side_effect=store) as stored:
        emit_ir(func, "k", target)
    return stored.called


def check(func: PrimFunc, target: Target, **arrays: Any) -> None:
    want = interpret(func, arrays)
    got = Native(func, target)(arrays)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("lanes", [8, 16])
def test_a_fused_multiply_add(lanes: int, target: Target) -> None:
    func = caller(
        f"    fma{lanes}(y[i, 3:{3 + lanes}], x[i], w[i, 1:{1 + lanes}])",
        f"fma{lanes}",
        "x: f32[3], w: f32[3, 20], y: out[f32[3, 20]]",
        "for a in serial(0, 3):\n    for b in serial(0, 20):\n        y[a, b] = w[a, b]\n"
        "for i in serial(0, 3):",
    )
    assert is_mapped(func, target)
    assert "vfmadd" in emit_assembly(func, "k", target)
    random = np.random.default_rng(1)
    check(func, target, x=random.random(3, "f"), w=random.random((3, 20), "f"))


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(("rows", "lanes"), [(2, 4), (2, 8), (4, 4)])
def test_a_multiply_add_of_rows_that_share_a_vector(rows: int, lanes: int, target: Target) -> None:
    name = f"fma{rows}x{lanes}"
    factors = ", ".join(f"x[2*i, {row}]" for row in range(rows))
    func = caller(
        f"    {name}(y[i, 0:{rows}, 0:{lanes}], {factors}, w[i, 1:{1 + lanes}])",
        name,
        f"x: f32[5, {rows}], w: f32[3, 20], y: out[f32[3, {rows}, {lanes}]]",
        f"for a in serial(0, 3):\n    for b in serial(0, {rows}):\n"
        f"        for c in serial(0, {lanes}):\n            y[a, b, c] = w[a, c]\n"
        "for i in serial(0, 3):",
    )
    fits = rows * lanes <= target.lanes("float32")
    assert is_mapped(func, target) == fits
    if fits:
        assert emit_assembly(func, "k", target).count("vfmadd") == 1
    random = np.random.default_rng(1)
    check(func, target, x=random.random((5, rows), "f"), w=random.random((3, 20), "f"))


FMA = "x: f32[1], w: f32[40], y: out[f32[40]]"
START = "for a in serial(0, 40):\n    y[a] = w[a]"


@pytest.mark.parametrize(
    ("call", "params"),
    [
        # a column is not contiguous
        ("fma8(y[0:8], x[0], v[0:8, 1])", FMA + ", v: f32[8, 5]"),
        # the definition goes lane by lane, an operation would read before it writes
        ("fma8(y[0:8], x[0], y[1:9])", FMA),
        ("fma8(y[0:8], y[0], w[1:9])", FMA),
    ],
)
def test_windows_that_an_operation_cannot_have_compile_the_definition(
    call: str, params: str
) -> None:
    params = params if "v:" not in params else "v: f32[8, 5], " + FMA
    func = caller(call, "fma8", params, START)
    func = parse(to_text(func).replace("vectorized", "serial")) if "y[1" in call else func
    for target in TARGETS:
        assert not is_mapped(func, target)
        arrays = {b.name: np.arange(b.size, dtype="f").reshape(b.shape) for b in func.inputs}
        check(func, target, **arrays)


def test_another_kernel_of_the_same_name_is_no_instruction() -> None:
    func = caller("fma8(y[0:8], x[0], w[1:9])", "fma8", FMA, START)
    other = parse(to_text(func).replace("a[()] * b[lane]", "a[()] - b[lane]"))
    assert is_mapped(func, TARGETS[0])
    assert not is_mapped(other, TARGETS[0])


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_a_dot_product_of_four_bytes(target: Target) -> None:
    func = caller(
        "    dot4_16(y[0:16], a[4*k:4*k + 4], b[k, 0:16, 0:4])",
        "dot4_16",
        "a: u8[12], b: i8[3, 16, 4], y: out[i32[16]]",
        "for z in serial(0, 16):\n    y[z] = i32(5)\nfor k in serial(0, 3):",
    )
    has_vnni = "+avx512vnni" in target.features.split(",")
    assert ("vpdpbusd" in emit_ir(func, "k", target)) == has_vnni
    random = np.random.default_rng(2)
    a = random.integers(0, 256, 12).astype("uint8")
    b = random.integers(-128, 128, (3, 16, 4)).astype("int8")
    a[:4], b[0] = 255, -128  # the products of a saturating operation would not fit
    check(func, target, a=a, b=b)


def brain_pair(lanes: int) -> PrimFunc:
    """One dot product for each of three rows of sums."""
    return caller(
        f"    brain_pair{lanes}(y[k, 0:{lanes}], a[k, 0:2], b[k, 0:{lanes}, 0:2])",
        f"brain_pair{lanes}",
        f"a: bf16[3, 2], b: bf16[3, {lanes}, 2], c: f32[3, {lanes}], y: out[f32[3, {lanes}]]",
        f"for z in serial(0, 3):\n    for l in serial(0, {lanes}):\n        y[z, l] = c[z, l]\n"
        "for k in serial(0, 3):",
    )


def in_brain_floats(*numbers: Any) -> Any:
    return np.array(numbers, np.float32).astype(DTYPES["bfloat16"])


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("lanes", [8, 16])
def test_a_dot_product_of_two_brain_floats(lanes: int, target: Target) -> None:
    """Only where denormals may be zeros; elsewhere the definition is compiled."""
    flushing = replace(target, name=f"{target.name}-flushing", flushes_denormals=True)
    has_dots = "+avx512bf16" in target.features.split(",")
    func = brain_pair(lanes)
    assert "vdpbf16ps" not in emit_assembly(func, "k", target)
    assert ("vdpbf16ps" in emit_assembly(func, "k", flushing)) == has_dots
    random = np.random.default_rng(3)
    a, b = (random.integers(-64, 65, s) / 8 for s in ((3, 2), (3, lanes, 2)))
    c = random.integers(-64, 65, (3, lanes)).astype(np.float32)
    for each in (target, flushing):
        check(func, each, a=in_brain_floats(*a), b=in_brain_floats(*b), c=c)


FLUSHING = replace(host_target(), name="flushing", flushes_denormals=True)
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("first", "a", "b", "want"),
    [
        (0.0, (INF, 0.0), (0.0, 1.0), NAN),
        (0.0, (INF, -INF), (1.0, 1.0), NAN),
        (INF, (-INF, 0.0), (1.0, 1.0), NAN),
        (NAN, (0.0, 0.0), (0.0, 0.0), NAN),
        (0.0, (1.0, NAN), (1.0, 1.0), NAN),
        (-INF, (1.0, 2.0), (3.0, 4.0), -INF),
        (0.0, (1e38, 0.0), (1e38, 1.0), INF),
        (-0.0, (-0.0, -0.0), (1.0, 1.0), -0.0),
        (-0.0, (0.0, -0.0), (1.0, 1.0), 0.0),
        (1.0, (2.0**-12, 1.0), (2.0**-13, 2.0**-24), 1.0),  # each sum is rounded, to even
    ],
)
def test_special_numbers_in_dot_products_of_brain_floats(
    first: float, a: tuple[float, ...], b: tuple[float, ...], want: float
) -> None:
    func = brain_pair(16)
    rows = {
        "a": in_brain_floats(a, a, a),
        "b": in_brain_floats(*[[b] * 16] * 3),
        "c": np.full((3, 16), first, np.float32),
    }
    for target in (host_target(), FLUSHING):
        (got,) = Native(func, target)(rows).values()
        np.testing.assert_array_equal(got, np.full((3, 16), want, np.float32))
        if not np.isnan(want):
            assert (np.signbit(got) == np.signbit(np.float32(want))).all()


@pytest.mark.parametrize(
    ("first", "a", "b"),
    [(0.0, 1e-39, 1.0), (0.0, 2.0**-70, 2.0**-70), (1e-40, 0.0, 0.0), (2.0**-126, -(2.0**-127), 1)],
)
def test_denormals_in_dot_products_of_brain_floats_may_be_zeros(
    first: float, a: float, b: float
) -> None:
    rows = {
        "a": in_brain_floats(*[[a, 0]] * 3),
        "b": in_brain_floats(*[[[b, 0]] * 16] * 3),
        "c": np.full((3, 16), first, np.float32),
    }
    (exact,) = interpret(brain_pair(16), rows).values()
    (got,) = Native(brain_pair(16), FLUSHING)(rows).values()
    assert (np.abs(got - exact) <= 2.0**-125).all()


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("lanes", [8, 16])
def test_a_masked_load_touches_nothing_behind(lanes: int, target: Target) -> None:
    """The window leaves the input; the elements that the count admits do not."""
    func = caller(
        f"    masked_load{lanes}(y[i, 0:{lanes}], x[6:{6 + lanes}], i)",
        f"masked_load{lanes}",
        f"x: f32[8], y: out[f32[3, {lanes}]]",
        "for i in serial(0, 3):",
    )
    assert "masked.load" in emit_ir(func, "k", target)
    check(func, target, x=np.arange(8, dtype="f") + 1)


FETCH = "for i in serial(0, 3):\n    for j in {}(0, 8):\n        y[i, j] = x[i, j]\n"


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_a_line_is_fetched_into_the_second_level_cache(target: Target) -> None:
    """It has no body and writes nothing."""
    params = "x: f32[3, 16], y: out[f32[3, 8]]"
    func = caller(
        "    prefetch16(x[min(i + 1, 2), 0:16])", "prefetch16", params, FETCH.format("serial")
    )
    ir = emit_ir(func, "k", target)
    assert ir.count("call void @llvm.prefetch.p0(ptr %") == 1
    assert not is_mapped(func, target), "nothing is stored"
    assert "prefetcht1" in emit_assembly(func, "k", target)
    check(func, target, x=np.arange(48, dtype="f").reshape(3, 16))


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("    prefetch16(w[0:16, i])", "serial"),  # its elements are in 16 lines
        ("        prefetch16(x[i, 0:16])", "vectorized"),  # a line for each lane
    ],
)
def test_where_no_line_is_meant_nothing_is_fetched(call: str, kind: str) -> None:
    params = "x: f32[3, 16], w: f32[16, 5], y: out[f32[3, 8]]"
    func = caller(call, "prefetch16", params, FETCH.format(kind))
    for target in TARGETS:
        assert "prefetch" not in emit_ir(func, "k", target)
        check(func, target, x=np.ones((3, 16), "f"), w=np.ones((16, 5), "f"))


def test_each_part_of_a_long_kernel_has_the_buffers_that_it_fetches() -> None:
    """A kernel of many stages is several functions, and no stage of the second one reads x."""
    stages = "".join(f"for i{n} in serial(0, 4):\n    y[i{n}] = w[i{n}]\n" for n in range(40))
    params = "x: f32[16], w: f32[4], y: out[f32[4]]"
    func = caller("prefetch16(x[0:16])", "prefetch16", params, stages)
    assert emit_ir(func, "k", TARGETS[0]).count("call void @llvm.prefetch") == 1
    check(func, TARGETS[0], x=np.ones(16, "f"), w=np.ones(4, "f"))


def test_only_what_performs_something_replaces_statements() -> None:
    for target in TARGETS:
        names = [definition.name for definition in instructions_of(target)]
        assert "fma8" in names and not {"prefetch16", "prefetch16_near"} & {*names}
    assert instruction("prefetch16") == PREFETCH16
    assert instruction("prefetch16_near") == PREFETCH16_NEAR


def test_a_name_that_no_instruction_has() -> None:
    with pytest.raises(KeyError, match="there are fma8, fma16, fma2x4, fma2x8, fma4x4, dot4_16"):
        instruction("fms8")


def summed(name: str, lanes: int, terms: int, types: tuple[str, str], group: int) -> PrimFunc:
    """Three steps of an instruction that sums products of `terms` of `group` elements."""
    a, b = types
    return caller(
        f"    {name}(y[0:{lanes}], a[{group}*k:{group}*k + {terms}], b[k, 0:{lanes}, 0:{group}])",
        name,
        f"a: {a}[{3 * group}], b: {b}[3, {lanes}, {group}], y: out[i32[{lanes}]]",
        f"for z in serial(0, {lanes}):\n    y[z] = i32(5)\nfor k in serial(0, 3):",
    )


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("terms", [1, 2, 3, 4])
def test_dot_products_of_fewer_bytes(terms: int, lanes: int) -> None:
    func = summed(f"dot{terms}_{lanes}", lanes, terms, ("u8", "i8"), 4)
    random = np.random.default_rng(3)
    a = random.integers(0, 256, 12).astype("uint8")
    b = random.integers(-128, 128, (3, lanes, 4)).astype("int8")
    a[:4], b[0] = 255, -128
    check(func, host_target(), a=a, b=b)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("lanes", [8, 16])
def test_dot_products_of_bytes_as_pairs_of_words(lanes: int, target: Target) -> None:
    """Exact where the sum of two products does not fit 16 bits, and no reason to lay data out."""
    func = summed(f"split_dot{lanes}", lanes, 4, ("u8", "i8"), 4)
    random = np.random.default_rng(3)
    a = random.integers(0, 256, 12).astype("uint8")
    b = random.integers(-128, 128, (3, lanes, 4)).astype("int8")
    a[:4], b[0] = 255, -128
    check(func, target, a=a, b=b)
    mapped = lanes == 8 or target is TARGETS[0]
    assert is_mapped(func, target) == mapped
    definition = instruction(f"split_dot{lanes}")
    assert (definition in instructions_of(target)) == mapped
    assert definition not in instructions_of(target, composed=False)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(("lanes", "terms"), [(8, 1), (8, 2), (16, 1), (16, 2)])
def test_dot_products_of_words(lanes: int, terms: int, target: Target) -> None:
    """Also where both products are the largest, whose sum does not fit 32 bits."""
    func = summed(f"pair{terms}_{lanes}", lanes, terms, ("i16", "i16"), 2)
    random = np.random.default_rng(4)
    a = random.integers(-(2**15), 2**15, 6).astype("int16")
    b = random.integers(-(2**15), 2**15, (3, lanes, 2)).astype("int16")
    a[:2], b[0] = -(2**15), -(2**15)
    check(func, target, a=a, b=b)
    assert is_mapped(func, target) == (lanes == 8 or target is TARGETS[0])


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize(
    ("name", "types"),
    [("byte_product", ("u8", "i8")), ("u8_product", ("u8", "i16")), ("i16_product", ("i16",) * 2)],
)
def test_products_in_lanes(name: str, types: tuple[str, str], lanes: int, target: Target) -> None:
    """Also where both factors are at the ends of their types."""
    func = caller(
        f"    {name}{lanes}(y[0:{lanes}], a[k, 0:{lanes}], b[k, 0:{lanes}])",
        f"{name}{lanes}",
        f"a: {types[0]}[3, {lanes}], b: {types[1]}[3, {lanes}], y: out[i32[{lanes}]]",
        f"for z in serial(0, {lanes}):\n    y[z] = i32(5)\nfor k in serial(0, 3):",
    )
    random = np.random.default_rng(5)
    names = {"u8": "uint8", "i8": "int8", "i16": "int16"}
    (low, high), (least, most) = ((i.min, i.max) for i in (np.iinfo(names[t]) for t in types))
    a = random.integers(low, high + 1, (3, lanes)).astype(names[types[0]])
    b = random.integers(least, most + 1, (3, lanes)).astype(names[types[1]])
    a[0], b[0], a[1], b[1] = high, least, low, least
    check(func, target, a=a, b=b)
    if name != "byte_product":
        assert is_mapped(func, target) == (lanes == 8 or target is TARGETS[0])


def test_one_of_several_features_is_enough() -> None:
    names = {"alderlake": "dot4_8", "zen4": "dot4_16", "haswell": "pair2_8"}
    for processor, name in names.items():
        found = [each.name for each in instructions_of(PROCESSORS[processor])]
        assert name in found
    assert "dot4_8" not in found
