"""ONNX import: a model becomes a graph of logical kernels.

In: a path, bytes or a proto, and shapes for symbolic inputs.  Out: an `OperatorGraph` in which each
value has its ONNX name, a dtype and a logical shape, and each node a PrimFunc over row-major
buffers.  A model with operators that are not built is refused once, with all of them named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from graphflow.errors import GraphflowError, InvalidModel, UnsupportedOp
from graphflow.frontends.call import Call, Context, check_dtype, dtype_name, known_array
from graphflow.frontends.contrib import CONTRIB
from graphflow.frontends.contrib_attention import CONTRIB_ATTENTION
from graphflow.frontends.control import CONTROL, check_guard
from graphflow.frontends.folding import RANDOM, has_schema
from graphflow.frontends.functions import expand_function, has_function
from graphflow.frontends.load import LoadedModel, load_model
from graphflow.frontends.ops_elementwise import ELEMENTWISE
from graphflow.frontends.ops_linear import LINEAR
from graphflow.frontends.ops_normalization import NORMALIZATION
from graphflow.frontends.ops_reduction import REDUCTION
from graphflow.frontends.ops_resize import RESIZE
from graphflow.frontends.ops_selection import SELECTION
from graphflow.frontends.ops_shape import SHAPE
from graphflow.frontends.ops_window import WINDOW
from graphflow.frontends.rewrites import REWRITES, Rewrite
from graphflow.frontends.sequences import SEQUENCES, Resolver
from graphflow.frontends.steps import After, Item, Step, names_in, names_read
from graphflow.graph import Array, OperatorGraph, Removed, Value

OPERATORS: dict[str, Callable[[Call], None]] = {
    **ELEMENTWISE,
    **LINEAR,
    **NORMALIZATION,
    **REDUCTION,
    **RESIZE,
    **SELECTION,
    **SHAPE,
    **WINDOW,
}
"""What each ONNX operator of the standard domain becomes."""

RESOLVED: dict[str, Resolver] = {**CONTROL, **SEQUENCES}
"""Operators that are gone when a model is imported."""

REWRITTEN: dict[tuple[str, str], Callable[[Rewrite], None]] = {
    **REWRITES,
    **CONTRIB,
    **CONTRIB_ATTENTION,
}
"""Operators, by domain and name, that become others of the standard domain."""


def import_model(
    model: str | Path | bytes | onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> OperatorGraph:
    """The operator graph of an ONNX model, opset 7 or later.

    `input_shapes` gives full logical shapes for inputs with symbolic dimensions.  Raises
    `InvalidModel` for a model or shapes that are wrong, `UnsupportedOp` for what is not built.
    """
    loaded = load_model(model, input_shapes)
    proto = loaded.graph
    steps = [
        Step(node, node.name or f"{node.op_type}_{index}", loaded.opsets)
        for index, node in enumerate(proto.node)
    ]
    context = Context(
        OperatorGraph(),
        loaded.opset,
        _declared(proto),
        names_read(proto.node) | {info.name for info in proto.output},
        _names(proto, loaded.functions.values()),
        loaded.functions,
    )
    _add_sources(loaded, context)
    _Importer(context).run(steps, [info.name for info in proto.output])
    makers = {name: f" of {step}" for step in steps for name in step.outputs}
    for info in proto.output:
        _check_output(info.name, makers.get(info.name, ""), context)
    context.graph.set_outputs(info.name for info in proto.output)
    context.graph.validate()
    return context.graph


@dataclass(slots=True)
class _Importer:
    """The steps of a model in order; each becomes kernels, a constant, or other steps."""

    context: Context
    missing: set[str] = field(default_factory=set)
    """Tensors that depend on an operator that is not built."""
    unbuilt: dict[str, list[str]] = field(default_factory=dict)

    def run(self, steps: Iterable[Step], outputs: Iterable[str]) -> None:
        """Import `steps`; `UnsupportedOp` names all operators that are not built.

        Those that no tensor of `outputs` depends on are left out.
        """
        pending: deque[Item] = deque(steps)
        while pending:
            item = pending.popleft()
            step = item.step if isinstance(item, After) else item
            reads, writes = (
                (item.reads, item.writes)
                if isinstance(item, After)
                else (step.inputs, step.outputs)
            )
            if self.missing.intersection(reads):
                if isinstance(item, Step) and not _is_built(step, self.context):
                    self._note(step)
                self.missing.update(writes)
                continue
            try:
                following = item.steps() if isinstance(item, After) else self._import(step)
            except GraphflowError as error:
                raise _located(error, step) from error
            pending.extendleft(reversed(following))
        if self.missing.intersection(outputs):
            self._refuse_unbuilt()
        for name in sorted(self.missing):
            reason = "depends on an operator that is not built, and no output depends on it"
            self.context.graph.removed[name] = Removed(reason)

    def _import(self, step: Step) -> Sequence[Item]:
        context = self.context
        if step.is_standard and step.node.op_type in RANDOM:
            raise UnsupportedOp(
                f"{step} draws random numbers, so two runs differ and nothing can be compared, "
                f"which is not built; pass the numbers as an input of the model"
            )
        resolve = RESOLVED.get(step.node.op_type) if step.is_standard else None
        following = resolve(step, context) if resolve is not None else None
        if following is not None:
            return following
        if self._folded(step):
            return ()
        if step.op in OPERATORS and not self._is_better_expanded(step):
            check_guard(step, context)
            self._emit(step)
            return ()
        if step.key in REWRITTEN:
            body = Rewrite(step, context)
            REWRITTEN[step.key](body)
            return body.steps
        following = expand_function(step, context)
        if following is None:
            self._note(step)
            self.missing.update(step.outputs)
            return ()
        return following

    def _emit(self, step: Step) -> None:
        """Import `step` as kernels; as a constant where kernels refuse and the inputs are known."""
        context = self.context
        constant = context.folding.has_constant_inputs(step)
        try:
            call = Call(step, context)
            OPERATORS[step.op](call)
            call.finish()
        except UnsupportedOp as error:
            if not constant or any(name in context.graph.values for name in step.outputs):
                raise
            try:
                self._add_constants(context.folding.evaluate(step))
            except UnsupportedOp:
                raise error from None
        else:
            if constant:
                context.folding.defer(step)

    def _is_better_expanded(self, step: Step) -> bool:
        """Whether outputs are read that kernels do not have: of all with a body they give one."""
        others = [name for name in step.node.output[1:] if name in self.context.read]
        return bool(others) and _has_body(step, self.context)

    def _folded(self, step: Step) -> bool:
        """Whether the results are constants and computed now."""
        folding = self.context.folding
        # A Constant node has no inputs either, and says what it is.
        if step.op == "Constant" or not folding.has_constant_inputs(step) or not has_schema(step):
            return False
        otherwise = step.op in OPERATORS or _has_body(step, self.context)
        try:
            if otherwise and not folding.is_small(step):
                return False
            results = folding.evaluate(step)
        except UnsupportedOp:
            if otherwise:
                return False
            raise
        self._add_constants(results)
        return True

    def _add_constants(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            self.context.add_constant(name, array)

    def _note(self, step: Step) -> None:
        where = f"{step.name}, from the body of {step.origin}" if step.origin else step.name
        self.unbuilt.setdefault(step.op, []).append(where)

    def _refuse_unbuilt(self) -> None:
        listed = "; ".join(
            f"{title} ({len(names)} nodes, the first is {names[0]})"
            if len(names) > 1
            else f"{title} (node {names[0]})"
            for title, names in sorted(self.unbuilt.items())
        )
        raise UnsupportedOp(
            f"operators that are not built: {listed}. Rewrite the model without them; built are "
            f"{', '.join(sorted(OPERATORS))}"
        )


def _is_built(step: Step, context: Context) -> bool:
    """Whether the operator could be imported if its inputs were there."""
    if step.is_standard and step.node.op_type in RESOLVED:
        return True
    return step.op in OPERATORS or _has_body(step, context)


def _has_body(step: Step, context: Context) -> bool:
    return step.key in REWRITTEN or has_function(step, context)


def _located(error: GraphflowError, step: Step) -> GraphflowError:
    """`error` with the node that it is about, and the model's node whose body that belongs to."""
    text = str(error)
    if step.name not in text:
        text = f"{step}: {text}"
    if step.origin and step.origin not in text:
        text = f"{text} (in the body of {step.origin})"
    return error if text == str(error) else type(error)(text)


def _names(proto: onnx.GraphProto, functions: Iterable[onnx.FunctionProto]) -> set[str]:
    names = names_in(proto.node).union(info.name for info in (*proto.input, *proto.output))
    for function in functions:
        names |= names_in(function.node)
    return names


def _check_output(name: str, maker: str, context: Context) -> None:
    if name in context.sequences or name in context.optionals:
        raise UnsupportedOp(
            f"graph output {name}{maker} is a sequence or an optional; only tensors are built, so "
            f"return the tensors in it one by one"
        )
    if name in context.known:
        check_dtype(f"graph output {name}{maker}", context.known[name].dtype.name)


def _declared(proto: onnx.GraphProto) -> dict[str, tuple[str, tuple[int | None, ...] | None]]:
    found: dict[str, tuple[str, tuple[int | None, ...] | None]] = {}
    for info in (*proto.value_info, *proto.output):
        tensor = info.type.tensor_type
        if not tensor.elem_type:
            continue
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(
                int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim
            )
        found[info.name] = (dtype_name(tensor.elem_type), shape)
    return found


def _add_sources(loaded: LoadedModel, context: Context) -> None:
    names = {info.name for info in loaded.inputs}
    for info in loaded.inputs:
        tensor = info.type.tensor_type
        dtype = dtype_name(tensor.elem_type)
        check_dtype(f"graph input {info.name}", dtype)
        shape = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
        context.graph.add_value(Value(info.name, dtype, shape))
    for tensor in loaded.initializers:
        array = known_array(tensor, f"initializer {tensor.name}")
        if tensor.name not in names:
            context.add_constant(tensor.name, array)
            continue
        # A default that the caller may override decides nothing at compile time.
        given = context.graph.values[tensor.name]
        if (array.dtype.name, array.shape) != (given.dtype, given.shape):
            raise InvalidModel(
                f"the default of graph input {tensor.name} is {array.dtype}{array.shape}, "
                f"the input itself {given.dtype}{given.shape}"
            )
        context.graph.add_initializer(tensor.name, array)
    context.graph.set_inputs(info.name for info in loaded.inputs)
