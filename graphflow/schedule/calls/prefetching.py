"""Lines fetched into a cache ahead of their use.

In: a kernel, a loop, and a window of a buffer.  Out: the kernel with a call of `tir.PREFETCH16` on
the window at the end of the loop's body.  What always holds: the call performs nothing, so that the
kernel computes the same; it stays through later steps with the statements around it.
"""

from __future__ import annotations

from graphflow.arith import Domain, Proof, conjunction, prove, within
from graphflow.base.errors import ScheduleError
from graphflow.schedule.buffers.staging import Window, stated_window
from graphflow.schedule.calls.kernel_calls import require_definition
from graphflow.schedule.facts.soundness import window_ends
from graphflow.schedule.places.addresses import declared_around, path_of
from graphflow.schedule.places.obligations import require, structural
from graphflow.schedule.places.place_names import fresh_name, has_place
from graphflow.schedule.places.places import find_buffer, find_loop, first_in_lanes, rewrite_at
from graphflow.schedule.steps.frame import Rewrite
from graphflow.tir import (
    PREFETCH16,
    Buffer,
    BufferWindow,
    Call,
    For,
    MemorySpace,
    PrimFunc,
    is_dense,
)


def prefetch(func: PrimFunc, loop: str, buffer: str, window: Window) -> Rewrite:
    """`for i: S` → `for i: {S; prefetch16(a[window])}`: each iteration fetches a cache line of 16
    float32 elements ahead of its use.

    The line is that in the `window`, and it is fetched into the second-level cache.  The window has
    for each axis an index, or a first index and an extent, as for `stage_window`.  An index such as
    `min(panel + 1, last)` keeps a line ahead of its use inside the buffer.

    The call is a hint: it computes nothing.  Steps copy, move and rename it with the statements
    around it, and put their values in its window; where they give these statements a copy of the
    buffer (`stage_window`), it goes on fetching the buffer itself.  Steps that would take its
    buffer or a variable away are refused, a change of the buffer's layout among them, and `inline`
    removes it.

    Conditions: *window*: it holds 16 elements of float32 that follow one another.  *scope*: the
    buffer, and the variables of the window, are there at the end of the loop's body.  *memory*: the
    buffer is in memory that has caches: not in registers or in a memory that a user defines.
    *inside*: the window lies inside the buffer in each iteration.  *lanes*: neither the loop nor
    one around it is vectorized.

    Makes the call in the role `call`.
    """
    stmt, domain = find_loop(func, loop)
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    lanes = first_in_lanes(func, loop, (axis.var for axis in inner.axes))
    if lanes is not None:
        raise ScheduleError(
            f"lanes: {lanes} is vectorized, and lanes fetch nothing; choose a loop around it"
        )
    require_definition(func, PREFETCH16)
    line = _line(window, _fetched(func, stmt, buffer), inner, loop)
    inside = _inside(line, inner, loop)
    name = fresh_name(PREFETCH16.name, lambda wanted: has_place(func, wanted))
    call = Call(name, PREFETCH16, (line,))
    new = rewrite_at(func, loop, lambda _s, _d: (stmt.around((*stmt.body, call)),))
    nothing = structural(f"{PREFETCH16.name} performs nothing")
    return Rewrite(new, (nothing, inside), made={"call": (name,)})


def _fetched(func: PrimFunc, loop: For, name: str) -> Buffer:
    """The buffer of this name, if its lines can be fetched at the end of the loop's body."""
    buffer = find_buffer(func, name)
    end = (*path_of(func, loop.var.name), (len(loop.body), False))
    if buffer not in declared_around(func, end)[0]:
        raise ScheduleError(
            f"scope: {name} is not allocated at the end of {loop.var}; lift its allocation first"
        )
    if buffer.scope not in ("global", "scratch"):
        where = buffer.scope.name if isinstance(buffer.scope, MemorySpace) else "registers"
        raise ScheduleError(f"memory: {name} is in {where}, and no cache holds any of it")
    return buffer


def _line(window: Window, buffer: Buffer, domain: Domain, loop: str) -> BufferWindow:
    """The window as that of a call; ScheduleError where it is no line of a cache."""
    sides, kept = stated_window(window, buffer, domain, loop)
    line = BufferWindow(buffer, tuple(start for start, _ in sides), tuple(kept))
    wanted = PREFETCH16.params[0].buffer
    extents = [sides[axis][1] for axis in kept]
    if buffer.dtype != wanted.dtype or extents != list(wanted.shape) or not is_dense(line, wanted):
        raise ScheduleError(
            f"window: {PREFETCH16.name} takes {wanted.size} elements of {wanted.dtype} that follow "
            f"one another, and gets {extents} of {buffer.name}, {buffer.dtype}{list(buffer.shape)}"
        )
    return line


def _inside(line: BufferWindow, domain: Domain, loop: str) -> Proof:
    """A proof that a line lies inside its buffer at every point of a domain."""
    ends = window_ends(line, PREFETCH16.params[0].buffer.shape)
    sides = (
        within(index, 0, size)
        for end in ends
        for index, size in zip(end, line.buffer.shape, strict=True)
    )
    condition = f"inside: what {loop} fetches of {line.buffer.name} lies inside it"
    return require(prove(conjunction(sides), domain), condition)
