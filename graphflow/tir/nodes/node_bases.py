"""What classes of nodes inherit: a cached hash, and their text.

What always holds: `printer` registers the classes that it prints with `node_text`, so that the
classes need not import it.
"""

from __future__ import annotations

from functools import singledispatch


class Hashed:
    """A slot for the cached hash of a frozen class; `_compared` gives what equality compares.

    Large immutable objects are keys of many dictionaries.

    A dataclass inherits it by `__hash__ = Hashed.__hash__`.  The slot is not a field, so `replace`
    does not copy it and pickles do not contain it: hashes of strings differ from process to
    process.
    """

    __slots__ = ("_hash",)
    _hash: int

    def _compared(self) -> object:
        raise NotImplementedError

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(self._compared()))
            return self._hash


@singledispatch
def node_text(node: object) -> str:
    """A node in the text form of kernels; other objects as Python shows them."""
    return repr(node)


class Printed:
    """A class of nodes whose `str` is their text."""

    __slots__ = ()

    def __str__(self) -> str:
        return node_text(self)
