"""`Executable`, the compiled model that users run, inspect, save and load.

In: its programs, compiled in this process or read from a file.  What always holds: both kinds give
the same answers; importing this module does not import the compiler.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.api.binding import Binding
from graphflow.api.description import as_html, one_line, title_of
from graphflow.api.model import (
    Model,
    Models,
    Single,
    Tensors,
    describe_key,
    needs_only_inputs,
)
from graphflow.api.pickling import LoadedFile, models_of, saved_bytes
from graphflow.api.saved import load_models, save_models
from graphflow.base.arguments import Shapes
from graphflow.base.assumed import require_assumed
from graphflow.base.decisions import REPORT_SCHEMA, SavedEdge, unknown_tensor
from graphflow.base.declaration import Declaration
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.base.notebook import Explanation
from graphflow.foreign import ForeignNode
from graphflow.reports import Decisions
from graphflow.runtime import Program, given_array, with_size_names

if TYPE_CHECKING:
    from graphflow.inspect import TensorDecision
    from graphflow.pipeline.compiler import Compiled


class Executable:
    """A compiled model; `compile` makes one from a model, `load` from a saved file.

    Executables pickle.  One that `load` made becomes the path and the SHA-256 of its file, which
    has to be there when it is unpickled; any other becomes the bytes that `save` writes, and comes
    back as a loaded one, with the programs that existed.  A pickle has native code: unpickle only
    what you trust.
    """

    def __init__(
        self,
        models: Models,
        declaration: Declaration | None = None,
        file: LoadedFile | None = None,
    ) -> None:
        self.declaration = declaration
        """What the ONNX file declares that was compiled; None where there was none."""
        self._models = models
        self._file = file
        self._complete = _complete_program(models)

    def run(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        out: Mapping[str, Any] | None = None,
        poison: float = nan,
    ) -> dict[str, NDArray[Any]]:
        """Run the model: arrays by input name, to new arrays by output name.

        Inputs may have any strides and are never cast; those with a default may be left out.
        Objects that export DLPack, such as tensors of PyTorch, are read in place.  A graph input
        whose initializer is a constant is refused, even with the constant's own value.  `poison` is
        the value that a program compiled with Options(poison=True) writes to undefined padding; the
        outputs must not depend on it.

        Outputs that `out` names are written into its arrays, and the result has these objects in
        the place of new arrays.  They are numpy arrays or objects that export DLPack, writable, of
        the output's dtype and shape.  Kernels write into those that are C-contiguous and share no
        memory with an input; for others, and where the extents of the output depend on the run, the
        result is copied.  If a run raises an error, their contents are undefined.

        Scalars of kernels are given as integers; they must satisfy what the kernels assume of them.
        An array that a kernel reads and writes (`inout`) is not changed: its new value is the
        output of the same name.

        Raises InvalidModel, before anything runs, for names, shapes or dtypes that do not fit, and
        with Options(check_assumes=True) for an assumption that does not hold, and for scalars that
        do not satisfy what a kernel assumes of them; TypeError for inputs that are not a mapping;
        RunError for a value that the model does not allow, such as an index outside its tensor.
        """
        try:
            # Before a program is chosen, which takes a tenth of a short run.  `program.run` asks
            # once more, as inputs may be plain after they were made arrays.
            if out is None:
                # `_at_hand` is not called for a single program: a call takes as long as all this.
                complete = self._complete
                if complete is None:
                    complete = self._at_hand(inputs)
                results = None if complete is None else complete.run_plainly(inputs)
                if results is not None:
                    return results
            program, given = self._chosen(inputs, poison)
            return program.run(given, out)
        except MemoryError as error:
            raise GraphflowError(f"memory ran out in a run: {error}") from error

    def bind(self, *, keep: bool = False) -> Binding:
        """Runs one after the other, in which tensors that an output repeats stay where they are.

        A decoder that is given the keys and values of all tokens so far, and gives these with those
        of the new tokens, writes the new rows alone: `Binding` has the details.  Which inputs and
        outputs share memory so, and why others do not, is in `report()` under `states`.

        With `keep`, tensors of earlier runs are copied before a run writes over them; without, they
        are no more.
        """
        return Binding(self._chosen, self._at_hand, keep=keep)

    def _at_hand(self, inputs: Mapping[str, ArrayLike]) -> Program | None:
        """The program for the inputs of a run, where that needs no search."""
        return self._models.at_hand(inputs) if self._complete is None else self._complete

    def _chosen(
        self, inputs: Mapping[str, ArrayLike], poison: float
    ) -> tuple[Program, Mapping[str, Any]]:
        """The program for the inputs of a run, and these with what the caller does not give."""
        complete = self._at_hand(inputs)
        if complete is not None and complete.inputs.takes(inputs):
            return complete, inputs
        _require_mapping(inputs)
        inputs = _with_arrays(inputs)
        _refuse_frozen(self._frozen, inputs)
        model = self._models.serve(inputs)
        given = {**model.defaults, **_poisons(model, poison), **inputs}
        if model.check_assumes:
            for assumed in model.assumed:
                if assumed.tensor in given:
                    require_assumed(assumed, given[assumed.tensor])
        for limits in model.scalar_limits:
            given.update(limits.given(given))
        return model.program, given

    async def run_async(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        out: Mapping[str, Any] | None = None,
        poison: float = nan,
    ) -> dict[str, NDArray[Any]]:
        """Run the model in a thread of the event loop's executor; arguments, results and errors are
        those of `run`.

        The loop serves other tasks meanwhile, as kernels and compilations of open shapes do not
        hold the interpreter lock for long.  Several runs may be awaited at once.  A task that is
        cancelled stops waiting; its run goes on to its end, and writes into `out`.
        """
        # Whoever awaits has imported asyncio; other processes do without.
        asyncio = import_module("asyncio")
        run = partial(self.run, inputs, out=out, poison=poison)
        results: dict[str, NDArray[Any]] = await asyncio.to_thread(run)
        return results

    def __call__(self, array: ArrayLike) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Run a model of one input: returns its output, or a tuple if there are several."""
        if isinstance(array, Mapping):
            raise TypeError("a call takes one array; give arrays by name to run()")
        names = self.required
        if len(names) != 1:
            raise InvalidModel(
                f"the model takes the inputs {', '.join(names) or '(none)'}; give them by name to "
                "run()"
            )
        results = tuple(self.run({names[0]: array}).values())
        return results[0] if len(results) == 1 else results

    def precompile(
        self,
        shapes: Shapes | Sequence[Shapes] = (),
        values: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Compile now for shapes of later runs: one mapping of input shapes, or several.

        `values` gives the values of inputs that decide shapes.  A program that exists already is
        kept.  Raises InvalidModel if the shape or value of an input that decides is missing or does
        not fit the model.
        """
        for wanted in [shapes] if isinstance(shapes, Mapping) else [*shapes] or [{}]:
            self._models.precompile(wanted, {} if values is None else values)

    @property
    def specializations(self) -> tuple[Executable, ...]:
        """An executable for each set of shapes and values that a program exists for.

        A model without open shapes has one, which is equal to this model.
        """
        return tuple(Executable(Single(model), self.declaration) for model in self._models.made)

    @property
    def compiled(self) -> Compiled:
        """The results of the compiler's stages; GraphflowError for a loaded model."""
        return self._models.only().compiled

    @property
    def program(self) -> Program:
        """The native program."""
        return self._models.only().program

    @property
    def inputs(self) -> Tensors:
        """Names, dtypes and logical shapes of the inputs, in the model's order.

        With open shapes they are `OpenTensor`s, whose extents are numbers or names of dimensions.
        """
        if self._models.deciding:
            return self._models.interface.inputs
        model = self._models.only()
        if not model.program.spec.sizes:
            return model.inputs
        return tuple(with_size_names(model.program.spec, tensor) for tensor in model.inputs)

    @property
    def outputs(self) -> Tensors:
        """Names, dtypes and logical shapes of the outputs, in the model's order.

        The shape of an output whose extents depend on values is its largest.  With open input
        shapes they are `OpenTensor`s with the extents that the model declares.
        """
        if self._models.deciding:
            return self._models.interface.outputs
        return self.program.spec.results

    @property
    def deciding(self) -> tuple[str, ...]:
        """The inputs whose shapes or values decide which program runs; empty if all are known."""
        return self._models.deciding

    @property
    def values(self) -> Mapping[str, NDArray[Any]]:
        """The values of inputs that the program was compiled for; a run may leave these inputs
        out."""
        return {} if self._models.deciding else self._models.only().values

    @property
    def threads(self) -> int:
        """The number of threads of a run."""
        return self.program.threads

    @property
    def poisoned(self) -> int:
        """The number of elements of undefined padding that a run overwrites; 0 without
        Options.poison."""
        return self._models.only().poisoned

    @property
    def foreign(self) -> tuple[ForeignNode, ...]:
        """The nodes without a kernel, which onnxruntime runs, each with the reason."""
        sections = self.program.spec.sections
        return tuple(node for spec in sections for node in spec.section.nodes)

    @property
    def layouts(self) -> Mapping[str, TensorDecision] | Mapping[str, SavedEdge]:
        """The decision about each tensor of the model, by name.

        A loaded model has `SavedEdge`s, in which a layout is given by its name.  Raises
        InvalidModel if there are programs for several shapes, or none yet: ask each of
        `specializations`.
        """
        return self._models.only().layouts

    def explain(self, name: str, full: bool = False) -> Explanation:
        """The text that explains the decision about one tensor; InvalidModel for an unknown name.

        `full` adds the variants of its producer that were refused, and the refused steps of the
        chosen variant.  With open shapes there is one explanation for each program.
        """
        if not self._models.deciding:
            return Explanation(self._models.only().explain(name, full))
        known = self._models.interface.tensors
        if name not in known:
            raise unknown_tensor(name, known)
        stories = [
            f"for {describe_key(model, self._models.deciding)}:\n{model.explain(name, full)}"
            for model in self._models.made
        ]
        return Explanation("\n\n".join(stories) or f"{name}: {_nothing_made(self._models)}")

    def report(self) -> dict[str, Any]:
        """All decisions as plain values: the JSON of `graphflow inspect --json`.

        With open shapes it has the interface, under `specializations` the report of each program,
        under `sizes` the sizes that `compile` was given (bounds, whether one program serves all
        extents, and if not, why), and under `programs` how many programs were compiled or found in
        the cache, are kept, are kept at most, and were dropped (None for a loaded model, which has
        those of its file).
        """
        models = self._models
        if not models.deciding:
            return models.only().report()
        face = models.interface
        return {
            "schema": REPORT_SCHEMA,
            "model": face.title,
            "inputs": [str(tensor) for tensor in face.inputs],
            "outputs": [str(tensor) for tensor in face.outputs],
            "deciding": list(models.deciding),
            "specializations": [
                {"for": describe_key(model, models.deciding), **model.report()}
                for model in models.made
            ],
            "programs": _program_counts(models),
            "sizes": {name: dict(about) for name, about in models.sizes.items()},
            "note": "" if models.made else _nothing_made(models),
        }

    def decisions(self) -> Decisions:
        """The decisions as a table of texts with a summary line, as `graphflow inspect` prints
        them."""
        return self._models.only().decisions()

    def page(self) -> str:
        """The decisions as a picture: an HTML page in one file, which `inspect --html` writes.

        GraphflowError for a loaded model, which does not have all that the page shows.
        """
        return self._models.only().page()

    def save(self, path: str | Path) -> None:
        """Write the program, its packed constants, the report and the explanations to a file.

        The file holds native code for processors with this target's features.  It is complete or
        absent: if writing stops, an older file of that name is unchanged.  With open shapes the
        file has the programs that exist (`precompile` makes them), serves their shapes and refuses
        others.  Raises InvalidModel if there is no program, and GraphflowError if the system
        refuses to write.
        """
        save_models(path, self._models, self.declaration)

    @property
    def title(self) -> str:
        """The model's name, and that of the target as soon as there is a program."""
        return title_of(self._models)

    def __repr__(self) -> str:
        return one_line(self._models, self.inputs, self.outputs)

    def _repr_html_(self) -> str:
        return as_html(self._models, self.inputs, self.outputs)

    def __reduce__(self) -> tuple[Callable[..., Executable], tuple[Any, ...]]:
        if self._file is None:
            return _of_bytes, (saved_bytes(self._models, self.declaration),)
        file = self._file
        return _of_file, (file.path, file.threads, file.mmap, file.sha256())

    @property
    def _frozen(self) -> tuple[str, ...]:
        """The graph inputs that are constants."""
        deciding = self._models.deciding
        return self._models.interface.frozen if deciding else self._models.only().frozen

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the inputs that every run has to give; the others have defaults."""
        if self._models.deciding:
            return self._models.interface.required
        model = self._models.only()
        return tuple(tensor.name for tensor in model.inputs if tensor.name not in model.defaults)


def load(
    path: str | Path,
    *,
    threads: int | None = None,
    mmap: bool = True,
    sha256: str | None = None,
) -> Executable:
    """Load a model that `Executable.save` wrote: nothing is compiled, and constants are mapped.

    `threads` defaults to the number that the model was compiled with, or if that was open, to the
    processors that this process may use.  Raises InvalidModel for a file that is damaged, truncated
    or of another format, and CodegenError if this processor cannot execute its code.

    A mapped file must not change: a run after a write to the file raises InvalidModel (a write
    during a run is not detected).  With `mmap=False` the constants are copied, and later changes of
    the file have no effect.  With `sha256`, 64 hexadecimal digits, only a file with this digest is
    loaded.

    Checksums detect damage, not malice: the file is native code, so load only files that you trust.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a saved model is given by its path, not by {type(path).__name__}")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
        raise TypeError(f"threads is {threads!r}; give a number of threads, or None")
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"sha256 is {sha256!r}; give 64 hexadecimal digits")
    file = LoadedFile.of(path, threads, mmap)  # first: a later write makes another file of it
    return Executable(*load_models(path, threads, mmap=mmap, sha256=sha256), file)


def _of_file(path: str, threads: int | None, mmap: bool, sha256: str) -> Executable:
    """The executable of a pickle that has the path and the digest of a file."""
    return load(path, threads=threads, mmap=mmap, sha256=sha256)


def _of_bytes(data: bytes) -> Executable:
    """The executable of a pickle that has the bytes of a saved file."""
    return Executable(*models_of(data))


def _complete_program(models: Models) -> Program | None:
    """The program that a run with all of its inputs needs nothing else for; None if a run may have
    to choose one, to check assumptions or scalars, or to add what the caller does not know."""
    if not isinstance(models, Single):
        return None
    return models.model.program if needs_only_inputs(models.model) else None


def _program_counts(models: Models) -> dict[str, int] | None:
    counts = models.counts
    if counts is None:
        return None
    return {
        "compiled": counts.made,
        "kept": counts.kept,
        "most": counts.most,
        "dropped": counts.dropped,
    }


def _nothing_made(models: Models) -> str:
    return (
        f"nothing is decided yet: the inputs {', '.join(models.deciding)} decide what is compiled, "
        "and no run has brought them"
    )


def _require_mapping(inputs: Mapping[str, ArrayLike]) -> None:
    if not isinstance(inputs, Mapping):
        raise TypeError(
            f"run takes a mapping from names of inputs to arrays, not {type(inputs).__name__}; a "
            "model of one input can be called with its array"
        )
    for name in inputs:
        if not isinstance(name, str):
            raise TypeError(f"run is given the input {name!r}; names of inputs are strings")


def _with_arrays(inputs: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """The inputs, with arrays in place of objects that export DLPack."""
    return {
        name: given_array(name, value) if hasattr(value, "__dlpack__") else value
        for name, value in inputs.items()
    }


def _refuse_frozen(known: Sequence[str], inputs: Mapping[str, ArrayLike]) -> None:
    frozen = [name for name in known if name in inputs]
    if frozen:
        raise InvalidModel(
            f"the graph inputs {frozen} have initializers, and the model is compiled with these as "
            f"constants; leave them out, or compile with overridable={frozen}"
        )


def _poisons(model: Model, value: float) -> dict[str, NDArray[Any]]:
    """`value` in each element type that is poisoned; integer types get their smallest value for
    NaN."""
    found = {}
    spec = model.program.spec
    scalars = set(range(len(model.inputs), len(spec.inputs))) - spec.held
    for scalar in (spec.inputs[number] for number in sorted(scalars)):
        dtype = np.dtype(scalar.dtype)
        smallest = np.iinfo(dtype).min if dtype.kind in "iu" else value
        found[scalar.name] = np.array(smallest if isnan(value) else value).astype(dtype)
    return found
