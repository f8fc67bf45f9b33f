"""Branches: `If` is replaced by the nodes of the branch that is taken.

If only a run knows the condition, the run executes one of both branches, which are graphs of their
own (`native_branches.py`).  Where computing both costs less, or a branch cannot be such a graph,
both are computed, and a selection between their results, which is allowed where no node of a branch
can fail and both give the same types.  Otherwise the condition decides which program runs, if it
follows from small graph inputs of integers or booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphflow.base.dtypes import FLOATS, SIGNED, UNSIGNED
from graphflow.base.errors import ExtentsLost, InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.base.fields import replace
from graphflow.frontends.control_flow.bodies import body_of, copies, inlined, known_extent
from graphflow.frontends.control_flow.native_branches import add_branch_region
from graphflow.frontends.control_flow.scans import expand_scan
from graphflow.frontends.control_flow.unrolling import expand_loop
from graphflow.frontends.protos.steps import (
    After,
    Guard,
    ImportStep,
    Item,
    derived,
    named_apart,
    only_element,
    require_only_element,
    subgraphs,
)
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.derived_sizes import require_at_least
from graphflow.frontends.tensors.values import contents_missing

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

_DECIDING = ("bool", *SIGNED, *UNSIGNED)
"""Element types of inputs that decide a condition.  Floats seldom repeat, and each value would be
compiled for anew."""


def check_guard(step: ImportStep, context: ImportContext) -> None:
    """Raise `UnsupportedOp` if `step` may fail and lies in a branch that a run may discard.

    Both branches of an undecided `If` are computed, so a failure in the discarded one would end a
    run that is correct.  It is ExtentsLost where the node reads what has a size as an extent, as no
    branch does that is a graph of its own: such branches can be that in a program of one shape.
    """
    if not step.guard or step.op in _NEVER_FAIL:
        return
    if step.op == "Div" and context.graph.values[step.input(1)].dtype in FLOATS:
        return
    positions = _KNOWN_POSITIONS.get(step.op)
    if positions and all(context.folding.is_constant(step.input(k)) for k in positions):
        return
    counts = {n for name in step.node.input for n in context.counted.get(name, {}).values()}
    error = ExtentsLost if counts & context.sizes.keys() else UnsupportedOp
    raise error(
        f"{step}: the condition of {step.guard} is only known at run time. Both branches would be "
        f"computed, and this node might fail in the one that is not taken, which is not built; "
        f"make the condition a constant"
    )


def decided_by_inputs(
    guard: Guard | None, context: ImportContext, reason: str
) -> ValuesNeeded | None:
    """The error that asks for the graph inputs that decide one of the conditions of `guard`.

    None if there is no such condition.
    """
    graph = context.graph
    for condition in () if guard is None else guard.conditions:
        if condition not in graph.values:  # a section computes it
            continue
        asked = f"{reason}; the condition of {guard} ({condition})"
        error = contents_missing(graph, context.known, condition, asked)
        if isinstance(error, ValuesNeeded) and not any(
            graph.values[name].dtype not in _DECIDING for name in error.inputs
        ):
            return error
    return None


def expand_if(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """The steps of the taken branch if the condition is known; else of both branches and a
    selection."""
    condition = context.constant(step.input(0))
    for axis in context.counted.get(step.input(0), {}):
        known_extent(step, step.input(0), axis, context)
    if condition is None:
        decider = Guard(str(step), (step.input(0),))
        several = "results of several shapes"
        boxes = context.is_body or decided_by_inputs(decider, context, several) is None
        try:
            made = add_branch_region(step, context, _may_fail(step), boxes)
        except ValuesNeeded:
            raise
        except UnsupportedOp:  # a branch cannot be a graph of its own
            _relate_to_least(step.input(0), context)
            made = False
        return () if made else _select(step, context)
    is_true = only_element(step, condition, "its condition", "b")
    taken = "then_branch" if is_true else "else_branch"
    body = body_of(step, taken, context)
    steps, results = inlined(body, step, (), context, outputs=step.node.output)
    _require_outputs(step, taken, results)
    return [*body.steps, *steps, *copies(step, named_apart(step.node.output, results))]


def _relate_to_least(condition: str, context: ImportContext) -> None:
    """Raise SizesRelated where a condition says whether a size is its least: it has an answer in a
    program for larger ones, and one for the least alone.

    So exporters ask whether there is one element along an axis, which is left out then.
    """
    node = context.graph.producer(condition) if condition in context.graph.values else None
    if node is None or node.op != "Equal":
        return
    for size, other in (node.inputs, node.inputs[::-1]):
        number = context.constant(other)
        if size in context.sizes and number is not None and number.size == 1:
            least = context.sizes[size].lo
            if int(number.reshape(())) == least:
                require_at_least(context, size, least + 1)


def _may_fail(step: ImportStep) -> bool:
    """Whether a node of a branch of `step` may fail at run time, as far as its operator says."""
    nodes = (node for graph in subgraphs(step.node) for node in graph.node)
    return any(node.op_type not in _NEVER_FAIL for node in nodes)


def _require_outputs(step: ImportStep, branch: str, results: Sequence[str]) -> None:
    """Raise `InvalidModel` unless a branch of an `If` gives a tensor for each output."""
    if len(results) != len(step.node.output):
        raise InvalidModel(
            f"{step}: {branch} gives {len(results)} tensors, and the node has "
            f"{len(step.node.output)} outputs; both branches have to give all of them"
        )


def _select(step: ImportStep, context: ImportContext) -> Sequence[Item]:
    """Both branches, guarded, and a selection between their results."""
    dtype, shape = context.type_of(step.input(0))
    require_only_element(step, dtype, shape, "its condition", "b")
    outer = step.guard or Guard(str(step), ())
    guarded = replace(step, guard=replace(outer, conditions=(*outer.conditions, step.input(0))))
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

    return [*items, After(guarded, reads, tuple(pairs), select)]


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


CONTROL: dict[str, Callable[[ImportStep, ImportContext], Sequence[Item]]] = {
    "If": expand_if,
    "Loop": expand_loop,
    "Scan": expand_scan,
}
