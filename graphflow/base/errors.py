"""The errors of graphflow.  A message says what is wrong, where, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct


class Remedy(Struct, frozen=True):
    """An argument of `graphflow.compile` that would remove the cause of an error.

    The code that shows the error words it: as a keyword in Python, as a flag on the command line.
    `example` is a value of the keyword, or text that describes one.
    """

    argument: str
    example: object

    def __str__(self) -> str:
        return f"{self.argument}={self.example}"


VALUES = Remedy("input_values", "{name: array}")


def shapes_remedy(declared: Mapping[str, Sequence[int | str] | None]) -> Remedy:
    """The remedy `input_shapes` for inputs of these declared shapes: an example that a user can
    copy, in which each open extent is 1, unless the rank of an input is unknown."""
    example = {
        name: tuple(extent if isinstance(extent, int) else 1 for extent in shape)
        for name, shape in declared.items()
        if shape is not None
    }
    complete = len(example) == len(declared)
    return Remedy("input_shapes", example if complete else "{name: (extents…)}")


def sizes_remedy(names: Iterable[str]) -> Remedy:
    """The remedy `sizes` for these symbolic dimensions, with bounds as an example."""
    return Remedy("sizes", dict.fromkeys(names, (1, 8)))


class GraphflowError(Exception):
    """Base of every error that graphflow raises on purpose.

    The message ends with its `remedies`, each of which is sufficient.
    """

    remedies: tuple[Remedy, ...] = ()

    def __init__(self, *args: object, remedies: Iterable[Remedy] = ()) -> None:
        super().__init__(*args)
        self.remedies = tuple(remedies)

    def __str__(self) -> str:
        return self.worded(str)

    def worded(self, word: Callable[[Remedy], str]) -> str:
        """The message, with each remedy in the words that `word` returns for it."""
        message = super().__str__()
        if not self.remedies:
            return message
        return f"{message}; compile with {' or '.join(map(word, self.remedies))}"


class UnsupportedOp(GraphflowError):
    """A model uses an operator, or an attribute of one, that is not built yet."""


class ValuesNeeded(UnsupportedOp):
    """Shapes depend on the values of graph inputs that the compilation was not given.

    `inputs` names the inputs, as far as the import found them.
    """

    def __init__(self, message: str, inputs: Iterable[str] = ()) -> None:
        super().__init__(message, remedies=(VALUES,))
        self.inputs = tuple(inputs)


class ExtentsLost(UnsupportedOp):
    """A node reads a tensor whose extent a run decides, and no kernel is proven to allow that."""


class TrainingOnly(UnsupportedOp):
    """A node that only training needs, such as drawing a random mask; no fallback runs it."""


class InvalidModel(GraphflowError):
    """The input is not a valid ONNX model, or a run was given inputs that do not fit it."""


class FileOverwritten(InvalidModel):
    """The file of a model was written to in place while it is in use, so nothing can rely on it."""


class RunError(GraphflowError):
    """A run met a value that the model does not allow, such as an index outside its tensor."""


class ScheduleError(GraphflowError):
    """A scheduling primitive refused, because its safety condition was not proven."""


class LayoutConflict(GraphflowError):
    """The layout constraints of a graph cannot be satisfied together; the message lists their
    origins.

    `clashes` are minimal sets of pinned tensors that cannot be satisfied together: without any one
    pin of a set, the others of that set can be.  No tensor is in two sets.
    """

    def __init__(self, message: str, clashes: Iterable[tuple[str, ...]] = ()) -> None:
        super().__init__(message)
        self.clashes = tuple(clashes)


class VerifyError(GraphflowError):
    """An invariant of the compiler does not hold; always a bug or a damaged input."""


class InvalidTimings(GraphflowError):
    """A timing table cannot be used: it is damaged, or has no entries for this processor."""


class CodegenError(GraphflowError):
    """A kernel cannot be turned into native code for the target."""


class MemoryLimitExceeded(GraphflowError):
    """A model needs more memory than `Options.memory_limit` allows."""


class ParseError(GraphflowError):
    """Text is not a kernel in the text form; the message gives line and column."""


def outside_interval(subject: str, found: object, lo: int, hi: int) -> str:
    """The message of a guard that failed; `subject` says what the checked value is.  The ends of
    the integers of 64 bits are no limits."""
    limits = f"from {lo} to {hi}"
    if lo == -(2**63):
        limits = f"at most {hi}"
    elif hi == 2**63 - 1:
        limits = f"at least {lo}"
    return f"{subject} is {found}, and has to be {limits}"
