"""Fuse kernels into one: their bodies one behind the other, with unique names.

In: PrimFuncs in order, and the value bound to each parameter.  Out: one PrimFunc.  A value that one
kernel writes and only others read becomes an `Allocate` at body level, just before the first
statement that writes it.  What always holds: names in the result depend on the kernels alone, never
on the names of values, so equal groups give equal kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, substitute, substitute_in
from graphflow.base.fields import replace


class BoundKernel(Struct, frozen=True):
    """A kernel, and the values bound to its inputs and outputs, in their order."""

    func: tir.PrimFunc
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class FusedKernel(Struct, frozen=True):
    """A fused kernel, the values bound to its parameters, and (value, buffer name) of those
    inside.
    """

    func: tir.PrimFunc
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inner: tuple[tuple[str, str], ...]


class _FreshNames:
    """Hands out unique names: the wanted one if free, else with the lowest free number appended."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        # Names are never given back, so the search goes on where the last one ended.
        name, number = wanted, self._numbers.get(wanted, 0)
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        self._numbers[wanted] = number
        return name


class KernelFuser:
    """Fuses kernels, and fuses equal kernels that are bound to each other in the same way only
    once.

    Networks repeat the same groups, and the fused kernel does not depend on the names of values.
    """

    def __init__(self) -> None:
        self._kernels: dict[tir.PrimFunc, int] = {}
        self._numbers: dict[int, tuple[tir.PrimFunc, int]] = {}
        self._fused: dict[object, tuple[FusedKernel, tuple[str, ...]]] = {}

    def fuse(self, name: str, calls: Sequence[BoundKernel], outputs: Iterable[str]) -> FusedKernel:
        """The kernel that `fuse_kernels` returns for these arguments."""
        wanted = tuple(outputs)
        values: dict[str, int] = {}
        bound = tuple(
            tuple(values.setdefault(v, len(values)) for v in (*call.inputs, *call.outputs))
            for call in calls
        )
        kernels = tuple(self._number(call.func) for call in calls)
        key = name, kernels, bound, tuple(values[v] for v in wanted)
        if key not in self._fused:
            self._fused[key] = fuse_kernels(name, calls, wanted), tuple(values)
        fused, known = self._fused[key]
        here = dict(zip(known, values, strict=True))
        return FusedKernel(
            fused.func,
            tuple(here[v] for v in fused.inputs),
            wanted,
            tuple((here[v], buffer) for v, buffer in fused.inner),
        )

    def _number(self, func: tir.PrimFunc) -> int:
        """The same number for equal kernels, by `id` first, as comparing kernels is slow."""
        found = self._numbers.get(id(func))
        if found is None:
            # Kept with the kernel, so that no other one is made where this one was.
            found = func, self._kernels.setdefault(func, len(self._kernels))
            self._numbers[id(func)] = found
        return found[1]


def fuse_kernels(name: str, calls: Sequence[BoundKernel], outputs: Iterable[str]) -> FusedKernel:
    """One kernel, called `name`, that runs `calls` in order and writes only `outputs`.

    A value that several parameters share becomes one parameter.  Each value in `outputs` must be
    written by one of the calls; every other value that a call writes becomes an intermediate.
    """
    wanted = tuple(outputs)
    buffers = _FreshNames()
    bound = _bind(calls, wanted, buffers)
    written = {value for call in calls for value in call.outputs}
    inner = tuple(v for call in calls for v in call.outputs if v not in wanted)
    inputs = tuple(dict.fromkeys(v for call in calls for v in call.inputs if v not in written))
    loops, blocks = _FreshNames(), _FreshNames()
    body: list[tir.Stmt] = []
    for call in calls:
        part = list(_renamed(call, bound, buffers, loops, blocks))
        for value in call.outputs:
            if value not in wanted:
                _allocate(part, bound[value])
        body += part
    params = [tir.Param(bound[value], tir.Role.INPUT) for value in inputs]
    params += [tir.Param(bound[value], tir.Role.OUTPUT) for value in wanted]
    return FusedKernel(
        tir.PrimFunc(name, tuple(params), tuple(body)),
        inputs,
        wanted,
        tuple((value, bound[value].name) for value in inner),
    )


def _bind(
    calls: Sequence[BoundKernel], wanted: tuple[str, ...], names: _FreshNames
) -> dict[str, tir.Buffer]:
    """The buffer of each value; the results get their names first."""
    bound: dict[str, tir.Buffer] = {}
    pairs = [
        (value, buffer)
        for call in calls
        for value, buffer in (
            *zip(call.inputs, call.func.inputs, strict=True),
            *zip(call.outputs, call.func.outputs, strict=True),
        )
    ]
    # An intermediate has the name of the output it was, not of the input it becomes.
    results = {v: b for call in calls for v, b in zip(call.outputs, call.func.outputs, strict=True)}
    for value in wanted:
        bound[value] = replace(results[value], name=names.unique(results[value].name))
    for value, buffer in pairs:
        if value not in bound:
            source = results.get(value, buffer)
            bound[value] = replace(source, name=names.unique(source.name))
    return bound


def _renamed(
    call: BoundKernel,
    bound: dict[str, tir.Buffer],
    buffers: _FreshNames,
    loops: _FreshNames,
    blocks: _FreshNames,
) -> tir.Body:
    func = tir.without_calls(call.func)
    exchanged = {
        buffer: bound[value]
        for value, buffer in (
            *zip(call.inputs, func.inputs, strict=True),
            *zip(call.outputs, func.outputs, strict=True),
        )
    }
    for buffer in tir.buffers_of(func):
        if buffer not in exchanged:
            exchanged[buffer] = replace(buffer, name=buffers.unique(buffer.name))
    variables = {loop.var: Var(loops.unique(loop.var.name)) for loop in tir.loops_of(func.body)}
    titles = {
        s.name: blocks.unique(s.name) for s in tir.walk(func.body) if isinstance(s, tir.Block)
    }
    values: dict[Var, IndexExpr] = dict(variables)
    body = tir.map_indices(
        tir.rename_buffers(func.body, exchanged),
        lambda e: substitute(e, values),
        lambda p: substitute_in(p, values),
    )

    def rename(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.For):
            return replace(stmt, var=variables[stmt.var])
        if isinstance(stmt, tir.Block):
            return replace(stmt, name=titles[stmt.name])
        return stmt

    return tir.map_body(body, rename)


def _allocate(body: list[tir.Stmt], buffer: tir.Buffer) -> None:
    for place, stmt in enumerate(body):
        if any(write.buffer == buffer for write in tir.writes_in((stmt,))):
            body.insert(place, tir.Allocate(buffer))
            return
    body.insert(0, tir.Allocate(buffer))
