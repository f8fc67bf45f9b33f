"""Memories that a user defines, such as the scratchpad of an accelerator.

A `MemorySpace` is data: it says which instructions reach it and what a buffer in it must be like.
`require_memories` in `graphflow.schedule` compares a kernel with it before code is generated.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """Where buffers may be kept, and what may be done with them there."""

    name: str
    instructions: tuple[str, ...] = ()
    """The definitions whose parameters may lie there and whose bodies may access them."""
    loads: bool = False
    """Whether other statements may load single elements."""
    stores: bool = False
    """Whether other statements may store single elements, or reduce into them."""
    rank: int | None = None
    """How many axes each buffer has; None for any number."""
    capacity: int | None = None
    """The bytes of all buffers that exist at once; None for no limit."""
    alignment: int = 1
    """The bytes by which the start of each window of a call is divisible, from its buffer's."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in ("global", "scratch", "register", "config"):
            raise ValueError(f"{self.name!r} is no name of a memory")
        if self.alignment < 1:
            raise ValueError(f"memory {self.name}: alignment {self.alignment} is not positive")

    def describe(self) -> str:
        """How the memory reads as an argument of a schedule step."""
        return self.name
