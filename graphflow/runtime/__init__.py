"""Runs compiled models: one native program per model, executed by persistent native threads."""

from graphflow.runtime.cpus import default_threads
from graphflow.runtime.executor import BoundRun, Program
from graphflow.runtime.program import ALIGNMENT, BufferRef, ProgramSpec, Space, Step, TensorSpec

__all__ = [
    "ALIGNMENT",
    "BoundRun",
    "BufferRef",
    "Program",
    "ProgramSpec",
    "Space",
    "Step",
    "TensorSpec",
    "default_threads",
]
