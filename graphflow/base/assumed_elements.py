"""Assumptions that a kernel states about single elements of an input, each with its own value.

In: positions of elements, and for each the value that it has, or the position of the element that
it equals.  Out: `AssumedElements`, which knows nothing of the compiler, so that a saved model keeps
and checks it too.  Padding that is a function of the place is assumed of an input in this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from graphflow.base.plain import boolean, integer, listed, text


class AssumedElements(Struct, frozen=True):
    """The element at `elements[k]` of an input equals `values[k]`, or if they are `copies`, the
    element at `values[k]`.

    Positions are in row-major order.  Elements equal one another if they have the same bits, or are
    both NaN.
    """

    tensor: str
    dtype: str
    elements: tuple[int, ...]
    values: tuple[float | int, ...]
    copies: bool

    def __str__(self) -> str:
        what = "a copy of another element" if self.copies else "equal to a value of its own"
        return f"{what} in {len(self.elements)} elements"

    def first_outside(self, array: NDArray[Any]) -> tuple[int, ...] | None:
        """The first index in `elements` at which the assumption does not hold; None if it holds."""
        flat = array.reshape(-1)
        found = flat[list(self.elements)]
        values = np.array(self.values, "int64" if self.copies else array.dtype)
        wanted = flat[values] if self.copies else values
        right = found == wanted
        if array.dtype.kind not in "iub":
            right &= np.signbit(found) == np.signbit(wanted)
            right |= np.isnan(found) & np.isnan(wanted)
        if right.all():
            return None
        wrong = self.elements[int(np.argmin(right))]
        return tuple(int(i) for i in np.unravel_index(wrong, array.shape))

    def plain(self) -> dict[str, Any]:
        """The assumption as plain values, which `from_plain` reads."""
        return asdict(self)

    @staticmethod
    def from_plain(plain: Mapping[str, Any], size: int) -> AssumedElements:
        """The assumption that `plain` returned these values for, also after a round trip through
        JSON; a TypeError, KeyError or ValueError if it does not fit a tensor of `size` elements."""
        copies = boolean(plain["copies"])
        elements = tuple(integer(k) for k in listed(plain["elements"]))
        values = tuple(listed(plain["values"], len(elements)))
        positions = (*elements, *(map(integer, values) if copies else ()))
        if not elements or max(positions) >= size:
            raise ValueError(f"there are no such elements among {size}")
        if not all(isinstance(value, int | float) for value in values):
            raise ValueError("a value is no number")
        return AssumedElements(
            text(plain["tensor"]), text(plain["dtype"]), elements, values, copies
        )
