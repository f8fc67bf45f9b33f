"""Lines fetched into a cache ahead of their use.

In: a kernel, a loop, and a window of a buffer.  Out: the kernel with a call of `tir.PREFETCH16`, or
of `tir.PREFETCH16_NEAR`, on the window at the end of the loop's body.  What always holds: the call
performs nothing, so that the kernel computes the same; it stays through later steps with the
statements around it.
"""

from __future__ import annotations

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.buffers.staging import Window, stated_window
from graphflow.schedule.calls.kernel_calls import require_definition
from graphflow.schedule.facts.soundness import window_ends
from graphflow.schedule.places import addresses, obligations, place_names, places
from graphflow.schedule.steps.frame import Rewrite


def prefetch(
    func: tir.PrimFunc, loop: str, buffer: str, window: Window, near: bool = False
) -> Rewrite:
    """`for i: S` → `for i: {S; prefetch16(a[window])}`, for `buffer` a: each iteration fetches a
    cache line of 16 float32 elements ahead of its use.

    The line is that in the `window`.  It is fetched into the second-level cache, or with `near`,
    for a use within some hundred cycles, into the first-level one (`prefetch16_near`).  The window
    has for each axis an index, or a first index and an extent, as for `stage_window`.  An index
    such as `min(panel + 1, last)` keeps a line ahead of its use inside the buffer.

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
    stmt, domain = places.find_loop(func, loop)
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    lanes = places.first_in_lanes(func, loop, (axis.var for axis in inner.axes))
    if lanes is not None:
        raise ScheduleError(
            f"lanes: {lanes} is vectorized, and lanes fetch nothing; choose a loop around it"
        )
    hint = tir.PREFETCH16_NEAR if near else tir.PREFETCH16
    require_definition(func, hint)
    line = _line(window, _fetched(func, stmt, buffer), inner, loop)
    inside = _inside(line, inner, loop)
    name = place_names.fresh_name(hint.name, lambda wanted: place_names.has_place(func, wanted))
    call = tir.Call(name, hint, (line,))
    new = places.exchange_at(func, loop, (stmt.around((*stmt.body, call)),))
    nothing = obligations.structural(f"{hint.name} performs nothing")
    return Rewrite(new, (nothing, inside), made={"call": (name,)})


def _fetched(func: tir.PrimFunc, loop: tir.For, name: str) -> tir.Buffer:
    """The buffer of this name, if its lines can be fetched at the end of the loop's body."""
    buffer = places.find_buffer(func, name)
    end = (*addresses.path_of(func, loop.var.name), (len(loop.body), False))
    if buffer not in effects.declared_around(func, end)[0]:
        raise ScheduleError(
            f"scope: {name} is not allocated at the end of {loop.var}; lift its allocation first"
        )
    if buffer.scope not in ("global", "scratch"):
        where = buffer.scope.name if isinstance(buffer.scope, tir.MemorySpace) else "registers"
        raise ScheduleError(f"memory: {name} is in {where}, and no cache holds any of it")
    return buffer


def _line(window: Window, buffer: tir.Buffer, domain: arith.Domain, loop: str) -> tir.BufferWindow:
    """The window as that of a call; ScheduleError where it is no line of a cache."""
    sides, kept = stated_window(window, buffer, domain, loop)
    line = tir.BufferWindow(buffer, tuple(start for start, _ in sides), tuple(kept))
    wanted = tir.PREFETCH16.params[0].buffer
    extents = [sides[axis][1] for axis in kept]
    if (
        buffer.dtype != wanted.dtype
        or extents != list(wanted.shape)
        or not tir.is_dense(line, wanted)
    ):
        raise ScheduleError(
            f"window: {tir.PREFETCH16.name} takes {wanted.size} elements of {wanted.dtype} that "
            f"follow one another, and gets {extents} of {buffer.name}, "
            f"{buffer.dtype}{list(buffer.shape)}"
        )
    return line


def _inside(line: tir.BufferWindow, domain: arith.Domain, loop: str) -> arith.Proof:
    """A proof that a line lies inside its buffer at every point of a domain."""
    ends = window_ends(line, tir.PREFETCH16.params[0].buffer.shape)
    sides = (
        arith.within(index, 0, size)
        for end in ends
        for index, size in zip(end, line.buffer.shape, strict=True)
    )
    condition = f"inside: what {loop} fetches of {line.buffer.name} lies inside it"
    return obligations.require(arith.prove(arith.conjunction(sides), domain), condition)
