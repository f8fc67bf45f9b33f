"""A native program as plain data: what the compiler makes, what a saved file holds, what runs."""

from graphflow.program.spec import (
    ALIGNMENT,
    BufferRef,
    GuardedOutput,
    OpenTensor,
    ProgramSpec,
    ProgramStep,
    SectionSpec,
    Signature,
    Space,
    TensorSpec,
    TrimmedOutput,
)

__all__ = [
    "ALIGNMENT",
    "BufferRef",
    "GuardedOutput",
    "OpenTensor",
    "ProgramSpec",
    "ProgramStep",
    "SectionSpec",
    "Signature",
    "Space",
    "TensorSpec",
    "TrimmedOutput",
]
