"""The one tree of errors. A message says what is wrong, where, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable


class GraphflowError(Exception):
    """Base of every error that graphflow raises on purpose."""


class UnsupportedOp(GraphflowError):
    """A model uses an operator, or an attribute of one, that is not built yet."""


class InvalidModel(GraphflowError):
    """The input is not a valid ONNX model, or a run was given inputs that do not fit it."""


class ScheduleError(GraphflowError):
    """A scheduling primitive refused, because its safety condition was not proven."""


class LayoutConflict(GraphflowError):
    """The layout constraints of a graph cannot be met together; the message lists their origins.

    `clashes` are sets of pinned tensors that cannot be met together, though what is left of a set
    can if any one of them is not pinned.  No tensor is in two of them.
    """

    def __init__(self, message: str, clashes: Iterable[tuple[str, ...]] = ()) -> None:
        super().__init__(message)
        self.clashes = tuple(clashes)


class VerifyError(GraphflowError):
    """An invariant of the compiler does not hold; always a bug or a damaged input."""


class InvalidTimings(GraphflowError):
    """A timing table cannot be used: it is damaged, or has nothing for this processor."""


class CodegenError(GraphflowError):
    """A kernel cannot be turned into native code for the target."""


class MemoryLimitExceeded(GraphflowError):
    """A model needs more memory than `Options.memory_limit` allows."""


class ParseError(GraphflowError):
    """Text is not a kernel in the text form; the message gives line and column."""
