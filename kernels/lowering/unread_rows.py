"""Elements of intermediates that a run does not read, and conditions around what computes them.

In: a lowered kernel with conditions on sizes around its outputs (`size_conditions`).  Out: the
kernel in which what only these statements read is computed under conditions on the sizes too:

    for t in serial(0, 16):               for t in serial(0, 16):
        s[t] = …                              if 4*t < size: s[t] = …
    for t in serial(0, 16):           →   for t in serial(0, 16):
        if 4*t < size: y[4*t] = s[t]          if 4*t < size: y[4*t] = s[t]

What always holds: an element of an intermediate has a row, an expression in its indices, which is
proven to be at most that of each condition under which it is read.  So where the row is at or
behind the size, no statement that runs reads the element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from graphflow import arith, tir
from graphflow.kernels.lowering.size_conditions import SizeConditions
from graphflow.kernels.lowering.sized_rows import Written
from graphflow.schedule import declared_names


def with_conditions_on_unread(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with conditions around what makes elements that a run does not read."""
    counts = {p.buffer for p in func.params if p.role is tir.Role.INPUT and p.buffer.shape == ()}
    if not any(_conditions(s.guards, counts) for s in tir.sites(func.body)):
        return func
    taken = {*declared_names(func.body), *(param.buffer.name for param in func.params)}
    held = [s for s in tir.sites(func.body) if isinstance(s.stmt, tir.Allocate)]
    for site in reversed(held):
        assert isinstance(site.stmt, tir.Allocate)
        rows = _rows_read(func, site.stmt.buffer, site.domain, counts)
        if rows:
            sizes = {row.size: row.count for row in rows}
            conditions = SizeConditions(rows, {site.stmt.buffer}, sizes, taken)
            known = tuple(arith.const(0) for _ in rows)
            func = replace(func, body=conditions.body(func.body, arith.ANYWHERE, known))
    return func


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The row of each element of an intermediate: it is read only where the row is below a count.

    `row` is the row of the element at `indices`.
    """

    buffer: tir.Buffer
    count: tir.Buffer
    indices: tuple[arith.Var, ...]
    row: arith.IndexExpr
    room: int

    @property
    def size(self) -> str:
        """The name of what counts the rows."""
        return self.count.name

    def at(self, indices: Sequence[arith.IndexExpr], domain: arith.Domain) -> arith.IndexExpr:
        """The row of an element that is accessed at the points of a domain."""
        named = dict(zip(self.indices, indices, strict=True))
        return arith.simplify_index(arith.substitute(self.row, named), domain.ranges())

    def written_by(
        self, body: tir.Body, domain: arith.Domain = arith.ANYWHERE
    ) -> tuple[Written, ...]:
        """The rows of the elements that statements write at the points of a domain."""
        return tuple(
            (site.domain, self.at(site.stmt.indices, site.domain))
            for site in tir.sites(body, domain)
            if isinstance(site.stmt, tir.Store | tir.Reduce) and site.stmt.buffer == self.buffer
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """A read of an intermediate, and for each count around it the rows that are below it."""

    load: tir.Load
    domain: arith.Domain
    below: Mapping[tir.Buffer, tuple[arith.IndexExpr, ...]]


def _conditions(
    guards: Sequence[tir.Expr], counts: set[tir.Buffer]
) -> dict[tir.Buffer, tuple[arith.IndexExpr, ...]]:
    """For each count the indices that conditions say to be below it."""
    found: dict[tir.Buffer, tuple[arith.IndexExpr, ...]] = {}
    for guard in guards:
        match guard:
            case tir.Comparison("lt", tir.IndexValue(index), tir.Load(held, ())) if held in counts:
                found[held] = (*found.get(held, ()), index)
    return found


def _reads(func: tir.PrimFunc, buffer: tir.Buffer, counts: set[tir.Buffer]) -> Iterator[_Read]:
    """All reads of a buffer, with the conditions around them."""
    for site in tir.sites(func.body):
        for load in _loads(site.stmt):
            if load.buffer == buffer:
                yield _Read(load, site.domain, _conditions(site.guards, counts))


def _loads(stmt: tir.Stmt) -> Iterator[tir.Load]:
    """What a statement reads itself, without the statements in it."""
    match stmt:
        case tir.If() if not tir.is_predicate(stmt.condition):
            yield from (e for e in tir.walk_expr(stmt.condition) if isinstance(e, tir.Load))
        case tir.Store() | tir.Reduce():
            yield from tir.loads_in((stmt,))


def _rows_read(
    func: tir.PrimFunc, buffer: tir.Buffer, around: arith.Domain, counts: set[tir.Buffer]
) -> list[ReadRows]:
    """The rows of an intermediate that is allocated at the points of a domain, one for each count
    that all of its reads are below."""
    if buffer.scope != "scratch" or not buffer.shape or _is_passed_on(func, buffer):
        return []
    reads = [*_reads(func, buffer, counts)]
    outside = {axis.var for axis in around.axes}
    found = []
    for held in reads[0].below if reads else ():
        for read in reads:
            for row in read.below.get(held, ()):
                rows = _rows_of(read, held, row, outside)
                if rows is not None and all(_covers(rows, other) for other in reads):
                    found.append(rows)
                    break
            else:
                continue
            break
    return found


def _is_passed_on(func: tir.PrimFunc, buffer: tir.Buffer) -> bool:
    """Whether statements access a buffer of which the reads are not known here."""
    return any(window.buffer == buffer for window in tir.windows_in(func.body))


def _rows_of(
    read: _Read, held: tir.Buffer, row: arith.IndexExpr, outside: set[arith.Var]
) -> ReadRows | None:
    """The row of a condition as an expression in the indices of what is read under it, and in
    variables outside of the buffer; None where it is none, or says nothing of the indices."""
    inner = [axis for axis in read.domain.axes if axis.var not in outside]
    sought = [axis.var for axis in inner if axis.var in arith.variables(row)]
    taken = {axis.var.name for axis in read.domain.axes}
    names = (name for k in count() if (name := f"index{k}") not in taken)
    places = tuple(arith.Var(next(names)) for _ in read.load.indices)
    digits: dict[arith.Var, arith.IndexExpr] = {}
    for var in sought:
        digit = _digit(var, read.load.indices, places, outside)
        if digit is None:
            return None
        digits[var] = digit
    if not digits:
        return None
    most = arith.bounds(row, read.domain.ranges())[1]
    return ReadRows(read.load.buffer, held, places, arith.substitute(row, digits), (most or 0) + 1)


def _digit(
    var: arith.Var,
    indices: Sequence[arith.IndexExpr],
    places: Sequence[arith.Var],
    outside: set[arith.Var],
) -> arith.IndexExpr | None:
    """A variable as a digit of an index that counts it: the index less what is the same for all
    reads, without larger digits, over the factor of the variable."""
    for index, place in zip(indices, places, strict=True):
        terms, constant = arith.terms_of(index)
        factors = {atom: factor for atom, factor in terms if arith.variables(atom) - outside}
        if var not in factors or factors[var] < 1:
            continue
        shared = arith.linear([term for term in terms if term[0] not in factors], constant)
        number = place - shared
        larger = [factor for factor in factors.values() if factor > factors[var]]
        if larger:
            number = arith.floor_mod(number, min(larger))
        return arith.floor_div(number, factors[var])
    return None


def _covers(rows: ReadRows, read: _Read) -> bool:
    """Whether it is proven that the element of a read is in a row that is below the count."""
    row = rows.at(read.load.indices, read.domain)
    return any(
        arith.prove(arith.at_most(row, below), read.domain).proven
        for below in read.below.get(rows.count, ())
    )
