"""Import of a model's nodes in order: each becomes kernels, a constant, or the nodes of its body.

In: import steps.  Out: nodes and values in the operator graph, and the steps that have no kernel.
Without a fallback these are refused, with one error that names all operators without a kernel.
With a fallback they become members of sections.  A node with a body is then imported as a
transaction: if any node of the body needs the fallback, everything that was added for the body is
undone, and the outer node becomes the member.  So a loop is never split into a section for each of
its iterations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from onnx import defs

from graphflow.base.errors import (
    ExtentsLost,
    GraphflowError,
    InvalidModel,
    TrainingOnly,
    UnsupportedOp,
    ValuesNeeded,
    VerifyError,
)
from graphflow.base.fields import replace
from graphflow.foreign import ForeignNode
from graphflow.frontends.control_flow.bodies import feed
from graphflow.frontends.control_flow.control import check_guard, decided_by_inputs
from graphflow.frontends.control_flow.functions import (
    calls_model_function,
    expand_function,
    has_function,
)
from graphflow.frontends.control_flow.sequences import Resolver
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.protos.inference import schema_of
from graphflow.frontends.protos.steps import After, ImportStep, Item, names_read
from graphflow.frontends.reading.vendor import for_onnxruntime
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.sections import Member
from graphflow.frontends.tensors.context import ImportContext, Mark
from graphflow.frontends.tensors.data_extents import ExtentComputed
from graphflow.frontends.tensors.folding import RANDOM
from graphflow.frontends.tensors.sized_values import NumbersNeeded, sized_results, with_size_data
from graphflow.graph import Array, Removed, Value
from graphflow.tir import DTYPES

_MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors of an operator's function if a node has other inputs or attributes than it expects."""


class Operators(Struct, frozen=True):
    """How operators are imported: as kernels, at compile time, or as other operators.

    `own` names the caller's operators among those of `kernels`.
    """

    kernels: Mapping[str, Callable[[NodeCall], None]]
    resolved: Mapping[str, Resolver]
    rewritten: Mapping[tuple[str, str], Callable[[NodeRewrite], None]]
    own: Collection[str] = ()

    def has_body(self, step: ImportStep, context: ImportContext) -> bool:
        """Whether the operator is expanded into other operators."""
        return step.key in self.rewritten or has_function(step, context)

    def has_way(self, step: ImportStep, context: ImportContext) -> bool:
        """Whether the operator can be imported, if its inputs allow it."""
        if step.op in self.kernels or (step.is_standard and step.op in self.resolved):
            return True
        return self.has_body(step, context)


class _Attempt(Struct, frozen=True):
    """A node whose body is being imported, and which becomes foreign as a whole if that fails."""

    step: ImportStep
    mark: Mark
    placed: int
    behind: int
    """The number of pending steps that follow the body."""


@dataclass(slots=True)
class Walk:
    """The import of a model's nodes; see the module's text."""

    context: ImportContext
    operators: Operators
    fallback: bool
    placed: list[ImportStep] = field(default_factory=list)
    """The steps that became kernels or members of sections, in order."""
    foreign: dict[int, Member] = field(default_factory=dict)
    """Members of sections by their position in `placed`."""
    _attempt: _Attempt | None = None
    _missing: set[str] = field(default_factory=set)
    """The tensors that depend on an operator without a kernel."""
    _unbuilt: dict[str, list[str]] = field(default_factory=dict)

    def run(self, steps: Iterable[ImportStep], outputs: Iterable[str]) -> None:
        """Import `steps`.

        Without a fallback `UnsupportedOp` names all operators without a kernel on which a tensor of
        `outputs` depends.
        """
        pending: deque[Item] = deque(steps)
        while pending:
            if self._attempt is not None and len(pending) <= self._attempt.behind:
                self._attempt = None
            item = pending.popleft()
            if not self._is_missing(item):
                self._import(item, pending)
        if self._missing.intersection(outputs):
            self._refuse_unbuilt()
        for name in sorted(self._missing):
            reason = "depends on an operator that is not built, and no output depends on it"
            self.context.graph.removed[name] = Removed(reason)

    def _is_missing(self, item: Item) -> bool:
        """Whether `item` depends on a missing tensor; if so, its results are missing too."""
        if not self._missing:
            return False
        step = item.step if isinstance(item, After) else item
        if isinstance(item, After):
            reads, writes = item.reads, item.writes
        else:
            reads, writes = item.inputs, item.outputs
        if not self._missing.intersection(reads):
            return False
        if isinstance(item, ImportStep) and not self.operators.has_way(item, self.context):
            self._note(step)
        self._missing.update(writes)
        return True

    def _import(self, item: Item, pending: deque[Item]) -> None:
        step = item.step if isinstance(item, After) else item
        mark, placed = self.context.mark(), len(self.placed)
        try:
            following = item.steps() if isinstance(item, After) else self._imported(step)
        except (UnsupportedOp, InvalidModel) as error:
            # Runs of these shapes may never take a branch that they make invalid.
            if isinstance(error, InvalidModel) and not step.guard:
                raise located(error, step) from error
            # Given the values that are needed, the node has a kernel that knows its shapes.
            if isinstance(error, ValuesNeeded | TrainingOnly | ExtentComputed):
                raise located(error, step) from error
            decided = decided_by_inputs(step.guard, self.context, str(located(error, step)))
            if decided is not None:
                raise decided from error
            if not self.fallback:
                raise located(error, step) from error
            self._fall_back(step, mark, str(error), pending)
            return
        except GraphflowError as error:
            raise located(error, step) from error
        if self.fallback and self._attempt is None and _is_whole(item, following):
            self._attempt = _Attempt(step, mark, placed, len(pending))
        pending.extendleft(reversed(following))

    def _imported(self, step: ImportStep) -> Sequence[Item]:
        """The items to import in place of `step`; none if it became kernels or constants."""
        context, operators = self.context, self.operators
        if not step.outputs:
            return ()  # all outputs are optional, and the node names none
        if step.is_standard and step.op in RANDOM:
            raise UnsupportedOp(
                f"{step} draws random numbers, so two runs differ and nothing can be compared, "
                f"which is not built; pass the numbers as an input of the model"
            )
        try:
            sized = sized_results(step, context)
        except NumbersNeeded as error:
            return self._computed_with_sizes(step, error)
        if sized is not None:
            for name, result in sized.items():
                context.add_sized(name, result)
            return ()
        resolve = operators.resolved.get(step.op) if step.is_standard else None
        following = resolve(step, context) if resolve is not None else None
        if following is not None:
            if any(self._is_made(name) for name in step.outputs):  # by a control region
                self.placed.append(step)
            return following
        taken = next((name for name in step.inputs if name in context.objects), None)
        if taken is not None and not calls_model_function(step, context):
            raise UnsupportedOp(
                f"its input {taken} is {context.objects[taken]}, which no kernel takes"
            )
        if self._folded(step):
            return ()
        if step.op in operators.kernels and self._becomes_kernels(step):
            return ()
        if step.key in operators.rewritten:
            following = self._rewritten(step)
            if following is not None:
                return following
        following = expand_function(step, context)
        if following is not None:
            return following
        reason = "no kernel is built for this operator"
        if self.fallback or decided_by_inputs(step.guard, context, reason):
            raise UnsupportedOp(reason)
        self._note(step)
        self._missing.update(step.outputs)
        return ()

    def _computed_with_sizes(self, step: ImportStep, error: NumbersNeeded) -> Sequence[Item]:
        """Import a step that computes with the numbers of sizes as kernels, or as its body; raises
        `error` where it has none that a run can give these numbers to."""
        context = self.context
        if not context.sized_values.keys().isdisjoint({*names_read(step.node)} - {*step.inputs}):
            raise error  # a body reads them
        mark = context.mark()
        changed = with_size_data(step, context)
        try:
            if step.op in self.operators.kernels and self._becomes_kernels(changed):
                return ()
            following = expand_function(changed, context)
        except UnsupportedOp as refusal:
            context.undo(mark)
            raise error from refusal
        if following is None:
            context.undo(mark)
            raise error
        return following

    def _is_made(self, name: str) -> bool:
        """Whether a node of the graph makes a tensor."""
        graph = self.context.graph
        return name in graph.values and graph.producer(name) is not None

    def _require_extents_of_own(self, step: ImportStep) -> None:
        """Refuse the caller's operator if a run decides an extent of an input.

        Its function may put the number into a kernel, where it is a literal like others and no
        proof sees that it is the room for elements, not how many a run gives.
        """
        for name in step.inputs:
            if name in self.context.counted:
                raise ExtentsLost(
                    f"{step}: how many elements its input {name} has is only known at run time, "
                    "and an operator of the caller's may depend on this number; cut the model "
                    "before this node"
                )

    def _require_outputs(self, call: NodeCall) -> None:
        """Refuse a function of the caller's that left out an output."""
        context = self.context
        for name in filter(None, call.outputs):
            if name not in context.graph.values and name not in context.known:
                raise VerifyError(f"{call.title}: its function emits no kernel for output {name}")

    def _rewritten(self, step: ImportStep) -> Sequence[Item] | None:
        """The nodes into which an operator is expanded; None where the body in its schema stands.

        Operators of vendors have no schema in ONNX, so nothing has checked their ranks and
        attributes, and a rewrite may fail in any way.
        """
        body = NodeRewrite(step, self.context)
        try:
            self.operators.rewritten[step.key](body)
        except _MISFITS as error:
            if schema_of(step) is not None:
                raise
            raise UnsupportedOp(
                f"{step}: its inputs, outputs or attributes are not those of the operator "
                f"({type(error).__name__}: {error}); correct the node"
            ) from error
        return None if body.declined else body.steps

    def _becomes_kernels(self, step: ImportStep) -> bool:
        """Import `step` as kernels; False if it has outputs that only its body makes."""
        others = [name for name in step.node.output[1:] if name in self.context.read]
        if not others or not self.operators.has_body(step, self.context):
            check_guard(step, self.context)
            self._emit(step)
            return True
        mark = self.context.mark()
        try:
            check_guard(step, self.context)
            self._emit(step)
        except ValuesNeeded:
            raise
        except UnsupportedOp:
            self.context.undo(mark)
            return False
        return True

    def _emit(self, step: ImportStep) -> None:
        """Import `step` as kernels; if these are refused and its inputs are constants, evaluate
        it."""
        context = self.context
        if not context.folding.has_constant_inputs(step):
            self._emit_kernels(step)
            return
        mark = context.mark()
        try:
            self._emit_kernels(step)
        except UnsupportedOp as error:
            context.undo(mark)
            try:
                self._add_constants(context.folding.evaluate(step))
            except UnsupportedOp:
                raise error from None
            return
        context.folding.defer(step)

    def _emit_kernels(self, step: ImportStep) -> None:
        context = self.context
        guards = len(context.graph.guards)
        call = NodeCall(step, context)
        try:
            if _asks_for_types(step, context):
                context.declare(step)
            if step.op in self.operators.own:
                self._require_extents_of_own(step)
            self.operators.kernels[step.op](call)
        except InvalidModel as error:
            # What is refused for the most of each extent may be valid in a run.
            call.relate_counts()
            if not any(name in context.counted for name in call.given_inputs):
                raise
            reason = f"with as many as there can be it is refused ({error})"
            raise call.extents_lost(call.given_inputs, reason) from error
        if step.op in self.operators.own:
            self._require_outputs(call)
        call.finish()
        if step.guard and len(context.graph.guards) > guards:
            raise UnsupportedOp(f"a run checks its inputs, also where {step.guard} discards it")
        self.placed.append(step)

    def _folded(self, step: ImportStep) -> bool:
        """Evaluate `step` if its inputs are constants and that is cheap; returns whether it did."""
        folding = self.context.folding
        # A Constant node has no inputs either, and says what it is.
        if step.op == "Constant" or not folding.has_constant_inputs(step):
            return False
        if schema_of(step) is None:
            return False
        otherwise = step.op in self.operators.kernels or self.operators.has_body(step, self.context)
        try:
            results = folding.evaluate_small(step) if otherwise else folding.evaluate(step)
        except UnsupportedOp:
            if otherwise:
                return False
            raise
        if results is None:
            return False
        self._add_constants(results)
        return True

    def _add_constants(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            self.context.add_constant(name, array)

    def _fall_back(self, step: ImportStep, mark: Mark, reason: str, pending: deque[Item]) -> None:
        """Make `step` foreign, or the node in whose body it is."""
        attempt = self._attempt
        if attempt is not None:
            while len(pending) > attempt.behind:
                pending.popleft()
            step, mark, self._attempt = attempt.step, attempt.mark, None
            del self.placed[attempt.placed :]
            for index in [index for index in self.foreign if index >= attempt.placed]:
                del self.foreign[index]
        self.context.undo(mark)
        self.add_foreign(step, reason)

    def add_foreign(self, step: ImportStep, reason: str) -> None:
        """Make `step` a member of a section; its outputs become values or objects.

        Sequences that it reads and that import has resolved are built for it.  Raises
        `UnsupportedOp` if the operator has another meaning in the opset of the section, which is
        the model's.
        """
        context = self.context
        reads = names_read(step.node)
        unknown = {*context.counted, *context.sized_values, *context.boxes}
        if not unknown.isdisjoint(reads):
            # A section would be given elements that no run gives.
            raise located(ExtentsLost(reason), step)
        self._require_same_meaning(step, reason)
        for maker in feed(reads, step, context):
            self.add_foreign(maker, "a section reads it")
        if _asks_for_types(replace(step, trusted=False), context):
            context.declare(step)
        name = context.unique_node_name(step.name)
        for output in step.outputs:
            context.graph.removed.pop(output, None)
            dtype, shape = context.declared.get(output, (None, None))
            if dtype in DTYPES and shape is not None and None not in shape:
                extents = tuple(n for n in shape if n is not None)
                context.graph.add_value(Value(output, dtype, extents))
            else:
                open_shape = "a tensor whose shape is not known before a run"
                context.objects[output] = open_shape if dtype in DTYPES else of_type(dtype)
        self.foreign[len(self.placed)] = Member(
            for_onnxruntime(step.node),
            ForeignNode(name, step.node.op_type, reason.removeprefix(f"{step}: ")),
            reads,
        )
        self.placed.append(step)

    def _require_same_meaning(self, step: ImportStep, reason: str) -> None:
        schema = schema_of(step)
        if schema is None or not step.is_standard:
            return
        op, opset = step.node.op_type, self.context.opset
        known = defs.get_schema(op, opset, "") if defs.has(op, opset, "") else None
        if known is None or known.since_version != schema.since_version:
            raise UnsupportedOp(
                f"{step} is written for opset {step.opset}; in the model's opset "
                f"{self.context.opset}, in which onnxruntime would run it, the operator differs; "
                f"and {reason}"
            )

    def refuse_unbuilt(self, steps: Iterable[ImportStep]) -> None:
        """Raise `UnsupportedOp`, which names all steps whose operators cannot be imported, if
        any."""
        for step in steps:
            if not self.operators.has_way(step, self.context):
                self._note(step)
        if self._unbuilt:
            self._refuse_unbuilt()

    def _note(self, step: ImportStep) -> None:
        where = f"{step.name}, from the body of {step.origin}" if step.origin else step.name
        self._unbuilt.setdefault(step.op, []).append(where)

    def _refuse_unbuilt(self) -> None:
        listed = "; ".join(
            f"{title} ({len(names)} nodes, the first is {names[0]})"
            if len(names) > 1
            else f"{title} (node {names[0]})"
            for title, names in sorted(self._unbuilt.items())
        )
        raise UnsupportedOp(
            f"operators that are not built: {listed}. `graphflow operators` lists those that are; "
            "pass others to `compile(operators=...)`, or rewrite the model without them"
        )


def _asks_for_types(step: ImportStep, context: ImportContext) -> bool:
    """Whether the types of the outputs of `step` have to be inferred now."""
    return not step.trusted and (step.depth > 0 or not context.is_inferred)


def _is_whole(item: Item, following: Sequence[Item]) -> bool:
    """Whether the fallback takes this node as a whole, rather than nodes of its body.

    It cannot take calls of functions.  The nodes of a branch that is known to be taken are like
    nodes of the model.
    """
    if isinstance(item, After) or not following or schema_of(item) is None:
        return False
    return item.op != "If" or any(isinstance(part, After) for part in following)


def of_type(dtype: str | None) -> str:
    """The description, for messages, of a tensor or object that kernels cannot take."""
    if dtype is None:
        return "of a type that ONNX does not know"
    return "a tensor of strings" if dtype == "object" else f"of type {dtype}"


def located(error: GraphflowError, step: ImportStep) -> GraphflowError:
    """`error`, extended by the node it is about, and by the model's node whose body contains
    that."""
    text = str(error.args[0])
    if step.name not in text:
        text = f"{step}: {text}"
    if step.origin and step.origin not in text:
        text = f"{text} (in the body of {step.origin})"
    if text == error.args[0]:
        return error
    if isinstance(error, ValuesNeeded):
        return ValuesNeeded(text, error.inputs)
    return type(error)(text, remedies=error.remedies)
