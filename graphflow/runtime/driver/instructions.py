"""Values and typed memory of native functions, as operands of an `IrBuilder`'s instructions.

In: operands, which are values of earlier instructions, places in memory, or Python integers.  Out:
instructions of the builder.  What always holds: memory is reached through a `NativePlace`, which
knows its type, so no offset is written down; an atomic access states its order; integers are
unsigned unless a method says otherwise.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from graphflow.base.errors import CodegenError
from graphflow.llvm import IrBuilder, IrValue, bool_constant, int_constant
from graphflow.runtime.driver.structs import (
    BOOL,
    POINTER,
    ArrayType,
    DataType,
    ScalarType,
    StructType,
)

Order: TypeAlias = Literal["monotonic", "acquire", "release", "acq_rel", "seq_cst"]
"""LLVM's memory orders of atomic accesses."""


class AddressOf(Struct, frozen=True):
    """The type of a parameter that points to a `target`."""

    target: DataType

    @property
    def llvm(self) -> str:
        """The type in LLVM IR."""
        return POINTER.llvm


class NativeValue(Struct, frozen=True):
    """An integer or a pointer."""

    builder: IrBuilder
    ir: IrValue

    def __add__(self, other: Operand) -> NativeValue:
        return self._binary("add", other)

    def __sub__(self, other: Operand) -> NativeValue:
        return self._binary("sub", other)

    def __mul__(self, other: Operand) -> NativeValue:
        return self._binary("mul", other)

    def __floordiv__(self, other: Operand) -> NativeValue:
        return self._binary("udiv", other)

    def __and__(self, other: Operand) -> NativeValue:
        return self._binary("and", other)

    def __or__(self, other: Operand) -> NativeValue:
        return self._binary("or", other)

    def __lshift__(self, other: Operand) -> NativeValue:
        return self._binary("shl", other)

    def __rlshift__(self, other: int) -> NativeValue:
        shifted = int_constant(other, self.ir.element)
        return NativeValue(self.builder, shifted)._binary("shl", self)

    def __rshift__(self, other: Operand) -> NativeValue:
        return self._binary("lshr", other)

    def __invert__(self) -> NativeValue:
        return self._binary("xor", -1)

    def equals(self, other: Operand) -> NativeValue:
        """Whether both have the same bits."""
        return self._compare("eq", other)

    def differs(self, other: Operand) -> NativeValue:
        """Whether a bit differs."""
        return self._compare("ne", other)

    def below(self, other: Operand) -> NativeValue:
        """Unsigned <."""
        return self._compare("ult", other)

    def at_least(self, other: Operand) -> NativeValue:
        """Unsigned >=."""
        return self._compare("uge", other)

    def above(self, other: Operand) -> NativeValue:
        """Unsigned >."""
        return self._compare("ugt", other)

    def signed_at_least(self, other: Operand) -> NativeValue:
        """Signed >=."""
        return self._compare("sge", other)

    def signed_at_most(self, other: Operand) -> NativeValue:
        """Signed <=."""
        return self._compare("sle", other)

    def widened(self, to: ScalarType) -> NativeValue:
        """The same unsigned number with more bits."""
        return NativeValue(self.builder, self.builder.convert("zext", self.ir, to.llvm))

    def truncated(self, to: ScalarType) -> NativeValue:
        """The lowest bits."""
        return NativeValue(self.builder, self.builder.convert("trunc", self.ir, to.llvm))

    def _binary(self, operation: str, other: Operand) -> NativeValue:
        right = as_ir(other, self.ir.element)
        return NativeValue(self.builder, self.builder.binary(operation, self.ir, right))

    def _compare(self, relation: str, other: Operand) -> NativeValue:
        right = as_ir(other, self.ir.element)
        return NativeValue(self.builder, self.builder.compare(f"icmp {relation}", self.ir, right))


class NativePlace(Struct, frozen=True):
    """Memory that holds a value of `type`, at an address."""

    address: NativeValue
    type: DataType

    def at(self, *path: str | int | NativeValue) -> NativePlace:
        """The place inside this one that a path of field names and array indices leads to."""
        kind, indices = self.type, list[IrValue]()
        source = kind
        if isinstance(kind, ArrayType):  # of any length, like a C pointer to its first element
            source = kind.element
        else:
            indices.append(int_constant(0))
        for part in path:
            if isinstance(kind, StructType) and isinstance(part, str):
                member = kind.members[part]
                indices.append(int_constant(member.position, "i32"))
                kind = member.type
            elif isinstance(kind, ArrayType) and not isinstance(part, str):
                indices.append(int_constant(part) if isinstance(part, int) else part.ir)
                kind = kind.element
            else:
                raise CodegenError(f"{part!r} is no part of {kind}")
        builder = self.address.builder
        inner = builder.element_address(source.llvm, self.address.ir, indices)
        return NativePlace(NativeValue(builder, inner), kind)

    def load(self, order: Order | Literal[""] = "") -> NativeValue:
        """The scalar that lies there."""
        kind, builder = self._scalar(), self.address.builder
        value = builder.load(self.address.ir, kind.llvm, kind.size, order=order)
        return NativeValue(builder, value)

    def store(self, value: Operand, order: Order | Literal[""] = "") -> None:
        """Overwrite the scalar that lies there."""
        kind = self._scalar()
        self.address.builder.store(as_ir(value, kind.llvm), self.address.ir, kind.size, order=order)

    def fetch_add(self, value: int, order: Order) -> NativeValue:
        """Add atomically; gives the number before."""
        return self._read_modify_write("add", value, order)

    def fetch_subtract(self, value: int, order: Order) -> NativeValue:
        """Subtract atomically; gives the number before."""
        return self._read_modify_write("sub", value, order)

    def compare_exchange(
        self, expected: Operand, desired: Operand, order: Order, order_of_failure: Order
    ) -> tuple[NativeValue, NativeValue]:
        """Store `desired` if `expected` is there; what was there, and whether it was `expected`."""
        kind, builder = self._scalar().llvm, self.address.builder
        old, new = (f"{kind} {as_ir(operand, kind).text}" for operand in (expected, desired))
        pair = builder.emit(
            f"cmpxchg ptr {self.address.ir.text}, {old}, {new} {order} {order_of_failure}", kind
        )
        both = f"extractvalue {{ {kind}, i1 }} {pair.text}"
        before = builder.emit(f"{both}, 0", kind)
        swapped = builder.emit(f"{both}, 1", BOOL.llvm)
        return NativeValue(builder, before), NativeValue(builder, swapped)

    def _read_modify_write(self, operation: str, value: int, order: Order) -> NativeValue:
        kind, builder = self._scalar().llvm, self.address.builder
        text = f"atomicrmw {operation} ptr {self.address.ir.text}, {kind} {value} {order}"
        return NativeValue(builder, builder.emit(text, kind))

    def _scalar(self) -> ScalarType:
        if not isinstance(self.type, ScalarType):
            raise CodegenError(f"{self.type} is no scalar")
        return self.type


Operand: TypeAlias = NativeValue | NativePlace | int | None
"""A value, the address of a place, an integer constant, or None for the null pointer."""


def as_ir(operand: Operand, element: str) -> IrValue:
    """An operand as a value of an LLVM type; CodegenError if it has another one."""
    match operand:
        case None:
            return IrValue("null", element)
        case int():
            return (
                bool_constant(bool(operand))
                if element == BOOL.llvm
                else int_constant(operand, element)
            )
    value = operand.address.ir if isinstance(operand, NativePlace) else operand.ir
    if value.element != element:
        raise CodegenError(f"{value.text} is {value.element} where {element} is wanted")
    return value
