"""What one iteration stores and reads: accesses at equal iterations of the loops around both.

In: accesses with the domains around them.  Out: proofs about pairs in the same iteration of all
loops that they share.  Loops have names of their own, so an axis in two domains is one loop.  What
comes first is decided by the order of statements, so nothing is compared but elements; the
dataflow, which costs more, decides what this leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphflow import arith, tir


def stored_before_read(touched: Sequence[tir.Access]) -> Iterator[arith.Proof]:
    """For each of these accesses that reads: whether its own iteration stored the element before.

    `touched` are accesses to one buffer, in program order.  Stores count that happen in every run
    and stand before the read in the program, so at equal iterations they come first.  The witness
    of a refuted proof is an instance of the read whose element none of them stores.
    """
    known: dict[tuple[arith.Image, tuple[arith.Image, ...]], arith.Proof] = {}
    for place, reader in enumerate(touched):
        if reader.kind is tir.AccessKind.WRITE:
            continue
        at = tuple(axis.var for axis in reader.domain.axes)
        read = arith.Image(reader.domain, (*at, *reader.indices))
        stores = [a for a in touched[:place] if a.kind is tir.AccessKind.WRITE and a.certain]
        images = tuple(
            arith.Image(_at_equal_iterations(a.domain, reader.domain), (*at, *a.indices))
            for a in stores
        )
        if (read, images) not in known:  # a statement may read an element several times
            known[read, images] = arith.image_within(read, images)
        yield known[read, images]


def apart_in_iteration(one: tir.Access, other: tir.Access, claim: str) -> arith.Proof:
    """Whether two accesses never touch one element in one iteration of the loops around both."""
    both = _at_equal_iterations(one.domain, other.domain)
    indices = zip(one.indices, other.indices, strict=True)
    return arith.prove_empty(
        both.given(arith.conjunction(arith.equal(a, b) for a, b in indices)), claim
    )


def touches_whenever_begun(access: tir.Access, domain: arith.Domain) -> arith.Proof:
    """Whether at each point of `domain`, that around a loop, an access in the loop is made.

    Conditions on data are no matter: they may hold, so the element may be touched in any case.  The
    indices must not depend on the loop or on those in it.
    """
    at = (*(axis.var for axis in domain.axes), *access.indices)
    return arith.image_within(arith.Image(domain, at), (arith.Image(access.domain, at),))


def _at_equal_iterations(one: arith.Domain, other: arith.Domain) -> arith.Domain:
    """The points of two domains beside each other, in equal iterations of the loops around both."""
    own = {axis.var for axis in one.axes}
    rest = tuple(axis for axis in other.axes if axis.var not in own)
    return arith.Domain((*one.axes, *rest), arith.conjunction((one.where, other.where)))
