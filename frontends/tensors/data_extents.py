"""Tensors with room for more elements than a run gives them, and kernels that read these.

In: a kernel, and for some axes of its inputs the integer tensor that counts the elements that a run
gives there; the kernel's buffers have the largest extents.  Out: the same for its outputs.  What
always holds: an element of an output that a run gives is computed from elements that the run gives
alone.  It is proven for each statement: its loop over such an axis is the index there and in what
the statement writes, and nothing else depends on that loop.  A buffer that each iteration of the
loop allocates holds what is computed in that iteration, whatever its indices are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Predicate, Var, const, predicate_variables, variables
from graphflow.base.errors import ExtentsLost
from graphflow.graph import Array

Counts: TypeAlias = "dict[int, str]"
"""For axes of a tensor the integer tensor, of one element, that counts a run's elements there."""

MOST_ROOM = 1 << 24
"""The most elements for which a kernel makes room where a run gives fewer: 64 MiB of floats."""

_Found: TypeAlias = "dict[tuple[tir.Buffer, int], str]"


class _Private(Struct, frozen=True):
    """Buffers that a kernel allocates in loops: the variables of these, and for those over counted
    axes on which the contents depend, the counts."""

    around: Mapping[tir.Buffer, frozenset[Var]]
    rows: dict[tir.Buffer, dict[Var, str]]

    @staticmethod
    def of(func: tir.PrimFunc) -> _Private:
        allocations = [s for s in tir.sites(func.body) if isinstance(s.stmt, tir.Allocate)]
        around = {
            cast(tir.Allocate, site.stmt).buffer: frozenset(axis.var for axis in site.domain.axes)
            for site in allocations
        }
        return _Private(around, {})


class SizedArray(Struct, frozen=True):
    """A tensor of numbers, of which some are sizes.

    `array` has the most of each size; `sizes` maps positions, in row-major order, to the tensor
    that holds the size which this element is, or is the quotient of by `divisor`, a power of two,
    unrounded.
    """

    array: Array
    sizes: Mapping[int, str]
    divisor: int = 1


class ExtentComputed(ExtentsLost):
    """A run computes an extent from sizes, and it is none; programs of one shape each know it."""


class CountsDiffer(ExtentsLost):
    """A kernel reads axes by one index that have as many elements as two tensors say: those of each
    of `pairs`, all that one statement compares."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__("other axes have as many elements as {} and {}".format(*pairs[0]))
        self.pairs = tuple(pairs)


def passed_counts(
    func: tir.PrimFunc, given: Mapping[tir.Buffer, Mapping[int, str]], sizes: Collection[str] = ()
) -> dict[tir.Buffer, Counts]:
    """The counts of the outputs of `func`, from those of its inputs.

    Raises `ExtentsLost`, with the reason, if an output may depend on elements that a run does not
    give, or if there is too much room for those that it gives.  Users say how much room there is
    for the counts in `sizes`.
    """
    found = {(buffer, axis): c for buffer, counts in given.items() for axis, c in counts.items()}
    statements = [s for s in tir.sites(func.body) if isinstance(s.stmt, tir.Store | tir.Reduce)]
    private, known = _Private.of(func), (-1, -1)
    while known != (known := (len(found), sum(map(len, private.rows.values())))):
        for site in statements:
            _require_alone(site, found, private, func.inputs)
            _follow(site, found, private)
    for site in statements:
        _require_alone(site, found, private)
    results: dict[tir.Buffer, Counts] = {}
    for (buffer, axis), count in found.items():
        if buffer in func.outputs:
            results.setdefault(buffer, {})[axis] = count
    for buffer, counts in results.items():
        if buffer.size > MOST_ROOM and not set(counts.values()) <= set(sizes):
            raise ExtentsLost(
                f"there may be {buffer.size} elements of {buffer.name}, more than {MOST_ROOM}"
            )
    return results


def _follow(site: tir.Site, found: _Found, private: _Private) -> None:
    """Add the counted axes of what a statement writes."""
    stmt, rows = _written(site), _rows_of(site, found, private)
    buffer, indices = stmt.buffer, stmt.indices
    for axis, index in enumerate(indices):
        whole = isinstance(index, Var) and _spans(site, index, buffer.shape[axis])
        if isinstance(index, Var) and index in rows and whole:
            found[buffer, axis] = rows[index]
        elif not rows.keys().isdisjoint(variables(index)):
            raise ExtentsLost(f"it makes {buffer.name}[{_text(indices)}]")
    rest = {var: count for var, count in rows.items() if var not in indices}
    if not rest.keys() <= private.around.get(buffer, frozenset()):
        raise ExtentsLost(f"it combines all elements of the axis in {buffer.name}")
    if rest:
        private.rows.setdefault(buffer, {}).update(rest)


def _rows_of(site: tir.Site, found: _Found, private: _Private) -> dict[Var, str]:
    """The loops of a statement over counted axes of what it reads and writes, with the counts."""
    stmt = _written(site)
    loads = ((load.buffer, load.indices) for load in _loads(site))
    rows: dict[Var, str] = {}
    differing: list[tuple[str, str]] = []
    for buffer, indices in (*loads, (stmt.buffer, stmt.indices)):
        for axis, index in enumerate(indices):
            count = found.get((buffer, axis))
            if count is None:
                continue
            if not isinstance(index, Var) or not _spans(site, index, buffer.shape[axis]):
                if differing:
                    raise CountsDiffer(differing)
                raise ExtentsLost(f"it takes {buffer.name}[{_text(indices)}]")
            if rows.setdefault(index, count) != count:
                differing.append((count, rows[index]))
        for var, count in private.rows.get(buffer, {}).items():
            if rows.setdefault(var, count) != count:
                differing.append((count, rows[var]))
    if differing:
        raise CountsDiffer(differing)
    return rows


def _require_alone(
    site: tir.Site,
    found: _Found,
    private: _Private,
    buffers: Collection[tir.Buffer] | None = None,
) -> None:
    """Refuse a statement in which something else depends on a loop over a counted axis; with
    `buffers`, loads of others are not looked at, whose counts may not be found yet."""
    rows = _rows_of(site, found, private)
    for other in _other_uses(site, found, buffers):
        if not rows.keys().isdisjoint(other):
            raise ExtentsLost("its elements are computed together with those of another tensor")


def _written(site: tir.Site) -> tir.Store | tir.Reduce:
    assert isinstance(site.stmt, tir.Store | tir.Reduce)
    return site.stmt


def _values(site: tir.Site) -> tuple[tir.Expr, ...]:
    return (*tir.expressions_of(site.stmt), *site.guards)


def _loads(site: tir.Site) -> list[tir.Load]:
    nodes = (node for value in _values(site) for node in tir.walk_expr(value))
    return [node for node in nodes if isinstance(node, tir.Load)]


def _other_uses(
    site: tir.Site, found: _Found, buffers: Collection[tir.Buffer] | None
) -> Iterator[frozenset[Var]]:
    """The variables on which a statement depends otherwise than as indices of counted axes."""
    yield predicate_variables(site.domain.where)
    for load in _loads(site):
        if buffers is not None and load.buffer not in buffers:
            continue
        for axis, index in enumerate(load.indices):
            if (load.buffer, axis) not in found:
                yield variables(index)
    for value in _values(site):
        for node in tir.walk_expr(value):
            if isinstance(node, tir.IndexValue):
                yield variables(node.index)
            elif isinstance(node, tir.Select) and tir.is_predicate(node.condition):
                yield predicate_variables(cast(Predicate, node.condition))


def _spans(site: tir.Site, var: Var, extent: int) -> bool:
    """Whether the loop over `var` is over the whole axis."""
    axis = next((axis for axis in site.domain.axes if axis.var is var), None)
    return axis is not None and (axis.start, axis.stop) == (const(0), const(extent))


def _text(indices: tuple[IndexExpr, ...]) -> str:
    return ", ".join(map(str, indices))
