"""Instructions: kernels that the emitter maps to one operation of LLVM instead of their body.

In: a call and the target.  Out: the instruction that performs it, and the operation emitted on its
windows.  What always holds: a call is mapped by its definition, not by its name, and only where its
windows are contiguous and nothing that it writes is a window of a buffer that it also reads;
elsewhere the body of the definition is emitted, which for a hint (`tir.PREFETCH16`) is nothing.

A new instruction is a definition and the line that emits it; users' own name the intrinsic of LLVM
that performs them, which `intrinsics` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.emit_builder import IrBuilder, IrValue, integer, lanes_of, vector_type
from graphflow.codegen.emit_index import Indices
from graphflow.codegen.emit_memory import Address, Memory
from graphflow.codegen.intrinsics import require_feature, require_intrinsic
from graphflow.tir import (
    PREFETCH16,
    Call,
    Intrinsic,
    PrimFunc,
    Role,
    constant_operand,
    intrinsic_problem,
    parse,
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A definition, the target feature that it needs, and the operation that performs it."""

    definition: PrimFunc
    feature: str | None
    """None for what LLVM emits for every target."""
    emit: Callable[[CallOperands], None]
    """Emits the operation on the operands, and stores what the definition writes."""

    def is_of(self, target: Target) -> bool:
        """Whether the target has the instruction."""
        return self.feature is None or self.feature in target.features.split(",")


class CallOperands:
    """The windows and scalars of a call that is about to be emitted."""

    def __init__(self, call: Call, builder: IrBuilder, indices: Indices, memory: Memory) -> None:
        self.call, self.builder, self.indices, self.memory = call, builder, indices, memory
        self.addresses: dict[str, Address] = {}

    def emit(self, instruction: Instruction) -> bool:
        """Emit the instruction; False, with nothing emitted, where the windows do not permit it."""
        params = self.call.definition.params
        pairs = list(zip(params, self.call.windows, strict=True))
        written = [window.buffer for param, window in pairs if param.role is not Role.INPUT]
        buffers = [window.buffer for _, window in pairs]
        if any(buffers.count(buffer) > 1 for buffer in written):
            return False
        for param, window in pairs:
            address = self.memory.window(window, param.buffer.shape)
            if address is None:
                return False
            self.addresses[param.buffer.name] = address
        instruction.emit(self)
        return True

    def store(self, name: str, value: IrValue) -> None:
        """Store all elements of a parameter."""
        self.memory.store_window(self.addresses[name], value)

    def pointer(self, name: str) -> IrValue:
        """The address of the first element of a parameter."""
        return self.memory.pointer_to(self.addresses[name])

    def vector(self, name: str) -> IrValue:
        """All elements of a parameter."""
        size = self.call.definition.param(name).size
        return self.memory.load_window(self.addresses[name], size)

    def operand(self, text: str) -> IrValue:
        """All elements of a parameter, or a constant such as `i32 8`."""
        constant = constant_operand(text)
        return self.vector(text) if constant is None else IrValue(constant[1], constant[0])

    def repeated(self, name: str, times: int) -> IrValue:
        """The elements of a parameter, again and again."""
        value = self.vector(name)
        if value.lanes == 1:
            return self.builder.splat(value, times)
        none = IrValue("poison", value.element, value.lanes)
        return self.builder.shuffled(value, none, [*range(value.lanes)] * times)

    def in_rows(self, vectors: Sequence[IrValue], row: int, lanes: int) -> IrValue:
        """The first `lanes` lanes of the first vector, then the next ones of the second, and so on;
        the first vector stands for row number `row` of the result."""
        if len(vectors) == 1:
            return vectors[0]
        half = len(vectors) // 2
        low = self.in_rows(vectors[:half], row, lanes)
        high = self.in_rows(vectors[half:], row + half, lanes)
        later = self.builder.lanes_from((row + half) * lanes, low.lanes)
        return self.builder.select(later, high, low)

    def first(self, name: str, count: str) -> IrValue:
        """The first elements of a parameter, as many as the scalar `count` says, then zeros."""
        scalars = {
            v.name: e for v, e in zip(self.call.definition.scalars, self.call.scalars, strict=True)
        }
        lanes = self.call.definition.param(name).size
        numbers = lanes_of(range(lanes), "i64")
        limit = self.builder.splat(self.indices.value(scalars[count]), lanes)
        truth = self.builder.compare("icmp slt", numbers, limit)
        return self.memory.load_first(self.addresses[name], truth)

    def call_llvm(self, name: str, *arguments: IrValue) -> IrValue:
        """The result of an intrinsic of LLVM, of the type of its first argument."""
        first = arguments[0]
        value = self.builder.call(name, first.type, *arguments)
        return IrValue(value.text, first.element, first.lanes)


@lru_cache(maxsize=1)
def instructions() -> dict[PrimFunc, Instruction]:
    """The instructions that the emitter knows, by definition."""
    known = (
        *(_fused_multiply_add(lanes) for lanes in (8, 16)),
        *(_rows_multiply_add(rows, lanes) for rows, lanes in ((2, 4), (2, 8), (4, 4))),
        _DOT4,
        *(_masked_load(lanes) for lanes in (8, 16)),
    )
    made = [Instruction(parse(text), feature, emit) for text, feature, emit in known]
    made.append(Instruction(PREFETCH16, None, _prefetched))
    return {one.definition: one for one in made}


def instruction(name: str) -> PrimFunc:
    """The definition of the instruction called `name`; KeyError names those there are."""
    names = {definition.name: definition for definition in instructions()}
    if name not in names:
        raise KeyError(f"there is no instruction {name}; there are {', '.join(names)}")
    return names[name]


@lru_cache(maxsize=16)
def instructions_of(target: Target) -> tuple[PrimFunc, ...]:
    """The instructions of the target that statements can be replaced with: those with a body."""
    found = (one for one in instructions().values() if one.is_of(target))
    return tuple(one.definition for one in found if one.definition.body)


def is_instruction(definition: PrimFunc) -> bool:
    """Whether `definition` is an instruction of some target, or names an operation of LLVM."""
    return definition.intrinsic is not None or definition in instructions()


def instruction_for(call: Call, target: Target) -> Instruction | None:
    """The instruction that performs a call on the target; None where it has none.

    CodegenError where the definition names an intrinsic that cannot perform it.
    """
    if call.definition.intrinsic is not None:
        found: Instruction | None = _by_intrinsic(
            call.definition, call.definition.intrinsic, target
        )
    else:
        found = instructions().get(call.definition)
    return found if found is not None and found.is_of(target) else None


@contextmanager
def _of(definition: PrimFunc) -> Iterator[None]:
    """Errors in this context name the instruction."""
    try:
        yield
    except CodegenError as error:
        raise CodegenError(f"instruction {definition.name}: {error}") from None


def _by_intrinsic(definition: PrimFunc, intrinsic: Intrinsic, target: Target) -> Instruction:
    """The instruction of a definition that names what performs it."""
    problem = intrinsic_problem(definition, intrinsic)
    if problem is not None:
        raise CodegenError(f"instruction {definition.name}: {problem}")
    with _of(definition):
        require_feature(intrinsic, target)
    written = next(p.buffer for p in definition.params if p.role is not Role.INPUT)
    read = (p.buffer.name for p in definition.params if p.role is not Role.OUTPUT)
    names = intrinsic.operands or tuple(read)

    def emitted(of: CallOperands) -> None:
        operands = tuple(of.operand(name) for name in names)
        element = of.addresses[written.name].place.element
        result = vector_type(element, written.size)
        with _of(definition):
            require_intrinsic(intrinsic, result, operands, target)
        value = of.builder.call(intrinsic.name, result, *operands)
        of.store(written.name, IrValue(value.text, element, written.size))

    feature = None if intrinsic.feature is None else f"+{intrinsic.feature}"
    return Instruction(definition, feature, emitted)


_Known: TypeAlias = tuple[str, str, Callable[[CallOperands], None]]
"""The text of a definition, the feature that it needs, and what emits it."""


def _fused_multiply_add(lanes: int) -> _Known:
    definition = f"""
    @primfunc
    def fma{lanes}(c: inout[f32[{lanes}]], a: f32[()], b: f32[{lanes}]):
        for lane in vectorized(0, {lanes}):
            c[lane] += a[()] * b[lane]
    """
    return definition, "+fma", _product_added


def _product_added(of: CallOperands) -> None:
    _add_product(of, of.vector("a"), of.vector("b"))


def _add_product(of: CallOperands, a: IrValue, b: IrValue) -> None:
    """`c += a * b` as a product and a sum that the code generator makes one operation of.

    LLVM compiles that faster than its `llvm.fma`: by 3 % for the kernels of a network.
    """
    product = of.builder.binary("fmul contract", a, b)
    of.store("c", of.builder.binary("fadd contract", of.vector("c"), product))


def _rows_multiply_add(rows: int, lanes: int) -> _Known:
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

    return "\n".join(lines), "+fma" if rows * lanes == 8 else "+avx512f", emitted


def _dot_products(of: CallOperands) -> None:
    operands = of.vector("c"), of.repeated("a", 16), of.vector("b")
    of.store("c", of.call_llvm("llvm.x86.avx512.vpdpbusd.512", *operands))


_DOT4: _Known = (
    """
    @primfunc
    def dot4_16(c: inout[i32[16]], a: u8[4], b: i8[16, 4]):
        for lane in vectorized(0, 16):
            for byte in serial(0, 4):
                c[lane] += cast(i32, a[byte]) * cast(i32, b[lane, byte])
    """,
    "+avx512vnni",
    _dot_products,
)
"""VNNI: sixteen dot products of four unsigned and four signed bytes, without saturation."""


def _masked_load(lanes: int) -> _Known:
    definition = f"""
    @primfunc
    def masked_load{lanes}(y: out[f32[{lanes}]], x: f32[{lanes}], count: index):
        for lane in vectorized(0, {lanes}):
            y[lane] = select(lane < count, x[lane], f32(0.0))
    """
    return definition, "+avx", lambda of: of.store("y", of.first("x", "count"))


def _prefetched(of: CallOperands) -> None:
    """A read of the line ahead, into the second-level cache (locality 2 of 3).

    Packed weights fetched into the first level displace the tile in work there: 6 to 13 % of a
    product's time is gained with locality 2, and less with 3.
    """
    read, locality, data = integer(0, "i32"), integer(2, "i32"), integer(1, "i32")
    of.builder.call_void("llvm.prefetch.p0", of.pointer("line"), read, locality, data)
