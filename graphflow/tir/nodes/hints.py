"""Kernels that perform nothing: a call of one is a hint to the processor.

What always holds: the body is empty, so that to the interpreter and to every analysis a call does
nothing, wherever it stands and whatever its windows hold.  The emitter may map it to an operation
that changes no memory.
"""

from __future__ import annotations

from graphflow.tir.nodes import exprs, stmts

PREFETCH16 = stmts.PrimFunc(
    "prefetch16", (stmts.Param(exprs.Buffer("line", (16,), "float32"), stmts.Role.INPUT),), ()
)
"""Fetches a cache line of 64 bytes into the second-level cache, ahead of its use."""
