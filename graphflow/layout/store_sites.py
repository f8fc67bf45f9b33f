"""The stores of a kernel that is a sequence of stages, with the loops and reductions around them.

In: a kernel.  Out: for each buffer the stores that write it, in program order (`writers_of`).  What
always holds: what a listed store writes depends neither on the buffer itself nor on what an earlier
stage wrote to it, so that its value at an index follows from the store alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from graphflow import arith, tir


class StoreSite(Struct, frozen=True):
    """A store with the loops around it, and the reductions into the same element."""

    store: tir.Store
    domain: arith.Domain
    reductions: tuple[tuple[tir.Reduce, arith.Domain], ...]

    def place(
        self, indices: Sequence[arith.IndexExpr]
    ) -> tuple[dict[arith.Var, arith.IndexExpr], arith.Predicate] | None:
        """The loop variables at which the store writes to `indices`, and the condition for it.

        None where the store's indices cannot be solved for the loop variables.  Of a sum of them
        those are known that take one value, as the channel of a group of one channel.
        """
        values: dict[arith.Var, arith.IndexExpr] = {}
        conditions: list[arith.Predicate] = []
        loops = {axis.var for axis in self.domain.axes}
        single = {a.var: a.start for a in self.domain.axes if _takes_one_value(a)}
        summed: dict[arith.Var, arith.IndexExpr] = {}
        for target, index in zip(self.store.indices, indices, strict=True):
            terms, offset = arith.terms_of(target)
            if len(terms) > 1:
                about = arith.variables(target)
                summed.update((var, start) for var, start in single.items() if var in about)
                terms, offset = arith.terms_of(arith.substitute(target, single))
            if not terms:
                conditions.append(arith.equal(index - offset, 0))
            elif len(terms) == 1 and terms[0][1] == 1 and isinstance(terms[0][0], arith.Var):
                values[terms[0][0]] = index - offset
            else:
                return None
        complete = len(values) + len(conditions) == len(indices)
        values = {**summed, **values}
        complete = complete and loops == set(values)
        return (values, arith.conjunction(conditions)) if complete else None

    def fills(self, shape: tuple[int, ...]) -> bool:
        """Whether the store writes every element of the buffer, with one loop per axis in order."""
        axes = self.domain.axes
        plain = self.store.indices == tuple(axis.var for axis in axes)
        extents = tuple(arith.constant_value(axis.stop - axis.start) for axis in axes)
        return plain and extents == shape and self.domain.where == arith.TRUE

    def shares_loops(self, other: StoreSite) -> bool:
        """Whether the two stores have a loop in common, so that their iterations alternate."""
        return bool({a.var for a in self.domain.axes} & {a.var for a in other.domain.axes})

    def extent(self, values: Mapping[arith.Var, arith.IndexExpr]) -> arith.Predicate:
        """The predicate that these values of the loop variables are within the loops' bounds."""
        inside = (
            arith.within(
                values[a.var], arith.substitute(a.start, values), arith.substitute(a.stop, values)
            )
            for a in self.domain.axes
        )
        return arith.conjunction((*inside, arith.substitute_in(self.domain.where, values)))


def _takes_one_value(axis: arith.Axis) -> bool:
    start, stop = arith.constant_value(axis.start), arith.constant_value(axis.stop)
    return start is not None and stop == start + 1


def writers_of(func: tir.PrimFunc) -> dict[tir.Buffer, tuple[StoreSite, ...] | None]:
    """The writers of each buffer in program order; None where the body is not a sequence of stages.

    Also None for a buffer whose contents depend on itself: on earlier elements, or on what an
    earlier stage wrote to it.
    """
    found: dict[tir.Buffer, tuple[StoreSite, ...] | None] = {}
    sources: dict[tir.Buffer, set[tir.Buffer]] = {}
    for site in tir.sites(func.body):
        if isinstance(site.stmt, tir.Store | tir.Reduce):
            earlier = found.get(site.stmt.buffer, ())
            found[site.stmt.buffer] = None if earlier is None else _extended(earlier, site)
            sources.setdefault(site.stmt.buffer, set()).update(
                load.buffer for load in tir.loads_in((site.stmt,))
            )
    for buffer in found:
        if _follows_from(buffer, buffer, sources):
            found[buffer] = None
    return found


def _follows_from(
    buffer: tir.Buffer, origin: tir.Buffer, sources: Mapping[tir.Buffer, Collection[tir.Buffer]]
) -> bool:
    """Whether values stored to `buffer` depend on `origin`, directly or through other buffers."""
    seen: set[tir.Buffer] = set()
    left = [buffer]
    while left:
        for source in sources.get(left.pop(), ()):
            if source == origin:
                return True
            if source not in seen:
                seen.add(source)
                left.append(source)
    return False


def _extended(writers: tuple[StoreSite, ...], site: tir.Site) -> tuple[StoreSite, ...] | None:
    stmt = site.stmt
    if site.guards:
        return None
    if isinstance(stmt, tir.Store):
        return (*writers, StoreSite(stmt, site.domain, ()))
    assert isinstance(stmt, tir.Reduce)
    last = writers[-1] if writers else None
    outer = last.domain.axes if last else ()
    if last is None or site.domain.axes[: len(outer)] != outer:
        return None
    if last.store.indices != stmt.indices:
        return None
    grown = StoreSite(last.store, last.domain, (*last.reductions, (stmt, site.domain)))
    return (*writers[:-1], grown)
