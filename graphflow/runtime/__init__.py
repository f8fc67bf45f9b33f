"""The runtime: loads native programs and runs them on persistent native threads."""

from graphflow.runtime.container import is_container
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.executor import BoundRun, Program
from graphflow.runtime.objects import LinkedCode, link
from graphflow.runtime.processor import Processor, check_host, processor_of
from graphflow.runtime.program import (
    ALIGNMENT,
    BufferRef,
    GuardedOutput,
    OpenTensor,
    ProgramSpec,
    SectionSpec,
    Signature,
    Space,
    Step,
    TensorSpec,
    TrimmedOutput,
)
from graphflow.runtime.saved import SavedProgram, load_programs, prepared_spec, save_programs
from graphflow.runtime.values import require_value, value_key

__all__ = [
    "ALIGNMENT",
    "BoundRun",
    "BufferRef",
    "GuardedOutput",
    "LinkedCode",
    "OpenTensor",
    "Processor",
    "Program",
    "ProgramSpec",
    "SavedProgram",
    "SectionSpec",
    "Signature",
    "Space",
    "Step",
    "TensorSpec",
    "TrimmedOutput",
    "check_host",
    "default_threads",
    "is_container",
    "link",
    "load_programs",
    "prepared_spec",
    "processor_of",
    "require_value",
    "save_programs",
    "value_key",
]
