"""Removing what the target does not have: configuration state, memories that a user defines, and
calls of kernels that are no instructions.

In: a scheduled kernel.  Out: the kernel for the target.  What always holds: the accesses of each
memory are proven to be ones that its definition allows, before its buffers become ordinary ones;
since nothing on the target keeps configuration state between kernels, no kernel reads a field that
it did not write; and what instructions assume of fields is proven.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.codegen import is_instruction
from graphflow.effects import held_constant, statements_of, written_before_read
from graphflow.schedule import in_state, require_memories


def on_host(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func` with fields of configuration state as buffers of its own, with buffers of memories
    that a user defines in ordinary memory, and with no calls but those of instructions.

    Other calls become the statements that they perform, and so do those of instructions with fields
    or memories, which lose what they assume of fields, and those that are given elements that do
    not follow one another where the instruction takes none.  VerifyError where a kernel uses a
    memory in a way that it does not allow, where it may read a field that it did not write, and
    where such an assumption is not proven.
    """
    fields, memories = tir.fields_of(func), tir.memories_of(func)
    if not fields and not memories:
        return _without_plain_calls(func)
    require_memories(func)
    for field in fields:
        proof = written_before_read(func, field)
        if not proof.proven:
            raise VerifyError(
                f"{func.name}: {proof.reason}, and a program keeps no state between its runs, "
                f"which may be at once; give {field.name} as a parameter and write it first\n"
                f"in\n{tir.to_text(func)}"
            )
    proven = _proven_claims(func)
    body = _without_plain_calls(func).body
    body = tir.map_as_written(body, lambda stmt: () if stmt in proven else stmt)
    moved: dict[tir.Buffer, tir.Buffer] = {
        field: replace(field, scope="scratch") for field in fields
    }
    for buffer in tir.buffers_of(func):
        if isinstance(buffer.scope, tir.MemorySpace):
            moved[buffer] = replace(buffer, scope="global")
    head = (tir.Allocate(moved[field]) for field in fields)
    return replace(func, body=(*head, *tir.rename_buffers(body, moved)))


def _proven_claims(func: tir.PrimFunc) -> tuple[tir.Stmt, ...]:
    """The assumptions about fields alone; VerifyError where one is not proven."""
    found: list[tir.Stmt] = []
    for one in statements_of(func).statements:
        stmt = one.stmt
        loads = tuple(tir.loads_in((stmt,))) if isinstance(stmt, tir.Assume) else ()
        if not loads or not all(load.buffer.is_field for load in loads):
            continue
        held = {load.buffer: held_constant(func, one.path, load) for load in loads}
        state = {field: value for field, (value, _) in held.items() if value is not None}
        if in_state((stmt,), state):
            fields = ", ".join(field.name for field in held)
            reason = next((p.reason for _, p in held.values() if p.reason), "they hold others")
            raise VerifyError(
                f"{func.name}: what an instruction assumes of {fields} is not proven: {reason}\n"
                f"in\n{tir.to_text(func, stmt, 'here')}"
            )
        found.append(stmt)
    return tuple(found)


def _without_plain_calls(func: tir.PrimFunc) -> tir.PrimFunc:
    return func.around(tir.map_as_written(func.body, _without_plain_call))


def _without_plain_call(stmt: tir.Stmt) -> tir.Stmt:
    if not isinstance(stmt, tir.Call) or _is_for_the_emitter(stmt):
        return stmt
    return tir.Block(stmt.name, tir.map_as_written(tir.performed(stmt), _without_plain_call))


def _is_for_the_emitter(call: tir.Call) -> bool:
    """Whether a call may become an instruction: one with addresses that it can take."""
    definition = call.definition
    if not is_instruction(definition) or tir.fields_of(definition) or tir.memories_of(definition):
        return False
    return all(
        param.strided or tir.is_dense(window, param.buffer)
        for window, param in zip(call.windows, definition.params, strict=True)
    )
