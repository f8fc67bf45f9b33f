"""Caches the hash of large immutable objects, which are keys of many dictionaries."""

from __future__ import annotations


class Hashed:
    """A slot for the cached hash of a frozen class; `_compared` gives what equality compares.

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
