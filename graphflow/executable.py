"""The face of a compiled model: run it, look at its layouts, ask why.

In: a model.  Out: an `Executable`: a program, the plan behind it, and the report on both.  What
always holds: a model without symbolic dimensions is compiled when `compile` returns; one with
symbolic dimensions is compiled at the first run, for the shapes that the run brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.compiler import Compiled, Model, compile_graph
from graphflow.errors import GraphflowError, InvalidModel
from graphflow.frontends import read_model, symbolic_inputs
from graphflow.inspect import EdgeType, edge_types, explain, report
from graphflow.layout import Layout
from graphflow.options import Options
from graphflow.runtime import Program, TensorSpec
from graphflow.specialize import Loaded, Shapes, Specializer
from graphflow.target import Target


class Executable:
    """A compiled model; made by `compile`."""

    def __init__(self, specializer: Specializer) -> None:
        self._specializer = specializer

    def run(
        self, inputs: Mapping[str, ArrayLike], *, poison: float = nan
    ) -> dict[str, NDArray[Any]]:
        """Arrays by input name to new arrays by output name.

        Inputs may have any strides and are never cast; those with a default may be left out.
        `poison` is what a program compiled with Options(poison=True) writes to undefined padding;
        the outputs must not depend on it.  InvalidModel, before anything runs, where names, shapes
        or dtypes do not fit.
        """
        loaded = self._loaded_for(inputs)
        extra = {**_defaults(loaded.compiled, inputs), **_poisons(loaded.compiled, poison)}
        return loaded.program.run({**extra, **inputs})

    def __call__(self, array: ArrayLike) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Run a model of one input: its output, or a tuple of them where there are several."""
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
        """What the stages of the compiler gave."""
        return self._specializer.only().compiled

    @property
    def program(self) -> Program:
        """The native program."""
        return self._specializer.only().program

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and logical shapes of the inputs, in the model's order."""
        return model_inputs(self.compiled)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and logical shapes of the outputs, in the model's order."""
        return self.compiled.spec.outputs

    @property
    def threads(self) -> int:
        """How many threads a run uses."""
        return self.program.threads

    @property
    def poisoned(self) -> int:
        """How many elements of undefined padding a run overwrites; 0 without Options.poison."""
        return self.compiled.physical.poisoned

    @property
    def layouts(self) -> Mapping[str, EdgeType]:
        """The decision about each tensor of the model, by name."""
        return edge_types(self.compiled)

    def explain(self, name: str) -> str:
        """What was decided about one tensor, and why; InvalidModel for a name it does not have."""
        return explain(self.compiled, name)

    def report(self) -> dict[str, Any]:
        """All decisions as plain values: what `graphflow inspect --json` prints."""
        return report(self.compiled)

    def save(self, path: str | Path) -> None:
        """Not built yet: raises GraphflowError."""
        raise GraphflowError(
            f"saving compiled models is not built, so {path} was not written; compile the model "
            "again where it is needed"
        )

    def _loaded_for(self, inputs: Mapping[str, ArrayLike]) -> Loaded:
        symbolic = self._specializer.symbolic
        if not symbolic:
            return self._specializer.only()
        shapes = {name: np.shape(inputs[name]) for name in symbolic if name in inputs}
        return self._specializer.serve(shapes)

    def _required_inputs(self, array: ArrayLike) -> tuple[str, ...]:
        symbolic = self._specializer.symbolic
        if len(symbolic) > 1:
            return symbolic
        shapes = {name: np.shape(array) for name in symbolic}
        loaded = self._specializer.serve(shapes) if symbolic else self._specializer.only()
        defaults = loaded.compiled.imported.initializers
        return tuple(t.name for t in model_inputs(loaded.compiled) if t.name not in defaults)


def model_inputs(compiled: Compiled) -> tuple[TensorSpec, ...]:
    """The inputs of the program that the model itself has."""
    return compiled.spec.inputs[: len(compiled.imported.inputs)]


def _poisons(compiled: Compiled, value: float) -> dict[str, NDArray[Any]]:
    """`value` in each element type that is poisoned; integers have their smallest for NaN."""
    found = {}
    for scalar in compiled.physical.poisons:
        dtype = np.dtype(scalar.dtype)
        smallest = np.iinfo(dtype).min if dtype.kind in "iu" else value
        found[scalar.name] = np.array(smallest if isnan(value) else value).astype(dtype)
    return found


def _defaults(compiled: Compiled, given: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """The values that the model itself has for inputs that are not given."""
    known = compiled.imported.initializers
    return {
        tensor.name: known[tensor.name]
        for tensor in model_inputs(compiled)
        if tensor.name in known and tensor.name not in given
    }


def compile(
    model: Model,
    *,
    input_shapes: Shapes | None = None,
    target: Target | None = None,
    threads: int | None = None,
    layouts: Mapping[str, Layout | str] | None = None,
    assume: Sequence[str] = (),
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
) -> Executable:
    """Compile an ONNX model: a path, the bytes of a file, or a proto.

    `input_shapes` gives full logical shapes by input name for symbolic dimensions; where it leaves
    some open, they are taken from the inputs of each run.  `layouts` pins tensors to a layout, or
    to one by its name; `threads` overrides the option of that name.  Raises InvalidModel,
    UnsupportedOp and what else the compiler's stages refuse with.
    """
    proto = read_model(model)
    chosen = Options.from_environment() if options is None else options
    chosen = chosen if threads is None else replace(chosen, threads=threads)
    name = str(model) if isinstance(model, str | Path) else None

    def build(shapes: Shapes) -> Compiled:
        return compile_graph(
            proto,
            name=name,
            input_shapes=shapes,
            target=target,
            layouts=layouts,
            assume=assume,
            options=chosen,
            progress=progress,
        )

    given = {} if input_shapes is None else dict(input_shapes)
    specializer = Specializer(build, symbolic_inputs(proto), given)
    if not specializer.symbolic:
        specializer.only()
    return Executable(specializer)


def load(path: str | Path) -> Executable:
    """Not built yet: raises GraphflowError."""
    raise GraphflowError(
        f"loading saved models is not built, so {path} was not read; compile the ONNX model instead"
    )
