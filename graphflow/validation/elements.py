"""Evaluation of single elements of a definition, without running all of it.

In: a definition made of stages, and a memory for each input.  Out: for each buffer that the
definition writes, a function that computes one element of it.  The loops of a stage over the axes
of its output are replaced by the index of the element, solved for the loop variables; the
interpreter runs the rest of the body.  What always holds: an element has the value that running the
whole definition gives it, or `Unsolved` says why it cannot be computed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, starmap
from math import prod
from typing import Any, TypeAlias

from msgspec import Struct

from graphflow import arith, tir
from graphflow.layout import solve_indices

Memory: TypeAlias = Any
"""Memory that the interpreter's code indexes by flat positions: an array, a list, or a dict."""

Place: TypeAlias = "tuple[arith.IndexExpr, ...]"
"""The indices of a store or a reduction."""


class Unsolved(Exception):
    """The definition does not consist of stages whose elements can be computed one by one."""


class OverBudget(Exception):
    """The requested elements take more iterations than allowed."""


class ElementStage(Struct, frozen=True):
    """One stage; `run(*index, *memories)` computes the element at `index`.

    `memories` are the buffers that `run` takes; it writes those of `written`, which have the same
    shape.  `cost` is the number of stores and reductions for one element.
    """

    written: tuple[tir.Buffer, ...]
    memories: tuple[tir.Buffer, ...]
    cost: int
    run: Callable[..., None]


class Elements(Struct, frozen=True):
    """The stages of a definition in program order; all buffers but `inputs` are computed."""

    inputs: tuple[tir.Buffer, ...]
    stages: tuple[ElementStage, ...]

    @staticmethod
    def of(func: tir.PrimFunc) -> Elements:
        """Compile the stages of `func`.  Raises `Unsolved`."""
        nests = list(_nests(func.body))
        _check_order(nests)
        return Elements(func.inputs, tuple(_stage(nest) for nest in nests))


class Evaluation:
    """Elements for given inputs; computed elements are kept, together with those they depend on.

    Memory that is never written reads as NaN, or as an extreme integer.
    """

    def __init__(self, elements: Elements, inputs: Mapping[str, Memory], limit: int) -> None:
        self.left = limit
        """The iterations that may still be run."""
        self._computed = {
            b: Computed(self, b)
            for b in dict.fromkeys(b for s in elements.stages for b in s.written)
        }
        memories: dict[tir.Buffer, Memory] = {b: inputs[b.name] for b in elements.inputs}
        memories |= self._computed
        for stage in elements.stages:
            for buffer in stage.written:
                self._computed[buffer].add(stage, [memories[b] for b in stage.memories])

    def element(self, buffer: tir.Buffer, position: int) -> Any | None:
        """The element at a flat position; None if the definition writes nothing there.

        Raises `OverBudget` if that takes more iterations than allowed; earlier results stay valid,
        but no further element can be asked for.
        """
        memory = self._computed.get(buffer)
        if memory is None:
            return None  # a definition that writes nothing
        if position not in memory:
            memory[position]  # computes it
        return memory.get(position)


class Computed(dict[int, Any]):
    """The memory of a buffer that is computed lazily: elements by position."""

    def __init__(self, evaluation: Evaluation, buffer: tir.Buffer) -> None:
        super().__init__()
        self._evaluation = evaluation
        self._axes = tuple(zip(buffer.strides, buffer.shape, strict=True))
        self._unwritten = tir.undefined_value(buffer.dtype, float("nan"))
        self._stages: list[tuple[Callable[..., None], list[Memory]]] = []
        self._cost = 0
        self._busy: set[int] = set()

    def add(self, stage: ElementStage, memories: list[Memory]) -> None:
        """Add a later stage that writes this buffer."""
        self._stages.append((stage.run, memories))
        self._cost += stage.cost

    def __missing__(self, position: int) -> Any:
        if position not in self._busy:  # a sum without a beginning reads what it computes
            self._busy.add(position)
            self._evaluation.left -= self._cost
            if self._evaluation.left < 0:
                raise OverBudget
            index = [position // step % n for step, n in self._axes]
            for run, memories in self._stages:
                run(*index, *memories)
            self._busy.discard(position)
        return self.get(position, self._unwritten)


# From a nest to a function of one element -------------------------------------------------------


def _nests(body: tir.Body) -> Iterator[tir.Stmt]:
    """The statements of a body outside of blocks and loops, without allocations."""
    for stmt in body:
        if isinstance(stmt, tir.Block):
            yield from _nests(stmt.body)
        elif isinstance(stmt, tir.Call | tir.Let | tir.NamedWindow):
            yield from _nests(tir.performed(stmt))
        elif not isinstance(stmt, tir.Allocate):
            for part in _one_by_one(stmt):
                yield from _parted(part)


def _one_by_one(nest: tir.Stmt) -> tuple[tir.Stmt, ...]:
    """`for i: {A; if c: for j: B}` → `for i: A` and `for i: for j: if c: B`.

    Where each place that is written has the variables of the loops at the same axes, an element is
    written by one iteration of these; so it does not matter that all iterations of A come first, if
    nothing is read that the nest writes.  Other nests stay as they are.
    """
    loops, body = tir.nest_of((nest,))
    places = [stmt.indices for stmt in tir.writes_in(body)]
    written = {stmt.buffer for stmt in tir.writes_in(body)}
    alone = all(any({*axis} == {loop.var} for axis in zip(*places, strict=False)) for loop in loops)
    if len(body) < 2 or not alone or any(x.buffer in written for x in tir.loads_in(body)):
        return (nest,)
    parts = []
    for stmt in body:
        part = _conditions_inside(stmt)
        for loop in reversed(loops):
            part = loop.around((part,))
        parts.append(part)
    return tuple(parts)


def _conditions_inside(stmt: tir.Stmt) -> tir.Stmt:
    """`if c: for j: B` → `for j: if c: B`."""
    match stmt:
        case tir.If(condition, (tir.For() as loop,), ()):
            return loop.around((_conditions_inside(tir.If(condition, loop.body)),))
        case _:
            return stmt


def _parted(nest: tir.Stmt) -> Iterator[tir.Stmt]:
    """`for i: {y[0, i] = a; y[1, i] = b}` → `for i: y[0, i] = a` and `for i: y[1, i] = b`.

    Where constant indices tell all places apart that a nest writes, no iteration writes what
    another place has, so that each can be computed alone; other nests stay as they are.  Raises
    `Unsolved` where what is stored to one place depends on what the nest stores to another one.
    """
    places = list(dict.fromkeys(stmt.indices for stmt in tir.writes_in((nest,))))
    if len(places) < 2 or not all(starmap(_apart, combinations(places, 2))):
        yield nest
        return
    written = {stmt.buffer for stmt in tir.writes_in((nest,))}
    for place in places:

        def kept(stmt: tir.Stmt, place: Place = place) -> tir.Body:
            other = isinstance(stmt, tir.Store | tir.Reduce) and stmt.indices != place
            return () if other else (stmt,)

        part = tir.map_body((nest,), kept)
        for load in tir.loads_in(part):
            if load.buffer in written and load.indices != place:
                raise Unsolved(f"{load.buffer.name} is read before it is complete")
        yield from part


def _apart(one: Place, other: Place) -> bool:
    """Whether two places differ in an index that is a constant in both."""
    constants = (map(arith.constant_value, pair) for pair in zip(one, other, strict=False))
    return any(None not in (a, b) and a != b for a, b in constants)


def _check_order(nests: list[tir.Stmt]) -> None:
    """Check that each buffer is complete before another stage reads it.

    Then it does not matter when an element is computed.
    """
    read: set[tir.Buffer] = set()
    for nest in nests:
        places = {stmt.buffer: stmt.indices for stmt in tir.writes_in((nest,))}
        loads = list(tir.loads_in((nest,)))
        early = [load for load in loads if places.get(load.buffer, load.indices) != load.indices]
        late = [load.buffer.name for load in early]
        late += [buffer.name for buffer in places if buffer in read]
        if late:
            raise Unsolved(f"{late[0]} is read before it is complete")
        if any(isinstance(stmt, tir.Allocate) for stmt in tir.walk((nest,))):
            raise Unsolved("a stage allocates memory of its own")
        read |= {load.buffer for load in loads} - places.keys()


def _stage(nest: tir.Stmt) -> ElementStage:
    targets = tuple(tir.writes_in((nest,)))
    written = tuple(dict.fromkeys(stmt.buffer for stmt in targets))
    places = {stmt.indices for stmt in targets}
    if len(places) != 1 or len({buffer.shape for buffer in written}) != 1:
        raise Unsolved(f"a stage writes {len(places)} places in each iteration")
    (place,) = places
    axes, body = _outer_loops(nest, frozenset().union(*map(arith.variables, place)))
    index = tuple(arith.Var(f"element.{k}") for k in range(len(place)))
    ranges = {v: (0, n - 1) for v, n in zip(index, written[0].shape, strict=True)}
    values = _solved(place, index, axes)
    conditions = [
        arith.within(values[a.var], *(arith.substitute(e, values) for e in (a.start, a.stop)))
        for a in axes
    ]
    conditions += [
        arith.equal(arith.substitute(e, values), v) for e, v in zip(place, index, strict=True)
    ]
    body = _simplified(tir.substitute_body(body, values), ranges)
    reached = arith.simplify_predicate(arith.conjunction(conditions), ranges)
    memories = tuple(dict.fromkeys((*written, *(load.buffer for load in tir.loads_in(body)))))
    params = tuple(
        tir.Param(b, tir.Role.OUTPUT if b in written else tir.Role.INPUT) for b in memories
    )
    func = tir.PrimFunc("element", params, (tir.If(reached, body),))
    run = tir.compile_to_python(func, free=ranges)
    return ElementStage(written, memories, _cost(body, ranges), run)


def _outer_loops(nest: tir.Stmt, wanted: frozenset[arith.Var]) -> tuple[list[arith.Axis], tir.Body]:
    """The loops around all writes, outermost first, and the body inside them."""
    axes: list[arith.Axis] = []
    body: tir.Body = (nest,)
    left = set(wanted)
    while left:
        (loop,) = body if len(body) == 1 else (None,)
        if isinstance(loop, tir.Block):
            body = loop.body
            continue
        if not isinstance(loop, tir.For) or not (loop.var in left or loop.extent == 1):
            names = ", ".join(sorted(var.name for var in left))
            raise Unsolved(f"the loops over {names} are not the outermost ones of their stage")
        axes.append(arith.Axis(loop.var, loop.start, loop.stop))
        left.discard(loop.var)
        body = loop.body
    return axes, body


def _solved(
    place: tuple[arith.IndexExpr, ...], index: tuple[arith.Var, ...], axes: list[arith.Axis]
) -> dict[arith.Var, arith.IndexExpr]:
    """The values of the loop variables at which a stage writes to `index`, if it does."""
    known = solve_indices(dict(zip(index, place, strict=True)), _constant_ranges(axes))
    for axis in axes:
        if arith.constant_value(axis.stop - axis.start) == 1:
            known.setdefault(axis.var, axis.start)
    missing = [axis.var.name for axis in axes if axis.var not in known]
    if missing:
        where = ", ".join(map(str, place))
        raise Unsolved(f"the place [{where}] does not tell {', '.join(missing)}")
    return {axis.var: known[axis.var] for axis in axes}


def _simplified(body: tir.Body, ranges: Mapping[arith.Var, arith.Interval]) -> tir.Body:
    loops = (arith.Axis(loop.var, loop.start, loop.stop) for loop in tir.loops_of(body))
    inner = _constant_ranges(loops)
    known = {**ranges, **{var: span for var, span in inner.items() if span[0] <= span[1]}}

    def on_predicate(predicate: arith.Predicate) -> arith.Predicate:
        return arith.simplify_predicate(predicate, known)

    return tir.map_indices(body, lambda index: arith.simplify_index(index, known), on_predicate)


def _constant_ranges(axes: Iterable[arith.Axis]) -> dict[arith.Var, tuple[int, int]]:
    """The first and last values of those variables whose bounds are constant."""
    bounds = {a.var: (arith.constant_value(a.start), arith.constant_value(a.stop)) for a in axes}
    return {
        var: (start, stop - 1)
        for var, (start, stop) in bounds.items()
        if start is not None and stop is not None
    }


def _cost(body: tir.Body, ranges: Mapping[arith.Var, arith.Interval]) -> int:
    """The number of stores and reductions for one element, if all conditions hold.

    A matched loop runs one iteration.
    """
    total = 0
    matched = tir.matched_variables(body)
    for site in tir.sites(body):
        if isinstance(site.stmt, tir.Store | tir.Reduce):
            axes = [axis for axis in site.domain.axes if axis.var not in matched]
            total += prod(_most(axis, site.domain.axes, ranges) for axis in axes)
    return total


def _most(
    axis: arith.Axis, around: tuple[arith.Axis, ...], ranges: Mapping[arith.Var, arith.Interval]
) -> int:
    """The largest number of iterations of a loop."""
    extent = arith.constant_value(axis.stop - axis.start)
    if extent is None:
        extent = arith.bounds(axis.stop - axis.start, ranges)[1]
    if extent is None:
        raise Unsolved(f"the loop over {axis.var} has no constant bounds")
    return max(extent, 0)


def counted_iterations(func: tir.PrimFunc) -> int:
    """The number of stores and reductions in a run of `func`.  Raises `Unsolved`."""
    return _cost(func.body, {})
