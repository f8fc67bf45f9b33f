"""What an `Executable` asks of the model behind it, whether just compiled or loaded from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from numpy.typing import NDArray

from graphflow.assumed import Assumed
from graphflow.decisions import Decisions, SavedEdge
from graphflow.runtime import Processor, Program, TensorSpec

if TYPE_CHECKING:  # importing the compiler takes a second, which loading a file does not need
    from graphflow.compiler import Compiled
    from graphflow.inspect import EdgeType

Shapes: TypeAlias = "Mapping[str, Sequence[int]]"


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
    def layouts(self) -> Mapping[str, EdgeType] | Mapping[str, SavedEdge]:
        """The decision about each tensor."""

    def explain(self, name: str) -> str:
        """The story of one tensor; InvalidModel for an unknown name."""

    def explanations(self) -> dict[str, str]:
        """The stories of all tensors."""

    def report(self) -> dict[str, Any]:
        """What `graphflow inspect --json` prints."""

    def decisions(self) -> Decisions:
        """What `graphflow inspect` prints."""


class Models(Protocol):
    """The models of an executable: one, or one for each set of shapes that occurs."""

    @property
    def symbolic(self) -> tuple[str, ...]:
        """The inputs whose shapes are open."""

    def only(self) -> Model:
        """The one model; InvalidModel where shapes are open."""

    def serve(self, shapes: Shapes) -> Model:
        """The model for these shapes of the symbolic inputs."""
