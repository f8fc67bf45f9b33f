"""From an ONNX model to an `Executable`.

In: a model and choices.  What always holds: a model without symbolic dimensions is compiled when
`compile` returns; one with symbolic dimensions is compiled at the first run, for the shapes that
the run brings.  What only loads saved models does not import this module, nor the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from graphflow.arguments import check_arguments
from graphflow.assumed import Assumption
from graphflow.compiler import Compiled, Model, compile_graph
from graphflow.executable import Executable
from graphflow.frontends import frozen_inputs, read_model, symbolic_inputs
from graphflow.graph import OperatorGraph
from graphflow.layout import Layout
from graphflow.model import Shapes
from graphflow.options import Options
from graphflow.specialize import Specializer
from graphflow.target import Target


def compile(
    model: Model,
    *,
    input_shapes: Shapes | None = None,
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
    some open, they are taken from the inputs of each run.  `layouts` pins tensors to a layout, or
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
    proto = read_model(model)
    frozen_inputs(proto, overridable)  # refuses other names
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
            offers=offers,
            assume=assume,
            overridable=overridable,
            options=chosen,
            progress=progress,
            counting=counting,
        )

    given = {} if input_shapes is None else dict(input_shapes)
    specializer = Specializer(build, symbolic_inputs(proto), given)
    if not specializer.symbolic:
        specializer.only()
    return Executable(specializer)
