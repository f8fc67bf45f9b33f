"""A native program as plain data, without code that makes or runs it.

The compiler assembles a `ProgramSpec`, a saved file holds one, and the runtime links and runs it.
"""

from graphflow.program.array_files import arrays_of_file
from graphflow.program.concurrent_steps import (
    LEAST_BYTES,
    concurrent_steps,
    may_run_concurrently,
)
from graphflow.program.program_sizes import ComputedSize, InputSize, StateSpec
from graphflow.program.program_steps import (
    BufferRef,
    Portion,
    PortionDigit,
    ProgramStep,
    SharingPrices,
    Signature,
    SizeWithin,
    Space,
    StepJump,
)
from graphflow.program.program_tensors import (
    GuardedOutput,
    OpenTensor,
    PackedOutput,
    SectionSpec,
    TensorSpec,
    TrimmedOutput,
)
from graphflow.program.samples import random_inputs
from graphflow.program.spec import ALIGNMENT, SIZE_BYTES, ProgramSpec

__all__ = [
    "ALIGNMENT",
    "LEAST_BYTES",
    "SIZE_BYTES",
    "BufferRef",
    "ComputedSize",
    "GuardedOutput",
    "InputSize",
    "OpenTensor",
    "PackedOutput",
    "Portion",
    "PortionDigit",
    "ProgramSpec",
    "ProgramStep",
    "SectionSpec",
    "SharingPrices",
    "Signature",
    "SizeWithin",
    "Space",
    "StateSpec",
    "StepJump",
    "TensorSpec",
    "TrimmedOutput",
    "arrays_of_file",
    "concurrent_steps",
    "may_run_concurrently",
    "random_inputs",
]
