"""The executable of a request: the model is compiled, or read as far as it can be before a run.

In: a `CompileRequest`, and a cache of programs.  Out: an `Executable`.  What always holds: a
model whose shapes are known is compiled when it is there; one with symbolic dimensions, or with
inputs whose values decide shapes, is compiled at the first run, for the shapes and values of that
run's inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphflow import frontends
from graphflow.api.compiled_model import loaded
from graphflow.api.executable import Executable
from graphflow.api.listed import ListedExecutable
from graphflow.api.model import Interface, OpenModel, Single, Values
from graphflow.api.open_shapes.specialize import Specializer
from graphflow.api.program_cache import ProgramCache
from graphflow.api.program_maker import ProgramMaker
from graphflow.api.releasing import parted_from_weights
from graphflow.base.assumed import parse_assumptions
from graphflow.base.errors import InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.base.fields import replace
from graphflow.base.sizes import Size
from graphflow.foreign import ForeignNode, Section, open_section
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import OpenTensor

MOST_OPENED = 1 << 30
"""The largest model, in bytes, that onnxruntime opens as a whole to find out whether it can run
it."""


def executable_of(request: CompileRequest, cache: ProgramCache | None = None) -> Executable:
    """The executable of the ONNX model of a request; errors are as of `compile`.

    If the shapes or values of some inputs are open, it compiles when it is run; at once if sizes
    bound all open extents and no values decide.  Its programs are put into the `cache`.
    """
    opened = frontends.open_model(request.model)
    proto = opened.proto
    declared = frontends.declaration(proto)
    if cache is not None:
        cache.locations, cache.declaration = opened.files, declared
    frontends.frozen_inputs(proto, request.overridable)  # refuses other names
    listed = frontends.listed_inputs(proto)
    if listed and request.options.fallback is None:  # else sections take the objects
        return ListedExecutable(request, opened, listed, declared, executable_of)
    frontends.require_inputs(proto, request.input_shapes)
    values = frontends.fixed_values(proto, request.input_values)
    request = replace(request, model=opened, input_values=values)
    symbolic = tuple(
        n for n in frontends.symbolic_inputs(proto) if n not in {*request.input_shapes, *values}
    )
    sized = frontends.sized_axes(proto, request.sizes, request.overridable)
    _require_open(sized, symbolic, values)
    needed: tuple[str, ...] = ()
    if not symbolic and not request.sizes:
        try:
            compiled = compile_graph(request)
        except ValuesNeeded as error:
            needed = error.inputs
        else:
            rest, weights = parted_from_weights(compiled)
            del compiled, opened, request  # nothing else refers to the weights then
            model = loaded(rest, weights=weights)
            if cache is not None:
                cache.keep((), model)
            return Executable(Single(model), declared)
    frontends.require_valid(proto, request.overridable)
    _require_runnable(opened, request)
    interface = _interface(opened, request, values)
    parse_assumptions(request.assume, {each.name: each.dtype for each in interface.inputs})
    specializer = Specializer(
        ProgramMaker(request),
        OpenModel(interface, symbolic, needed),
        request.sizes,
        request.options.programs,
        cache,
    )
    specializer.begin()
    return Executable(specializer, declared)


def maker_of(request: CompileRequest) -> ProgramMaker:
    """What compiles further programs of a model, of which others are cached."""
    opened = frontends.open_model(request.model)
    values = frontends.fixed_values(opened.proto, request.input_values)
    return ProgramMaker(replace(request, model=opened, input_values=values))


def _require_open(
    sized: Mapping[Size, Sequence[tuple[str, int]]], symbolic: Sequence[str], values: Values
) -> None:
    """Raise InvalidModel for a size along an axis of an input whose shape or value is given, or
    which such a value is."""
    for size, axes in sized.items():
        if size.name in values:
            raise InvalidModel(
                f"sizes leaves {size.name!r} open, and the value of this input is given; leave "
                "out one of them"
            )
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
