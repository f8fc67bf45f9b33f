"""Random applications of the primitives on windows."""

from graphflow import tir
from graphflow.arith import IndexExpr, const, variables
from graphflow.base.fields import replace
from graphflow.schedule import inline_window, set_window
from support.kernels.random_kernels import Number
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.choices import Arguments
from support.primitives.primitive_cases import PrimitiveCase
from support.primitives.refused_kernels import READ, ROW


def window_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel in which names of windows stand for buffers in some statements."""
    return with_windows(buffer_kernel(number), number)


def with_windows(func: tir.PrimFunc, number: Number) -> tir.PrimFunc:
    """The kernel with windows of what some of its loops, conditions and lets access."""
    count = 0

    def change(stmt: tir.Stmt) -> "tir.Stmt | tir.Body":
        nonlocal count
        own = {s.buffer for s in tir.walk((stmt,)) if isinstance(s, tir.Allocate)}
        found = dict.fromkeys(a.buffer for a in tir.accesses((stmt,)) if a.buffer.shape)
        behind = [buffer for buffer in found if buffer not in own]
        if not isinstance(stmt, tir.For | tir.If | tir.Let) or not behind or number(0, 1):
            return stmt
        buffer = behind[number(0, len(behind) - 1)]
        count += 1
        return _windowed(stmt, buffer, f"w{count}", number)

    return replace(func, body=tir.map_as_written(func.body, change))


def _windowed(stmt: tir.Stmt, buffer: tir.Buffer, name: str, number: Number) -> tir.Stmt:
    """The statement in a window of the whole buffer, or of all but the first axis where each access
    has one index there that no loop inside changes."""
    rank = len(buffer.shape)
    firsts = {a.indices[0] for a in tir.accesses((stmt,)) if a.buffer == buffer}
    bound = {loop.var for loop in tir.walk((stmt,)) if isinstance(loop, tir.For)}
    first = min(firsts, key=str)
    if rank > 1 and len(firsts) == 1 and not variables(first) & bound and number(0, 3):
        starts: tuple[IndexExpr, ...] = (first, *(const(0) for _ in range(rank - 1)))
        inner = replace(buffer, name=name, shape=buffer.shape[1:])
        window = tir.BufferWindow(buffer, starts, tuple(range(1, rank)))
        body = tir.redirect_accesses((stmt,), buffer, inner, lambda indices: indices[1:])
        return tir.NamedWindow(inner, window, body)
    inner = replace(buffer, name=name)
    window = tir.BufferWindow(buffer, tuple(const(0) for _ in range(rank)), tuple(range(rank)))
    return tir.NamedWindow(
        inner, window, tir.redirect_accesses((stmt,), buffer, inner, lambda i: i)
    )


def _window(func: tir.PrimFunc, number: Number) -> Arguments:
    found = [stmt.buffer.name for stmt in tir.walk(func.body) if isinstance(stmt, tir.NamedWindow)]
    return (found[number(0, len(found) - 1)],) if found else None


def _parameter(func: tir.PrimFunc, number: Number) -> Arguments:
    return (func.params[number(0, len(func.params) - 1)].buffer.name,)


WINDOW_CASES = (
    PrimitiveCase(inline_window, _window, window_kernel)
    .on(ROW.format("y[i] = x[i]"), "i")
    .refuses("window", "i is no named window"),
    PrimitiveCase(set_window, _parameter, window_kernel)
    .on(READ, "z")
    .refuses("parameter", "k has no parameter z; it has x, y"),
)
