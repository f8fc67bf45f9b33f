"""Instructions of users that name an intrinsic of LLVM: performed by it, and checked against it."""

from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import CodegenError, ParseError, ScheduleError
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.schedule import Schedule
from graphflow.tir import Intrinsic, PrimFunc, interpret, parse, to_text
from support.native import Native

AVERAGE = """
@instruction({words})
def average(to: out[u8[32]], a: u8[32], b: u8[32]):
    for l in serial(0, 32):
        to[l] = cast(u8, cast(u16, a[l]) + cast(u16, b[l]) + u16(1) >> u16(1))
"""
WORDS = 'llvm="llvm.x86.avx2.pavg.b", feature="avx2"'
BLEND = parse("""
@primfunc
def blend(x: u8[3, 64], z: u8[3, 64], y: out[u8[3, 64]]):
    for i in serial(0, 3):
        for j in serial(0, 64):
            y[i, j] = cast(u8, cast(u16, x[i, j]) + cast(u16, z[i, j]) + u16(1) >> u16(1))
""")


def blended(words: str) -> Schedule:
    s = Schedule.of(BLEND).divide_loop("j", 32, ("jo", "ji"), "perfect")
    return s.replace("ji", parse(AVERAGE.format(words=words)))


def without(target: Target, feature: str) -> Target:
    return replace(target, features=target.features.replace(f"+{feature},", f"-{feature},"))


def check(func: PrimFunc, target: Target, **arrays: Any) -> None:
    want = interpret(func, arrays)
    for name, got in Native(func, target)(arrays).items():
        np.testing.assert_array_equal(got, want[name])


def test_the_intrinsic_performs_what_the_definition_says() -> None:
    s = blended(WORDS)
    random = np.random.default_rng(0)
    x, z = (random.integers(0, 256, (3, 64)).astype("uint8") for _ in range(2))
    for target in (host_target(), avx2_target()):
        assert "vpavgb" in emit_assembly(s.func, "k", target)
        check(s.func, target, x=x, z=z)


def test_a_target_without_the_feature_compiles_the_definition() -> None:
    s = blended(WORDS.replace('"avx2"', '"amx-tile"'))
    target = without(avx2_target(), "amx-tile")
    assert "call" not in emit_assembly(s.func, "k", target)
    x = np.arange(192, dtype="uint8").reshape(3, 64)
    check(s.func, target, x=x, z=x[::-1].copy())


def test_operands_are_named_and_may_be_constants() -> None:
    text = """
@instruction(llvm="llvm.x86.avx.round.ps.256", feature="avx", operands=("x", "i32 9"))
def floors(y: out[f32[8]], x: f32[8]):
    for l in serial(0, 8):
        y[l] = floor(x[l])

@instruction(llvm="llvm.fma.v8f32", feature="fma", operands=("a", "b", "c"))
def multiply_add(c: inout[f32[8]], a: f32[8], b: f32[8]):
    for l in serial(0, 8):
        c[l] += a[l] * b[l]

@primfunc
def k(x: f32[16], z: f32[16], y: out[f32[16]]):
    for o in serial(0, 2):
        floors(y[8*o:8*o + 8], x[8*o:8*o + 8])
        multiply_add(y[8*o:8*o + 8], x[8*o:8*o + 8], z[8*o:8*o + 8])
"""
    func = parse(text)
    assert parse(to_text(func)) == func
    assembly = emit_assembly(func, "k", avx2_target())
    assert "vroundps" in assembly and "vfmadd" in assembly
    x = np.linspace(-4, 4, 16, dtype="float32")
    check(func, avx2_target(), x=x, z=np.arange(16, dtype="float32"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ('llvm="llvm.x86.avx2.none"', "LLVM has no intrinsic llvm.x86.avx2.none"),
        ('llvm="llvm.x86.avx2.pavg.w"', r"does not take \(<32 x i8>, <32 x i8>\) to <32 x i8>"),
        ('llvm="llvm.x86.avx2.pavg.b", operands=("a",)', r"does not take \(<32 x i8>\) to"),
        ('llvm="llvm.x86.avx2.pavg.b", operands=("a", "i32 3")', r"\(<32 x i8>, i32\)"),
        ('llvm="llvm.x86.avx2.pavg.b", feature="avx22"', "no target feature 'avx22'; it has avx2"),
        ('llvm="llvm.ssa.copy"', "llvm.ssa.copy does not take"),
    ],
)
def test_an_intrinsic_that_llvm_does_not_have_so_is_refused(words: str, reason: str) -> None:
    with pytest.raises(CodegenError, match=f"instruction average: .*{reason}"):
        emit_assembly(blended(words).func, "k", avx2_target())


def test_an_intrinsic_that_llvm_cannot_select_is_refused() -> None:
    """LLVM would end the process."""
    text = """
@instruction(llvm="llvm.x86.avx512.add.ps.512", operands=("a", "b", "i32 8"))
def add16(to: out[f32[16]], a: f32[16], b: f32[16]):
    for l in serial(0, 16):
        to[l] = a[l] + b[l]

@primfunc
def k(x: f32[16], y: out[f32[16]]):
    add16(y[0:16], x[0:16], x[0:16])
"""
    with pytest.raises(CodegenError, match=r"cannot select llvm.x86.avx512.add.ps.512 .* feature"):
        emit_assembly(parse(text), "k", avx2_target())


def test_an_intrinsic_with_other_effects_is_refused() -> None:
    text = """
@instruction(llvm="llvm.readcyclecounter", operands=())
def cycles(to: out[i64[()]]):
    to[()] = i64(0)

@primfunc
def k(y: out[i64[()]]):
    cycles(y[()])
"""
    with pytest.raises(CodegenError, match=r"llvm.readcyclecounter has effects beyond its result"):
        emit_assembly(parse(text), "k", avx2_target())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ('llvm="sinf"', "'sinf' is no name of an intrinsic"),
        ('llvm="llvm.fma.v8f32", operands=("a", "q")', "the operand 'q' is neither a parameter"),
        ('llvm="llvm.fma.v8f32", operands=("to",)', "the operand 'to' is neither"),
        ('llvm="llvm.fma.v8f32", feature="+avx2"', "is no target feature"),
        ('llvm="llvm.fma.v8f32", lanes=8', "an instruction has llvm=, feature= and operands="),
        ('feature="avx2"', "expected instruction"),
        ('"llvm.fma.v8f32"', "expected instruction"),
        ("llvm=8", "expected a string"),
    ],
)
def test_words_that_name_no_intrinsic_are_refused(words: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse(AVERAGE.format(words=words))


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ("a: f32[8]", "writes 0 parameters, and an intrinsic has one result"),
        ("a: out[f32[8]], b: out[f32[8]]", "writes 2 parameters"),
        ("a: out[f32[8]], n: index", "takes the integer n"),
        ("a: out[f16[8]]", "a holds float16"),
        ("a: out[bool[8]]", "a holds bool"),
        ("a: out[f32[0]]", "a has no elements"),
    ],
)
def test_parameters_that_no_intrinsic_has_are_refused(params: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse(f'@instruction(llvm="llvm.fma.v8f32")\ndef f({params}):\n    pass\n')


def test_a_schedule_of_an_instruction_is_not_the_intrinsic() -> None:
    """Its parameters may have other layouts."""
    definition = parse(AVERAGE.format(words=WORDS))
    assert definition.intrinsic == Intrinsic("llvm.x86.avx2.pavg.b", "avx2")
    moved = Schedule.of(definition).transform_layout("a", lambda i: (i // 4, i % 4))
    assert moved.func.intrinsic is None
    with pytest.raises(ScheduleError, match="calls another kernel average already"):
        blended(WORDS).replace("jo", parse(AVERAGE.format(words='llvm="llvm.x.y"')))


def test_the_script_of_a_schedule_makes_the_instruction_again() -> None:
    names: dict[str, Any] = {}
    s = blended(WORDS)
    exec(s.trace(), names)
    assert names["schedule"](BLEND).func == s.func
