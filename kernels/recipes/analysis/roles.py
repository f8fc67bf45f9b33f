"""The roles that loops and parameters play in a kernel, derived from its access relations.

In: a compute definition.  Out: its `Roles`: which loops run over the axes of the output, which
reduce, and what is known of each input's accesses; None where the kernel is not one nest over the
axes of one output with reductions inside.  Also counts of its operations.

What always holds: the roles follow from indices alone, never from the name of an operator, so every
definition with the same access relations gets the same variants.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule import Refusal, Schedule, mult_loops, reverse_compute_at


@dataclass(frozen=True, eq=False)
class Roles:
    """A kernel as one nest over the axes of its output, with reductions inside.

    `axes` are the loop variables of the output's axes, `extents` their extents; `nests` the loops,
    with their extents, of each reduction into the output; `reads` the accesses of each input.
    There is one object for each definition (`roles_of`), so caches compare roles by identity.
    """

    output: tir.Buffer
    params: tuple[tir.Param, ...]
    axes: tuple[arith.Var, ...]
    extents: tuple[int, ...]
    nests: tuple[tuple[tuple[arith.Var, int], ...], ...]
    reads: dict[str, tuple[tir.Access, ...]]
    multiply_adds: int
    bare: tir.ReduceOp | None
    """The operator of the only reduction, where its terms are elements of an input; else None."""
    factors: frozenset[str]
    """The inputs of the only reduction, where it sums products of two of their elements."""
    start: tir.Literal | str | None
    """The first value of the only reduction: a number, or an element of the input of this name."""
    phases: tuple[int, ...] = ()
    """For each output axis the number n of its phases: a position meets every n-th tap only, and
    the first n positions start at different taps (a transposed convolution of stride n).  1 where
    every position meets every tap."""
    sum_dtype: str = ""
    """The widest element type that is reduced into; empty where nothing is."""
    epilogue: tuple[str, ...] = ()
    """The operations on each element after its reductions that differ between definitions of a
    kernel: sums, differences, products, and loads of inputs."""

    @cached_property
    def inputs(self) -> tuple[tir.Buffer, ...]:
        """The parameters that the kernel reads."""
        return tuple(p.buffer for p in self.params if p.role is tir.Role.INPUT)

    @cached_property
    def reduction(self) -> tuple[tuple[arith.Var, int], ...]:
        """The loops of all reductions."""
        return tuple(loop for nest in self.nests for loop in nest)

    @cached_property
    def steps(self) -> int:
        """The number of terms reduced into one element of the output, rounded up."""
        terms = sum(prod(extent for _, extent in nest) for nest in self.nests)
        return -(-terms // prod(self.phases))

    @cached_property
    def reduces_alone(self) -> bool:
        """Whether there is one reduction, over axes that no loop of the output runs along.

        False for windows, which slide along an axis of the output, and for sums of products of two
        inputs.
        """
        if len(self.nests) != 1 or len(self.factors) > 1:
            return False
        reduced, axes = {v for v, _ in self.reduction}, set(self.axes)
        indices = (e for reads in self.reads.values() for a in reads for e in a.indices)
        return bool(reduced) and not any(
            {*arith.variables(e)} & reduced and {*arith.variables(e)} & axes for e in indices
        )

    def nest_of(self, access: tir.Access) -> tuple[tuple[arith.Var, int], ...]:
        """The loops of the reduction that an access is in; empty for an access outside them."""
        used = {v for e in access.indices for v in arith.variables(e)}
        return next((nest for nest in self.nests if any(v in used for v, _ in nest)), ())

    def depends_on(self, name: str, axis: int) -> bool:
        """Whether any access to the input `name` uses the variable of the output `axis`."""
        var = self.axes[axis]
        return any(var in arith.variables(e) for a in self.reads[name] for e in a.indices)


def roles_of(definition: tir.PrimFunc) -> Roles | None:
    """The roles of a definition; None where it is not one nest over the axes of one output."""
    found = _roles_or_refusal(definition)
    return found if isinstance(found, Roles) else None


def refused_roles(definition: tir.PrimFunc) -> Refusal | None:
    """The refusal of a step that joins the stages of a definition to one nest, or None."""
    found = _roles_or_refusal(definition)
    return found if isinstance(found, Refusal) else None


@lru_cache(maxsize=4096)
def _roles_or_refusal(definition: tir.PrimFunc) -> Roles | Refusal | None:
    if len(definition.outputs) != 1 or definition.callee is not None:
        return None
    if tir.matched_variables(definition.body):
        return None  # a tile would run all iterations of a matched loop
    schedule = join_axes(Schedule.of(definition))
    if not _first_covers(schedule.func):
        return None  # merging keeps the loops of the first stage
    try:
        merged = merge_stages(schedule).func
    except ScheduleError as error:
        return Refusal.of(error)
    work = [stmt for stmt in merged.body if not isinstance(stmt, tir.Allocate)]
    if len(work) != 1 or not isinstance(work[0], tir.Block) or len(work[0].body) != 1:
        return None
    output = merged.outputs[0]
    nest, body = _nest_over(output, work[0])
    axes = tuple(loop.var for loop in nest)
    nests = _reductions(body)
    there = tir.accesses(merged.body)
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
        _epilogue(merged),
    )


def _sum_dtype(func: tir.PrimFunc) -> str:
    """The widest element type that is reduced into; empty without a reduction."""
    found = {s.buffer.dtype for s in tir.walk(func.body) if isinstance(s, tir.Reduce)}
    return max(sorted(found), key=lambda dtype: tir.DTYPES[dtype].itemsize, default="")


def _epilogue(func: tir.PrimFunc) -> tuple[str, ...]:
    """See `Roles.epilogue`; the first values of reductions are no part of it."""
    sums = {s.buffer for s in tir.walk(func.body) if isinstance(s, tir.Reduce)}
    inputs = set(func.inputs)
    values = [
        e
        for s in tir.walk(func.body)
        if isinstance(s, tir.Store) and not (s.buffer in sums and _starts(s, sums))
        for e in tir.walk_expr(s.value)
    ]
    loads = ["load" for e in values if isinstance(e, tir.Load) and e.buffer in inputs]
    found = [e.op for e in values if isinstance(e, tir.Binary) and e.op in ("add", "sub", "mul")]
    return (*found, *loads) if sums else ()


def _starts(store: tir.Store, sums: Set[tir.Buffer]) -> bool:
    """Whether a store to a sum is of its first value, which no sum is read for."""
    return not any(isinstance(e, tir.Load) and e.buffer in sums for e in tir.walk_expr(store.value))


def _phases(func: tir.PrimFunc, axes: tuple[arith.Var, ...]) -> tuple[int, ...]:
    """For each axis the largest divisor n of the conditions `… % n == 0` on it that guard a
    reduction."""
    found = [
        phase
        for site in tir.sites(func.body)
        if isinstance(site.stmt, tir.Reduce)
        for phase in arith.congruences(site.domain.where)
    ]
    return tuple(max((s for about, s in found if v in about), default=1) for v in axes)


def _first_covers(func: tir.PrimFunc) -> bool:
    """Whether the first stage is a perfect nest over all of the output."""
    first = next((stmt for stmt in func.body if isinstance(stmt, tir.Block)), None)
    if first is None:
        return False
    (output,) = func.outputs
    return _covers(_nest_over(output, first)[0], output)


def _nest_over(output: tir.Buffer, stage: tir.Block) -> tuple[list[tir.For], tir.Body]:
    """The outer loops of a stage, one for each axis of the output, and the body inside them.

    Fewer where the loops of its perfect nest are fewer.
    """
    nest: list[tir.For] = []
    body = stage.body
    while len(body) == 1 and isinstance(body[0], tir.For) and len(nest) < len(output.shape):
        nest.append(body[0])
        body = body[0].body
    return nest, body


def _covers(nest: Sequence[tir.For], output: tir.Buffer) -> bool:
    """Whether there is one loop for each axis of the output, and it runs over the whole axis."""
    sides = [(arith.constant_value(loop.start), arith.constant_value(loop.stop)) for loop in nest]
    return sides == [(0, extent) for extent in output.shape]


def _reductions(body: tir.Body) -> tuple[tuple[tuple[arith.Var, int], ...], ...] | None:
    """The loops of each reduction in the body of the output's nest.

    None unless the statements with loops stand next to each other, each of them a perfect nest with
    constant bounds around one update, all into the same element by the same operator.
    """
    looped = [place for place, stmt in enumerate(body) if any(True for _ in tir.loops_of((stmt,)))]
    if looped and looped[-1] - looped[0] + 1 != len(looped):
        return None
    updates = [_only_update(body[place]) for place in looped]
    if any(found is None for found in updates):
        return None
    if len({(found.buffer, found.indices, found.op) for found in updates if found}) > 1:
        return None
    nests = [tuple(tir.loops_of((body[place],))) for place in looped]
    if any(arith.variables(e) for nest in nests for loop in nest for e in (loop.start, loop.stop)):
        return None  # the loops of a tile stand outside of those that the bounds would use
    return tuple(tuple((loop.var, loop.extent or 0) for loop in nest) for nest in nests)


def _only_update(stmt: tir.Stmt) -> tir.Reduce | None:
    """The update inside a perfect nest of loops and conditions; None if there is more in it."""
    inner: tir.Body = (stmt,)
    while len(inner) == 1 and isinstance(inner[0], tir.For | tir.If):
        inner = inner[0].body if isinstance(inner[0], tir.For) else inner[0].then
    return inner[0] if len(inner) == 1 and isinstance(inner[0], tir.Reduce) else None


def _kept_to_element(func: tir.PrimFunc, there: Sequence[tir.Access]) -> bool:
    """Whether every iteration of the output's loops uses one element of each intermediate.

    False where an intermediate is allocated inside these loops: a tile keeps one element of each
    intermediate for each element of the output, and has no place for a whole buffer.
    """
    for stmt in tir.walk(func.body):
        if isinstance(stmt, tir.Allocate):
            if stmt not in func.body:
                return False
            touched = {a.indices for a in there if a.buffer == stmt.buffer}
            if len(touched) > 1:
                return False
    return True


def _bare(func: tir.PrimFunc) -> tir.ReduceOp | None:
    """See `Roles.bare`."""
    found = [s for s in tir.walk(func.body) if isinstance(s, tir.Reduce)]
    inputs = set(func.inputs)
    if len(found) == 1 and isinstance(found[0].value, tir.Load) and found[0].value.buffer in inputs:
        return found[0].op
    return None


def _factors(func: tir.PrimFunc) -> frozenset[str]:
    """See `Roles.factors`; empty where the reduction is no sum of products."""
    found = [s for s in tir.walk(func.body) if isinstance(s, tir.Reduce)]
    if len(found) != 1 or found[0].op is not tir.ReduceOp.ADD:
        return frozenset()
    value = found[0].value
    inputs = set(func.inputs)
    if isinstance(value, tir.Binary) and value.op == "mul":
        sides = (value.left, value.right)
        if all(isinstance(side, tir.Load) and side.buffer in inputs for side in sides):
            return frozenset(side.buffer.name for side in sides if isinstance(side, tir.Load))
    return frozenset()


def _start(func: tir.PrimFunc) -> tir.Literal | str | None:
    """See `Roles.start`; None where it is something else."""
    found = [s.buffer for s in tir.walk(func.body) if isinstance(s, tir.Reduce)]
    starts = [
        s.value for s in tir.walk(func.body) if isinstance(s, tir.Store) and s.buffer in found
    ]
    if len(found) != 1 or len(starts) != 1:
        return None
    (start,) = starts
    if isinstance(start, tir.Load) and start.buffer in func.inputs:
        return start.buffer.name
    return start if isinstance(start, tir.Literal) else None


def multiply_adds(func: tir.PrimFunc) -> int:
    """The number of multiply-adds: iterations of the reductions whose terms contain a product.

    Under a condition `… % s == 0` one iteration in s is counted; other conditions are not looked
    at, so taps in the padding count.
    """
    total = 0
    for site in tir.sites(func.body):
        stmt = site.stmt
        if isinstance(stmt, tir.Reduce) and any(
            isinstance(e, tir.Binary) and e.op == "mul" for e in tir.walk_expr(stmt.value)
        ):
            divisors = (divisor for _, divisor in arith.congruences(site.domain.where))
            total += iterations(site.domain.axes) // prod(divisors)
    return total


def operations(func: tir.PrimFunc) -> int:
    """The number of scalar operations of one run of the kernel.

    Literals count like operations, loads do not.  A matched loop counts as one iteration, and its
    test as one operation.
    """
    total = 0
    matched = tir.matched_variables(func.body)
    for site in tir.sites(func.body):
        value = getattr(site.stmt, "value", None)
        if value is not None:
            each = sum(1 for e in tir.walk_expr(value) if not hasattr(e, "indices"))
            around = tuple(axis for axis in site.domain.axes if axis.var not in matched)
            tested = len(around) < len(site.domain.axes)
            total += (each + isinstance(site.stmt, tir.Reduce) + tested) * iterations(around)
    return total


def iterations(axes: tuple[arith.Axis, ...]) -> int:
    """The product of the extents of the axes; 0 where an extent is not constant."""
    return prod(arith.constant_value(axis.stop - axis.start) or 0 for axis in axes)


def merge_stages(s: Schedule) -> Schedule:
    """`A: nest of S1; B: nest of S2; …` → `A: nest of {S1; S2; …}`.

    StepRefused where a later stage reads of an earlier one another element than its own.
    """
    s = join_axes(s)
    blocks = s.handles(stmt for stmt in s.func.body if isinstance(stmt, tir.Block))
    for block in blocks[1:]:
        s = s.apply(reverse_compute_at, s[block], s[blocks[0]])
    return s


def join_axes(s: Schedule) -> Schedule:
    """`for i: for j in (0, k): b[k·i + j] = …` → `for c: b[c] = …`, for each such stored axis.

    The definition of a grouped convolution has such loops, over groups and over the channels in
    one; the recipes work with one loop for each axis of the output.
    """
    pair = _two_of_one_axis(s.func)
    if pair is None:
        return s
    outer, inner = s.handles(pair)
    return join_axes(s.apply(mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner)))


def _two_of_one_axis(func: tir.PrimFunc) -> tuple[tir.For, tir.For] | None:
    """The first loop, and the loop that is its body, that run along one stored axis together."""
    for access in tir.accesses(func.body):
        if access.kind is not tir.AccessKind.WRITE:
            continue
        for index in access.indices:
            terms, offset = arith.terms_of(index)
            if len(terms) != 2 or offset or terms[1][1] != 1:
                continue
            loops = {stmt.var: stmt for stmt in tir.loops_of(func.body)}
            outer, inner = (loops.get(atom) for atom, _ in terms)  # type: ignore[call-overload]
            if outer is None or inner is None or inner.extent != terms[0][1]:
                continue
            if outer.body == (inner,):
                return outer, inner
    return None


@lru_cache(maxsize=10_000)
def overhang(roles: Roles, name: str) -> tuple[tuple[int, int], ...]:
    """For each logical axis of an input, how far accesses reach before and beyond it."""
    ranges = {v: (0, n - 1) for v, n in zip(roles.axes, roles.extents, strict=True)}
    ranges |= {v: (0, n - 1) for v, n in roles.reduction}
    reads = roles.reads[name]
    reach: list[tuple[int, int]] = []
    for axis, extent in enumerate(reads[0].buffer.shape if reads else ()):
        before = after = 0
        for access in reads:
            low, high = arith.bounds(access.indices[axis], ranges)
            before = max(before, -(low or 0))
            after = max(after, (high or 0) - extent + 1)
        reach.append((before, after))
    return tuple(reach)
