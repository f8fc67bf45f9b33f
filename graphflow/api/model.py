"""The interfaces `Model` and `Models`, through which an `Executable` reaches compiled and loaded
programs.

A *model* is one program with its report, explanations and interface.  The *models* of an executable
are one, or as many as there are sets of input shapes (and of values that decide shapes) in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct, field
from numpy.typing import ArrayLike, NDArray

from graphflow.base.arguments import Shapes
from graphflow.base.assumed import Stated
from graphflow.base.decisions import SavedEdge
from graphflow.base.errors import InvalidModel, Remedy
from graphflow.base.scalar_limits import ScalarLimits
from graphflow.processes.once import Counts
from graphflow.program import OpenTensor, TensorSpec
from graphflow.reports import Decisions
from graphflow.runtime import Processor, Program, given_array, require_value, with_size_names

if TYPE_CHECKING:  # importing the compiler takes a second, which loading a file does not need
    from graphflow.inspect import TensorDecision
    from graphflow.pipeline.compiler import Compiled

Values: TypeAlias = "Mapping[str, NDArray[Any]]"


Tensors: TypeAlias = "tuple[TensorSpec, ...] | tuple[OpenTensor, ...]"


class Interface(Struct, frozen=True):
    """What is known, before compilation, of a model whose shapes are open.

    `title` is its name in reports, `tensors` the names of all its tensors; `defaults` are the
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


class OpenModel(Struct, frozen=True):
    """What is known of a model with open shapes, besides its programs.

    `symbolic` are the inputs with open shapes, `needed` those that are known to decide by their
    values, `lost` is why no program serves all sizes; empty if one may.
    """

    interface: Interface
    symbolic: tuple[str, ...]
    needed: tuple[str, ...] = ()
    lost: str = ""


class Model(Protocol):
    """A program for one set of input shapes, with its report, explanations and interface."""

    @property
    def title(self) -> str:
        """The names of the model and of its target."""

    @property
    def program(self) -> Program:
        """The native program; its inputs are the model's own, then the scalars of poison mode."""

    @property
    def compiled(self) -> Compiled:
        """The results of the compiler's stages; GraphflowError for a loaded model."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's own inputs."""

    @property
    def values(self) -> Values:
        """The values of inputs that the program was compiled for."""

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """Values of the inputs that may be left out."""

    @property
    def frozen(self) -> tuple[str, ...]:
        """Graph inputs whose initializers are constants: no run gives them."""

    @property
    def assumed(self) -> tuple[Stated, ...]:
        """The assumptions about the inputs."""

    @property
    def check_assumes(self) -> bool:
        """Whether each run checks the assumptions."""

    @property
    def scalar_limits(self) -> tuple[ScalarLimits, ...]:
        """What each run checks of the inputs that give scalars of kernels."""

    @property
    def threads(self) -> int | None:
        """The number of threads that was asked for; None for the default of the machine that runs
        it."""

    @property
    def processor(self) -> Processor:
        """The processor features that the object code needs."""

    @property
    def poisoned(self) -> int:
        """The number of elements of undefined padding that a run overwrites."""

    @property
    def layouts(self) -> Mapping[str, TensorDecision] | Mapping[str, SavedEdge]:
        """The decision about each tensor."""

    def edge_types(self) -> dict[str, str]:
        """The texts of the layouts and facts of all tensors, by name."""

    def explain(self, name: str, full: bool = False) -> str:
        """The explanation of one tensor, in full with refused variants; InvalidModel for an unknown
        name."""

    def explanations(self) -> dict[str, str]:
        """The explanations of all tensors, by name."""

    def report(self) -> dict[str, Any]:
        """The JSON of `graphflow inspect --json`, as plain values."""

    def decisions(self) -> Decisions:
        """The table of `graphflow inspect`."""

    def page(self) -> str:
        """The page of `graphflow inspect --html`; GraphflowError for a loaded model."""


class Models(Protocol):
    """The models of an executable: one, or one for each set of shapes that runs bring."""

    @property
    def deciding(self) -> tuple[str, ...]:
        """The inputs whose shapes or values decide which program runs; empty if there is one
        program."""

    @property
    def interface(self) -> Interface:
        """What is known of all models; used only if some inputs decide."""

    @property
    def made(self) -> tuple[Model, ...]:
        """The models that exist."""

    @property
    def counts(self) -> Counts | None:
        """How many programs were compiled and are kept; None if all programs are in a file."""

    @property
    def sizes(self) -> Mapping[str, Mapping[str, Any]]:
        """The sizes that the caller stated, by name: their bounds, whether one program serves all
        of their extents, and if not, why."""

    def only(self) -> Model:
        """The only model; InvalidModel if there are none or several."""

    def serve(self, inputs: Mapping[str, ArrayLike]) -> Model:
        """The model for a run with these inputs."""

    def at_hand(self, inputs: Mapping[str, ArrayLike]) -> Program | None:
        """The program of the run before, if it serves these inputs too and needs nothing but them:
        what `serve` would find, in less time."""

    def precompile(self, shapes: Shapes, values: Mapping[str, ArrayLike]) -> None:
        """Make the model for these shapes and values of inputs, if it does not exist."""


def needs_only_inputs(model: Model) -> bool:
    """Whether the program of a model needs nothing but the inputs that a run gives: no checks of
    assumptions or scalars, and no inputs that callers do not know."""
    spec = model.program.spec
    hidden = len(spec.inputs) - len(spec.held) > len(model.inputs)
    return not (model.check_assumes or model.scalar_limits or hidden)


class Single(Struct, frozen=True):
    """The `Models` of an executable with one program."""

    model: Model
    deciding: tuple[str, ...] = ()
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def interface(self) -> Interface:
        """Never used: no input decides."""
        raise AssertionError("a single model has no open shapes")

    @property
    def counts(self) -> None:
        """Never used: no input decides."""
        raise AssertionError("a single model has no open shapes")

    @property
    def made(self) -> tuple[Model, ...]:
        """The model."""
        return (self.model,)

    def only(self) -> Model:
        """The model."""
        return self.model

    def serve(self, inputs: Mapping[str, ArrayLike]) -> Model:
        """The model; its program checks the inputs."""
        return self.model

    def at_hand(self, inputs: Mapping[str, ArrayLike]) -> None:
        """None: there is nothing to find."""

    def precompile(self, shapes: Shapes, values: Mapping[str, ArrayLike]) -> None:
        """Do nothing; InvalidModel if the model is for other shapes or values."""
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
    """The array of a run for an input that decides which program runs, or the input's default."""
    if name not in inputs and name not in interface.defaults:
        declared = {tensor.name for tensor in interface.inputs}
        others = "".join(f", there is no input {n!r}" for n in inputs if n not in declared)
        raise InvalidModel(
            f"input {name!r} is missing{others}; the inputs are "
            f"{', '.join(map(str, interface.inputs))}"
        )
    return given_array(name, inputs[name] if name in inputs else interface.defaults[name])


def only_made(models: Models, nothing: str, remedies: Sequence[Remedy]) -> Model:
    """The only model that exists; InvalidModel with the text `nothing` if there is none, or if
    there are several."""
    made = models.made
    if len(made) == 1:
        return made[0]
    if not made:
        raise InvalidModel(f"{nothing}, and nothing has been compiled so far", remedies=remedies)
    raise InvalidModel(
        f"there are programs for {describe_made(models)}, and this needs a single one; choose it "
        "by `Executable.specializations` in Python, or by --shape",
        remedies=remedies,
    )


def describe_key(model: Model, deciding: Sequence[str]) -> str:
    """The shapes and values that a program is for: `x: float32[2, 3], shape: int64[2] = [3, 2]`."""
    texts = []
    for tensor in model.inputs:
        if tensor.name in deciding:
            value = model.values.get(tensor.name)
            shown = with_size_names(model.program.spec, tensor)
            texts.append(f"{shown}" + ("" if value is None else f" = {value.tolist()}"))
    texts += [f"{size.name} from {size.lo} to {size.hi}" for size in model.program.spec.sizes]
    return ", ".join(texts)


def describe_made(models: Models) -> str:
    """The shapes and values of all programs that exist, or the statement that none does."""
    listed = [describe_key(model, models.deciding) for model in models.made]
    return "; ".join(f"({text})" for text in listed) if listed else "none so far"
