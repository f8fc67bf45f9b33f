"""LLVM IR as text: typed values, and the builder that kernels and the runtime's driver share."""

from graphflow.llvm.ir_builder import IrBuilder
from graphflow.llvm.ir_values import (
    ELEMENTS,
    IrValue,
    boolean,
    call_text,
    integer,
    lanes_of,
    literal,
    mangled,
    vector_type,
)

__all__ = [
    "ELEMENTS",
    "IrBuilder",
    "IrValue",
    "boolean",
    "call_text",
    "integer",
    "lanes_of",
    "literal",
    "mangled",
    "vector_type",
]
