"""The memory of a kernel: where its buffers lie, loads and stores."""

from graphflow.codegen.memory.buffer_places import Address
from graphflow.codegen.memory.vector_stores import Memory

__all__ = ["Address", "Memory"]
