"""LLVM IR as text: typed values, and the builder that kernels and the runtime's driver share; the
tables of the object code that LLVM makes of it; and the features of this processor."""

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
from graphflow.llvm.object_file import ObjectFile, ObjectSection, ObjectSymbol, read_object

__all__ = [
    "ELEMENTS",
    "IrBuilder",
    "IrValue",
    "ObjectFile",
    "ObjectSection",
    "ObjectSymbol",
    "bool_constant",
    "call_text",
    "host_features",
    "int_constant",
    "lanes_of",
    "mangled",
    "read_object",
    "typed_constant",
    "vector_type",
]
