"""The instructions of x86 processors that the emitter maps calls to.

In: the operands of a call.  Out: LLVM IR that its code generator makes the instruction of.  What
always holds: each names the target feature that it needs.
"""

from __future__ import annotations

from graphflow.codegen.call_operands import CallOperands, Instruction
from graphflow.llvm import IrValue
from graphflow.tir import parse


def x86_instructions() -> tuple[Instruction, ...]:
    """All of them; the ones that come first are preferred where several fit."""
    return (
        *(_fused_multiply_add(lanes) for lanes in (8, 16)),
        *(_rows_multiply_add(rows, lanes) for rows, lanes in ((2, 4), (2, 8), (4, 4))),
        *(_dot_products(lanes, terms) for lanes in (16, 8) for terms in (4, 3, 2, 1)),
        *(_masked_load(lanes) for lanes in (8, 16)),
    )


def _fused_multiply_add(lanes: int) -> Instruction:
    definition = parse(f"""
    @primfunc
    def fma{lanes}(c: inout[f32[{lanes}]], a: f32[()], b: f32[{lanes}]):
        for lane in vectorized(0, {lanes}):
            c[lane] += a[()] * b[lane]
    """)
    return Instruction(
        definition, "+fma", lambda of: _add_product(of, of.vector("a"), of.vector("b"))
    )


def _add_product(of: CallOperands, a: IrValue, b: IrValue) -> None:
    """`c += a * b` as a product and a sum that the code generator makes one operation of.

    LLVM compiles that faster than its `llvm.fma`: by 3 % for the kernels of a network.
    """
    product = of.builder.binary("fmul contract", a, b)
    of.store("c", of.builder.binary("fadd contract", of.vector("c"), product))


def _rows_multiply_add(rows: int, lanes: int) -> Instruction:
    """The multiply-add of several rows in one vector, each with a scalar of its own."""
    factors = [f"a{row}" for row in range(rows)]
    params = ", ".join(f"{factor}: f32[()]" for factor in factors)
    lines = (
        "@primfunc",
        f"def fma{rows}x{lanes}(c: inout[f32[{rows}, {lanes}]], {params}, b: f32[{lanes}]):",
        f"    for lane in vectorized(0, {lanes}):",
        *(
            f"        c[{row}, lane] += {factor}[()] * b[lane]"
            for row, factor in enumerate(factors)
        ),
    )

    def emitted(of: CallOperands) -> None:
        scalars = [of.builder.splat(of.vector(factor), rows * lanes) for factor in factors]
        _add_product(of, of.in_rows(scalars, 0, lanes), of.repeated("b", rows))

    feature = "+fma" if rows * lanes == 8 else "+avx512f"
    return Instruction(parse("\n".join(lines)), feature, emitted)


def _dot_products(lanes: int, terms: int) -> Instruction:
    """VNNI: dot products of four unsigned and four signed bytes, without saturation.

    With fewer terms the other bytes of `a` are zeros, so those of `b`, which are in memory, do not
    count.
    """
    definition = parse(f"""
    @primfunc
    def dot{terms}_{lanes}(c: inout[i32[{lanes}]], a: u8[{terms}], b: i8[{lanes}, 4]):
        for lane in vectorized(0, {lanes}):
            for byte in serial(0, {terms}):
                c[lane] += cast(i32, a[byte]) * cast(i32, b[lane, byte])
    """)

    def emitted(of: CallOperands) -> None:
        operands = of.vector("c"), _four_bytes(of, terms, lanes), of.vector("b")
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        of.store("c", of.builder.call(name, "i32", *operands, lanes=lanes))

    return Instruction(definition, "+avx512vnni", emitted)


def _four_bytes(of: CallOperands, terms: int, lanes: int) -> IrValue:
    """The bytes of `a`, with zeros to make them four, for each lane.

    As one integer: LLVM puts three bytes that it loads as a vector together one by one.
    """
    a, builder = of.vector("a"), of.builder
    number = f"i{8 * terms}"
    whole = a if terms == 1 else builder.emit(f"bitcast {a.type} {a.text} to {number}", number)
    if terms < 4:
        whole = builder.convert("zext", whole, "i32")
    each = builder.splat(whole, lanes)
    return builder.emit(f"bitcast {each.type} {each.text} to <{4 * lanes} x i8>", "i8", 4 * lanes)


def _masked_load(lanes: int) -> Instruction:
    definition = parse(f"""
    @primfunc
    def masked_load{lanes}(y: out[f32[{lanes}]], x: f32[{lanes}], count: index):
        for lane in vectorized(0, {lanes}):
            y[lane] = select(lane < count, x[lane], f32(0.0))
    """)
    return Instruction(definition, "+avx", lambda of: of.store("y", of.first("x", "count")))
