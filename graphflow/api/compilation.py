"""`gf.compile`: an ONNX model becomes an `Executable`.

In: a model, and the arguments of `compile`.  What always holds: a model whose shapes are known is
compiled when `compile` returns; one with symbolic dimensions, or with inputs whose values decide
shapes, is compiled at the first run, for the shapes and values of that run's inputs.  A process
that only loads saved models imports neither this module nor the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from numpy.typing import ArrayLike

from graphflow import frontends
from graphflow.api.executable import Executable
from graphflow.api.listed import ListedExecutable
from graphflow.api.model import Interface, Single, Values
from graphflow.api.releasing import parted_from_weights
from graphflow.api.rooms import largest_shapes
from graphflow.api.specialize import Specializer, ValueMissing, loaded
from graphflow.base.arguments import Shapes, chosen_options
from graphflow.base.assumed import Assumption, parse_assumptions
from graphflow.base.errors import InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.base.options import Options
from graphflow.base.sizes import Size, sizes_of
from graphflow.base.target import Target
from graphflow.codegen import chosen_target
from graphflow.foreign import ForeignNode, Section, open_section
from graphflow.graph import OperatorGraph
from graphflow.layout import Layout
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import OpenTensor
from graphflow.schedule import Sketch

MOST_OPENED = 1 << 30
"""The largest model, in bytes, that onnxruntime opens as a whole to find out whether it can run
it."""


def compile(
    model: frontends.OnnxModel | frontends.ReadModel,
    *,
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    target: Target | str | None = None,
    threads: int | None = None,
    layouts: Mapping[str, Layout | str] | None = None,
    offers: Callable[[OperatorGraph], None] | None = None,
    sketches: Sequence[Sketch] = (),
    assume: Mapping[str, Assumption] | None = None,
    overridable: Collection[str] = (),
    operators: frontends.OwnOperators | None = None,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    counting: Callable[[int, int], None] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Executable:
    """Compile an ONNX model: a path, the bytes of a file, a proto, or what was read of one.

    `input_shapes` gives the full logical shapes of inputs with symbolic dimensions, by name; shapes
    that it leaves open are taken from the inputs of each run.  `input_values` gives the values of
    inputs that decide shapes, such as the target shape of a Reshape; values that it leaves open are
    taken from the inputs of each run, too.  A run may leave out an input that `input_values` gives,
    and may not give another value for it.  `target` is the processor to compile for, or its name,
    such as `"avx2"`; CodegenError lists the names.  `layouts` pins tensors to layouts, given as
    layouts or by name; `threads` overrides the option of that name.  `offers` is called with the
    graph before fusion, where `graph.offer` adds a user's schedules to the variants of a node.
    `sketches` are those that `tune` searched: the fastest schedules of them that
    `Options(timings=...)` knows are offered.

    `assume` states by input name what holds in every run: `"finite"`, `"nonnegative"`, bounds `(lo,
    hi)` of finite numbers, or the number that each element equals.  Results are undefined in a run
    where it does not hold; Options(check_assumes=True) checks every run.

    `sizes` gives the least and the greatest extent of symbolic dimensions, by the names that the
    model has for them: `{"batch": (1, 8)}`.  Where the greatest is None, programs get ranges that
    grow with the extents of runs; the next program is made in the background before a run needs it.
    One program then serves all extents within these
    bounds, in proportion to those of a run, if it is proven that no result depends on elements that
    a run does not give.  Else a warning and the report say which tensor prevents that, and a
    program is compiled for each shape, as it is for extents beyond the bounds.

    A graph input with an initializer is a constant, and a run that gives it is refused; if
    `overridable` names it, a run may give it, and the initializer is its default.

    `operators` adds operators, by name with the domain in front: `{"com.example.Twice": emit}`.
    The function gets a `NodeCall`, reads the node's attributes and inputs, and emits kernels; it is
    asked before graphflow's own operators (docs/extending.md).

    Raises InvalidModel, UnsupportedOp and the other errors of the compiler's stages, and TypeError
    for arguments of other types.
    """
    request = CompileRequest(
        model=model,
        name=str(model) if isinstance(model, str | Path) else None,
        input_shapes={} if input_shapes is None else input_shapes,
        input_values={} if input_values is None else input_values,
        sizes=sizes_of({} if sizes is None else sizes),
        overridable=overridable,
        operators=operators,
        assume={} if assume is None else assume,
        target=chosen_target(target),
        layouts={} if layouts is None else layouts,
        offers=offers,
        sketches=sketches,
        options=chosen_options(options, threads),
        progress=progress,
        counting=counting,
    )
    return executable_of(request)


def executable_of(request: CompileRequest) -> Executable:
    """The executable of the ONNX model of a request; errors are as of `compile`.

    If the shapes or values of some inputs are open, it compiles when it is run; at once if sizes
    bound all open extents and no values decide.
    """
    opened = frontends.open_model(request.model)
    proto = opened.proto
    frontends.frozen_inputs(proto, request.overridable)  # refuses other names
    listed = frontends.listed_inputs(proto)
    if listed and request.options.fallback is None:  # else sections take the objects
        return ListedExecutable(request, opened, listed, executable_of)
    frontends.require_inputs(proto, request.input_shapes)
    values = frontends.fixed_values(proto, request.input_values)
    request = replace(request, model=opened, input_values=values)
    symbolic = tuple(
        n for n in frontends.symbolic_inputs(proto) if n not in {*request.input_shapes, *values}
    )
    _require_open(frontends.sized_axes(proto, request.sizes), symbolic)
    needed: tuple[str, ...] = ()
    if not symbolic:
        try:
            compiled = compile_graph(request)
        except ValuesNeeded as error:
            needed = error.inputs
        else:
            rest, weights = parted_from_weights(compiled)
            del compiled, opened, request  # nothing else refers to the weights then
            return Executable(Single(loaded(rest, weights=weights)))
    frontends.require_valid(proto, request.overridable)
    _require_runnable(opened, request)
    interface = _interface(opened, request, values)
    parse_assumptions(request.assume, {each.name: each.dtype for each in interface.inputs})
    specializer = Specializer(request, interface, symbolic, needed)
    shapes = largest_shapes(interface.inputs, symbolic, request.sizes)
    if shapes is not None:
        try:
            specializer.precompile(shapes, {}, is_run=False)
        except ValueMissing:
            pass
        except InvalidModel:
            if not specializer.compiles_each_shape:  # else a run may have a shape that is valid
                raise
    return Executable(specializer)


def _require_open(sized: Mapping[Size, Sequence[tuple[str, int]]], symbolic: Sequence[str]) -> None:
    """Raise InvalidModel for a size along an axis of an input whose shape or value is given."""
    for size, axes in sized.items():
        for name, axis in axes:
            if name not in symbolic:
                raise InvalidModel(
                    f"sizes leaves {size.name!r} open, the extent of input {name} along axis "
                    f"{axis}, and the shape of that input is given; leave out one of them"
                )


def _require_runnable(opened: frontends.ReadModel, request: CompileRequest) -> None:
    """Raise UnsupportedOp before the first run for operators that cannot be compiled for any
    shapes."""
    try:
        frontends.check_supported(opened, request.operators)
    except UnsupportedOp as refusal:
        if request.options.fallback is None:
            raise
        size = opened.proto.ByteSize() + opened.contents.nbytes
        if size <= MOST_OPENED:
            proto = opened.whole()
            node = ForeignNode(proto.graph.name, "the model", str(refusal))
            open_section(Section("model", proto.SerializeToString(), (node,), (), ()), 1)


def _interface(opened: frontends.ReadModel, request: CompileRequest, values: Values) -> Interface:
    """What is known of a model before it is compiled, if shapes or values of some inputs are
    open."""
    proto, overridable = opened.proto, request.overridable
    inputs, outputs = (
        tuple(OpenTensor(*tensor) for tensor in tensors)
        for tensors in frontends.signature(proto, overridable)
    )
    known = {**request.input_shapes, **{name: array.shape for name, array in values.items()}}
    fixed = {name: tuple(shape) for name, shape in known.items()}
    return Interface(
        title=request.title,
        inputs=tuple(
            replace(tensor, shape=fixed.get(tensor.name, tensor.shape)) for tensor in inputs
        ),
        outputs=outputs,
        tensors=frontends.tensor_names(proto),
        defaults={**frontends.input_defaults(opened, overridable), **values},
        frozen=frontends.frozen_inputs(proto, overridable),
    )
