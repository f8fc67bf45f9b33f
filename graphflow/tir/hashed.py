"""Caches the hash of large immutable objects, which are keys of many dictionaries."""

from __future__ import annotations


class Hashed:
    """Room for a hash, for a frozen class of which `_compared` is what equality compares.

    A dataclass takes it over by `__hash__ = Hashed.__hash__`.  It is no field, so it is neither
    pickled nor copied by `replace`: texts have another hash in each process.
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
