"""Runs compiled models: one native program per model, executed by persistent native threads."""

from graphflow.runtime.container import is_container
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.executor import BoundRun, Program
from graphflow.runtime.objects import LinkedCode, link
from graphflow.runtime.processor import Processor, check_host, processor_of
from graphflow.runtime.program import (
    ALIGNMENT,
    BufferRef,
    ProgramSpec,
    Signature,
    Space,
    Step,
    TensorSpec,
)
from graphflow.runtime.saved import SavedProgram, load_program, prepared_spec, save_program

__all__ = [
    "ALIGNMENT",
    "BoundRun",
    "BufferRef",
    "LinkedCode",
    "Processor",
    "Program",
    "ProgramSpec",
    "SavedProgram",
    "Signature",
    "Space",
    "Step",
    "TensorSpec",
    "check_host",
    "default_threads",
    "is_container",
    "link",
    "load_program",
    "prepared_spec",
    "processor_of",
    "save_program",
]
