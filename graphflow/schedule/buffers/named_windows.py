"""Primitives on windows of buffers: the name of one is put away, and parameters become windows.

In: a kernel and the name of a window or parameter.  Out: the kernel that accesses the buffer behind
the name, or that takes a parameter with the strides of the caller's buffer.  What always holds: no
element is accessed that was not, and none in another order.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import Rewrite


def inline_window(func: tir.PrimFunc, window: str) -> Rewrite:
    """`with a[i, j:j + 8] as w: S[w[e]]` → `S[a[i, j + e]]`.

    Condition: *window*: the place is a named window.  Its elements are those of a by definition.
    """
    stmt, _ = places.find(func, window)
    if not isinstance(stmt, tir.NamedWindow):
        raise ScheduleError(f"window: {window} is no named window")
    new = places.exchange_at(func, window, tir.performed(stmt))
    behind = stmt.window.buffer.name
    return Rewrite(
        new, (obligations.structural(f"{window} names elements of {behind}"),), {window: ()}
    )


def set_window(func: tir.PrimFunc, param: str, strided: bool = True) -> Rewrite:
    """`def f(a: T[n])` → `def f(a: window[T[n]])`, or back where not `strided`.

    `param` is a parameter `a` of the kernel, or `f.a`, that of a kernel f that it calls.  Before
    code is generated, callers are checked against callees: a window that a call hands over has the
    parameter's shape, and elements that follow one another unless the parameter is a window; and
    the kernel itself has no windows, since nobody calls it with strides.

    Condition: *parameter*: there is one of this name.
    """
    definition, _, name = param.rpartition(".")
    if not definition:
        new = _with_window(func, name, strided)
    else:
        called = {call.definition for call in tir.calls_in(func.body)}
        found = next((own for own in called if own.name == definition), None)
        if found is None:
            raise ScheduleError(f"parameter: {func.name} calls no kernel {definition}")
        other = _with_window(found, name, strided)

        def change(stmt: tir.Stmt) -> tir.Stmt:
            if isinstance(stmt, tir.Call) and stmt.definition == found:
                return replace(stmt, definition=other)
            return stmt

        new = replace(func, body=tir.map_as_written(func.body, change))
    return Rewrite(
        new, (obligations.structural("strides decide where elements lie, and not which they are"),)
    )


def _with_window(func: tir.PrimFunc, name: str, strided: bool) -> tir.PrimFunc:
    if all(param.buffer.name != name for param in func.params):
        names = ", ".join(param.buffer.name for param in func.params)
        raise ScheduleError(f"parameter: {func.name} has no parameter {name}; it has {names}")

    def changed(param: tir.Param) -> tir.Param:
        return replace(param, strided=strided) if param.buffer.name == name else param

    return replace(func, params=tuple(map(changed, func.params)))
