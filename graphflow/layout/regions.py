"""The regions of a layout's box (elements, and kinds of padding), as predicates over p0, p1 ….

In: an index map, the logical shape and the box.  Out: the predicate that holds where a place is an
element, and the list of regions.  What always holds: the regions are disjoint and cover the box;
all but the logical region are non-empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

from msgspec import Struct

from graphflow import arith
from graphflow.layout.index_map import IndexMap, physical_vars
from graphflow.layout.storage import GAP, LOGICAL, Region, pad_region_name

Shape = tuple[int, ...]


class Membership(Struct, frozen=True):
    """When a place of the box belongs to the tensor, in parts."""

    reachable: arith.Predicate
    """The place is the image of some index, in the tensor or not."""
    inside: tuple[arith.Predicate, ...]
    """Per logical axis: the index at the place lies in the tensor."""

    @property
    def logical(self) -> arith.Predicate:
        """The place holds an element."""
        return arith.conjunction((self.reachable, *self.inside))


@lru_cache(maxsize=4096)
def membership(index_map: IndexMap, logical_shape: Shape, physical_shape: Shape) -> Membership:
    """The parts of `is_logical`, simplified on the box."""
    names = physical_vars(len(physical_shape))
    ranges = {v: (0, n - 1) for v, n in zip(names, physical_shape, strict=True)}
    logical = index_map.invert(names)
    inside = tuple(
        arith.simplify_predicate(
            arith.within(arith.simplify_index(index, ranges), 0, extent), ranges
        )
        for index, extent in zip(logical, logical_shape, strict=True)
    )
    again = index_map.apply(logical)
    same = (
        arith.equal(arith.simplify_index(a, ranges), p) for a, p in zip(again, names, strict=True)
    )
    return Membership(arith.simplify_predicate(arith.conjunction(same), ranges), inside)


@lru_cache(maxsize=4096)
def regions_of(
    index_map: IndexMap,
    logical_shape: Shape,
    physical_shape: Shape,
) -> tuple[Region, ...]:
    """The logical region, then the others that have a point; see `Layout.regions`."""
    found = membership(index_map, logical_shape, physical_shape)
    axes = physical_vars(len(physical_shape))
    regions = [Region(name, predicate, axes, physical_shape) for name, predicate in _parts(found)]
    return (regions[0], *(r for r in regions[1:] if _occurs(r)))


def _parts(found: Membership) -> Iterator[tuple[str, arith.Predicate]]:
    yield LOGICAL, found.logical
    padded = [axis for axis, inside in enumerate(found.inside) if inside != arith.TRUE]
    for size in range(1, len(padded) + 1):
        for chosen in combinations(padded, size):
            parts = (
                arith.negation(inside) if axis in chosen else inside
                for axis, inside in enumerate(found.inside)
            )
            yield pad_region_name(chosen), arith.conjunction((found.reachable, *parts))
    yield GAP, arith.negation(found.reachable)


def _occurs(region: Region) -> bool:
    """Only a region proven empty is left out."""
    if region.predicate == arith.FALSE or 0 in region.shape:
        return False
    domain = region.domain()
    if arith.point_in(domain) is not None:
        return True
    return (
        arith.prove_empty(domain, f"region {region.name} is empty").verdict
        is not arith.Verdict.PROVEN
    )
