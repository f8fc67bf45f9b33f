"""`CompileRequest`: what is to be compiled, for which inputs and processor, and with which wishes.

In: what a caller states.  Out: one value, which the public functions build and everything inside
passes on.  What always holds: its fields have the types that they declare, or TypeError says which
argument has not; what they state of a model is checked by the stage that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeAlias

import onnx
from numpy.typing import ArrayLike

from graphflow.base.arguments import Shapes, check_arguments
from graphflow.base.assumed import Assumption
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.sizes import Size
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.cost import NO_TIMINGS, Timings, TimingTable
from graphflow.frontends import OnnxModel, OwnOperators, ReadModel
from graphflow.graph import OperatorGraph
from graphflow.layout import Layout
from graphflow.runtime import default_threads
from graphflow.schedule import Sketch, require_sketches

Source: TypeAlias = "OnnxModel | ReadModel | OperatorGraph"


@dataclass(frozen=True)
class CompileRequest:
    """A model and everything that its caller decides about the compilation.

    | field | what it states |
    |---|---|
    | `model` | an ONNX model, or an `OperatorGraph`, which skips the import |
    | `name` | the model's name in reports; None for its path, or the name of its graph |
    | `input_shapes` | the full logical shapes of inputs with symbolic dimensions, by name |
    | `input_values` | values that every run gives for these inputs; shapes may depend on them |
    | `sizes` | symbolic dimensions that have their most in `input_shapes`; runs may give fewer |
    | `overridable` | graph inputs whose initializers are defaults, not constants |
    | `operators` | operators that the caller adds, asked before graphflow's own |
    | `assume` | what holds for the contents of graph inputs in every run, by name |
    | `target` | the processor to compile for, by default the host |
    | `layouts` | values of the fused graph that are pinned to a layout, given itself or by name |
    | `offers` | called with the graph before fusion, to offer schedules of its nodes' kernels |
    | `sketches` | those whose search results in the timing table are offered as well |
    | `options` | settings that never change results; by default those of the environment |
    | `progress` | called with the name of each stage as it begins |
    | `counting` | called with the numbers of kernels that the stage has made and will make |
    """

    model: Source
    _: KW_ONLY
    name: str | None = None
    input_shapes: Shapes = field(default_factory=dict)
    input_values: Mapping[str, ArrayLike] = field(default_factory=dict)
    sizes: tuple[Size, ...] = ()
    overridable: Collection[str] = ()
    operators: OwnOperators | None = None
    assume: Mapping[str, Assumption] = field(default_factory=dict)
    target: Target = field(default_factory=host_target)
    layouts: Mapping[str, Layout | str] = field(default_factory=dict)
    offers: Callable[[OperatorGraph], None] | None = None
    sketches: Sequence[Sketch] = ()
    options: Options = field(default_factory=Options.from_environment)
    progress: Callable[[str], None] | None = None
    counting: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        check_arguments(
            input_shapes=self.input_shapes,
            layouts=self.layouts,
            assume=self.assume,
            overridable=self.overridable,
            operators=self.operators,
            target=self.target,
            offers=self.offers,
            progress=self.progress,
            counting=self.counting,
        )
        require_sketches(self.sketches)
        # Instructions that flush denormals whatever is asked of them are the target's to permit.
        if self.options.flush_denormals and not self.target.flushes_denormals:
            permitting = replace(self.target, flushes_denormals=True)
            object.__setattr__(self, "target", permitting)

    @property
    def title(self) -> str:
        """The model's name in reports."""
        return _title(self.model) if self.name is None else self.name

    @property
    def threads(self) -> int:
        """The number of threads of a run."""
        threads = self.options.threads
        return default_threads() if threads is None else threads

    def timings(self) -> Timings:
        """The measured times for the target, if the options name a timing table, which is read."""
        path = self.options.timings
        return (
            NO_TIMINGS if path is None else TimingTable(path, self.target, self.threads).timings()
        )


def _title(model: Source) -> str:
    match model:
        case OperatorGraph():
            return ", ".join(dict.fromkeys(node.op for node in model.nodes)) or "graph"
        case ReadModel():
            return _title(model.proto)
        case onnx.ModelProto():
            return str(model.graph.name) or "model"
        case bytes():
            return "model"
        case _:
            return str(model)
