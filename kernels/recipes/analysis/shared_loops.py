"""Kernels of several stages: their stages meet at the loops that all of them share.

In: a definition of several stages, such as a softmax or a normalization, each with a nest over the
axes of what it writes.  Out: the schedule in which they are one nest over the shared axes, with
what is left of each stage inside.

What always holds: which loops run along one axis follows from the indices of the intermediates
alone.  A loop is shared where every stage has it and none reduces over it; that stages may meet
there, each step proves.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from graphflow import schedule, tir
from graphflow.arith import FloorDiv, IndexExpr, Var, variables
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.contiguity import nests_in
from graphflow.schedule import Handle, Schedule

MOST_STAGES = 12
"""Stages of a kernel that may meet: the number of proofs grows with the square of it."""


@lru_cache(maxsize=1024)
def joined_stages(
    definition: tir.PrimFunc, transposed: tuple[str, ...] = ()
) -> tuple[Schedule, tuple[Handle, ...]]:
    """The schedule in which all stages are in one nest, and the shared loops, outermost first.

    Stages of their own copy the parameters in `transposed`, so that the others work on copies.
    A single stage shares all its loops but those it reduces over.  Where no loop is shared by all
    stages, as in the softmax of a single row, the stages stay apart and there are none.
    ScheduleError for more than `MOST_STAGES` stages, and where a step is refused.
    """
    if tir.matched_variables(definition.body):
        raise ScheduleError("a matched loop runs one iteration only, which stages cannot share")
    count = sum(not isinstance(stmt, tir.Allocate) for stmt in definition.body) + len(transposed)
    if count > MOST_STAGES:
        raise ScheduleError(f"{definition.name} has {count} stages, too many for the proofs")
    s = Schedule.of(definition)
    for name in transposed:
        read = any(b.name == name for b in definition.inputs)
        copy = s.fresh("{}_lines", s.handle(name))
        s = s.apply(schedule.cache_read if read else schedule.cache_write, name, copy, False)
    s = _groups_apart(s.apply(schedule.simplify))
    blocks = [stmt for stmt in s.func.body if not isinstance(stmt, tir.Allocate)]
    if not all(isinstance(stmt, tir.Block) for stmt in blocks):
        raise ScheduleError(f"{definition.name} has statements outside of its stages")
    stages = s.handles(stmt for stmt in blocks if isinstance(stmt, tir.Block))
    shared = _shared_loops(s.func)
    if not shared:
        return s, ()
    heads = [s.handles(found) for found in zip(*shared, strict=True)]
    for stage, head in zip(stages, heads, strict=True):
        s = _outermost_first(s, stage, head)
    for stage in stages[1:]:
        s = s.apply(schedule.fuse, s[stages[0]], s[stage])
    for loops in zip(*heads, strict=True):
        for other in loops[1:]:
            s = s.apply(schedule.fuse, s[loops[0]], s[other])
    return s, tuple(heads[0])


def _groups_apart(s: Schedule) -> Schedule:
    """`for i: … t[i // c]` → `for g: for r: … t[g]`, for the intermediates that stages share."""
    loops = {loop.var: loop for loop in tir.loops_of(s.func.body)}
    divisors: dict[Var, int] = {}
    for _, index in _indices(s.func):
        if isinstance(index, FloorDiv) and isinstance(index.numerator, Var):
            loop = loops[index.numerator]
            if loop.extent is not None and loop.extent % index.divisor == 0:
                divisors.setdefault(loop.var, index.divisor)
    places = zip(s.handles(loops[var] for var in divisors), divisors.values(), strict=True)
    for place, divisor in [*places]:
        names = (s.fresh("{}g", place), s.fresh("{}r", place))
        s = s.apply(schedule.divide_loop, s[place], divisor, names, "perfect")
    return s.apply(schedule.simplify) if divisors else s


def _indices(func: tir.PrimFunc) -> Iterator[tuple[tuple[tir.Buffer, int], IndexExpr]]:
    """Each index of an access to an intermediate, with the buffer and the axis.

    An output that a later stage reads is one too.
    """
    between = {*intermediates(func), *(x.buffer for x in tir.loads_in(func.body))}
    between -= {*func.inputs}
    for access in tir.accesses(func.body):
        if access.buffer in between:
            for axis, index in enumerate(access.indices):
                yield (access.buffer, axis), index


def _shared_loops(func: tir.PrimFunc) -> list[list[tir.For]]:
    """For each shared axis the loop of every stage over it, in the order of the last stage."""
    stages = [stmt for stmt in func.body if isinstance(stmt, tir.Block)]
    if len(stages) == 1:
        return [[loop] for loop in _may_be_shared(stages[0])]
    along = _axes_of_loops(func)
    rows = [
        {along[loop.var]: loop for loop in _may_be_shared(stage) if loop.var in along}
        for stage in stages
    ]
    common = [axis for axis in rows[-1] if all(axis in row for row in rows)]
    shared = [[row[axis] for row in rows] for axis in common]
    return [loops for loops in shared if len({(x.start, x.stop, x.kind) for x in loops}) == 1]


def _axes_of_loops(func: tir.PrimFunc) -> dict[Var, Var]:
    """For each loop that is an index of an intermediate, one loop that stands for all on its axis.

    Loops are on one axis where they are indices of the same axis of an intermediate.
    """
    first: dict[Var, Var] = {}

    def root(var: Var) -> Var:
        while first.setdefault(var, var) is not var:
            var = first[var]
        return var

    axes: dict[tuple[tir.Buffer, int], Var] = {}
    for place, index in _indices(func):
        if isinstance(index, Var):
            first[root(index)] = root(axes.setdefault(place, index))
    return {var: root(var) for var in first}


def _may_be_shared(stage: tir.Block) -> Iterator[tir.For]:
    """The loops of a stage from the outermost in, as far as each is all of the body around it.

    Without those that reduce: whose variable is in no index of some write inside.
    """
    body: tir.Body = stage.body
    while len(body) == 1 and isinstance(body[0], tir.For) and body[0].kind is tir.LoopKind.SERIAL:
        loop = body[0]
        writes = [*tir.writes_in(loop.body)]
        if all(any(loop.var in variables(e) for e in write.indices) for write in writes):
            yield loop
        body = loop.body


def _outermost_first(s: Schedule, stage: Handle, head: tuple[Handle, ...]) -> Schedule:
    """The nest of a stage with the loops `head` outermost, in this order."""
    names = s.names(head)
    block = next(b for b in s.func.body if isinstance(b, tir.Block) and b.name == s[stage])
    nest: list[str] = []
    body: tir.Body = block.body
    while len(body) == 1 and isinstance(body[0], tir.For) and not set(names) <= set(nest):
        nest.append(body[0].var.name)
        body = body[0].body
    order = (*names, *(name for name in nest if name not in names))
    return s if tuple(nest) == order else s.apply(schedule.reorder_loops, order)


def intermediates(func: tir.PrimFunc) -> list[tir.Buffer]:
    """The buffers that a kernel allocates."""
    return [s.buffer for s in tir.walk(func.body) if isinstance(s, tir.Allocate)]


def copies_of(func: tir.PrimFunc, transposed: tuple[str, ...]) -> tuple[tir.Store, ...]:
    """The stores by which stages of `joined_stages` copy parameters to or from intermediates."""
    return tuple(
        stmt
        for stmt in tir.walk(func.body)
        if isinstance(stmt, tir.Store)
        and isinstance(stmt.value, tir.Load)
        and not {stmt.buffer.name, stmt.value.buffer.name}.isdisjoint(transposed)
    )


def sunk(s: Schedule, buffer: tir.Buffer, place: Handle) -> Schedule:
    """The buffer private to each iteration of a loop: in a register if that is one element."""
    inner = s.apply(schedule.sink_alloc, buffer.name, s[place], "scratch")
    (made,) = (b for b in intermediates(inner.func) if b.name == buffer.name)
    return inner if made.shape else s.apply(schedule.sink_alloc, buffer.name, s[place], "register")


@lru_cache(maxsize=1024)
def rows_of_stages(
    definition: tir.PrimFunc, transposed: tuple[str, ...] = ()
) -> tuple[Schedule, tuple[Handle, ...]]:
    """The stages in one nest over the shared loops, inside which each intermediate is allocated.

    With the shared loops, outermost first.  ScheduleError where a step is refused.
    """
    s, shared = joined_stages(definition, transposed)
    for buffer in intermediates(s.func) if shared else ():
        s = sunk(s, buffer, shared[-1])
    return s, shared


def own_nests(s: Schedule, shared: tuple[Handle, ...]) -> list[tir.For]:
    """The outermost loops that stages keep to themselves, in the order of the program."""
    if shared:
        return [*nests_in(s.loop(shared[-1]))]
    blocks = (stmt for stmt in s.func.body if isinstance(stmt, tir.Block))
    return [stmt for block in blocks for stmt in block.body if isinstance(stmt, tir.For)]
