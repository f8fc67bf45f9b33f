"""Lowering: from scheduled kernels to kernels that the emitter takes, and to a memory plan."""

from graphflow.lower.assumptions import remove_assume, remove_undef

__all__ = ["remove_assume", "remove_undef"]
