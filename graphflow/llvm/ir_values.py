"""Typed values and constants of LLVM IR, as text.

In: element types of `base.dtypes` and Python numbers.  Out: `IrValue`s and the types that
instructions name.  What always holds: a constant is exact to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from graphflow.base.dtypes import DTYPES, STORED

ELEMENTS = {
    "float32": "float",
    "float64": "double",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "bool": "i1",
    **{name: f"i{8 * DTYPES[name].itemsize}" for name in STORED},
}
"""The LLVM type of a value of each dtype; in memory a bool is a byte.  Of what is only stored the
value is its bits."""

MANGLED = {"float": "f32", "double": "f64", "ptr": "p0"}


class IrValue(NamedTuple):
    """An SSA value or constant: its text, the type of one element, how many lanes (1: a scalar)."""

    text: str
    element: str
    lanes: int = 1

    @property
    def type(self) -> str:
        return vector_type(self.element, self.lanes)

    @property
    def is_constant(self) -> bool:
        return not self.text.startswith("%")

    @property
    def is_zero(self) -> bool:
        """Whether it is the constant whose bits are all zero, in every lane."""
        zeros = ("0", "0x0000000000000000")
        splats = (f"splat ({self.element} {zero})" for zero in zeros)
        return self.text in ("zeroinitializer", *zeros, *splats)


def vector_type(element: str, lanes: int) -> str:
    """`float`, or `<16 x float>`."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mangled(element: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic: `f32`, `v16f32`."""
    name = MANGLED.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


def int_constant(value: int, element: str = "i64") -> IrValue:
    """An integer constant."""
    return IrValue(str(int(value)), element)


def bool_constant(value: bool) -> IrValue:
    """A constant truth value."""
    return IrValue("true" if value else "false", "i1")


def lanes_of(values: Iterable[int | bool], element: str) -> IrValue:
    """A vector of integer constants."""
    items = [int(v) for v in values]
    text = ", ".join(f"{element} {v}" for v in items)
    return IrValue(f"<{text}>", element, len(items))


def typed_constant(value: float | int | bool, dtype: str) -> IrValue:
    """A constant of `dtype`, exact to the bit."""
    element = ELEMENTS[dtype]
    if dtype == "bool":
        return bool_constant(bool(value))
    if dtype in STORED:
        code = np.asarray(value, DTYPES[dtype]).view(f"u{DTYPES[dtype].itemsize}")
        return int_constant(int(code), element)
    if element not in ("float", "double"):
        return int_constant(int(np.asarray(value).astype(DTYPES[dtype])), element)
    wide = np.asarray(value, DTYPES[dtype]).astype(np.float64)
    return IrValue(f"0x{int(wide.view(np.uint64)):016X}", element)


def call_text(callee: str, result: str, arguments: Iterable[IrValue], flags: str = "") -> str:
    """The instruction that calls a function by its name or address."""
    passed = ", ".join(f"{a.type} {a.text}" for a in arguments)
    return f"call {flags}{result} {callee}({passed})"
