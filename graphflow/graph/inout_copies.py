"""Parameters that are read and written, as an input and an output that begins as a copy of it.

In: a kernel with `inout` parameters.  Out: the same without, as programs have inputs and outputs
apart.  What always holds: before anything reads an element of the output, the kernel stored it or
copied it from the input; it stores or copies every element.

    for i in parallel(0, 8):                      for i in parallel(0, 8):
        for j in serial(0, 4):          →             for a_out_0 in serial(i, i + 1):
            a[i, j] += x[j]                               for a_out_1 in serial(0, 4):
                                                              a_out[a_out_0, a_out_1] = a[…]
                                                      for j in serial(0, 4):
                                                          a_out[i, j] += x[j]

Where threads share one loop, which is the whole work of the kernel, each iteration copies the
elements that it accesses, so that they share the copying too; elements that none accesses are
copied by the first one.  Otherwise the copy is a stage before the first one that writes the
parameter.  Nothing is copied where the kernel stores every element before it reads any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from graphflow import tir
from graphflow.arith import ANYWHERE, TRUE, Image, IntegerSet, Undecided, Var, equal, images_cover
from graphflow.base.fields import replace
from graphflow.effects import written_before_read
from graphflow.kernels.recipes import shared_loop
from graphflow.schedule import (
    Schedule,
    all_elements,
    declared_names,
    element_variables,
    fresh_name,
    fresh_names,
    scan,
)


def output_names(kernel: tir.PrimFunc | Schedule) -> dict[str, str]:
    """The name of the output that each `inout` parameter of a kernel becomes, by its name.

    Those of a schedule are free in its definition as well.
    """
    kernels = (kernel.func, kernel.definition) if isinstance(kernel, Schedule) else (kernel,)
    taken = {name for func in kernels for name in _names(func)}
    return {
        p.buffer.name: fresh_name(f"{p.buffer.name}_out", taken.__contains__)
        for p in kernels[0].params
        if p.role is tir.Role.INOUT
    }


def _names(func: tir.PrimFunc) -> set[str]:
    buffers = {buffer.name for buffer in tir.buffers_of(func)}
    return buffers | {*declared_names(func.body)} | {var.name for var in func.scalars}


def with_inout_copies(func: tir.PrimFunc, names: Mapping[str, str]) -> tir.PrimFunc:
    """`func` with an input and an output instead of each `inout` parameter.

    `names` has those of the outputs.  The statements in front of the first one that writes a
    parameter read the input, and what they assume is about it.
    """
    made = {b: replace(b, name=names[b.name]) for b in func.outputs if b.name in names}
    if not made:
        return func
    params: list[tir.Param] = []
    for param in func.params:
        if param.role is tir.Role.INOUT:
            params.append(replace(param, role=tir.Role.INPUT))
            params.append(tir.Param(made[param.buffer], tir.Role.OUTPUT))
        else:
            params.append(param)
    new = replace(func, params=tuple(params))
    for before, after in made.items():
        writing = (any(w.buffer == before for w in tir.writes_in((stmt,))) for stmt in new.body)
        first = next((k for k, writes in enumerate(writing) if writes), len(new.body))
        head, body = new.body[:first], tir.rename_buffers(new.body[first:], {before: after})
        new = replace(new, body=(*head, *body))
        if not _is_stored_first(new, after):
            new = replace(new, body=_copied(new, first, before, after))
    return new


def _is_stored_first(func: tir.PrimFunc, buffer: tir.Buffer) -> bool:
    """Whether a kernel is proven to store each element of an output, before it reads any."""
    stores = [
        Image(access.domain, access.indices)
        for access in tir.accesses(func.body)
        if access.buffer == buffer and access.kind is tir.AccessKind.WRITE and access.certain
    ]
    whole = images_cover(stores, TRUE, element_variables(buffer), buffer.shape)
    return whole.proven and written_before_read(func, buffer).proven


def _copied(func: tir.PrimFunc, place: int, before: tir.Buffer, after: tir.Buffer) -> tir.Body:
    """The body of `func` with a copy of `before` to `after`: in its parallel loop, or in front of
    the statement number `place`, the first one that writes."""
    taken = _names(func)
    loop = shared_loop(func)
    first = None if loop is None else _copies_of_iterations(loop, before, after, taken)
    if loop is None or first is None:
        name = fresh_name(f"{before.name}_copy", taken.__contains__)
        index = _index(after.name, after, taken)
        store = tir.Store(after, index, tir.Load(before, index))
        copy = tir.Block(name, tir.nest([*zip(index, after.shape, strict=True)], (store,)))
        return (*func.body[:place], copy, *func.body[place:])

    def at(stmt: tir.Stmt) -> tir.Stmt:
        if not isinstance(stmt, tir.For) or stmt.var != loop.var:
            return stmt
        return replace(stmt, body=(*first, *stmt.body))

    return tir.map_body(func.body, at)


def _copies_of_iterations(
    loop: tir.For, before: tir.Buffer, after: tir.Buffer, taken: Collection[str]
) -> tir.Body | None:
    """What each iteration of a loop copies first: the elements that it accesses, and in the first
    iteration those that none accesses.

    None where an element is accessed by several iterations, or that is not decided, and for a loop
    without iterations.
    """
    inside = ANYWHERE.inside(loop.var, loop.start, loop.stop)

    def copy(points: IntegerSet, name: str) -> tir.Body:
        names = _index(name, after, taken)
        return scan(points, inside, names, lambda e: tir.Store(after, e, tir.Load(before, e)))

    try:
        own = _elements_of_iterations(loop, after)
        if not loop.extent or _meet(own, loop):
            return None
        body = () if own.is_empty else copy(own, after.name)
        rest = all_elements(after, ()) - own.over(element_variables(after))
        if rest.is_empty:
            return body
        rest = rest.over((loop.var, *element_variables(after)))
        is_first = equal(loop.var, loop.start)
        return (tir.If(is_first, copy(rest, f"{after.name}_rest")), *body)
    except Undecided:
        return None


def _index(name: str, buffer: tir.Buffer, taken: Collection[str]) -> tuple[Var, ...]:
    wanted = (f"{name}_{axis}" for axis in range(len(buffer.shape)))
    return tuple(map(Var, fresh_names(taken, wanted).values()))


def _elements_of_iterations(loop: tir.For, buffer: tir.Buffer) -> IntegerSet:
    """The elements that each iteration of a loop may access, over its variable and the element."""
    over = (loop.var, *element_variables(buffer))
    touched = IntegerSet.nothing(over)
    for access in tir.accesses((loop,)):
        if access.buffer == buffer:
            image = IntegerSet.of(access.domain).image(element_variables(buffer), access.indices)
            touched = touched | image.over(over)
    return touched & all_elements(buffer, (loop.var,))


def _meet(own: IntegerSet, loop: tir.For) -> bool:
    """Whether two iterations of a loop access the same element."""
    later = Var(f"{loop.var}'")
    order = ANYWHERE.inside(loop.var, loop.start, loop.stop).inside(later, loop.var + 1, loop.stop)
    return not (IntegerSet.of(order) & own & own.renamed({loop.var: later})).is_empty
