"""From an ONNX model to an `Executable`.

In: a model and choices.  What always holds: a model whose shapes are known is compiled when
`compile` returns; one with symbolic dimensions, or with inputs whose values decide shapes, is
compiled at the first run, for the shapes and values that the run brings.  What only loads saved
models does not import this module, nor the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from numpy.typing import ArrayLike

from graphflow.api.executable import Executable
from graphflow.api.model import Interface, Single, Values
from graphflow.api.specialize import Specializer, loaded
from graphflow.base.arguments import Shapes, check_arguments
from graphflow.base.assumed import Assumption
from graphflow.base.errors import UnsupportedOp, ValuesNeeded
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.foreign import ForeignNode, Section, open_section
from graphflow.frontends import (
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
from graphflow.pipeline.compiler import Compiled, Model, Shared, compile_graph, model_name
from graphflow.program import OpenTensor

MOST_OPENED = 1 << 30
"""Bytes of the largest model that onnxruntime opens whole, to see whether it can."""


def compile(
    model: Model,
    *,
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    target: Target | None = None,
    threads: int | None = None,
    layouts: Mapping[str, Layout | str] | None = None,
    offers: Callable[[OperatorGraph], None] | None = None,
    assume: Mapping[str, Assumption] | None = None,
    overridable: Collection[str] = (),
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    counting: Callable[[int, int], None] | None = None,
) -> Executable:
    """Compile an ONNX model: a path, the bytes of a file, or a proto.

    `input_shapes` gives full logical shapes by input name for symbolic dimensions; where it leaves
    some open, they are taken from the inputs of each run.  `input_values` gives inputs that decide
    shapes, such as the shape that a Reshape is given; where an operator asks for values that it
    leaves open, they are taken from the inputs of each run, as shapes are.  Runs may leave out an
    input that it gives, and may not give another value.  `layouts` pins tensors to a layout, or
    to one by its name; `threads` overrides the option of that name.  `offers` is called with the
    graph before fusion, where `graph.offer` gives nodes schedules of their kernels to choose from.

    `assume` says by input name what every run will give: `"finite"`, `"nonnegative"`, bounds
    `(lo, hi)` of finite numbers, or the number that each element is.  Results are undefined where
    that is not so; Options(check_assumes=True) checks it at every run.

    A graph input that has an initializer is a constant, and a run that gives it is refused; those
    that `overridable` names may be given, and their initializers are defaults.

    Raises InvalidModel, UnsupportedOp and what else the compiler's stages refuse with, TypeError
    for arguments of other types.
    """
    check_arguments(
        input_shapes=input_shapes,
        layouts=layouts,
        assume=assume,
        overridable=overridable,
        target=target,
        options=options,
        threads=threads,
    )
    opened = open_model(model)
    proto = opened.proto
    frozen_inputs(proto, overridable)  # refuses other names
    chosen = Options.from_environment() if options is None else options
    chosen = chosen if threads is None else replace(chosen, threads=threads)
    name = str(model) if isinstance(model, str | Path) else None

    values = fixed_values(proto, {} if input_values is None else input_values)

    def build(
        shapes: Shapes,
        known: Values,
        shared: Shared | None = None,
    ) -> Compiled:
        return compile_graph(
            opened,
            name=name,
            input_shapes=shapes,
            input_values=known,
            target=target,
            layouts=layouts,
            offers=offers,
            assume=assume,
            overridable=overridable,
            options=chosen,
            progress=progress,
            counting=counting,
            shared=shared,
        )

    given = {} if input_shapes is None else dict(input_shapes)
    symbolic = tuple(n for n in symbolic_inputs(proto) if n not in given and n not in values)
    needed: tuple[str, ...] = ()
    if not symbolic:
        try:
            return Executable(Single(loaded(build(given, values))))
        except ValuesNeeded as error:
            needed = error.inputs
    _require_runnable(opened, chosen)
    title = model_name(model) if name is None else name
    interface = _interface(opened, title, given, values, overridable)
    made = partial(build, shared=Shared())
    return Executable(
        Specializer(made, interface, shapes=given, values=values, symbolic=symbolic, needed=needed)
    )


def _require_runnable(opened: ReadModel, options: Options) -> None:
    """UnsupportedOp for what no shapes can make right, before the first run finds it out."""
    try:
        check_supported(opened)
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
    """What is known of a model without compiling it, if some of its inputs are fixed like that."""
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
