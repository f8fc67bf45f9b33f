"""The roles of loops and parameters in a kernel, read off its access relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from graphflow.arith import (
    Axis,
    Var,
    congruences,
    constant_value,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.tiled_kernel import join_axes, merge_stages
from graphflow.schedule import Refusal, Schedule
from graphflow.tir import (
    DTYPES,
    Access,
    Allocate,
    Binary,
    Block,
    Body,
    Buffer,
    For,
    If,
    Literal,
    Load,
    Param,
    PrimFunc,
    Reduce,
    ReduceOp,
    Role,
    Stmt,
    Store,
    accesses,
    loops_of,
    matched_variables,
    sites,
    walk,
    walk_expr,
)


@dataclass(frozen=True, eq=False)
class Roles:
    """A kernel as one nest over the axes of its output, with reductions inside.

    There is one object for each kernel (see `roles_of`), by which findings are kept.  `axes` are
    the loop variables of the output's axes; `nests` the loops inside them with their extents, for
    each reduction into the output; `reads` the accesses of each input.
    """

    output: Buffer
    params: tuple[Param, ...]
    axes: tuple[Var, ...]
    extents: tuple[int, ...]
    nests: tuple[tuple[tuple[Var, int], ...], ...]
    reads: dict[str, tuple[Access, ...]]
    multiply_adds: int
    bare: ReduceOp | None
    """The operator, where the only reduction takes bare elements of an input."""
    factors: frozenset[str]
    """The inputs of the only reduction, where it sums products of two elements."""
    start: Literal | str | None
    """What such a sum starts from: a number, or an element of the input of this name."""
    phases: tuple[int, ...] = ()
    """For each axis: how many of its neighbours meet different taps, each one of so many."""
    sum_dtype: str = ""
    """The widest element type that is reduced into; empty where nothing is."""

    @cached_property
    def inputs(self) -> tuple[Buffer, ...]:
        """The parameters that the kernel reads."""
        return tuple(p.buffer for p in self.params if p.role is Role.INPUT)

    @cached_property
    def reduction(self) -> tuple[tuple[Var, int], ...]:
        """The loops of all reductions."""
        return tuple(loop for nest in self.nests for loop in nest)

    @cached_property
    def steps(self) -> int:
        """How many terms are reduced into one element of the output."""
        terms = sum(prod(extent for _, extent in nest) for nest in self.nests)
        return -(-terms // prod(self.phases))

    def nest_of(self, access: Access) -> tuple[tuple[Var, int], ...]:
        """The loops of the reduction that an access is part of; none for one outside them."""
        used = {v for e in access.indices for v in variables(e)}
        return next((nest for nest in self.nests if any(v in used for v, _ in nest)), ())

    def depends_on(self, name: str, axis: int) -> bool:
        """Whether any access to the input `name` uses the variable of the output `axis`."""
        var = self.axes[axis]
        return any(var in variables(e) for a in self.reads[name] for e in a.indices)


def roles_of(definition: PrimFunc) -> Roles | None:
    """The roles, or None where the kernel is not one nest over the axes of one output."""
    found = _roles_or_refusal(definition)
    return found if isinstance(found, Roles) else None


def refused_roles(definition: PrimFunc) -> Refusal | None:
    """Why the stages of a kernel of one output are not joined to one nest, if a step refused to."""
    found = _roles_or_refusal(definition)
    return found if isinstance(found, Refusal) else None


@lru_cache(maxsize=4096)
def _roles_or_refusal(definition: PrimFunc) -> Roles | Refusal | None:
    if len(definition.outputs) != 1 or definition.callee is not None:
        return None
    if matched_variables(definition.body):
        return None  # a tile would run all iterations of a matched loop
    schedule = join_axes(Schedule.of(definition))
    if not _first_covers(schedule.func):
        return None  # merging keeps the loops of the first stage
    try:
        merged = merge_stages(schedule).func
    except ScheduleError as error:
        return Refusal.of(error)
    work = [stmt for stmt in merged.body if not isinstance(stmt, Allocate)]
    if len(work) != 1 or not isinstance(work[0], Block) or len(work[0].body) != 1:
        return None
    output = merged.outputs[0]
    nest, body = _nest_over(output, work[0])
    axes = tuple(loop.var for loop in nest)
    nests = _reductions(body)
    there = accesses(merged.body)
    if nests is None or not _kept_to_element(merged, there) or not _covers(nest, output):
        return None
    if any(a.indices != axes for a in there if a.buffer == output):
        return None  # written in another order, or read where another iteration wrote it
    found = {b.name: tuple(a for a in there if a.buffer == b) for b in merged.inputs}
    return Roles(
        output,
        merged.params,
        axes,
        output.shape,
        nests,
        found,
        multiply_adds(merged),
        _bare(merged),
        _factors(merged),
        _start(merged),
        _phases(merged, axes),
        _sum_dtype(merged),
    )


def _sum_dtype(func: PrimFunc) -> str:
    found = {s.buffer.dtype for s in walk(func.body) if isinstance(s, Reduce)}
    return max(sorted(found), key=lambda dtype: DTYPES[dtype].itemsize, default="")


def _phases(func: PrimFunc, axes: tuple[Var, ...]) -> tuple[int, ...]:
    found = [
        phase
        for site in sites(func.body)
        if isinstance(site.stmt, Reduce)
        for phase in congruences(site.domain.where)
    ]
    return tuple(max((s for about, s in found if v in about), default=1) for v in axes)


def _first_covers(func: PrimFunc) -> bool:
    """Whether the first stage has a perfect nest over all of the output."""
    first = next((stmt for stmt in func.body if isinstance(stmt, Block)), None)
    if first is None:
        return False
    (output,) = func.outputs
    return _covers(_nest_over(output, first)[0], output)


def _nest_over(output: Buffer, stage: Block) -> tuple[list[For], Body]:
    """The perfect nest of a stage, as many loops as the output has axes, and what is inside it."""
    nest: list[For] = []
    body = stage.body
    while len(body) == 1 and isinstance(body[0], For) and len(nest) < len(output.shape):
        nest.append(body[0])
        body = body[0].body
    return nest, body


def _covers(nest: Sequence[For], output: Buffer) -> bool:
    """Whether there is a loop for each axis of the output, and it runs over all of the axis."""
    sides = [(constant_value(loop.start), constant_value(loop.stop)) for loop in nest]
    return sides == [(0, extent) for extent in output.shape]


def _reductions(body: Body) -> tuple[tuple[tuple[Var, int], ...], ...] | None:
    """The loops of each statement that has some; None unless these stand next to each other, each a
    perfect nest around one update with constant bounds, all into one element by one operator."""
    looped = [place for place, stmt in enumerate(body) if any(True for _ in loops_of((stmt,)))]
    if looped and looped[-1] - looped[0] + 1 != len(looped):
        return None
    updates = [_only_update(body[place]) for place in looped]
    if any(found is None for found in updates):
        return None
    if len({(found.buffer, found.indices, found.op) for found in updates if found}) > 1:
        return None
    nests = [tuple(loops_of((body[place],))) for place in looped]
    if any(variables(e) for nest in nests for loop in nest for e in (loop.start, loop.stop)):
        return None  # the loops of a tile stand outside of those that the bounds would use
    return tuple(tuple((loop.var, loop.extent or 0) for loop in nest) for nest in nests)


def _only_update(stmt: Stmt) -> Reduce | None:
    inner: Body = (stmt,)
    while len(inner) == 1 and isinstance(inner[0], For | If):
        inner = inner[0].body if isinstance(inner[0], For) else inner[0].then
    return inner[0] if len(inner) == 1 and isinstance(inner[0], Reduce) else None


def _kept_to_element(func: PrimFunc, there: Sequence[Access]) -> bool:
    """Whether every intermediate is used at one element in each iteration of the output's loops.

    One that is allocated inside these loops is not: a tile has no element of it to keep.
    """
    for stmt in walk(func.body):
        if isinstance(stmt, Allocate):
            if stmt not in func.body:
                return False
            touched = {a.indices for a in there if a.buffer == stmt.buffer}
            if len(touched) > 1:
                return False
    return True


def _bare(func: PrimFunc) -> ReduceOp | None:
    found = [s for s in walk(func.body) if isinstance(s, Reduce)]
    inputs = set(func.inputs)
    if len(found) == 1 and isinstance(found[0].value, Load) and found[0].value.buffer in inputs:
        return found[0].op
    return None


def _factors(func: PrimFunc) -> frozenset[str]:
    found = [s for s in walk(func.body) if isinstance(s, Reduce)]
    if len(found) != 1 or found[0].op is not ReduceOp.ADD:
        return frozenset()
    value = found[0].value
    inputs = set(func.inputs)
    if isinstance(value, Binary) and value.op == "mul":
        sides = (value.left, value.right)
        if all(isinstance(side, Load) and side.buffer in inputs for side in sides):
            return frozenset(side.buffer.name for side in sides if isinstance(side, Load))
    return frozenset()


def _start(func: PrimFunc) -> Literal | str | None:
    found = [s.buffer for s in walk(func.body) if isinstance(s, Reduce)]
    starts = [s.value for s in walk(func.body) if isinstance(s, Store) and s.buffer in found]
    if len(found) != 1 or len(starts) != 1:
        return None
    (start,) = starts
    if isinstance(start, Load) and start.buffer in func.inputs:
        return start.buffer.name
    return start if isinstance(start, Literal) else None


def multiply_adds(func: PrimFunc) -> int:
    """Iterations of the reductions whose terms contain a product, those that meet an element.

    Of iterations under a condition `… % s == 0`, one in s is counted.
    """
    total = 0
    for site in sites(func.body):
        stmt = site.stmt
        if isinstance(stmt, Reduce) and any(
            isinstance(e, Binary) and e.op == "mul" for e in walk_expr(stmt.value)
        ):
            divisors = (divisor for _, divisor in congruences(site.domain.where))
            total += iterations(site.domain.axes) // prod(divisors)
    return total


def operations(func: PrimFunc) -> int:
    """Arithmetic operations of the whole kernel, each scalar operation counted once.

    A matched loop counts as one iteration, and its test and what it moves as one operation.
    """
    total = 0
    matched = matched_variables(func.body)
    for site in sites(func.body):
        value = getattr(site.stmt, "value", None)
        if value is not None:
            each = sum(1 for e in walk_expr(value) if not hasattr(e, "indices"))
            around = tuple(axis for axis in site.domain.axes if axis.var not in matched)
            tested = len(around) < len(site.domain.axes)
            total += (each + isinstance(site.stmt, Reduce) + tested) * iterations(around)
    return total


def iterations(axes: tuple[Axis, ...]) -> int:
    """The product of the extents of constant axes."""
    return prod(constant_value(axis.stop - axis.start) or 0 for axis in axes)
