"""Elements of intermediates that a run does not read, and conditions around what computes them.

In: a lowered kernel with conditions on sizes around its outputs (`size_conditions`).  Out: the
kernel in which what only these statements read is computed under conditions on the sizes too:

    for t in serial(0, 16):               for t in serial(0, 16):
        s[t] = …                              if 4*t < size: s[t] = …
    for t in serial(0, 16):           →   for t in serial(0, 16):
        if 4*t < size: y[4*t] = s[t]          if 4*t < size: y[4*t] = s[t]

A scalar input that says how much of an axis a run uses, `size` above, is a count.  A read under a
condition `row < count`, where the row is an expression in the loops, is a read below this count:
s[t] is read in row 4*t below `size`.

What always holds: an element of an intermediate has a row, an expression in its indices (here 4
times the index), which is proven to be at most that of each condition under which the element is
read.  So where the row of an element is not below the count, no statement that runs reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, product
from types import MappingProxyType
from typing import cast

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.lowering.size_conditions import SizeConditions
from graphflow.kernels.lowering.sized_rows import BoxAxis, Written, index_along
from graphflow.schedule import names_of_places


def with_conditions_on_unread(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with conditions around what computes elements that a run does not read."""
    counts = {p.buffer for p in func.params if p.role is tir.Role.INPUT and p.buffer.shape == ()}
    if not any(read.below for read in _reads(func.body, arith.ANYWHERE, counts, {})):
        return func
    taken = {*names_of_places(func)}
    waiting = [
        (site.stmt.buffer, site.domain)
        for site in reversed([*tir.sites(func.body)])
        if isinstance(site.stmt, tir.Allocate) and _has_known_reads(func, site.stmt.buffer)
    ]
    while waiting:
        # What is read by a stage with conditions gets its own: readers come before writers.
        reads: dict[tir.Buffer, list[_CountedRead]] = {}
        for read in _reads(func.body, arith.ANYWHERE, counts, {}):
            reads.setdefault(read.load.buffer, []).append(read)
        found = ((held, _rows_read(reads.get(held[0], []), held[1])) for held in waiting)
        held, rows = next(((held, rows) for held, rows in found if rows), (None, []))
        if held is None:
            break
        waiting.remove(held)
        sizes = {row.size: row.count for row in rows}
        conditions = SizeConditions(rows, {held[0]}, sizes, taken)
        known = tuple(arith.const(0) for _ in rows)
        func = replace(func, body=conditions.body(func.body, arith.ANYWHERE, known))
    return func


def reads_below(func: tir.PrimFunc, place: BoxAxis, count: tir.Buffer) -> bool:
    """Whether it is proven that a lowered kernel reads an input only below a count, another input.

    `place` says how the row of an element follows from its indices.  Each read must be under a
    condition `row < count` of this row or of a later one.
    """
    if any(isinstance(stmt, tir.Let | tir.NamedWindow) for stmt in tir.walk(func.body)):
        return False
    buffer = func.param(place.param)
    return all(
        any(
            arith.prove(arith.at_most(row, below), read.domain).proven
            for below in read.below.get(count, ())
        )
        for read in _reads(func.body, arith.ANYWHERE, {count}, {})
        if read.load.buffer == buffer
        for row in (index_along(place, buffer, read.load.indices),)
    )


class ReadRows(Struct, frozen=True):
    """The row of each element of an intermediate, all reads of which are below a count.

    `row` is that of the element at `indices`, such as `4*index0` of `s[index0]`; `room` is how many
    rows there are if the count is the greatest.
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


class _CountedRead(Struct, frozen=True):
    """A read, and the conditions around it: for each count, the rows that are below it there.

    Under `if 4*t < size: if u < size:` these are 4*t and u for `size`.
    """

    load: tir.Load
    domain: arith.Domain
    below: Mapping[tir.Buffer, tuple[arith.IndexExpr, ...]]


def _reads(
    body: tir.Body,
    domain: arith.Domain,
    counts: Collection[tir.Buffer],
    below: Mapping[tir.Buffer, tuple[arith.IndexExpr, ...]],
) -> Iterator[_CountedRead]:
    """All reads of a body that runs at the points of a domain, where the rows in `below` are below
    `counts`."""
    for counted in counted_statements(body, domain, counts, below):
        for load in _loads(counted.stmt):
            yield _CountedRead(load, counted.domain, counted.below)


class CountedStatement(Struct, frozen=True):
    """A statement, where it runs, and for each count the rows that are below it there."""

    stmt: tir.Stmt
    domain: arith.Domain
    below: Mapping[tir.Buffer, tuple[arith.IndexExpr, ...]]


def counted_statements(
    body: tir.Body,
    domain: arith.Domain,
    counts: Collection[tir.Buffer],
    below: Mapping[tir.Buffer, tuple[arith.IndexExpr, ...]] = MappingProxyType({}),
) -> Iterator[CountedStatement]:
    """All statements of a body that runs at the points of a domain, where the rows in `below` are
    below `counts`."""
    for stmt in body:
        yield CountedStatement(stmt, domain, below)
        match stmt:
            case tir.For():
                inner = domain.inside(stmt.var, stmt.start, stmt.stop)
                yield from counted_statements(stmt.body, inner, counts, below)
            case tir.Block():
                yield from counted_statements(stmt.body, domain, counts, below)
            case tir.If() if tir.is_predicate(stmt.condition):
                condition = cast(arith.Predicate, stmt.condition)
                yield from counted_statements(stmt.then, domain.given(condition), counts, below)
                other = domain.given(arith.negation(condition))
                yield from counted_statements(stmt.orelse, other, counts, below)
            case tir.If():
                also = _also(below, stmt.condition, counts)
                yield from counted_statements(stmt.then, domain, counts, also)
                yield from counted_statements(stmt.orelse, domain, counts, below)
            case tir.Call():
                yield from counted_statements(tir.performed(stmt), domain, counts, below)


def _also(
    below: Mapping[tir.Buffer, tuple[arith.IndexExpr, ...]],
    condition: tir.Condition,
    counts: Collection[tir.Buffer],
) -> Mapping[tir.Buffer, tuple[arith.IndexExpr, ...]]:
    """`below` with the row of a condition `row < count` too; as it is for other conditions."""
    match condition:
        case tir.Comparison("lt", tir.IndexValue(row), tir.Load(held, ())) if held in counts:
            return {**below, held: (*below.get(held, ()), row)}
        case _:
            return below


def _loads(stmt: tir.Stmt) -> Iterator[tir.Load]:
    """What a statement reads itself, without the statements in it."""
    match stmt:
        case tir.If() if not tir.is_predicate(stmt.condition):
            condition = cast(tir.Expr, stmt.condition)
            yield from (e for e in tir.walk_expr(condition) if isinstance(e, tir.Load))
        case tir.Store() | tir.Reduce():
            yield from tir.loads_in((stmt,))


def _rows_read(reads: Sequence[_CountedRead], around: arith.Domain) -> list[ReadRows]:
    """The rows of an intermediate that is allocated at the points of a domain, one for each count
    that all of its reads are below."""
    outside = {axis.var for axis in around.axes}
    found = []
    for held in reads[0].below if reads else ():
        choices = (
            rows
            for read in reads
            for row in read.below.get(held, ())
            for rows in _rows_of(read, held, row, outside)
        )
        covering = (rows for rows in choices if all(_covers(rows, read) for read in reads))
        if (rows := next(covering, None)) is not None:
            found.append(rows)
    return found


def _has_known_reads(func: tir.PrimFunc, buffer: tir.Buffer) -> bool:
    """Whether a buffer is memory of an iteration that only loads, stores and calls that read it
    access."""
    if buffer.scope != "scratch" or not buffer.shape:
        return False
    others = tir.Let | tir.NamedWindow | tir.Assume
    statements = [*tir.walk(func.body)]
    if any(isinstance(stmt, others) for stmt in statements):
        return False
    return all(
        param.role is tir.Role.INPUT
        for call in statements
        if isinstance(call, tir.Call)
        for param, window in zip(call.definition.params, call.windows, strict=True)
        if window.buffer == buffer
    )


def _rows_of(
    read: _CountedRead, held: tir.Buffer, row: arith.IndexExpr, outside: set[arith.Var]
) -> Iterator[ReadRows]:
    """The row of a condition around a read, as an expression in the indices of the element that is
    read, and in the variables outside of the buffer's allocation.

    For `if 4*t < size: … = s[t]` the row of `s[index0]` is `4*index0`: each loop in the row is
    replaced by the digit of an index that counts it (`_digits`).  There may be several choices,
    the finest first, by which most elements have a row of their own; none where the row has no loop
    inside the allocation.
    """
    taken = {axis.var.name for axis in read.domain.axes}
    names = (name for k in count() if (name := f"index{k}") not in taken)
    places = tuple(arith.Var(next(names)) for _ in read.load.indices)
    from_start: dict[arith.Var, arith.IndexExpr] = {}
    for axis in read.domain.axes:
        if axis.var not in outside:  # counted from the start of its loop, which may be outside
            from_start[axis.var] = axis.var + arith.substitute(axis.start, from_start)
    indices = tuple(arith.substitute(index, from_start) for index in read.load.indices)
    terms, constant = arith.terms_of(arith.substitute(row, from_start))
    sought = [(atom, step) for atom, step in terms if arith.variables(atom) - outside]
    rest = arith.linear([term for term in terms if term not in sought], constant)
    most = arith.bounds(row, read.domain.ranges())[1]
    choices = (_digits(atom, step, indices, places, outside) for atom, step in sought)
    for digits in product(*choices) if sought else ():
        of_element = arith.linear([(digit, 1) for digit in digits]) + rest
        yield ReadRows(read.load.buffer, held, places, of_element, (most or 0) + 1)


def _digits(
    atom: arith.IndexExpr,
    step: int,
    indices: Sequence[arith.IndexExpr],
    places: Sequence[arith.Var],
    outside: set[arith.Var],
) -> Iterator[arith.IndexExpr]:
    """`step` times a variable `atom`, as a digit of an index in which it is a digit.

    For `s[32*u + 4*t + i]` the loop t is the digit `(index0 mod 32) // 4`: the index less what is
    the same for all reads, without larger digits, over the factor of the variable.

    Ahead of it come finer rows: where the factor is k times that of the next smaller digit, here 4
    for i, each of its values may have a k-th of a step, as tiles in a register tile have, or some
    of them together.
    """
    for index, place in zip(indices, places, strict=True):
        terms, constant = arith.terms_of(index)
        factors = {inner: factor for inner, factor in terms if arith.variables(inner) - outside}
        factor = factors.get(atom, 0)
        if factor < 1:
            continue
        shared = arith.linear([term for term in terms if term[0] not in factors], constant)
        number = place - shared
        if larger := [other for other in factors.values() if other > factor]:
            number = arith.floor_mod(number, min(larger))
        unit = max((other for other in factors.values() if 0 < other < factor), default=factor)
        values = factor // unit if factor % unit == 0 else 1
        for pieces in range(1, values + 1):
            if values % pieces == 0 and step * pieces % values == 0:
                piece = factor * pieces // values
                yield arith.floor_div(number, piece) * (step * pieces // values)
        return


def _covers(rows: ReadRows, read: _CountedRead) -> bool:
    """Whether it is proven that the element of a read is in a row that is below the count."""
    row = rows.at(read.load.indices, read.domain)
    return any(
        arith.prove(arith.at_most(row, below), read.domain).proven
        for below in read.below.get(rows.count, ())
    )
