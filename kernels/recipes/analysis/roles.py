"""The roles that loops and parameters play in a kernel, derived from its access relations.

In: a compute definition.  Out: its `Roles`: which loops run over the axes of the output, which
reduce, and what is known of each input's accesses; None where the kernel is not one nest over the
axes of one output with reductions inside.

For example, a convolution with padding and a bias, whose two stages become one nest:

    for o, h, w:
        y[o, h, w] = 0
        for c, r, s:
            if 1 <= h + r < 9 and 1 <= w + s < 9:
                y[o, h, w] += x[c, h + r - 1, w + s - 1] * weight[o, c, r, s]
        z[o, h, w] = y[o, h, w] + bias[o]

has the axes o, h, w, one reduction nest (c, r, s), the factors x and weight, the first value 0 and
the epilogue (add, load).  The overhang of x is one element before and beyond its second and third
axis, which the condition keeps the reads from.

What always holds: the roles follow from indices alone, never from the name of an operator, so every
definition with the same access relations gets the same variants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from itertools import combinations
from math import prod

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.dtypes import BYTES, FLOATS, HALVES, SIGNED, UNSIGNED
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.cost import LONG
from graphflow.schedule import Refusal, Schedule, mult_loops, reverse_compute_at

SHARED_NAME = "kernel"
"""The name of a definition of which a kernel is made: calls of equal kernels share it."""

INTEGERS = frozenset((*SIGNED, *UNSIGNED))


class Roles(Struct, frozen=True, eq=False, dict=True):
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
    reduces_elements_by: tir.ReduceOp | None
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
    functions: tuple[str, ...] = ()
    """The functions, divisions and roots that are computed of each element, equal terms once."""
    roundings: int = 0
    """The bytes that are made of rounded floats for each element, equal terms once."""
    conditions: tuple[arith.Domain, ...] = ()
    """The loops of each reduction into the output, with the conditions on their indices."""

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

    def share_inside(self, apart: arith.Var | None) -> float:
        """The share of the terms of all reductions that are computed, as others lie in padding.

        Conditions on the variable `apart` do not count: its lanes compute all terms, under masks.
        """
        counts = [prod(extent for _, extent in nest) for nest in self.nests]
        shares = [_share(domain, apart) for domain in self.conditions]
        if len(shares) != len(counts) or not sum(counts):
            return 1.0
        return sum(n * x for n, x in zip(counts, shares, strict=True)) / sum(counts)

    @property
    def sums_integers(self) -> bool:
        """Whether products of integers are summed."""
        return bool(self.factors) and self.sum_dtype in INTEGERS

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
        merged = merged_stages(replace(definition, name=SHARED_NAME)).func
    except ScheduleError as error:
        return Refusal.of(error)
    return _roles_of_merged(merged)


@lru_cache(maxsize=256)
def merged_stages(definition: tir.PrimFunc) -> Schedule:
    """The schedule that joins the stages of a definition, as `merge_stages` does.

    Roles ask for it, and again the tiled kernels of the definition, which have `SHARED_NAME`.
    """
    return merge_stages(Schedule.of(definition))


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


def _roles_of_merged(func: tir.PrimFunc) -> Roles | None:
    """The roles of a kernel whose stages are merged; None where they are not one nest."""
    work = [stmt for stmt in func.body if not isinstance(stmt, tir.Allocate)]
    if len(work) != 1 or not isinstance(work[0], tir.Block) or len(work[0].body) != 1:
        return None
    (output,) = func.outputs
    nest, body = _nest_over(output, work[0])
    axes = tuple(loop.var for loop in nest)
    nests = _reductions(body)
    accesses = tir.accesses(func.body)
    if nests is None or not _kept_to_element(func, accesses) or not _covers(nest, output):
        return None
    if any(a.indices != axes for a in accesses if a.buffer == output):
        return None  # written in another order, or read where another iteration wrote it
    return Roles(
        output=output,
        params=func.params,
        axes=axes,
        extents=output.shape,
        nests=nests,
        reads={b.name: tuple(a for a in accesses if a.buffer == b) for b in func.inputs},
        multiply_adds=tir.multiply_add_count(func),
        reduces_elements_by=_reduces_elements_by(func),
        factors=_factors(func),
        start=_start(func),
        phases=_phases(func, axes),
        sum_dtype=_sum_dtype(func),
        epilogue=_epilogue(func),
        functions=_functions(func),
        roundings=_roundings(func),
        conditions=tuple(
            site.domain for site in tir.sites(func.body) if isinstance(site.stmt, tir.Reduce)
        ),
    )


def _reductions_in(func: tir.PrimFunc) -> list[tir.Reduce]:
    return [stmt for stmt in tir.walk(func.body) if isinstance(stmt, tir.Reduce)]


def _sum_dtype(func: tir.PrimFunc) -> str:
    """The widest element type that is reduced into; empty without a reduction."""
    dtypes = {stmt.buffer.dtype for stmt in _reductions_in(func)}
    return max(sorted(dtypes), key=lambda dtype: tir.DTYPES[dtype].itemsize, default="")


def _epilogue(func: tir.PrimFunc) -> tuple[str, ...]:
    """See `Roles.epilogue`; the first values of reductions are no part of it."""
    sums = {stmt.buffer for stmt in _reductions_in(func)}
    inputs = set(func.inputs)
    values = [
        e
        for s in tir.walk(func.body)
        if isinstance(s, tir.Store) and not (s.buffer in sums and _starts(s, sums))
        for e in tir.walk_expr(s.value)
    ]
    loads = ["load" for e in values if isinstance(e, tir.Load) and e.buffer in inputs]
    sums_and_products = ("add", "sub", "mul")
    operators = [e.op for e in values if isinstance(e, tir.Binary) and e.op in sums_and_products]
    return (*operators, *loads) if sums else ()


def _functions(func: tir.PrimFunc) -> tuple[str, ...]:
    """See `Roles.functions`."""
    operators = (e.op for e in _terms(func) if isinstance(e, tir.Unary | tir.Binary))
    return tuple(op for op in operators if op in LONG)


def _roundings(func: tir.PrimFunc) -> int:
    """See `Roles.roundings`."""
    narrowed = (e for e in _terms(func) if isinstance(e, tir.Cast) and e.dtype in BYTES)
    return sum(any(map(_is_rounding, tir.walk_expr(e))) for e in narrowed)


def _is_rounding(expr: tir.Expr) -> bool:
    return isinstance(expr, tir.Unary) and expr.op == "round"


def _terms(func: tir.PrimFunc) -> Iterable[tir.Expr]:
    """The terms of all values that a kernel stores, equal ones once."""
    stores = (s.value for s in tir.walk(func.body) if isinstance(s, tir.Store))
    return dict.fromkeys(e for value in stores for e in tir.walk_expr(value))


@lru_cache(maxsize=10_000)
def _share(domain: arith.Domain, apart: arith.Var | None) -> float:
    """The share of a domain's points that its conditions admit, of which those count that compare a
    linear expression of two loops, neither of them `apart`, as at a border of an image."""
    ranges = {axis.var: axis for axis in domain.axes}
    pairs: dict[frozenset[arith.Var], list[arith.IndexExpr]] = {}
    for condition in arith.conjuncts(domain.where):
        used = arith.predicate_variables(condition)
        if isinstance(condition, arith.AtLeastZero) and len(used) == 2 and apart not in used:
            pairs.setdefault(used, []).append(condition.expr)
    one_by_one = all(used.isdisjoint(other) for used, other in combinations(pairs, 2))
    shares = (_share_of_pair(used, exprs, ranges) for used, exprs in pairs.items())
    return prod(shares) if one_by_one else 1.0


def _share_of_pair(
    pair: frozenset[arith.Var],
    bounded: Sequence[arith.IndexExpr],
    ranges: Mapping[arith.Var, arith.Axis],
) -> float:
    """The share of the points of two loops at which no expression is negative; 1 where an
    expression is not linear, or a loop has no constant bounds."""
    extents = {
        v: (arith.constant_value(ranges[v].start), arith.constant_value(ranges[v].stop))
        for v in pair
        if v in ranges
    }
    known = {v: (a, b) for v, (a, b) in extents.items() if a is not None and b is not None}
    linear = [({**dict(terms)}, offset) for terms, offset in map(arith.terms_of, bounded)]
    if len(known) < 2 or any(set(terms) != pair for terms, _ in linear):
        return 1.0
    short, long = sorted(pair, key=lambda v: known[v][1] - known[v][0])
    held = 0
    for at in range(*known[short]):
        first, last = known[long][0], known[long][1] - 1
        for terms, offset in linear:
            k, rest = terms[long], terms[short] * at + offset
            first, last = (
                (max(first, -(rest // k)), last) if k > 0 else (first, min(last, rest // -k))
            )
        held += max(0, last - first + 1)
    points = prod(stop - start for start, stop in known.values())
    return held / points if points > 0 else 1.0


def _starts(store: tir.Store, sums: Set[tir.Buffer]) -> bool:
    """Whether a store to a sum is of its first value, which no sum is read for."""
    return not any(isinstance(e, tir.Load) and e.buffer in sums for e in tir.walk_expr(store.value))


def _phases(func: tir.PrimFunc, axes: tuple[arith.Var, ...]) -> tuple[int, ...]:
    """For each axis the largest divisor n of the conditions `… % n == 0` on it that guard a
    reduction."""
    congruences = [
        congruence
        for site in tir.sites(func.body)
        if isinstance(site.stmt, tir.Reduce)
        for congruence in arith.congruences(site.domain.where)
    ]
    return tuple(max((n for about, n in congruences if v in about), default=1) for v in axes)


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
    if None in updates or len({(u.buffer, u.indices, u.op) for u in updates if u}) > 1:
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


def _kept_to_element(func: tir.PrimFunc, accesses: Sequence[tir.Access]) -> bool:
    """Whether every iteration of the output's loops uses one element of each intermediate.

    False where an intermediate is allocated inside these loops: a tile keeps one element of each
    intermediate for each element of the output, and has no place for a whole buffer.
    """
    for stmt in tir.walk(func.body):
        if isinstance(stmt, tir.Allocate):
            if stmt not in func.body:
                return False
            touched = {a.indices for a in accesses if a.buffer == stmt.buffer}
            if len(touched) > 1:
                return False
    return True


def _reduces_elements_by(func: tir.PrimFunc) -> tir.ReduceOp | None:
    """See `Roles.reduces_elements_by`."""
    match _reductions_in(func):
        case [tir.Reduce(op=op, value=tir.Load(buffer=buffer))] if buffer in func.inputs:
            return op
        case _:
            return None


def _factors(func: tir.PrimFunc) -> frozenset[str]:
    """See `Roles.factors`; empty where the reduction is no sum of products."""
    updates = _reductions_in(func)
    factors = counted_factors(updates[0]) if len(updates) == 1 else None
    if factors is None or any(factor.buffer not in func.inputs for factor in factors):
        return frozenset()
    return frozenset(factor.buffer.name for factor in factors)


def summed_factors(stmt: tir.Stmt) -> tuple[tir.Load, tir.Load] | None:
    """The factors of the products that a statement sums; None where it sums none.

    Factors may be integers, or floats of 16 bits, that are widened to the type of the sum.
    """
    match stmt:
        case tir.Reduce(op=tir.ReduceOp.ADD, value=tir.Binary(op="mul", left=left, right=right)):
            factors = _factor(left), _factor(right)
            return None if factors[0] is None or factors[1] is None else (factors[0], factors[1])
        case _:
            return None


def counted_factors(stmt: tir.Stmt) -> tuple[tir.Load, tir.Load] | None:
    """`summed_factors`, also of products that are 0 from a count on."""
    match stmt:
        case tir.Reduce(
            value=tir.Select(
                tir.Comparison("lt", tir.IndexValue(), tir.Load(_, ())), value, tir.Literal(0)
            )
        ):
            return summed_factors(replace(stmt, value=value))
    return summed_factors(stmt)


def _factor(value: tir.Expr) -> tir.Load | None:
    """The element that is a factor, or that is widened to be one."""
    match value:
        case tir.Load():
            return value
        case tir.Cast(operand=tir.Load() as load, dtype=wide):
            integers = {load.dtype, wide} <= INTEGERS
            return load if integers or (load.dtype in HALVES and wide in FLOATS) else None
        case _:
            return None


def _start(func: tir.PrimFunc) -> tir.Literal | str | None:
    """See `Roles.start`; None where it is something else."""
    sums = [stmt.buffer for stmt in _reductions_in(func)]
    starts = [s.value for s in tir.walk(func.body) if isinstance(s, tir.Store) and s.buffer in sums]
    if len(sums) != 1 or len(starts) != 1:
        return None
    (start,) = starts
    if isinstance(start, tir.Load) and start.buffer in func.inputs:
        return start.buffer.name
    return start if isinstance(start, tir.Literal) else None


@lru_cache(maxsize=10_000)
def overhang(roles: Roles, name: str) -> tuple[tuple[int, int], ...]:
    """For each logical axis of an input, how far accesses reach before and beyond it.

    `x[h + r - 1]`, h below 8 and r below 3, reaches from -1 to 8: one element before and one beyond
    an axis of 8.  Conditions that keep reads from what lies outside do not count.
    """
    ranges = {v: (0, n - 1) for v, n in zip(roles.axes, roles.extents, strict=True)}
    ranges |= {v: (0, n - 1) for v, n in roles.reduction}
    reads = roles.reads[name]
    reach: list[tuple[int, int]] = []
    for axis, extent in enumerate(reads[0].buffer.shape if reads else ()):
        before = beyond = 0
        for access in reads:
            low, high = _bounds_met(roles, access.indices[axis], ranges)
            before = max(before, -(low or 0))
            beyond = max(beyond, (high or 0) - extent + 1)
        reach.append((before, beyond))
    return tuple(reach)


def meets_borders(roles: Roles, data: Iterable[tir.Access], axis: int) -> bool:
    """Whether windows along an axis of the output reach beyond the data."""
    return any(
        reach != (0, 0)
        for access in data
        for index, reach in zip(access.indices, overhang(roles, access.buffer.name), strict=True)
        if roles.axes[axis] in arith.variables(index)
    )


def _bounds_met(roles: Roles, index: arith.IndexExpr, ranges: arith.Ranges) -> arith.Interval:
    """The bounds of an index; of the quotient by the phases of an axis, where it leaves no rest.

    Of `(p - t) // 2`, p from 0 and t up to 1, the least quotient is 0: -1 is no multiple of 2.
    """
    of = max(
        (n for v, n in zip(roles.axes, roles.phases, strict=True) if v in arith.variables(index)),
        default=1,
    )
    if not isinstance(index, arith.FloorDiv) or index.divisor != of:
        return arith.bounds(index, ranges)
    low, high = arith.bounds(index.numerator, ranges)
    return None if low is None else -(-low // of), None if high is None else high // of
