"""Control flow: `If`, `Loop` and `Scan` are replaced by the nodes of their bodies.

Conditions, trip counts and extents that control flow depends on must be known when the model is
compiled.  Loops are unrolled iteration by iteration; a condition that the body computes is
evaluated after each iteration, so it may be the result of shape arithmetic.  An `If` whose
condition is only known at run time computes both branches and selects between their results, which
is allowed where no node of a branch can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends.bodies import BodyGraph, body_of, copies, inlined
from graphflow.frontends.context import ImportContext
from graphflow.frontends.protos import dtype_name
from graphflow.frontends.steps import (
    After,
    ImportStep,
    Item,
    derived,
    only_element,
    require_only_element,
)
from graphflow.frontends.values import contents_missing
from graphflow.tir import FLOATS

UNROLLED_NODES = 10_000
"""The most nodes that unrolling may add to a model."""

_NEVER_FAIL = frozenset(
    {
        "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "AveragePool",
        "BatchNormalization", "Cast", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape",
        "Conv", "ConvTranspose", "Cos", "Cosh", "CumSum", "DepthToSpace", "Dropout", "Elu", "Equal",
        "Erf", "Exp", "Expand", "Flatten", "Floor", "Gelu", "Gemm", "GlobalAveragePool",
        "GlobalMaxPool", "Greater", "GreaterOrEqual", "GroupNormalization", "HardSigmoid",
        "HardSwish", "Identity", "InstanceNormalization", "IsInf", "IsNaN", "LRN",
        "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul",
        "Max", "MaxPool", "Mean", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pad", "Range",
        "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
        "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape",
        "Resize", "Round", "Selu", "Shape", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice",
        "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum",
        "Tan", "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Trilu", "Unsqueeze", "Upsample",
        "Where", "Xor",
    }
)  # fmt: skip
"""Operators that cannot fail at run time, whatever their inputs contain."""

_KNOWN_POSITIONS = {"Gather": (1,), "GatherElements": (1,), "GatherND": (1,), "Div": (1,)}
"""Operators that cannot fail if these inputs are constants, because import checks constants."""


def check_guard(step: ImportStep, context: ImportContext) -> None:
    """Raise `UnsupportedOp` if `step` may fail and lies in a branch that a run may discard.

    Both branches of an undecided `If` are computed, so a failure in the discarded one would end a
    run that is correct.
    """
    if not step.guard or step.op in _NEVER_FAIL:
        return
    if step.op == "Div" and context.graph.values[step.input(1)].dtype in FLOATS:
        return
    positions = _KNOWN_POSITIONS.get(step.op)
    if positions and all(context.folding.is_constant(step.input(k)) for k in positions):
        return
    raise UnsupportedOp(
        f"{step}: the condition of {step.guard} is only known at run time. Both branches would be "
        f"computed, and this node might fail in the one that is not taken, which is not built; "
        f"make the condition a constant"
    )


def expand_if(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """The steps of the taken branch if the condition is known; else of both branches and a
    selection."""
    condition = context.constant(step.input(0))
    if condition is None:
        return _select(step, context)
    is_true = only_element(step, condition, "its condition", "b")
    taken = "then_branch" if is_true else "else_branch"
    body = body_of(step, taken, context)
    steps, results = inlined(body, step, (), context, outputs=step.node.output)
    _require_outputs(step, taken, results)
    return [*body.steps, *steps, *copies(step, _named(step.node.output, results))]


def _require_outputs(step: ImportStep, branch: str, results: Sequence[str]) -> None:
    """Raise `InvalidModel` unless a branch of an `If` gives a tensor for each output."""
    if len(results) != len(step.node.output):
        raise InvalidModel(
            f"{step}: {branch} gives {len(results)} tensors, and the node has "
            f"{len(step.node.output)} outputs; both branches have to give all of them"
        )


def _named(names: Sequence[str], sources: Sequence[str]) -> dict[str, str]:
    pairs = zip(names, sources, strict=True)
    return {name: source for name, source in pairs if name not in ("", source)}


def _select(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """Both branches, guarded, and a selection between their results."""
    dtype, shape = context.type_of(step.input(0))
    require_only_element(step, dtype, shape, "its condition", "b")
    guarded = replace(step, guard=step.guard or str(step))
    items: list[Item] = []
    results: list[tuple[str, ...]] = []
    for taken in ("then_branch", "else_branch"):
        body = body_of(guarded, taken, context)
        steps, names = inlined(body, guarded, (), context, f".{taken}")
        _require_outputs(step, taken, names)
        items += [*body.steps, *steps]
        results.append(names)
    then, other = results
    pairs = {name: (a, b) for name, a, b in zip(step.node.output, then, other, strict=True) if name}
    reads = tuple(name for pair in pairs.values() for name in pair)

    def select() -> Sequence[Item]:
        condition = context.unique_tensor_name(f"{step.name}/condition")
        steps = [derived(step, "Squeeze", [step.input(0)], [condition], "condition")]
        for name, (a, b) in pairs.items():
            _check_alike(step, name, a, b, context)
            steps.append(derived(step, "Where", [condition, a, b], [name], f"select_{name}"))
        return steps

    return [*items, After(step, reads, tuple(pairs), select)]


def _check_alike(
    step: ImportStep, name: str, then: str, other: str, context: ImportContext
) -> None:
    values = [context.graph.values.get(branch) for branch in (then, other)]
    types = [None if value is None else (value.dtype, value.shape) for value in values]
    if None in types or types[0] != types[1]:
        texts = ["no tensor" if t is None else f"{t[0]}{t[1]}" for t in types]
        raise UnsupportedOp(
            f"{step}: the condition is only known at run time, and output {name} is {texts[0]} in "
            f"then_branch and {texts[1]} in else_branch, which is not built; make the condition a "
            f"constant, or the branches alike"
        )


@dataclass(slots=True)
class _Unrolled:
    """The state of unrolling a `Loop` or `Scan`: the body and the results of the iterations so
    far."""

    step: ImportStep
    body: BodyGraph
    context: ImportContext
    states: tuple[str, ...]
    """The loop-carried tensors or sequences that the next iteration starts from."""
    scanned: list[list[str]]
    """For each scan output the tensors of the iterations so far."""

    def __post_init__(self) -> None:
        made, given = len(self.states) + len(self.scanned), len(self.step.node.output)
        if given > made:
            raise InvalidModel(
                f"{self.step}: it has {given} outputs, and its body makes {made}; remove the others"
            )

    def iteration(
        self, number: int, inputs: Sequence[str]
    ) -> tuple[list[ImportStep], tuple[str, ...]]:
        """The steps of one iteration, and the names of its results."""
        self.context.unrolled += len(self.body.nodes)
        if self.context.unrolled > UNROLLED_NODES:
            raise UnsupportedOp(
                f"{self.step} would be unrolled to more than {UNROLLED_NODES} nodes, at iteration "
                f"{number}, which is not built; use a smaller trip count"
            )
        return inlined(self.body, self.step, inputs, self.context, f".{number}")

    def finish(self, axes: Sequence[int], reverse: Sequence[bool]) -> list[ImportStep]:
        """Steps that give the final states and the stacked scan outputs the names of the node's
        outputs."""
        names = list(self.step.node.output)
        count = len(self.states)
        steps = copies(self.step, _named(names[:count], self.states[: len(names)]))
        for position, name in enumerate(names[count:]):
            if name:
                parts = self.scanned[position]
                parts = parts[::-1] if reverse[position] else parts
                steps += self._stacked(name, parts, axes[position], count + position)
        return steps

    def _stacked(self, name: str, parts: list[str], axis: int, position: int) -> list[ImportStep]:
        if not parts:
            self._add_empty(name, axis, position)
            return []
        axes = self.context.unique_tensor_name(f"{name}/axes")
        self.context.add_constant(axes, np.array([axis], np.int64))
        rows = [self.context.unique_tensor_name(f"{name}/{k}") for k in range(len(parts))]
        steps = [
            derived(self.step, "Unsqueeze", [part, axes], [row], f"row_{name}_{k}")
            for k, (part, row) in enumerate(zip(parts, rows, strict=True))
        ]
        return [*steps, derived(self.step, "Concat", rows, [name], f"stack_{name}", axis=axis)]

    def _add_empty(self, name: str, axis: int, position: int) -> None:
        """An empty scan output of a loop without iterations; its shape comes from the body's
        types."""
        extra = len(self.body.graph.output) - len(self.states) - len(self.scanned)
        tensor = self.body.graph.output[position + extra].type.tensor_type
        dims = tensor.shape.dim
        if not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in dims):
            raise UnsupportedOp(
                f"{self.step} has no iteration, and the shape of its output {name} is not known, "
                f"which is not built; state the shape in the body"
            )
        shape = [dim.dim_value for dim in dims]
        shape.insert(axis % (len(shape) + 1), 0)
        self.context.add_constant(name, np.zeros(shape, dtype_name(tensor.elem_type)))


def expand_loop(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """The steps of all iterations; the number of iterations must be known when the model is
    compiled."""
    trips: int | None = None
    if step.input(0):
        trips = int(_deciding(step, step.input(0), "its trip count", context, "iu"))
    goes_on = True
    if step.input(1):
        goes_on = bool(_deciding(step, step.input(1), "its condition", context, "b"))
    body = body_of(step, "body", context)
    states = tuple(step.node.input[2:])
    outputs = len(body.graph.output) - 1 - len(states)
    if outputs < 0:
        raise InvalidModel(f"{step}: its body returns fewer tensors than the loop carries")
    loop = _Unrolled(step, body, context, states, [[] for _ in range(outputs)])
    true = context.unique_tensor_name(f"{step.name}/true")
    context.add_constant(true, np.array(True))

    def following(number: int) -> Sequence[Item]:
        if trips is not None and number >= trips:
            return loop.finish([0] * outputs, [False] * outputs)
        index = context.unique_tensor_name(f"{step.name}/iteration")
        context.add_constant(index, np.array(number, np.int64))
        steps, results = loop.iteration(number, (index, true, *loop.states))
        loop.states = results[1 : 1 + len(states)]
        for rows, row in zip(loop.scanned, results[1 + len(states) :], strict=True):
            rows.append(row)
        last = trips is not None and number + 1 >= trips
        reads = () if last else (results[0],)
        return [*steps, After(step, reads, step.outputs, lambda: decided(number + 1, results[0]))]

    def decided(number: int, condition: str) -> Sequence[Item]:
        if trips is not None and number >= trips:
            return following(number)
        role = f"its condition after iteration {number - 1}"
        if _deciding(step, condition, role, context, "b"):
            return following(number)
        return loop.finish([0] * outputs, [False] * outputs)

    first = following(0) if goes_on else loop.finish([0] * outputs, [False] * outputs)
    return [*body.steps, *first]


def _deciding(step: ImportStep, name: str, role: str, context: ImportContext, kinds: str) -> int:
    array = context.constant(name)
    if array is None:
        asked = f"{step}: {role} ({name})"
        raise contents_missing(context.graph, context.known, name, asked)
    return int(only_element(step, array, role, kinds))


def expand_scan(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """The steps of a Scan of opset 9 or later, one iteration for each slice of the scanned
    inputs."""
    if step.opset < 9:
        raise UnsupportedOp(
            f"{step}: Scan of opset 8, with a batch axis, is not built; convert the model to opset "
            f"9 or later"
        )
    body = body_of(step, "body", context)
    count = step.attribute("num_scan_inputs")
    states = tuple(step.node.input[: len(step.node.input) - count])
    sources = tuple(step.node.input[len(states) :])
    outputs = len(body.graph.output) - len(states)
    if not 0 < count <= len(step.node.input) or outputs < 0:
        raise InvalidModel(
            f"{step}: {count} of its {len(step.node.input)} inputs are scanned, and its body gives "
            f"{len(body.graph.output)} tensors; it has to give one for each other input"
        )
    axes = _listed(step, "scan_input_axes", count)
    backward = _listed(step, "scan_input_directions", count)
    out_axes = _listed(step, "scan_output_axes", outputs)
    directions = _listed(step, "scan_output_directions", outputs)
    shapes = [context.type_of(name)[1] for name in sources]
    for name, shape, axis in zip(sources, shapes, axes, strict=True):
        if not -len(shape) <= axis < len(shape):
            raise InvalidModel(
                f"{step}: its input {name} of shape {list(shape)} has no axis {axis}"
            )
    lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
    if len(lengths) != 1:
        raise InvalidModel(f"{step}: its scanned inputs have lengths {sorted(lengths)}")
    (length,) = lengths
    loop = _Unrolled(step, body, context, states, [[] for _ in range(outputs)])
    items: list[Item] = [*body.steps]
    for number in range(length):
        slices: list[str] = []
        for source, axis, reverse in zip(sources, axes, backward, strict=True):
            position = length - 1 - number if reverse else number
            slices.append(_taken(step, source, axis, position, items, context))
        steps, results = loop.iteration(number, (*loop.states, *slices))
        items += steps
        loop.states = results[: len(states)]
        for rows, row in zip(loop.scanned, results[len(states) :], strict=True):
            rows.append(row)
    return [*items, *loop.finish(out_axes, [bool(way) for way in directions])]


def _listed(step: ImportStep, attribute: str, count: int) -> list[int]:
    """The attribute's list of `count` numbers; zeros if the node does not state it."""
    stated = list(step.attribute(attribute) or [0] * count)
    if len(stated) != count:
        raise InvalidModel(f"{step}: {attribute} has {len(stated)} numbers for {count} tensors")
    return stated


def _taken(
    step: ImportStep,
    source: str,
    axis: int,
    position: int,
    items: list[Item],
    context: ImportContext,
) -> str:
    """The name of slice `position` of `source` along `axis`; the steps that take it are added to
    `items`."""
    index = context.unique_tensor_name(f"{step.name}/position")
    context.add_constant(index, np.array(position, np.int64))
    name = context.unique_tensor_name(f"{source}.{position}")
    part = f"slice_{source}_{position}"
    items.append(derived(step, "Gather", [source, index], [name], part, axis=axis))
    return name


CONTROL: dict[str, Callable[[ImportStep, ImportContext], Sequence[Item]]] = {
    "If": expand_if,
    "Loop": expand_loop,
    "Scan": expand_scan,
}
