"""Whether a kernel does with memories that a user defines what their definitions allow.

In: a scheduled kernel, before code is generated.  Out: proofs; VerifyError, which names the buffer
or the access and what its memory allows, where one fails.  What always holds: only bodies of the
instructions that a memory names, and loads and stores of single elements where it allows them,
access a buffer in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow import arith, effects, tir
from graphflow.base.errors import VerifyError


def require_memories(func: tir.PrimFunc) -> tuple[arith.Proof, ...]:
    """Proofs that each access of a buffer in a memory that a user defines is one it allows.

    1. *rank* and *capacity*: each buffer has the axes that its memory asks for, and those that
       exist at once have room in it.
    2. *access*: a load or store of an element stands in the body of an instruction that the memory
       names, or the memory allows it anywhere.
    3. *caller*: a call hands a buffer to a parameter in the same memory.
    4. *alignment*: each window of a call starts at a multiple of the memory's alignment.

    Else a VerifyError.
    """
    memories = tir.memories_of(func)
    if not memories:
        return ()
    for memory in memories:
        used = _peak(func.body, memory)
        if memory.capacity is not None and used > memory.capacity:
            raise _wrong(
                func,
                f"capacity: {memory.name} has {memory.capacity} bytes, and "
                f"buffers of {used} bytes exist at once",
            )
    return tuple(_checked(func))


def _wrong(func: tir.PrimFunc, message: str, stmt: tir.Stmt | None = None) -> VerifyError:
    return VerifyError(f"{func.name}: {message}\nin\n{tir.to_text(func, stmt, 'here')}")


def _peak(body: tir.Body, memory: tir.MemorySpace) -> int:
    """The most bytes of buffers in a memory that exist at once, of those that a body allocates."""
    held = most = 0
    for stmt in body:
        if isinstance(stmt, tir.Allocate):
            held += stmt.buffer.bytes if stmt.buffer.scope == memory else 0
            most = max(most, held)
        else:
            inner = max((_peak(below, memory) for below in tir.sub_bodies(stmt)), default=0)
            most = max(most, held + inner)
    return most


def _checked(func: tir.PrimFunc) -> Iterator[arith.Proof]:
    calls: list[tuple[int, tir.Call]] = []
    for statement in effects.statements_of(func).statements:
        while calls and calls[-1][0] <= statement.number:
            calls.pop()
        stmt = statement.stmt
        inside = calls[-1][1].definition.name if calls else None
        for memory, what in _bare_accesses(stmt):
            if inside not in memory.instructions:
                names = ", ".join(memory.instructions) or "no instruction"
                message = f"access: {what} in {memory.name}, which only {names} may access"
                raise _wrong(func, message, stmt)
        match stmt:
            case tir.Allocate(
                buffer=tir.Buffer(scope=tir.MemorySpace(rank=int(rank)) as memory) as buffer
            ) if len(buffer.shape) != rank:
                axes = f"{buffer.name} has {len(buffer.shape)} axes"
                raise _wrong(func, f"rank: {axes}, and in {memory.name} it needs {rank}", stmt)
            case tir.Call():
                calls.append((statement.stop, stmt))
                yield from _handed(func, stmt, statement.domain)
            case _:
                pass


def _bare_accesses(stmt: tir.Stmt) -> Iterator[tuple[tir.MemorySpace, str]]:
    """The accesses that a statement itself makes to memories that do not allow them to every
    statement, in words."""
    for expr in () if isinstance(stmt, tir.Assume) else tir.expressions_of(stmt):
        for node in tir.walk_expr(expr):
            memory = node.buffer.scope if isinstance(node, tir.Load) else None
            if isinstance(memory, tir.MemorySpace) and not memory.loads:
                yield memory, f"{tir.expr_text(node)} is loaded"
    if isinstance(stmt, tir.Store | tir.Reduce):
        memory = stmt.buffer.scope
        if isinstance(memory, tir.MemorySpace):
            reads = isinstance(stmt, tir.Reduce) and not memory.loads
            if reads or not memory.stores:
                yield memory, f"{tir.element_text(stmt.buffer, stmt.indices)} is stored"


def _handed(func: tir.PrimFunc, call: tir.Call, domain: arith.Domain) -> Iterator[arith.Proof]:
    """The checks of the windows that a call hands to its definition."""
    for window, param in zip(call.windows, call.definition.params, strict=True):
        here, there = window.buffer.scope, param.buffer.scope
        if here != there and (
            isinstance(here, tir.MemorySpace) or isinstance(there, tir.MemorySpace)
        ):
            raise _wrong(
                func,
                f"caller: {call.definition.name} takes {param.buffer.name} in {_name(there)}, and "
                f"gets {window.buffer.name} in {_name(here)}",
                call,
            )
        if isinstance(here, tir.MemorySpace) and here.alignment > 1:
            size = window.buffer.bytes // max(window.buffer.size, 1)
            start = window.buffer.flat_index(window.starts) * size
            proof = arith.prove(
                arith.equal(arith.floor_mod(start, here.alignment), arith.const(0)), domain
            )
            if not proof.proven:
                raise _wrong(
                    func,
                    f"alignment: the window of {window.buffer.name} starts at byte {start}, and "
                    f"{here.name} needs a multiple of {here.alignment} ({proof.reason})",
                    call,
                )
            yield proof


def _name(scope: tir.Location) -> str:
    return scope.name if isinstance(scope, tir.MemorySpace) else f"{scope} memory"
