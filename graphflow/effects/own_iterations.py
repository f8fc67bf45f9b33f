"""What one iteration stores and reads: accesses at equal iterations of the loops around both.

In: accesses with the domains around them.  Out: proofs about pairs in the same iteration of all
loops that they share.  Loops have names of their own, so an axis in two domains is one loop.  What
comes first is decided by the order of statements, so nothing is compared but elements; the
dataflow, which costs more, decides what this leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphflow.arith import (
    Domain,
    Image,
    Proof,
    conjunction,
    equal,
    image_within,
    prove_empty,
)
from graphflow.tir import Access, AccessKind


def stored_before_read(touched: Sequence[Access]) -> Iterator[Proof]:
    """For each of these accesses that reads: whether its own iteration stored the element before.

    `touched` are accesses to one buffer, in program order.  Stores count that happen in every run
    and stand before the read in the program, so at equal iterations they come first.  The witness
    of a refuted proof is an instance of the read whose element none of them stores.
    """
    for place, reader in enumerate(touched):
        if reader.kind is AccessKind.WRITE:
            continue
        at = tuple(axis.var for axis in reader.domain.axes)
        read = Image(reader.domain, (*at, *reader.indices))
        stores = [a for a in touched[:place] if a.kind is AccessKind.WRITE and a.certain]
        images = [
            Image(_at_equal_iterations(a.domain, reader.domain), (*at, *a.indices)) for a in stores
        ]
        yield image_within(read, images)


def apart_in_iteration(one: Access, other: Access, claim: str) -> Proof:
    """Whether two accesses never touch one element in one iteration of the loops around both."""
    both = _at_equal_iterations(one.domain, other.domain)
    indices = zip(one.indices, other.indices, strict=True)
    return prove_empty(both.given(conjunction(equal(a, b) for a, b in indices)), claim)


def touches_whenever_begun(access: Access, domain: Domain) -> Proof:
    """Whether at each point of `domain`, that around a loop, an access in the loop is made.

    Conditions on data are no matter: they may hold, so the element may be touched in any case.  The
    indices must not depend on the loop or on those in it.
    """
    at = (*(axis.var for axis in domain.axes), *access.indices)
    return image_within(Image(domain, at), (Image(access.domain, at),))


def _at_equal_iterations(one: Domain, other: Domain) -> Domain:
    """The points of two domains beside each other, in equal iterations of the loops around both."""
    own = {axis.var for axis in one.axes}
    rest = tuple(axis for axis in other.axes if axis.var not in own)
    return Domain((*one.axes, *rest), conjunction((one.where, other.where)))
