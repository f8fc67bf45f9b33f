"""The face of a compiled model: run it, look at its layouts, ask why, save it, load it.

In: the models behind it, compiled in this process or read from a file.  What always holds: both
kinds answer alike; importing this module does not import the compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.assumed import require_assumed
from graphflow.decisions import Decisions, SavedEdge
from graphflow.errors import GraphflowError, InvalidModel
from graphflow.model import Model, Models
from graphflow.runtime import Program, TensorSpec
from graphflow.saved import SavedModel, save_model

if TYPE_CHECKING:
    from graphflow.compiler import Compiled
    from graphflow.inspect import EdgeType


class Executable:
    """A compiled model; made by `compile`, or from a file by `load`."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def run(
        self, inputs: Mapping[str, ArrayLike], *, poison: float = nan
    ) -> dict[str, NDArray[Any]]:
        """Arrays by input name to new arrays by output name.

        Inputs may have any strides and are never cast; those with a default may be left out.  A
        graph input whose initializer is a constant is refused, even with the constant's own value.
        `poison` is what a program compiled with Options(poison=True) writes to undefined padding;
        the outputs must not depend on it.  InvalidModel, before anything runs, where names, shapes
        or dtypes do not fit, and with Options(check_assumes=True) where an assumption is not true;
        TypeError for inputs that are no mapping from names.
        """
        _require_mapping(inputs)
        model = self._model_for(inputs)
        _refuse_frozen(model, inputs)
        given = {**model.defaults, **_poisons(model, poison), **inputs}
        if model.check_assumes:
            for assumed in model.assumed:
                if assumed.tensor in given:
                    require_assumed(assumed, given[assumed.tensor])
        try:
            return model.program.run(given)
        except MemoryError as error:
            raise GraphflowError(f"memory ran out in a run: {error}") from error

    def __call__(self, array: ArrayLike) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Run a model of one input: its output, or a tuple of them where there are several."""
        if isinstance(array, Mapping):
            raise TypeError("a call takes one array; give arrays by name to run()")
        names = self._required_inputs(array)
        if len(names) != 1:
            raise InvalidModel(
                f"the model takes the inputs {', '.join(names) or '(none)'}; give them by name to "
                "run()"
            )
        results = tuple(self.run({names[0]: array}).values())
        return results[0] if len(results) == 1 else results

    @property
    def compiled(self) -> Compiled:
        """What the stages of the compiler gave; GraphflowError for a loaded model."""
        return self._models.only().compiled

    @property
    def program(self) -> Program:
        """The native program."""
        return self._models.only().program

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and logical shapes of the inputs, in the model's order."""
        return self._models.only().inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and logical shapes of the outputs, in the model's order."""
        return self.program.spec.outputs

    @property
    def threads(self) -> int:
        """How many threads a run uses."""
        return self.program.threads

    @property
    def poisoned(self) -> int:
        """How many elements of undefined padding a run overwrites; 0 without Options.poison."""
        return self._models.only().poisoned

    @property
    def layouts(self) -> Mapping[str, EdgeType] | Mapping[str, SavedEdge]:
        """The decision about each tensor of the model, by name.

        Of a loaded model they are `SavedEdge`s: the same, with names of layouts for layouts.
        """
        return self._models.only().layouts

    def explain(self, name: str) -> str:
        """What was decided about one tensor, and why; InvalidModel for a name it does not have."""
        return self._models.only().explain(name)

    def report(self) -> dict[str, Any]:
        """All decisions as plain values: what `graphflow inspect --json` prints."""
        return self._models.only().report()

    def decisions(self) -> Decisions:
        """The decisions as a table of texts, and in one line: what `graphflow inspect` prints."""
        return self._models.only().decisions()

    def save(self, path: str | Path) -> None:
        """Write the program, its constants as runs read them, report and explanations to a file.

        The file holds native code for processors with this target's features.  It appears complete
        or not at all: whatever stops the writing, an older file of that name is still there.
        InvalidModel for open shapes (compile with input_shapes=), GraphflowError where the system
        refuses.
        """
        save_model(path, self._models.only())

    def _model_for(self, inputs: Mapping[str, ArrayLike]) -> Model:
        symbolic = self._models.symbolic
        if not symbolic:
            return self._models.only()
        return self._models.serve({n: _shape(n, inputs[n]) for n in symbolic if n in inputs})

    def _required_inputs(self, array: ArrayLike) -> tuple[str, ...]:
        symbolic = self._models.symbolic
        if len(symbolic) > 1:
            return symbolic
        model = self._model_for(dict.fromkeys(symbolic, array))
        return tuple(tensor.name for tensor in model.inputs if tensor.name not in model.defaults)


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    mmap: bool = True,
    sha256: str | None = None,
) -> Executable:
    """A model that `Executable.save` wrote: nothing is compiled, constants are mapped.

    `threads` defaults to what the model was compiled with, or to the processors this process may
    use where it was left open.  InvalidModel for a file that is damaged, cut short or of another
    format, CodegenError for one whose code this processor cannot execute.

    A mapped file has to stay as it is: a run after somebody wrote into it is InvalidModel (a write
    during a run is not noticed).  With `mmap=False` the constants are copied, and nothing that
    happens to the file matters afterwards.  With `sha256`, 64 hexadecimal digits, only the file
    that has this digest is loaded.

    Checksums tell damage, not malice: the file is native code, so load only files that you trust.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a saved model is given by its path, not by {type(path).__name__}")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
        raise TypeError(f"threads is {threads!r}; give a number of threads, or None")
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"sha256 is {sha256!r}; give 64 hexadecimal digits")
    return Executable(SavedModel(path, threads, mmap=mmap, sha256=sha256))


def _require_mapping(inputs: Mapping[str, ArrayLike]) -> None:
    if not isinstance(inputs, Mapping):
        raise TypeError(
            f"run takes a mapping from names of inputs to arrays, not {type(inputs).__name__}; a "
            "model of one input can be called with its array"
        )
    for name in inputs:
        if not isinstance(name, str):
            raise TypeError(f"run is given the input {name!r}; names of inputs are texts")


def _refuse_frozen(model: Model, inputs: Mapping[str, ArrayLike]) -> None:
    frozen = [name for name in model.frozen if name in inputs]
    if frozen:
        raise InvalidModel(
            f"the graph inputs {frozen} have initializers, and the model is compiled with these as "
            f"constants; leave them out, or compile with overridable={frozen}"
        )


def _shape(name: str, value: ArrayLike) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError as error:
        raise InvalidModel(f"input {name!r} is no array: {error}") from error


def _poisons(model: Model, value: float) -> dict[str, NDArray[Any]]:
    """`value` in each element type that is poisoned; integers have their smallest for NaN."""
    found = {}
    for scalar in model.program.spec.inputs[len(model.inputs) :]:
        dtype = np.dtype(scalar.dtype)
        smallest = np.iinfo(dtype).min if dtype.kind in "iu" else value
        found[scalar.name] = np.array(smallest if isnan(value) else value).astype(dtype)
    return found
