"""Emits a kernel: turns a lowered one into the text of an LLVM module.

In: a lowered `PrimFunc` (no `Assume`, no `Undef`), the symbol to define, a `Target`.  Out: a module
that defines `void symbol(ptr buffers, i64 lo, i64 hi, ptr worker)`.  `buffers` points to one
pointer per parameter; each is aligned to its element type, and no two overlap.  The call executes
the iterations `lo` to `hi - 1` of the kernel's parallel loop, counted from 0; of a kernel in
phases, those of each parallel loop.  Behind each phase it then calls the function whose address
`worker` points to, with `worker`, which returns when all threads that share the loops have called
it; not where `worker` is null, as for all iterations in one call.

What always holds: the emitter knows loops and buffers, and no operator.  `statements` beside it
emits these.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import tir
from graphflow.base.errors import CodegenError
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen.heights import with_signs_beside
from graphflow.codegen.magnitudes import magnitude_buffers
from graphflow.codegen.statements.emit_part import RANGE, PartEmitter

MOST_STAGES = 32
"""Stages in one LLVM function: LLVM's simplification of induction variables takes time quadratic in
the number of successive loops, ten seconds for five hundred of them."""


def emit_ir(func: tir.PrimFunc, symbol: str, target: Target) -> str:
    """The LLVM module of `func` before optimization; `CodegenError` where it cannot be emitted."""
    _check_parallel(func)
    _check_axes(func, target)
    magnitudes = magnitude_buffers(func)
    func, heights = with_signs_beside(func, magnitudes)
    parts = _parts(func)
    names = [f"{symbol}.body"] if len(parts) == 1 else [f"part{k}" for k in range(len(parts))]
    made = [PartEmitter(part, target, magnitudes, heights) for part in parts]
    functions = [f.function(name) for f, name in zip(made, names, strict=True)]
    declared = {name: text for f in made for name, text in f.builder.declarations.items()}
    width = 8 * target.vector_bytes
    lines = [
        *(declared[name] for name in sorted(declared)),
        *(line for function in functions for line in function),
        *_wrapper(func, symbol, list(zip(names, parts, strict=True))),
        f'attributes #0 = {{ noinline nounwind "stackrealign" "prefer-vector-width"="{width}" }}',
        "attributes #1 = { nounwind }",
    ]
    return "\n".join(lines) + "\n"


def _parts(func: tir.PrimFunc) -> list[tir.PrimFunc]:
    """The kernel itself, or several kernels of at most `MOST_STAGES` statements each.

    A kernel is split only if it is longer than that and its parts share no allocation and have no
    parallel loop.  Each part has those parameters that it accesses.
    """
    body = func.body
    shared = any(isinstance(stmt, tir.Allocate) for stmt in body)
    threads = any(loop.kind is tir.LoopKind.PARALLEL for loop in tir.loops_of(body))
    if len(body) <= MOST_STAGES or shared or threads:
        return [func]
    pieces = [body[k : k + MOST_STAGES] for k in range(0, len(body), MOST_STAGES)]
    return [replace(func, params=_used(func, piece), body=piece) for piece in pieces]


def _used(func: tir.PrimFunc, body: tir.Body) -> tuple[tir.Param, ...]:
    touched = {access.buffer for access in tir.accesses(body)}
    touched |= {window.buffer for window in tir.windows_in(body)}
    return tuple(param for param in func.params if param.buffer in touched)


def _wrapper(
    func: tir.PrimFunc, symbol: str, parts: Sequence[tuple[str, tir.PrimFunc]]
) -> list[str]:
    """The entry point of a kernel in several parts, which it calls in order."""
    lines = [f'define void @"{symbol}"(ptr %buffers, i64 %lo, i64 %hi, ptr %worker) #1 {{']
    numbers = {param.buffer: number for number, param in enumerate(func.params)}
    for number in range(len(func.params)):
        lines.append(f"  %a{number} = getelementptr ptr, ptr %buffers, i64 {number}")
        lines.append(f"  %p{number} = load ptr, ptr %a{number}, align 8")
    for name, part in parts:
        passed = [f"ptr %p{numbers[param.buffer]}" for param in part.params]
        lines.append(f'  tail call void @"{name}"({", ".join((*passed, *RANGE))})')
    return [*lines, "  ret void", "}"]


def _check_axes(func: tir.PrimFunc, target: Target) -> None:
    """CodegenError for a buffer with more axes after flattening than the target's memory has."""
    most = target.buffer_axes
    if most is None:
        return
    for buffer in tir.buffers_of(func):
        axes = len(buffer.separators) + 1
        if axes > most:
            raise CodegenError(
                f"buffer {buffer.name} has {axes} axes after flattening, and {target.name} has "
                f"{most}; declare it with fewer separators"
            )


def _check_parallel(func: tir.PrimFunc) -> None:
    """CodegenError if there is a statement beside a parallel loop that threads do not execute
    alike.

    Every call executes the whole kernel for its part of the iterations, so a statement beside the
    loop would be executed once per call.
    """
    fault = tir.fault_in_phases(func)
    if fault is not None:
        message, _ = fault
        raise CodegenError(f"kernel {func.name}: {message}")
