"""Stating what is known of a buffer's contents, so that later steps may rest on it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from graphflow.arith import FALSE, Proof, Var, Verdict, const
from graphflow.errors import ScheduleError
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.places import find_buffer, require_fresh
from graphflow.tir import (
    FLOATS,
    Assume,
    Block,
    Body,
    Comparison,
    For,
    Literal,
    Load,
    LoopKind,
    PrimFunc,
    Unary,
)


def assume_finite(func: PrimFunc, buffer: str, because: str) -> Rewrite:
    """`S` → `for i: assume(abs(b[i]) < inf)`, then `S`: the input holds no NaN and no infinity.

    The caller must know it, and says in `because` how: by looking at a constant, or by the word of
    a user about a value that the user gives.
    """
    block = f"{buffer}_finite"
    require_fresh(func, block)
    found = find_buffer(func, buffer)
    if found not in func.inputs or found.dtype not in FLOATS:
        raise ScheduleError(f"{buffer} is not an input of floats, so there is nothing to state")
    names = tuple(Var(f"{block}_{axis}") for axis in range(len(found.shape)))
    size = Unary("abs", Load(found, names))
    body: Body = (Assume(FALSE, Comparison("lt", size, Literal(inf, found.dtype))),)
    for var, extent in zip(reversed(names), reversed(found.shape), strict=True):
        body = (For(var, const(0), const(extent), LoopKind.SERIAL, body),)
    proof = Proof(Verdict.PROVEN, f"every element of {buffer} is finite", because)
    stage = Block(block, body, (("states", buffer),))
    return Rewrite(replace(func, body=(stage, *func.body)), (proof,))
