"""The interfaces `Model` and `Models`, through which an `Executable` reaches compiled and loaded
programs.

A *model* is one program, with what is known about it.  The *models* of an executable are one, or as
many as there are shapes (and values that decide shapes) in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.base.arguments import Shapes
from graphflow.base.assumed import Assumed
from graphflow.base.decisions import Decisions, SavedEdge
from graphflow.base.errors import InvalidModel, Remedy
from graphflow.program import OpenTensor, TensorSpec
from graphflow.runtime import Processor, Program, require_value

if TYPE_CHECKING:  # importing the compiler takes a second, which loading a file does not need
    from graphflow.inspect import TensorDecision
    from graphflow.pipeline.compiler import Compiled

Values: TypeAlias = "Mapping[str, NDArray[Any]]"


Tensors: TypeAlias = "tuple[TensorSpec, ...] | tuple[OpenTensor, ...]"


@dataclass(frozen=True)
class Interface:
    """What is known of a model whose shapes are open before anything is compiled.

    `title` is what reports call it, `tensors` the names of all its tensors; `defaults` are the
    contents of inputs that may be left out, `frozen` the graph inputs that are constants.
    """

    title: str
    inputs: tuple[OpenTensor, ...]
    outputs: tuple[OpenTensor, ...]
    tensors: tuple[str, ...]
    defaults: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The inputs that every run has to give."""
        return tuple(tensor.name for tensor in self.inputs if tensor.name not in self.defaults)


class Model(Protocol):
    """A model for one set of input shapes: a program, and what is known about it."""

    @property
    def program(self) -> Program:
        """The native program; inputs of poison mode come behind the model's own."""

    @property
    def compiled(self) -> Compiled:
        """What the compiler's stages gave; GraphflowError where nobody kept it."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's own inputs."""

    @property
    def values(self) -> Values:
        """The values of inputs that the program was made for."""

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """Values of the inputs that may be left out."""

    @property
    def frozen(self) -> tuple[str, ...]:
        """Graph inputs whose initializers are constants: no run gives them."""

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What the user says of the inputs."""

    @property
    def check_assumes(self) -> bool:
        """Whether each run checks that."""

    @property
    def threads(self) -> int | None:
        """The threads that were asked for; None for those of whatever machine runs it."""

    @property
    def processor(self) -> Processor:
        """What the object code needs."""

    @property
    def poisoned(self) -> int:
        """Elements of undefined padding that a run overwrites."""

    @property
    def layouts(self) -> Mapping[str, TensorDecision] | Mapping[str, SavedEdge]:
        """The decision about each tensor."""

    def explain(self, name: str, full: bool = False) -> str:
        """The story of one tensor, in full with refused variants; InvalidModel for an unknown
        name."""

    def explanations(self) -> dict[str, str]:
        """The stories of all tensors."""

    def report(self) -> dict[str, Any]:
        """What `graphflow inspect --json` prints."""

    def decisions(self) -> Decisions:
        """What `graphflow inspect` prints."""


class Models(Protocol):
    """The models of an executable: one, or one for each set of shapes that occurs."""

    @property
    def deciding(self) -> tuple[str, ...]:
        """The inputs whose shapes or values decide which program runs; none where there is one."""

    @property
    def interface(self) -> Interface:
        """What is known of all; only asked where some inputs decide."""

    @property
    def made(self) -> tuple[Model, ...]:
        """The models that there are by now."""

    def only(self) -> Model:
        """The one model that there is; InvalidModel where there are none or several."""

    def serve(self, inputs: Mapping[str, ArrayLike]) -> Model:
        """The model for a run with these inputs."""

    def precompile(self, shapes: Shapes, values: Mapping[str, ArrayLike]) -> None:
        """See that the model for these shapes and values of inputs is there."""


@dataclass(frozen=True)
class Single:
    """The `Models` of an executable that has one."""

    model: Model
    deciding: tuple[str, ...] = ()

    @property
    def interface(self) -> Interface:
        """Nothing is open."""
        raise AssertionError("a single model has no open shapes")

    @property
    def made(self) -> tuple[Model, ...]:
        """The one."""
        return (self.model,)

    def only(self) -> Model:
        """The one."""
        return self.model

    def serve(self, inputs: Mapping[str, ArrayLike]) -> Model:
        """The one; it checks its inputs itself."""
        return self.model

    def precompile(self, shapes: Shapes, values: Mapping[str, ArrayLike]) -> None:
        """Nothing is left to do; InvalidModel where the one is for other shapes or values."""
        known = {tensor.name: tensor.shape for tensor in self.model.inputs}
        for name, shape in shapes.items():
            if known.get(name) != tuple(shape):
                listed = ", ".join(map(str, self.model.inputs))
                raise InvalidModel(f"{name}={tuple(shape)} does not fit the inputs: {listed}")
        for name, value in values.items():
            require_value(name, self.model.values.get(name, value), value)


def deciding_input(
    interface: Interface, inputs: Mapping[str, ArrayLike], name: str
) -> NDArray[Any]:
    """What a run gives for an input that decides which program runs, or the input's default."""
    if name not in inputs and name not in interface.defaults:
        raise InvalidModel(
            f"input {name!r} is missing, and its shape or value decides which program runs"
        )
    return given_array(name, inputs[name] if name in inputs else interface.defaults[name])


def given_array(name: str, value: ArrayLike) -> NDArray[Any]:
    """What a run gives for an input, as an array; InvalidModel where it is none."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidModel(f"input {name!r} is no array: {error}") from error


def only_made(models: Models, nothing: str, remedies: Sequence[Remedy]) -> Model:
    """The one model that there is; InvalidModel where there are several, or `nothing` for none."""
    made = models.made
    if len(made) == 1:
        return made[0]
    if not made:
        raise InvalidModel(f"{nothing}, and nothing has been compiled so far", remedies=remedies)
    raise InvalidModel(
        f"{', '.join(models.deciding)} decide which of several programs runs, and this asks for a "
        f"single one; there are those for {describe_made(models)}",
        remedies=remedies,
    )


def describe_key(model: Model, deciding: Sequence[str]) -> str:
    """Which shapes and values a program is for: `x: float32[2, 3], shape: int64[2] = [3, 2]`."""
    texts = []
    for tensor in model.inputs:
        if tensor.name in deciding:
            value = model.values.get(tensor.name)
            texts.append(f"{tensor}" + ("" if value is None else f" = {value.tolist()}"))
    return ", ".join(texts)


def describe_made(models: Models) -> str:
    """The shapes and values that there are programs for, or that there are none yet."""
    listed = [describe_key(model, models.deciding) for model in models.made]
    return "; ".join(f"({text})" for text in listed) if listed else "none so far"
