"""Facts about the values of a kernel's inputs that a variant may rest on.

`ContentsQuery` is the question, which a kernel asks: the facts that its variants could use.
`KnownContents` is flow's answer: those of them that are proven.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow.kernels.recipes.analysis.masked_scores import MaskInput


class KnownContents(Struct, frozen=True):
    """The inputs of a kernel all of whose elements are proven to have a property.

    `finite`: neither NaN nor infinite.  `excludes_negative_zero`: not −0.0, nor so close to zero
    from below that `1/x` overflows to −∞: `1/x > −∞` is what `assume_reciprocal` states in the IR.
    `shown_keys`: for each row of a mask, or for all rows at once, the first key that is not
    excluded, and the first one behind the last of these.  No variant rests on that; it decides a
    price.
    """

    finite: frozenset[str] = frozenset()
    excludes_negative_zero: frozenset[str] = frozenset()
    shown_keys: tuple[tuple[tuple[int, int], ...], ...] = ()


NOTHING = KnownContents()


class ContentsQuery(Struct, frozen=True):
    """The inputs of which a variant of a kernel could use each property of `KnownContents`."""

    finite: frozenset[str] = frozenset()
    excludes_negative_zero: frozenset[str] = frozenset()
    masks: tuple[MaskInput, ...] = ()
