"""LLVM IR as text: typed values, and the builder that kernels and the runtime's driver share; and
the features of this processor."""

from graphflow.llvm.granted_features import host_features
from graphflow.llvm.ir_builder import IrBuilder
from graphflow.llvm.ir_values import (
    ELEMENTS,
    IrValue,
    bool_constant,
    call_text,
    int_constant,
    lanes_of,
    mangled,
    typed_constant,
    vector_type,
)

__all__ = [
    "ELEMENTS",
    "IrBuilder",
    "IrValue",
    "bool_constant",
    "call_text",
    "host_features",
    "int_constant",
    "lanes_of",
    "mangled",
    "typed_constant",
    "vector_type",
]
