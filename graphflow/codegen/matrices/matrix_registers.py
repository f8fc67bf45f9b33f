"""Products of matrices in the matrix registers of a processor (AMX): of bytes, or of bfloat16.

In: calls of `matrix_product` definitions, which the emitter writes.  Out: LLVM's AMX intrinsics on
registers with fixed numbers, and the configuration that gives each register its rows and bytes.

    c[0:14, 0:16] += a[0:14, 0:64] · b[0:16, 0:16, 0:4]      one call

    tileloadd  t4 ← a      14 rows of 64 bytes, as far apart as the rows of a are
    tileloadd  t5 ← b      16 groups of four terms for 16 lanes
    tdpbusd    t0 += t4 · t5

Products of bfloat16 numbers have two terms in a group, and sums of float32 (`tdpbf16ps`).  Intel's
manual says how they are rounded (volume 2, TDPBF16PS): the first terms of all groups are added up
by multiply-adds, and the second ones, each rounded to nearest even; then both sums together, and to
what is there.  Denormals that are read or that a sum would be are zeros of their signs, and the
control register is neither read nor written; so a target has to permit that.

Where a loop does nothing but such products, the sums that they add to stay in registers while it
runs (`keeping`), as LLVM keeps sums of vectors; it does not do that for matrices.  An operand that
the next product of a sequence reads again is not loaded again.

What always holds: a register has one shape in all of a function, which its first instruction sets
and its last one releases; a function that would need registers of more shapes is a CodegenError.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from struct import pack
from typing import NamedTuple

from graphflow.base.errors import CodegenError
from graphflow.base.processors import (
    BRAIN_MATRICES,
    MATRICES,
    MATRIX_GROUPS,
    MATRIX_LANES,
    MATRIX_ROWS,
)
from graphflow.codegen.memory import Address, Memory
from graphflow.llvm import IrBuilder, int_constant
from graphflow.tir import BufferWindow, PrimFunc, parse

REGISTERS = 8
"""The matrix registers of a processor with AMX."""

MOST_SUMS = REGISTERS - 2
"""The most registers of sums: two are left for the operands of a product."""

PALETTE = 1
"""The number of the only palette there is: eight registers of at most 16 rows of 64 bytes."""

MOST_CONFIGURED, CONFIGURED_BYTES = 16, 64
"""The registers that the configuration in memory has room for, and its size."""


class Factors(NamedTuple):
    """What a product in matrix registers multiplies: types by the names that texts have for them,
    how many terms are in a group, and the instruction."""

    name: str
    data: str
    weights: str
    sums: str
    terms: int
    intrinsic: str
    feature: str
    flushes: bool
    """Whether it takes denormals for zeros whatever is asked of it."""


BYTES_OF_PRODUCTS = ("uint8", "int8")
"""The types of bytes whose products matrix registers add up."""

MATRIX_FACTORS = {
    BYTES_OF_PRODUCTS: Factors(
        "matrix_product", "u8", "i8", "i32", 4, "llvm.x86.tdpbusd", MATRICES[-1], False
    ),
    ("bfloat16", "bfloat16"): Factors(
        "brain_product", "bf16", "bf16", "f32", 2, "llvm.x86.tdpbf16ps", BRAIN_MATRICES, True
    ),
}
"""By the types of data and weights."""

PRODUCT_NAME = re.compile(r"(\w+_product)_(\d{1,2})x(\d{1,2})")


@lru_cache(maxsize=256)
def matrix_product(
    rows: int, groups: int, factors: tuple[str, str] = BYTES_OF_PRODUCTS
) -> PrimFunc:
    """`c += a · b` for so many rows of 16 sums, over so many groups of terms; at most 16."""
    name, data, weights, sums, terms, *_ = MATRIX_FACTORS[factors]
    return parse(f"""
    @primfunc
    def {name}_{rows}x{groups}(c: inout[window[{sums}[{rows}, {MATRIX_LANES}]]], a: window[{data}[{rows}, {terms * groups}]], b: window[{weights}[{groups}, {MATRIX_LANES}, {terms}]]):
        for row in serial(0, {rows}):
            for lane in serial(0, {MATRIX_LANES}):
                for group in serial(0, {groups}):
                    for term in serial(0, {terms}):
                        c[row, lane] += cast({sums}, a[row, {terms}*group + term]) * cast({sums}, b[group, lane, term])
    """)  # noqa: E501


@lru_cache(maxsize=1024)
def is_matrix_product(definition: PrimFunc) -> bool:
    """Whether a definition is a `matrix_product` that matrix registers have room for."""
    return factors_of(definition) is not None


def factors_of(definition: PrimFunc) -> Factors | None:
    """What a definition multiplies; None where it is no `matrix_product` that registers have room
    for."""
    if definition != product_named(definition.name):
        return None
    (data, weights) = (param.buffer.dtype for param in definition.params[1:])
    return MATRIX_FACTORS[data, weights]


def product_named(name: str) -> PrimFunc | None:
    """The `matrix_product` of that name; None where there is none, or registers have no room."""
    found = PRODUCT_NAME.fullmatch(name)
    named = {one.name: factors for factors, one in MATRIX_FACTORS.items()}
    if found is None or found[1] not in named:
        return None
    rows, groups = int(found[2]), int(found[3])
    return matrix_product(rows, groups, named[found[1]]) if fits_matrices(rows, groups) else None


def fits_matrices(rows: int, groups: int) -> bool:
    """Whether matrix registers have room for a `matrix_product`, which has two of each at least."""
    return 1 < rows <= MATRIX_ROWS and 1 < groups <= MATRIX_GROUPS


class MatrixShape(NamedTuple):
    """The part of a register that is used."""

    rows: int
    row_bytes: int


class MatrixWindow(NamedTuple):
    """A matrix in memory: where it begins, how far its rows are apart, and its shape."""

    address: Address
    row_stride: int
    """In bytes."""
    shape: MatrixShape


def matrix_window(address: Address, window: BufferWindow, shape: tuple[int, ...]) -> MatrixWindow:
    """The window of a call whose parameter has this shape: rows first, then the elements of one."""
    place = address.place
    used = MatrixShape(shape[0], prod(shape[1:]) * place.itemsize)
    return MatrixWindow(address, place.strides[window.kept[0]] * place.itemsize, used)


class MatrixRegisters:
    """The matrix registers of one function under construction."""

    def __init__(self, builder: IrBuilder, memory: Memory) -> None:
        self.builder, self.memory = builder, memory
        self._shapes: dict[int, MatrixShape] = {}
        self._operands: dict[MatrixWindow, int] = {}
        """The operands in registers, the one used last at the end."""
        self._sums: dict[MatrixWindow, int] = {}

    @property
    def is_keeping(self) -> bool:
        """Whether a loop is being emitted whose sums stay in registers."""
        return bool(self._sums)

    def multiply(
        self, intrinsic: str, sums: MatrixWindow, left: MatrixWindow, right: MatrixWindow
    ) -> None:
        """`sums += left · right` by an intrinsic of LLVM, both operands loaded where they are not
        in a register."""
        if sums not in self._sums:
            with self.keeping([sums]):
                self.multiply(intrinsic, sums, left, right)
            return
        numbers = [self._sums[sums]]
        for operand in (left, right):
            numbers.append(self._loaded(operand, numbers))
        passed = (int_constant(number, "i8") for number in numbers)
        self.builder.call_void(intrinsic, *passed)

    @contextmanager
    def keeping(
        self, sums: Sequence[MatrixWindow], rows: Sequence[Address | None] = ()
    ) -> Iterator[None]:
        """Within it, these sums are in registers: loaded before, and stored behind it.

        With `rows` each row of a sum begins with the lanes at that address instead, or with zeros
        where it is None.  What is emitted within it may run again, so no operand is in a register
        when it begins.
        """
        self.forget()
        for place, window in enumerate(sums):
            number = self._sums[window] = self._free(window.shape, {*self._sums.values()})
            row = rows[place] if rows else window.address
            if row is None:
                self.builder.call_void("llvm.x86.tilezero", int_constant(number, "i8"))
                continue
            apart = 0 if rows else window.row_stride
            self._move("llvm.x86.tileloadd64", number, MatrixWindow(row, apart, window.shape))
        yield
        for window in sums:
            self._move("llvm.x86.tilestored64", self._sums.pop(window), window)
        self.forget()

    def forget(self) -> None:
        """What follows runs again, or after memory was written: operands are loaded anew."""
        self._operands.clear()

    def _loaded(self, window: MatrixWindow, used: Collection[int]) -> int:
        number = self._operands.pop(window, None)
        if number is None:
            number = self._free(window.shape, {*self._sums.values(), *used})
            self._move("llvm.x86.tileloadd64", number, window)
        self._operands[window] = number
        return number

    def _free(self, shape: MatrixShape, taken: Collection[int]) -> int:
        """A register of a shape that holds nothing, else the operand that was used longest ago."""
        fitting = [n for n, own in self._shapes.items() if own == shape and n not in taken]
        idle = [n for n in fitting if n not in self._operands.values()]
        fresh = (n for n in range(REGISTERS) if n not in self._shapes)
        number = next(iter((*idle, *fresh)), None)
        if number is None:
            oldest = next((w for w, n in self._operands.items() if n in fitting), None)
            if oldest is None:
                raise CodegenError(
                    f"matrices of {shape.rows} rows of {shape.row_bytes} bytes need a register, "
                    f"and all {REGISTERS} are taken or have other shapes; use smaller tiles"
                )
            number = self._operands.pop(oldest)
        self._shapes[number] = shape
        return number

    def _move(self, intrinsic: str, number: int, window: MatrixWindow) -> None:
        pointer = self.memory.pointer_to(window.address)
        apart = int_constant(window.row_stride)
        self.builder.call_void(intrinsic, int_constant(number, "i8"), pointer, apart)

    def close(self) -> None:
        """The configuration set where the function begins, and released here, where it ends."""
        if not self._shapes:
            return
        config = self.builder.alloca(f"[{CONFIGURED_BYTES} x i8]", CONFIGURED_BYTES, "matrices")
        octets = ", ".join(f"i8 {octet}" for octet in self._configuration())
        self.builder.entry += [
            f"  store <{CONFIGURED_BYTES} x i8> <{octets}>, ptr {config.text}",
            f"  call void @llvm.x86.ldtilecfg(ptr {config.text})",
        ]
        self.builder.declarations["llvm.x86.ldtilecfg"] = "declare void @llvm.x86.ldtilecfg(ptr)"
        self.builder.call_void("llvm.x86.tilerelease")

    def _configuration(self) -> bytes:
        """A byte for the palette, 15 of zeros, 16 times two for the bytes of a row, 16 for rows."""
        none = MatrixShape(0, 0)
        shapes = [self._shapes.get(number, none) for number in range(MOST_CONFIGURED)]
        return pack(
            f"<B15x{MOST_CONFIGURED}H{MOST_CONFIGURED}B",
            PALETTE,
            *(shape.row_bytes for shape in shapes),
            *(shape.rows for shape in shapes),
        )
