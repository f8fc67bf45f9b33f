"""Extents of which a run gives a part: numbers that are written as expressions in scalars.

In: the most of an extent, and its text, such as `n`.  Out: `Extent`, an integer that is the most,
the room of a buffer, and that text writes as what a run gives.  So a family of random kernels that
writes `serial(0, {n})` and `x[{n - 1} - i]` writes a kernel for each `n`, in buffers with room for
the most.  What always holds: sums, differences, quotients and products with numbers have as text
the expression that gives their value, for whatever the scalars are.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self


class Extent(int):
    """An extent that depends on scalars; as an integer it is the most of it."""

    text: str
    guarded: bool
    """Whether loops over it run to the most, with a condition inside."""

    def __new__(cls, most: int, text: str, guarded: bool = False) -> Self:
        made = super().__new__(cls, most)
        made.text, made.guarded = text, guarded
        return made

    def __str__(self) -> str:
        return self.text


def _with_text(name: str, sign: str, turned: bool = False) -> Callable[[Extent, Any], Any]:
    compute = getattr(int, name)

    def method(self: Extent, other: Any) -> Any:
        most = compute(self, other)
        if most is NotImplemented:
            return most
        left, right = (other, self) if turned else (self, other)
        guarded = self.guarded or getattr(other, "guarded", False)
        return Extent(most, f"({left}{sign}{right})", guarded)

    return method


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "//")):
    setattr(Extent, f"__{_name}__", _with_text(f"__{_name}__", _sign))
    setattr(Extent, f"__r{_name}__", _with_text(f"__r{_name}__", _sign, turned=True))


def value_of(text: str, scalars: Mapping[str, int]) -> int:
    """What an extent is for these scalars."""
    return int(eval(text, {"__builtins__": {}}, dict(scalars)))
