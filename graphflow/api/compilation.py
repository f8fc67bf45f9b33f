"""`gf.compile`: an ONNX model becomes an `Executable`.

In: a model, and the arguments of `compile`.  What always holds: a model whose shapes are known is
compiled when `compile` returns; one with symbolic dimensions, or with inputs whose values decide
shapes, is compiled at the first run, for the shapes and values of that run's inputs.  A process
that only loads saved models imports neither this module nor the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from numpy.typing import ArrayLike

from graphflow.api.executable import Executable
from graphflow.api.model import Interface, Single, Values
from graphflow.api.specialize import Specializer, loaded_alone
from graphflow.base.arguments import Shapes, check_arguments
from graphflow.base.assumed import Assumption
from graphflow.base.errors import UnsupportedOp, ValuesNeeded
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.foreign import ForeignNode, Section, open_section
from graphflow.frontends import (
    OwnOperators,
    ReadModel,
    check_supported,
    fixed_values,
    frozen_inputs,
    input_defaults,
    open_model,
    signature,
    symbolic_inputs,
    tensor_names,
)
from graphflow.graph import OperatorGraph
from graphflow.layout import Layout
from graphflow.pipeline.compiler import Shared, compile_graph, model_name
from graphflow.pipeline.compiler_stages import Model
from graphflow.program import OpenTensor
from graphflow.schedule import Sketch, require_sketches

MOST_OPENED = 1 << 30
"""The largest model, in bytes, that onnxruntime opens as a whole to find out whether it can run
it."""


def compile(
    model: Model,
    *,
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    target: Target | None = None,
    threads: int | None = None,
    layouts: Mapping[str, Layout | str] | None = None,
    offers: Callable[[OperatorGraph], None] | None = None,
    sketches: Sequence[Sketch] = (),
    assume: Mapping[str, Assumption] | None = None,
    overridable: Collection[str] = (),
    operators: OwnOperators | None = None,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    counting: Callable[[int, int], None] | None = None,
) -> Executable:
    """Compile an ONNX model: a path, the bytes of a file, or a proto.

    `input_shapes` gives the full logical shapes of inputs with symbolic dimensions, by name; shapes
    that it leaves open are taken from the inputs of each run.  `input_values` gives the values of
    inputs that decide shapes, such as the target shape of a Reshape; values that it leaves open are
    taken from the inputs of each run, too.  A run may leave out an input that `input_values` gives,
    and may not give another value for it.  `layouts` pins tensors to layouts, given as layouts or
    by name; `threads` overrides the option of that name.  `offers` is called with the graph before
    fusion, where `graph.offer` adds a user's schedules to the variants of a node.  `sketches` are
    those that `tune` searched: the fastest schedules of them that `Options(timings=...)` knows are
    offered.

    `assume` states by input name what holds in every run: `"finite"`, `"nonnegative"`, bounds `(lo,
    hi)` of finite numbers, or the number that each element equals.  Results are undefined in a run
    where it does not hold; Options(check_assumes=True) checks every run.

    A graph input with an initializer is a constant, and a run that gives it is refused; if
    `overridable` names it, a run may give it, and the initializer is its default.

    `operators` adds operators, by name with the domain in front: `{"com.example.Twice": emit}`.
    The function gets a `NodeCall`, reads the node's attributes and inputs, and emits kernels; it is
    asked before graphflow's own operators (docs/extending.md).

    Raises InvalidModel, UnsupportedOp and the other errors of the compiler's stages, and TypeError
    for arguments of other types.
    """
    check_arguments(
        input_shapes=input_shapes,
        layouts=layouts,
        assume=assume,
        overridable=overridable,
        operators=operators,
        target=target,
        options=options,
        threads=threads,
    )
    require_sketches(sketches)
    opened = open_model(model)
    proto = opened.proto
    frozen_inputs(proto, overridable)  # refuses other names
    chosen = Options.from_environment() if options is None else options
    chosen = chosen if threads is None else replace(chosen, threads=threads)
    name = str(model) if isinstance(model, str | Path) else None

    values = fixed_values(proto, {} if input_values is None else input_values)
    build = partial(
        compile_graph,
        opened,
        name=name,
        target=target,
        layouts=layouts,
        offers=offers,
        sketches=sketches,
        assume=assume,
        overridable=overridable,
        operators=operators,
        options=chosen,
        progress=progress,
        counting=counting,
    )
    given = {} if input_shapes is None else dict(input_shapes)
    symbolic = tuple(n for n in symbolic_inputs(proto) if n not in given and n not in values)
    needed: tuple[str, ...] = ()
    if not symbolic:
        try:
            return Executable(Single(loaded_alone(build(input_shapes=given, input_values=values))))
        except ValuesNeeded as error:
            needed = error.inputs
    _require_runnable(opened, chosen, operators)
    title = model_name(model) if name is None else name
    interface = _interface(opened, title, given, values, overridable)
    made = partial(build, shared=Shared())
    return Executable(
        Specializer(
            made,
            interface,
            shapes=given,
            values=values,
            symbolic=symbolic,
            most=chosen.programs,
            needed=needed,
        )
    )


def _require_runnable(opened: ReadModel, options: Options, operators: OwnOperators | None) -> None:
    """Raise UnsupportedOp before the first run for operators that cannot be compiled for any
    shapes."""
    try:
        check_supported(opened, operators)
    except UnsupportedOp as refusal:
        if options.fallback is None:
            raise
        size = opened.proto.ByteSize() + sum(array.nbytes for array in opened.contents.values())
        if size <= MOST_OPENED:
            proto = opened.whole()
            node = ForeignNode(proto.graph.name, "the model", str(refusal))
            open_section(Section("model", proto.SerializeToString(), (node,), (), ()), 1)


def _interface(
    opened: ReadModel,
    title: str,
    shapes: Shapes,
    values: Values,
    overridable: Collection[str],
) -> Interface:
    """What is known of a model before it is compiled, if shapes or values of some inputs are
    open."""
    proto = opened.proto
    inputs, outputs = (
        tuple(OpenTensor(*tensor) for tensor in tensors)
        for tensors in signature(proto, overridable)
    )
    known = {**shapes, **{name: array.shape for name, array in values.items()}}
    fixed = {name: tuple(shape) for name, shape in known.items()}
    return Interface(
        title=title,
        inputs=tuple(
            replace(tensor, shape=fixed.get(tensor.name, tensor.shape)) for tensor in inputs
        ),
        outputs=outputs,
        tensors=tensor_names(proto),
        defaults={**input_defaults(opened, overridable), **values},
        frozen=frozen_inputs(proto, overridable),
    )
