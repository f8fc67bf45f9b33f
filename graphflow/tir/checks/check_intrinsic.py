"""Whether an instruction fits the intrinsic of LLVM that it names, as far as LLVM is not needed."""

from __future__ import annotations

import re

from graphflow.base.dtypes import STORED
from graphflow.tir.nodes.stmts import Intrinsic, PrimFunc, Role

_NAME = re.compile(r"llvm(\.[A-Za-z0-9_]+)+")
_CONSTANT = re.compile(r"i(\d+) (-?\d+|true|false)")


def constant_operand(text: str) -> tuple[str, str] | None:
    """The type and the value of an operand such as `i32 8`; None for the name of a parameter."""
    found = _CONSTANT.fullmatch(text)
    return (f"i{found[1]}", found[2]) if found else None


def intrinsic_problem(func: PrimFunc, intrinsic: Intrinsic) -> str | None:
    """What is wrong with an instruction that names an intrinsic, or None."""
    if not _NAME.fullmatch(intrinsic.name):
        return f"{intrinsic.name!r} is no name of an intrinsic, such as llvm.x86.avx2.pavg.b"
    if intrinsic.feature is not None and not re.fullmatch(r"[\w.-]+", intrinsic.feature):
        return f"{intrinsic.feature!r} is no target feature, such as avx2"
    written = [p.buffer.name for p in func.params if p.role is not Role.INPUT]
    if len(written) != 1:
        return f"{func.name} writes {len(written)} parameters, and an intrinsic has one result"
    if func.scalars:
        return f"{func.name} takes the integer {func.scalars[0]}, and its intrinsic takes windows"
    odd = [p.buffer for p in func.params if p.buffer.dtype == "bool" or p.buffer.dtype in STORED]
    if odd:
        return f"{odd[0].name} holds {odd[0].dtype}, which no operand of an intrinsic is"
    empty = [p.buffer.name for p in func.params if not p.buffer.size]
    if empty:
        return f"{empty[0]} has no elements"
    read = [p.buffer.name for p in func.params if p.role is not Role.OUTPUT]
    stray = [x for x in intrinsic.operands if x not in read and constant_operand(x) is None]
    if stray:
        return (
            f"the operand {stray[0]!r} is neither a parameter that is read ({', '.join(read)}) nor "
            "a constant such as `i32 8`"
        )
    return None
