"""Inputs of a kernel of which is known what stands behind the elements that a run gives.

In: the definition that makes a tensor, and for a lowered kernel the axes of its inputs that are
filled behind a size (`FilledAxis`).  Out: the axes that the definition fills, and the kernel with
conditions in the loops that reduce over such axes:

    for k in serial(0, 64):                      for k in serial(0, 64):
        y[i] += a[i, k] * b[k]       →               if k < size: y[i] += a[i, k] * b[k]

What always holds: an iteration that does not run would have reduced neutral elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.lowering.count_masks import count_masks
from graphflow.kernels.lowering.size_conditions import SizeParam
from graphflow.kernels.lowering.sized_rows import BoxAxis, at_starts, index_along, plain_axes
from graphflow.layout import Layout
from graphflow.schedule import fresh_name, names_of_places


class FilledAxis(Struct, frozen=True):
    """An axis of an input with `room` elements: those from number `size` on are `fill`."""

    size: str
    room: int
    fill: float
    place: BoxAxis


Fills = Mapping[int, tuple[str, float]]
"""For axes of a tensor what counts the elements in front, and what stands behind these."""


def fills_of(definition: tir.PrimFunc) -> Fills:
    """The axes of the output that a definition fills, with the parameters that count."""
    if len(definition.outputs) != 1:
        return {}
    counts = {b: b.name for b in definition.inputs if b.shape == () and b.dtype == "int64"}
    writes = [w for w in tir.writes_in(definition.body) if w.buffer == definition.outputs[0]]
    if not counts or not writes:
        return {}
    common: dict[int, tuple[str, float]] | None = None
    for write in writes:
        fills = dict(_fills(write, counts)) if isinstance(write, tir.Store) else {}
        common = fills if common is None else {k: f for k, f in fills.items() if common.get(k) == f}
    return common or {}


def _fills(
    store: tir.Store, counts: Mapping[tir.Buffer, str]
) -> Iterator[tuple[int, tuple[str, float]]]:
    """The axes along which a store writes one number behind counts."""
    first = None
    for mask in count_masks(store.value, counts):
        if mask.row not in store.indices or first not in (None, mask.fill.value):
            return
        first = mask.fill.value
        yield store.indices.index(mask.row), (counts[mask.count], float(first))


def filled_axes(layout: Layout, name: str, fills: Fills) -> tuple[FilledAxis, ...]:
    """The axes of a parameter's box along which the tensor's axes with fills lie."""
    found = []
    for axis, (size, fill) in fills.items():
        found += [
            FilledAxis(size, room, fill, place)
            for (_, room, _), place in plain_axes(name, layout, {axis: size})
        ]
    return tuple(found)


def with_reduction_conditions(
    func: tir.PrimFunc, filled: Sequence[FilledAxis], sizes: tuple[SizeParam, ...]
) -> tuple[tir.PrimFunc, tuple[SizeParam, ...]]:
    """The kernel with conditions in loops over filled axes, and the parameters that hold sizes.

    `sizes` are those that it has already, its last parameters.
    """
    for size in dict.fromkeys(axis.size for axis in filled):
        known = next((param for param in sizes if param.size == size), None)
        param = _new_param(func, size, filled) if known is None else known
        axes = {func.param(a.place.param): a for a in filled if a.size == size}
        body = _Loops(axes, param.buffer).body(func.body, arith.ANYWHERE)
        if body is func.body:
            continue
        func = replace(func, body=body)
        if known is None:
            added = tir.Param(param.buffer, tir.Role.INPUT)
            func, sizes = replace(func, params=(*func.params, added)), (*sizes, param)
    return func, sizes


def _new_param(func: tir.PrimFunc, size: str, filled: Sequence[FilledAxis]) -> SizeParam:
    taken = {*names_of_places(func)}
    name = fresh_name("size", taken.__contains__)
    most = max(axis.room for axis in filled if axis.size == size)
    return SizeParam(tir.Buffer(name, (), "int64"), size, most)


class _Loops(Struct, frozen=True):
    """Puts conditions on one size into loops; `axes` are the filled axes of parameters."""

    axes: Mapping[tir.Buffer, FilledAxis]
    size: tir.Buffer

    def body(self, body: tir.Body, domain: arith.Domain) -> tir.Body:
        """A body that runs at the points of a domain, with conditions."""
        made = tuple(self._stmt(stmt, domain) for stmt in body)
        same = all(new is old for new, old in zip(made, body, strict=True))
        return body if same else made

    def _stmt(self, stmt: tir.Stmt, domain: arith.Domain) -> tir.Stmt:
        match stmt:
            case tir.Block():
                body = self.body(stmt.body, domain)
            case tir.If():
                then, orelse = self.body(stmt.then, domain), self.body(stmt.orelse, domain)
                same = then is stmt.then and orelse is stmt.orelse
                return stmt if same else replace(stmt, then=then, orelse=orelse)
            case tir.For() if tir.matched_value(stmt) is None:
                inner = domain.inside(stmt.var, stmt.start, stmt.stop)
                body = self.body(stmt.body, inner)
                if stmt.kind is tir.LoopKind.SERIAL:
                    first = self._first_reduced(stmt, inner)
                    if first is not None:
                        body = (tir.If(tir.below_count(first, self.size), body),)
            case _:
                return stmt
        return stmt.around(body)

    def _first_reduced(self, loop: tir.For, domain: arith.Domain) -> arith.IndexExpr | None:
        """The first place along a filled axis that an iteration of a loop reads, if it only reduces
        elements that are neutral from there on; and the loop goes on along the axis."""
        sites = [
            site
            for site in tir.sites(loop.body, domain)
            if isinstance(site.stmt, tir.Store | tir.Reduce)
        ]
        first: arith.IndexExpr | None = None
        for site in sites:
            if not isinstance(site.stmt, tir.Reduce):
                return None
            for load in tir.loads_in((site.stmt,)):
                if first is None and load.buffer in self.axes:
                    first = at_starts(self._place(load), site.domain, len(domain.axes))
        if first is None or loop.var not in arith.variables(first):
            return None
        for site in sites:
            assert isinstance(site.stmt, tir.Reduce)
            neutral = tir.neutral_literal(site.stmt.op, site.stmt.buffer.dtype)
            if self._behind(site.stmt.value, first, site.domain) != neutral:
                return None
        return first

    def _place(self, load: tir.Load) -> arith.IndexExpr:
        return index_along(self.axes[load.buffer].place, load.buffer, load.indices)

    def _behind(
        self, value: tir.Expr, first: arith.IndexExpr, domain: arith.Domain
    ) -> float | None:
        """What a value is where the size is at most `first`; None if that is not known."""
        match value:
            case tir.Literal():
                return float(value.value)
            case tir.Load() if value.buffer in self.axes:
                behind = arith.at_most(first, self._place(value))
                known = arith.prove(behind, domain).proven
                return self.axes[value.buffer].fill if known else None
            case tir.Select():
                sides = [self._behind(v, first, domain) for v in (value.if_true, value.if_false)]
                return sides[0] if sides[0] == sides[1] else None
            case tir.Binary("mul", left, right):
                factors = [self._behind(v, first, domain) for v in (left, right)]
                return 0.0 if factors == [0.0, 0.0] else None
            case tir.Cast():
                inner = self._behind(value.operand, first, domain)
                return inner if inner == 0 else None
        return None
