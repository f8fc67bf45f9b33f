"""Kernels that perform nothing: a call of one is a hint to the processor.

What always holds: the body is empty, so that to the interpreter and to every analysis a call does
nothing, wherever it stands and whatever its windows hold.  The emitter may map it to an operation
that changes no memory.
"""

from __future__ import annotations

from graphflow.tir.nodes import exprs, stmts

_LINE = stmts.Param(exprs.Buffer("line", (16,), "float32"), stmts.Role.INPUT)

PREFETCH16 = stmts.PrimFunc("prefetch16", (_LINE,), ())
"""Fetches a cache line of 64 bytes into the second-level cache, ahead of its use."""

PREFETCH16_NEAR = stmts.PrimFunc("prefetch16_near", (_LINE,), ())
"""The same into the first-level cache, for a use within some hundred cycles."""
