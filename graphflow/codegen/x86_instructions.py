"""The instructions of x86 processors that the emitter maps calls to.

In: the operands of a call.  Out: LLVM IR that its code generator makes the instruction of.  What
always holds: each names the target feature that it needs.
"""

from __future__ import annotations

from graphflow.codegen.call_operands import CallOperands, Instruction
from graphflow.codegen.transposed_sums import CHOSEN_BYTES, SIDE
from graphflow.llvm import IrValue, int_constant, lanes_of
from graphflow.tir import parse


def x86_instructions() -> tuple[Instruction, ...]:
    """All of them; the ones that come first are preferred where several fit."""
    return (
        *(_fused_multiply_add(lanes) for lanes in (8, 16)),
        *(_rows_multiply_add(rows, lanes) for rows, lanes in ((2, 4), (2, 8), (4, 4))),
        *(_dot_products(lanes, terms) for lanes in (16, 8) for terms in (4, 3, 2, 1)),
        *(_pairs(lanes, terms) for lanes in (16, 8) for terms in (2, 1)),
        *(_word_products(lanes, data) for lanes in (16, 8) for data in ("i16", "u8")),
        *(_byte_products(lanes) for lanes in (16, 8)),
        *(_split_dot_products(lanes) for lanes in (16, 8)),
        *(_brain_pairs(lanes) for lanes in (16, 8)),
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
        of.store(
            "c",
            dot_product(of, lanes, as_bytes(of, bits_for_lanes(of, terms, lanes)), of.vector("b")),
        )

    return Instruction(definition, dot_product_features(lanes), emitted)


def _byte_products(lanes: int) -> Instruction:
    """VNNI: products of an unsigned and a signed byte in each lane, as dot products of which three
    terms are 0.

    Where the sums are kept in another order (`transposed_sums`), the bytes are not widened.
    """
    definition = parse(f"""
    @primfunc
    def byte_product{lanes}(c: inout[i32[{lanes}]], a: u8[{lanes}], b: i8[{lanes}]):
        for lane in vectorized(0, {lanes}):
            c[lane] += cast(i32, a[lane]) * cast(i32, b[lane])
    """)

    def emitted(of: CallOperands) -> None:
        if of.is_transposed("c"):
            chosen = lanes_of(CHOSEN_BYTES, "i8")
            weights = of.builder.binary("and", of.repeated("b", SIDE), chosen)
            of.store("c", dot_product(of, lanes, of.repeated("a", SIDE), weights))
            return
        a = of.builder.convert("zext", of.vector("a"), "i32")
        b = of.builder.convert("sext", of.vector("b"), "i32")
        of.store("c", dot_product(of, lanes, as_bytes(of, a), as_bytes(of, b)))

    return Instruction(definition, dot_product_features(lanes), emitted)


def dot_product_features(lanes: int) -> tuple[str, ...]:
    """The features of which one has dot products of bytes for so many lanes."""
    return ("+avx512vnni", "+avxvnni") if lanes == 8 else ("+avx512vnni",)


def _pairs(lanes: int, terms: int) -> Instruction:
    """Dot products of two 16-bit integers, which are exact, added to sums.

    With one term the other number of `a` is 0.
    """
    definition = parse(f"""
    @primfunc
    def pair{terms}_{lanes}(c: inout[i32[{lanes}]], a: i16[{terms}], b: i16[{lanes}, 2]):
        for lane in vectorized(0, {lanes}):
            for word in serial(0, {terms}):
                c[lane] += cast(i32, a[word]) * cast(i32, b[lane, word])
    """)

    def emitted(of: CallOperands) -> None:
        add_word_pairs(of, lanes, _as_words(of, bits_for_lanes(of, terms, lanes)), of.vector("b"))

    return Instruction(definition, word_product_feature(lanes), emitted)


def _split_dot_products(lanes: int) -> Instruction:
    """Dot products of four unsigned and four signed bytes as two pairs of 16-bit integers each.

    A pair consists of the even or of the odd bytes: vpmaddubsw, which takes both, saturates.
    """
    definition = parse(f"""
    @primfunc
    def split_dot{lanes}(c: inout[i32[{lanes}]], a: u8[4], b: i8[{lanes}, 4]):
        for lane in vectorized(0, {lanes}):
            for byte in serial(0, 4):
                c[lane] += cast(i32, a[byte]) * cast(i32, b[lane, byte])
    """)

    def emitted(of: CallOperands) -> None:
        b = of.builder
        shift = b.splat(int_constant(8, "i16"), 2 * lanes)
        weights, data = (
            in_words(of, x, lanes) for x in (of.vector("b"), bits_for_lanes(of, 4, lanes))
        )
        even = b.binary("ashr", b.binary("shl", weights, shift), shift)
        odd = b.binary("ashr", weights, shift)
        low = b.binary("lshr", b.binary("shl", data, shift), shift)
        add_word_pairs(of, lanes, low, even)
        add_word_pairs(of, lanes, b.binary("lshr", data, shift), odd)

    return Instruction(definition, word_product_feature(lanes), emitted, composed=True)


def _brain_pairs(lanes: int) -> Instruction:
    """Dot products of two bfloat16 numbers, added to sums of float32.

    Measured on a Zen 4 as Intel's manual says it (volume 2, VDPBF16PS): the second product is added
    first, then the other one, each sum of a product of any size rounded once, to nearest even.
    Denormals that are read or that a sum would be are zeros of their signs, and the control
    register is neither read nor written.  NaN and infinities are those of the sums.
    """
    definition = parse(f"""
    @primfunc
    def brain_pair{lanes}(c: inout[f32[{lanes}]], a: bf16[2], b: bf16[{lanes}, 2]):
        for lane in vectorized(0, {lanes}):
            for half in serial(0, 2):
                c[lane] += cast(f32, a[half]) * cast(f32, b[lane, half])
    """)

    def emitted(of: CallOperands) -> None:
        a = _as_words(of, bits_for_lanes(of, 2, lanes))
        factors = (of.builder.convert("bitcast", x, "bfloat") for x in (a, of.vector("b")))
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        of.store("c", of.builder.call(name, "float", of.vector("c"), *factors, lanes=lanes))

    return Instruction(definition, "+avx512bf16", emitted, flushes=True)


def _word_products(lanes: int, data: str) -> Instruction:
    """Products of two 16-bit integers in each lane, or of an unsigned byte and one, as dot products
    of which one term is 0.

    Intel's processors multiply integers of 32 bits in two operations, and these pairs in one.
    """
    definition = parse(f"""
    @primfunc
    def {data}_product{lanes}(c: inout[i32[{lanes}]], a: {data}[{lanes}], b: i16[{lanes}]):
        for lane in vectorized(0, {lanes}):
            c[lane] += cast(i32, a[lane]) * cast(i32, b[lane])
    """)

    def emitted(of: CallOperands) -> None:
        # The upper half of one factor is 0, whatever that of the other one is.
        a = of.builder.convert("zext", of.vector("a"), "i32")
        b = of.builder.convert("sext", of.vector("b"), "i32")
        add_word_pairs(of, lanes, _as_words(of, a), _as_words(of, b))

    return Instruction(definition, word_product_feature(lanes), emitted)


def word_product_feature(lanes: int) -> str:
    """The feature that has products of 16-bit integers for sums in so many lanes."""
    return "+avx512bw" if lanes == 16 else "+avx2"


def add_word_pairs(of: CallOperands, lanes: int, a: IrValue, b: IrValue) -> None:
    """`c` and in each lane the sum of two products of 16-bit integers."""
    name = "llvm.x86.avx512.pmaddw.d.512" if lanes == 16 else "llvm.x86.avx2.pmadd.wd"
    products = of.builder.call(name, "i32", a, b, lanes=lanes)
    of.store("c", of.builder.binary("add", of.vector("c"), products))


def dot_product(of: CallOperands, lanes: int, a: IrValue, b: IrValue) -> IrValue:
    """The sums `c` with the dot products of four bytes in each lane added."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return of.builder.call(name, "i32", of.vector("c"), a, b, lanes=lanes)


def as_bytes(of: CallOperands, value: IrValue) -> IrValue:
    lanes = 4 * value.lanes
    return of.builder.emit(f"bitcast {value.type} {value.text} to <{lanes} x i8>", "i8", lanes)


def _as_words(of: CallOperands, value: IrValue) -> IrValue:
    return in_words(of, value, value.lanes)


def in_words(of: CallOperands, value: IrValue, lanes: int) -> IrValue:
    """A vector of 32 bits for each of `lanes`, as two words each."""
    kind = f"<{2 * lanes} x i16>"
    return of.builder.emit(f"bitcast {value.type} {value.text} to {kind}", "i16", 2 * lanes)


def bits_for_lanes(of: CallOperands, terms: int, lanes: int) -> IrValue:
    """The elements of `a` as the lowest bits of 32, the others zeros, for each lane.

    As one integer: LLVM puts three bytes that it loads as a vector together one by one.
    """
    a, builder = of.vector("a"), of.builder
    bits = terms * int(a.element[1:])
    whole = a
    if terms > 1:
        whole = builder.emit(f"bitcast {a.type} {a.text} to i{bits}", f"i{bits}")
    if bits < 32:
        whole = builder.convert("zext", whole, "i32")
    return builder.splat(whole, lanes)


def _masked_load(lanes: int) -> Instruction:
    definition = parse(f"""
    @primfunc
    def masked_load{lanes}(y: out[f32[{lanes}]], x: f32[{lanes}], count: index):
        for lane in vectorized(0, {lanes}):
            y[lane] = select(lane < count, x[lane], f32(0.0))
    """)
    return Instruction(definition, "+avx", lambda of: of.store("y", of.first("x", "count")))
