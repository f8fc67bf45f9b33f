"""Abstract interpretation of kernels: which facts hold in each region of the outputs.

In: a compute definition over logical buffers, a layout for each parameter (row-major by default),
and the facts of the inputs' regions.  Out: for each output and each region of its layout, the fact
that holds there after the body has run, if its loops also run over the padding (overcompute).  What
always holds: a fact covers every value that a run over the region can store; NoAccess means that
the body must not run over the region, because it would read memory that must not be read.

Intermediate buffers have no layout: their value at an index is that of the stage that writes them.
Reductions run over their own, logical extents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from typing import TypeAlias

from msgspec import Struct, field

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.layout.evaluator import value_fact
from graphflow.layout.facts import Fact, NoAccess, Undefined, join
from graphflow.layout.index_map import physical_vars
from graphflow.layout.layout import Layout, row_major
from graphflow.layout.reductions import reduction_fact
from graphflow.layout.storage import GAP, LOGICAL, Region
from graphflow.layout.store_sites import StoreSite, writers_of

RegionFacts: TypeAlias = Mapping[tuple[str, str], Fact]
"""(parameter name, region name) → fact; a padding region without one is NoAccess."""


def output_facts(
    func: tir.PrimFunc, layouts: Mapping[str, Layout], facts: RegionFacts
) -> dict[tuple[str, str], Fact]:
    """(output name, region name) → the fact that the body leaves there.

    ScheduleError where a layout is not one of the parameter's shape.
    """
    placed = {
        p.buffer.name: layouts.get(p.buffer.name) or row_major(p.buffer.shape) for p in func.params
    }
    for param in func.params:
        logical = placed[param.buffer.name].logical_shape
        if logical != param.buffer.shape:
            raise ScheduleError(
                f"{func.name}: {param.buffer.name} has the logical shape "
                f"{list(param.buffer.shape)}, its layout is one of {list(logical)}"
            )
    if func.callee is not None:
        return {(b.name, LOGICAL): Undefined() for b in func.outputs}
    func = _apart(func, placed)
    return _facts(func, _KernelFacts(placed, facts, writers_of(func)))


def packed_facts(
    func: tir.PrimFunc, layouts: Mapping[str, Layout], facts: RegionFacts
) -> dict[tuple[str, str], Fact]:
    """`output_facts` for a kernel whose parameters have their layouts' physical shapes.

    The fact of a region is that of the values stored there; NoAccess where that is not known.
    """
    for param in func.params:
        box = layouts[param.buffer.name].physical_shape
        if box != param.buffer.shape:
            raise ScheduleError(
                f"{func.name}: {param.buffer.name} is {list(param.buffer.shape)}, the box of its "
                f"layout {list(box)}"
            )
    func = _apart(func, layouts)
    return _facts(func, _KernelFacts(layouts, facts, writers_of(func), packed=True))


def _apart(func: tir.PrimFunc, layouts: Mapping[str, Layout]) -> tir.PrimFunc:
    """`func` with loop variables renamed that have the name of a physical axis.

    Predicates of regions are stated over those names.
    """
    axes = {axis for layout in layouts.values() for axis in layout.physical_axes}
    clashing = [loop.var for loop in tir.loops_of(func.body) if loop.var in axes]
    if not clashing:
        return func
    renames = {var: arith.Var(f"{var}~") for var in clashing}
    values: dict[arith.Var, arith.IndexExpr] = dict(renames)

    def renamed(stmt: tir.Stmt) -> tir.Stmt:
        return (
            replace(stmt, var=renames.get(stmt.var, stmt.var))
            if isinstance(stmt, tir.For)
            else stmt
        )

    return replace(func, body=tir.map_body(tir.substitute_body(func.body, values), renamed))


def _facts(func: tir.PrimFunc, kernel: _KernelFacts) -> dict[tuple[str, str], Fact]:
    found: dict[tuple[str, str], Fact] = {}
    placed = kernel.layouts
    for buffer in func.outputs:
        for region in placed[buffer.name].regions():
            found[buffer.name, region.name] = _RegionQuery(kernel, buffer, region).fact()
    return found


class _KernelFacts(Struct, frozen=True):
    """The kernel under analysis, and the facts found so far about its intermediate buffers.

    `whole` has facts that hold for all elements of a buffer, `held` facts at some indices.  They
    are found in the order of the stages, so that the recursion depth does not grow with their
    number.
    """

    layouts: Mapping[str, Layout]
    facts: RegionFacts
    writers: Mapping[tir.Buffer, tuple[StoreSite, ...] | None]
    packed: bool = False
    whole: dict[tir.Buffer, Fact] = field(default_factory=dict)
    held: dict[tuple[tir.Buffer, tuple[arith.IndexExpr, ...], arith.Domain], Fact] = field(
        default_factory=dict
    )

    def logical(self, layout: Layout) -> tuple[arith.IndexExpr, ...]:
        """The indices by which the kernel accesses the place p0, p1 … of a parameter's box."""
        axes = layout.physical_axes
        return axes if self.packed else layout.logical_index(axes)

    def physical(
        self, layout: Layout, indices: tuple[arith.IndexExpr, ...]
    ) -> tuple[arith.IndexExpr, ...]:
        """The place in the box of the element that the kernel accesses by `indices`."""
        return indices if self.packed else layout.physical_index(indices)

    def intermediates(self) -> Iterator[tir.Buffer]:
        """The buffers that are not parameters, in the order in which they are first written."""
        return (buffer for buffer in self.writers if buffer.name not in self.layouts)


class _RegionQuery(Struct, frozen=True):
    """Finds the fact of one region of one output."""

    kernel: _KernelFacts
    output: tir.Buffer
    region: Region
    own_index: tuple[arith.IndexExpr, ...] = field(default=())

    def fact(self) -> Fact:
        writers = self.kernel.writers.get(self.output)
        if writers is None:
            return Undefined() if self.region.name == LOGICAL else NoAccess()
        if not writers:
            return Undefined()
        if self.region.name == LOGICAL:
            for buffer in self.kernel.intermediates():
                self.everywhere(buffer)
            fact = _joined(self.run(w, {}, w.domain) for w in writers)
            # An element that nobody writes is not known to hold what the others do.
            return fact if fact == Undefined() or self.reaches_all(writers) else Undefined()
        layout = self.kernel.layouts[self.output.name]
        index = self.kernel.logical(layout)
        inner = _RegionQuery(self.kernel, self.output, self.region, index)
        domain = self.region.domain()
        for buffer in self.kernel.intermediates():
            if buffer.shape == self.output.shape:
                inner.written(buffer, index, domain)
        return inner.stored(self.output, index, domain, final=True)

    def reaches_all(self, writers: Sequence[StoreSite]) -> bool:
        """Whether each element of the output is proven to be written."""
        if any(writer.fills(self.output.shape) for writer in writers):
            return True
        images = [arith.Image(writer.domain, writer.store.indices) for writer in writers]
        layout = self.kernel.layouts[self.output.name]
        axes = physical_vars(len(self.output.shape))
        region = layout.is_logical() if self.kernel.packed else arith.TRUE
        return arith.images_cover(images, region, axes, self.output.shape).proven

    def everywhere(self, buffer: tir.Buffer) -> None:
        """Record the fact of an intermediate buffer's elements, if one stage writes all of them."""
        writers = self.kernel.writers[buffer]
        if buffer in self.kernel.whole or not writers or len(writers) > 1:
            return
        (writer,) = writers
        if writer.fills(buffer.shape):
            self.kernel.whole[buffer] = self.run(writer, {}, writer.domain)

    def written(
        self, buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...], domain: arith.Domain
    ) -> Fact:
        """The fact of `buffer` at `indices`, over the points of `domain`; computed once."""
        key = buffer, indices, domain
        if key not in self.kernel.held:
            self.kernel.held[key] = self.stored(buffer, indices, domain)
        return self.kernel.held[key]

    def stored(
        self,
        buffer: tir.Buffer,
        indices: tuple[arith.IndexExpr, ...],
        domain: arith.Domain,
        final: bool = False,
    ) -> Fact:
        """Computes `written`; with `final`, what holds after the whole kernel."""
        writers = self.kernel.writers.get(buffer)
        if not writers:
            return NoAccess() if writers is None else Undefined()
        parts: list[Fact] = []
        reached: list[arith.Predicate] = []
        for number, writer in reversed(list(enumerate(writers))):
            place = writer.place(indices)
            if place is None:
                return NoAccess()
            values, condition = place
            # One writer of a definition may run on beyond its loops; several keep to their parts.
            if self.kernel.packed or len(writers) > 1 or writer.domain.where != arith.TRUE:
                condition = arith.conjunction((condition, writer.extent(values)))
            if _never(condition, domain):
                continue
            reached.append(condition)
            parts.append(self.run(writer, values, domain.given(condition)))
            apart = not any(writer.shares_loops(earlier) for earlier in writers[:number])
            if final and apart and arith.prove(condition, domain).proven:
                break  # this overwrites all that was there
        if not arith.prove(arith.disjunction(reached), domain).proven:
            return NoAccess()
        return _joined(parts)

    def run(
        self, writer: StoreSite, values: Mapping[arith.Var, arith.IndexExpr], domain: arith.Domain
    ) -> Fact:
        """The fact of what `writer` leaves, its loop variables replaced by `values`."""
        fact = self.value(writer.store.value, values, domain)
        for stmt, inner in writer.reductions:
            fact = self.reduced(stmt, fact, writer.domain, inner, values, domain)
        return fact

    def value(
        self, expr: tir.Expr, values: Mapping[arith.Var, arith.IndexExpr], domain: arith.Domain
    ) -> Fact:
        placed = _substituted(expr, values)

        def decide(predicate: arith.Predicate) -> bool | None:
            return arith.holds_throughout(predicate, domain)

        def load(node: tir.Load) -> Fact:
            return self.load(node, domain)

        return value_fact(placed, load, decide, domain.ranges())

    def reduced(
        self,
        stmt: tir.Reduce,
        start: Fact,
        outer: arith.Domain,
        inner: arith.Domain,
        values: Mapping[arith.Var, arith.IndexExpr],
        domain: arith.Domain,
    ) -> Fact:
        """`start ⊕= stmt.value` over the loops that `inner` has beyond `outer`."""
        axes = [
            arith.Axis(a.var, arith.substitute(a.start, values), arith.substitute(a.stop, values))
            for a in inner.axes[len(outer.axes) :]
        ]
        unguarded = arith.Domain((*domain.axes, *axes), domain.where)
        guard = arith.substitute_in(inner.where, values)
        if _never(guard, unguarded):
            return start
        points = unguarded.given(guard)
        counts = [_extent(axis, unguarded) for axis in axes]
        most = None if any(h is None for _, h in counts) else prod(h or 0 for _, h in counts)
        least = prod(low for low, _ in counts)
        if least and not arith.prove(guard, unguarded).proven:
            least = int(_always_runs(points, domain))
        return reduction_fact(
            stmt.op,
            start,
            _substituted(stmt.value, values),
            lambda node: self.load(node, points),
            lambda predicate: arith.holds_throughout(predicate, points),
            least,
            most,
        )

    def load(self, load: tir.Load, domain: arith.Domain) -> Fact:
        """The fact of what a load finds, over the points of `domain`."""
        layout = self.kernel.layouts.get(load.buffer.name)
        if self.region.name == LOGICAL and load.buffer in self.kernel.whole:
            return self.kernel.whole[load.buffer]
        if layout is None or load.buffer in self.kernel.writers:
            return self.written(load.buffer, load.indices, domain)
        same_index = bool(self.own_index) and load.indices == self.own_index
        if same_index and layout == self.kernel.layouts[self.output.name]:
            # The same place of the same box: also where no index leads there.
            return self.known(load.buffer.name, self.region.name)
        if self.region.name == GAP:
            return NoAccess()
        return self.found(load, layout, domain)

    def found(self, load: tir.Load, layout: Layout, domain: arith.Domain) -> Fact:
        """The join of the facts of all regions of the operand that the load may access."""
        ranges = domain.ranges()
        place = tuple(
            arith.simplify_index(e, ranges) for e in self.kernel.physical(layout, load.indices)
        )
        names = dict(zip(layout.physical_axes, place, strict=True))
        if not _in_box(place, layout.physical_shape, domain, ranges):
            return NoAccess()
        if not layout.is_padded:
            return self.known(load.buffer.name, LOGICAL)
        parts: list[Fact] = []
        for region in layout.regions():
            here = arith.substitute_in(region.predicate, names)
            if arith.prove(here, domain).proven:
                return self.known(load.buffer.name, region.name)
            if not _never(here, domain):
                parts.append(self.known(load.buffer.name, region.name))
        return _joined(parts)

    def known(self, name: str, region: str) -> Fact:
        missing = Undefined() if region == LOGICAL else NoAccess()
        return self.kernel.facts.get((name, region), missing)


def _in_box(
    place: tuple[arith.IndexExpr, ...],
    box: tuple[int, ...],
    domain: arith.Domain,
    ranges: arith.Ranges,
) -> bool:
    """Whether a place is proven to lie in a box, over the points of `domain`."""
    for index, extent in zip(place, box, strict=True):
        low, high = arith.bounds(index, ranges)
        inside = low is not None and high is not None and low >= 0 and high < extent
        if not inside and not arith.prove(arith.within(index, 0, extent), domain).proven:
            return False
    return True


def _joined(parts: Sequence[Fact] | Iterator[Fact]) -> Fact:
    facts = list(parts)
    return reduce(join, facts) if facts else Undefined()


def _never(predicate: arith.Predicate, domain: arith.Domain) -> bool:
    return arith.prove(arith.negation(predicate), domain).proven


def _always_runs(points: arith.Domain, domain: arith.Domain) -> bool:
    """Whether each point of `domain` has a point in `points`, which has more axes."""
    if any(_runs_at(points, domain, part) for part in (1, 0, 2)):
        return True
    names = [axis.var for axis in domain.axes]
    starts = [arith.constant_value(axis.start) for axis in domain.axes]
    stops = [arith.constant_value(axis.stop) for axis in domain.axes]
    shape = [stop for stop in stops if stop is not None]
    if any(starts) or None in starts or len(shape) != len(names):
        return False
    return arith.Image(points, tuple(names)).covers(domain.where, names, shape).proven


def _runs_at(points: arith.Domain, domain: arith.Domain, halves: int) -> bool:
    """Whether that is so with the further axes at their beginning, their middle or their end."""
    place: dict[arith.Var, arith.IndexExpr] = {}
    for axis in points.axes[len(domain.axes) :]:
        start, stop = arith.constant_value(axis.start), arith.constant_value(axis.stop)
        if start is None or stop is None or stop <= start:
            return False
        place[axis.var] = arith.as_index(start + (stop - 1 - start) * halves // 2)
    known = arith.conjuncts(domain.where)
    asked = arith.conjunction(c for c in arith.conjuncts(points.where) if c not in known)
    return (
        arith.simplify_predicate(arith.substitute_in(asked, place), domain.ranges()) == arith.TRUE
    )


def _extent(axis: arith.Axis, domain: arith.Domain) -> tuple[int, int | None]:
    """The fewest and the most iterations of a loop."""
    low, high = arith.bounds(axis.stop - axis.start, domain.ranges())
    return max(low or 0, 0), None if high is None else max(high, 0)


def _substituted(expr: tir.Expr, values: Mapping[arith.Var, arith.IndexExpr]) -> tir.Expr:
    if not values:
        return expr
    holder = tir.Store(tir.Buffer("value", (), expr.dtype), (), expr)
    (placed,) = tir.map_indices(
        (holder,), lambda e: arith.substitute(e, values), lambda p: arith.substitute_in(p, values)
    )
    assert isinstance(placed, tir.Store)
    return placed.value
