"""What a target adds to LLVM's portable instructions, and the instructions that kernels call.

An instruction is a kernel that the emitter maps to one operation of LLVM instead of its body.

In: a call and the target.  Out: the instruction that performs it, and the operation emitted on its
windows.  What always holds: a call is mapped by its definition, not by its name, and only where its
windows are contiguous and nothing that it writes is a window of a buffer that it also reads;
elsewhere the body of the definition is emitted, which for a hint (`tir.PREFETCH16`) is nothing.

A new instruction is a definition and the line that emits it, in the module of its instruction set
(`x86_instructions`), which `instructions` lists; users' own name the intrinsic of LLVM
that performs them, which `intrinsics` checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial

from graphflow.base.errors import CodegenError
from graphflow.base.processors import (
    AVX512,
    HALF_ARITHMETIC,
    MATRIX_GROUPS,
    MATRIX_ROWS,
    NARROW_BYTES,
    VBMI,
)
from graphflow.base.target import Target
from graphflow.codegen.avx512 import (
    Avx512Builder,
    ByteTaker,
    bytes_at,
    multishifted_bytes_at,
)
from graphflow.codegen.avx512_math import Avx512Math
from graphflow.codegen.call_operands import CallOperands, Instruction
from graphflow.codegen.intrinsics import require_feature, require_intrinsic
from graphflow.codegen.math import Math
from graphflow.codegen.matrices import (
    BYTES_OF_PRODUCTS,
    factors_of,
    is_matrix_product,
    matrix_product,
    product_named,
)
from graphflow.codegen.narrow_vectors import narrow_at
from graphflow.codegen.packed_weight_products import packed_weight_products
from graphflow.codegen.transposed_sums import LANES
from graphflow.codegen.x86_instructions import x86_instructions
from graphflow.cost import has_more_units
from graphflow.llvm import IrBuilder, int_constant, vector_type
from graphflow.tir import (
    PREFETCH16,
    PREFETCH16_NEAR,
    Call,
    Intrinsic,
    PrimFunc,
    Role,
    intrinsic_problem,
)


def writers_for(target: Target, block: str) -> tuple[IrBuilder, Math]:
    """What writes a function for a target, beginning in a block: instructions, and elementary
    functions."""
    features = target.features.split(",")
    wide = all(f"+{name}" in features for name in AVX512)
    builder = Avx512Builder(block) if wide else IrBuilder(block)
    # Where no feature is stated LLVM uses all that the name of the processor implies.
    builder.may_compute_halves = computes_halves(target) or not target.features
    return builder, Avx512Math(builder) if wide else Math(builder)


@lru_cache(maxsize=16)
def computes_halves(target: Target) -> bool:
    """Whether a target has arithmetic on float16, which LLVM uses."""
    return f"+{HALF_ARITHMETIC}" in target.features.split(",")


@lru_cache(maxsize=16)
def multiplies_matrices(target: Target, factors: tuple[str, str] = BYTES_OF_PRODUCTS) -> bool:
    """Whether a target performs `matrix_product` definitions of these factors."""
    found = _in_matrices(matrix_product(MATRIX_ROWS, MATRIX_GROUPS, factors))
    return found is not None and found.is_of(target)


@lru_cache(maxsize=16)
def byte_taker(target: Target) -> ByteTaker:
    """What takes a byte of each word of four vectors."""
    features = target.features.split(",")
    if not all(f"+{name}" in features for name in AVX512):
        return narrow_at
    return multishifted_bytes_at if f"+{VBMI}" in features else bytes_at


@lru_cache(maxsize=16)
def word_taker(target: Target) -> ByteTaker | None:
    """What takes 16 bits of each word of two vectors; None with AVX-512, which narrows a vector by
    one instruction."""
    found = byte_taker(target)
    return found if found is narrow_at else None


@lru_cache(maxsize=16)
def product_in_lanes(target: Target) -> PrimFunc | None:
    """The product of bytes in each lane whose sums `transposed_sums` may keep in another order;
    None where the target has none."""
    found = instructions()[instruction(f"byte_product{LANES}")]
    return found.definition if found.is_of(target) else None


@lru_cache(maxsize=16)
def shares_dot_products(target: Target) -> bool:
    """Whether several products of bytes in lanes are put together for one dot product: where
    vpermb does so, and units that do not multiply put the operands together meanwhile."""
    return f"+{VBMI}" in target.features.split(",") and has_more_units(target)


@lru_cache(maxsize=16)
def paired_products(target: Target) -> tuple[PrimFunc, ...]:
    """The products in lanes of which two are put together for one multiplication: where vectors
    have so many lanes, and the products are those of 16-bit integers."""
    lanes = target.computed_lanes("int32")
    found = (instructions()[instruction(f"{data}_product{lanes}")] for data in ("u8", "i16"))
    narrow = target.vector_bytes == NARROW_BYTES
    return tuple(one.definition for one in found if narrow and one.is_of(target))


@lru_cache(maxsize=1)
def instructions() -> dict[PrimFunc, Instruction]:
    """The instructions that the emitter knows, by definition."""
    others = (
        Instruction(PREFETCH16, None, partial(_prefetched, 2)),
        Instruction(PREFETCH16_NEAR, None, partial(_prefetched, 3)),
    )
    known = (*x86_instructions(), *packed_weight_products(), *others)
    return {one.definition: one for one in known}


def instruction(name: str) -> PrimFunc:
    """The definition of the instruction called `name`; KeyError names those there are."""
    names = {definition.name: definition for definition in instructions()}
    if name in names:
        return names[name]
    product = product_named(name)
    if product is None:
        raise KeyError(
            f"there is no instruction {name}; there are {', '.join(names)}, and "
            "matrix_product_{rows}x{groups} and brain_product_{rows}x{groups} for 2 to 16 rows and "
            "groups"
        )
    return product


@lru_cache(maxsize=16)
def instructions_of(target: Target, composed: bool = True) -> tuple[PrimFunc, ...]:
    """The instructions of the target that statements can be replaced with: those with a body,
    without those of several operations unless `composed`."""
    found = (one for one in instructions().values() if one.is_of(target))
    return tuple(
        one.definition for one in found if one.definition.body and (composed or not one.composed)
    )


def is_instruction(definition: PrimFunc) -> bool:
    """Whether `definition` is an instruction of some target, or names an operation of LLVM."""
    return (
        definition.intrinsic is not None
        or definition in instructions()
        or is_matrix_product(definition)
    )


def instruction_for(call: Call, target: Target) -> Instruction | None:
    """The instruction that performs a call on the target; None where it has none.

    CodegenError where the definition names an intrinsic that cannot perform it.
    """
    if call.definition.intrinsic is not None:
        found: Instruction | None = _by_intrinsic(
            call.definition, call.definition.intrinsic, target
        )
    else:
        found = _in_matrices(call.definition) or instructions().get(call.definition)
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
        element, lanes = of.addresses[written.name].place.element, written.size
        with _of(definition):
            require_intrinsic(intrinsic, vector_type(element, lanes), operands, target)
        of.store(written.name, of.builder.call(intrinsic.name, element, *operands, lanes=lanes))

    feature = None if intrinsic.feature is None else f"+{intrinsic.feature}"
    return Instruction(definition, feature, emitted)


@lru_cache(maxsize=256)
def _in_matrices(definition: PrimFunc) -> Instruction | None:
    """The instruction of a `matrix_product`; None for any other definition."""
    factors = factors_of(definition)
    if factors is None:
        return None

    def emitted(of: CallOperands) -> None:
        of.matrices.multiply(factors.intrinsic, of.matrix("c"), of.matrix("a"), of.matrix("b"))

    return Instruction(definition, f"+{factors.feature}", emitted, flushes=factors.flushes)


def _prefetched(locality: int, of: CallOperands) -> None:
    """A read of the line ahead, into the second-level cache (locality 2 of 3) or the first (3).

    Packed weights of another panel, fetched into the first level, displace the tile in work there:
    6 to 13 % of a product's time is gained with locality 2, and less with 3.
    """
    read, level, data = (int_constant(value, "i32") for value in (0, locality, 1))
    of.builder.call_void("llvm.prefetch.p0", of.pointer("line"), read, level, data)
