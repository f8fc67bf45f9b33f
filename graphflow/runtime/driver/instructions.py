"""Instructions on integers and typed memory, as lines of LLVM IR.

In: operands, which are values of earlier instructions, places in memory, or Python integers.  Out:
lines of IR appended to a block.  What always holds: memory is reached through a `NativePlace`,
which knows its type, so no offset is written down; an atomic access states its order; integers are
unsigned unless a method says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphflow.base.errors import CodegenError
from graphflow.runtime.driver.structs import (
    BOOL,
    INT64,
    POINTER,
    ArrayType,
    DataType,
    ScalarType,
    StructType,
)

Order: TypeAlias = Literal["monotonic", "acquire", "release", "acq_rel", "seq_cst"]
"""LLVM's memory orders of atomic accesses."""


@dataclass(frozen=True, slots=True)
class AddressOf:
    """The type of a parameter that points to a `target`."""

    target: DataType


@dataclass(frozen=True, slots=True)
class NativeValue:
    """An SSA value or a constant."""

    body: Instructions
    text: str
    type: ScalarType

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
        return self.body.value(f"zext {self.type.llvm} {self.text} to {to.llvm}", to)

    def truncated(self, to: ScalarType) -> NativeValue:
        """The lowest bits."""
        return self.body.value(f"trunc {self.type.llvm} {self.text} to {to.llvm}", to)

    def _binary(self, operation: str, other: Operand) -> NativeValue:
        right = self.body.operand(other, self.type)
        return self.body.value(f"{operation} {self.type.llvm} {self.text}, {right}", self.type)

    def _compare(self, relation: str, other: Operand) -> NativeValue:
        right = self.body.operand(other, self.type)
        return self.body.value(f"icmp {relation} {self.type.llvm} {self.text}, {right}", BOOL)


@dataclass(frozen=True, slots=True)
class NativePlace:
    """Memory that holds a value of `type`."""

    body: Instructions
    address: NativeValue
    type: DataType

    def at(self, *path: str | int | NativeValue) -> NativePlace:
        """The place inside this one that a path of field names and array indices leads to."""
        kind, indices = self.type, list[str]()
        source = kind
        if isinstance(kind, ArrayType):  # of any length, like a C pointer to its first element
            source = kind.element
        else:
            indices.append("i64 0")
        for part in path:
            if isinstance(kind, StructType) and isinstance(part, str):
                member = kind.members[part]
                indices.append(f"i32 {member.position}")
                kind = member.type
            elif isinstance(kind, ArrayType) and not isinstance(part, str):
                indices.append(self.body.index(part))
                kind = kind.element
            else:
                raise CodegenError(f"{part!r} is no part of {kind}")
        text = f"getelementptr {source.llvm}, ptr {self.address.text}, {', '.join(indices)}"
        return NativePlace(self.body, self.body.value(text, POINTER), kind)

    def load(self, order: Order | None = None) -> NativeValue:
        """The scalar that lies there."""
        kind = self._scalar()
        atomic, suffix = ("atomic ", f" {order}") if order else ("", "")
        text = f"load {atomic}{kind.llvm}, ptr {self.address.text}{suffix}, align {kind.size}"
        return self.body.value(text, kind)

    def store(self, value: Operand, order: Order | None = None) -> None:
        """Overwrite the scalar that lies there."""
        kind = self._scalar()
        atomic, suffix = ("atomic ", f" {order}") if order else ("", "")
        stored = f"{kind.llvm} {self.body.operand(value, kind)}"
        self.body.do(f"store {atomic}{stored}, ptr {self.address.text}{suffix}, align {kind.size}")

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
        kind, body = self._scalar(), self.body
        old, new = body.operand(expected, kind), body.operand(desired, kind)
        pair = body.value(
            f"cmpxchg ptr {self.address.text}, {kind.llvm} {old}, {kind.llvm} {new} {order} "
            f"{order_of_failure}",
            kind,
        )
        both = f"extractvalue {{ {kind.llvm}, i1 }} {pair.text}"
        return body.value(f"{both}, 0", kind), body.value(f"{both}, 1", BOOL)

    def _read_modify_write(self, operation: str, value: int, order: Order) -> NativeValue:
        kind = self._scalar()
        text = f"atomicrmw {operation} ptr {self.address.text}, {kind.llvm} {value} {order}"
        return self.body.value(text, kind)

    def _scalar(self) -> ScalarType:
        if not isinstance(self.type, ScalarType):
            raise CodegenError(f"{self.type} is no scalar")
        return self.type


Operand: TypeAlias = NativeValue | NativePlace | int | None
"""A value, the address of a place, an integer constant, or None for the null pointer."""


class Instructions:
    """The instructions written so far; each call appends one.

    Nothing may follow an instruction that ends a block until the next block begins: CodegenError.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._is_open = True
        self._count = 0

    @property
    def is_open(self) -> bool:
        """Whether an instruction may follow."""
        return self._is_open

    def value(self, text: str, kind: ScalarType) -> NativeValue:
        """An instruction with a result."""
        name = self._name("v")
        self.do(f"%{name} = {text}")
        return NativeValue(self, f"%{name}", kind)

    def constant(self, number: int, kind: ScalarType) -> NativeValue:
        """An integer as a value of a type."""
        return NativeValue(self, str(number), kind)

    def do(self, text: str) -> None:
        """An instruction without a result."""
        if not self._is_open:
            raise CodegenError(f"{text!r} stands behind the end of its block")
        self.lines.append(f"  {text}")

    def operand(self, operand: Operand, kind: ScalarType | AddressOf) -> str:
        """An operand of that type, as LLVM writes it."""
        match operand:
            case None:
                return "null"
            case int() if kind is BOOL:
                return "true" if operand else "false"
            case int():
                return str(operand)
        value = operand.address if isinstance(operand, NativePlace) else operand
        if value.type.llvm != llvm_type(kind):
            raise CodegenError(
                f"{value.text} is {value.type.llvm} where {llvm_type(kind)} is wanted"
            )
        return value.text

    def index(self, operand: int | NativeValue) -> str:
        """An index of an array, with its type."""
        kind = operand.type if isinstance(operand, NativeValue) else INT64
        return f"{kind.llvm} {self.operand(operand, kind)}"

    def select(
        self, condition: NativeValue, if_true: Operand, if_false: Operand, kind: ScalarType
    ) -> NativeValue:
        """`if_true` where the condition holds, else `if_false`."""
        yes, no = self.operand(if_true, kind), self.operand(if_false, kind)
        return self.value(f"select i1 {condition.text}, {kind.llvm} {yes}, {kind.llvm} {no}", kind)

    def _name(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def _end(self, text: str) -> None:
        self.do(text)
        self._is_open = False

    def _begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._is_open = True


def llvm_type(kind: ScalarType | AddressOf) -> str:
    """The LLVM type of a scalar or an address."""
    return kind.llvm if isinstance(kind, ScalarType) else POINTER.llvm
