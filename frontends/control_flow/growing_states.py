"""States of a loop that grow: each iteration hands on a tensor of more elements than it got.

In: a loop, and the states whose next tensor a Concat makes.  Out: how many elements each gets in an
iteration, the room for the most of them, and how many there are in a given iteration.  What always
holds: a state begins iteration i with its first extent and i times what an iteration adds, as sums
of sizes prove of what the body gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from graphflow.base.errors import UnsupportedOp
from graphflow.base.fields import replace
from graphflow.base.sizes import BOUNDLESS, Size
from graphflow.frontends.control_flow.loop_specs import Growth, LoopSpec
from graphflow.frontends.control_flow.native_bodies import RegionBuilder
from graphflow.frontends.protos.steps import STANDARD, ImportStep
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import MOST_ROOM, Counts
from graphflow.frontends.tensors.data_sizes import add_data_size
from graphflow.frontends.tensors.derived_sizes import Element, combined
from graphflow.graph import Node, Value
from graphflow.kernels.definitions.movements import selection


class OtherGrowth(Exception):
    """A state grows in another way than was assumed."""

    def __init__(self, state: int, growth: Growth) -> None:
        super().__init__(state, growth)
        self.state, self.growth = state, growth


def growing_states(
    step: ImportStep, states: Sequence[str], context: ImportContext
) -> dict[int, Growth]:
    """The states that may grow, as a Concat makes what an iteration hands on; by their numbers."""
    body, found = step.attribute("body"), dict[int, Growth]()
    makers = {n: node for node in body.node if node.domain in STANDARD for n in node.output}
    for k, (name, info) in enumerate(zip(states, body.output[1:], strict=False)):
        maker = makers.get(info.name)
        while maker is not None and maker.op_type == "Identity":
            maker = makers.get(maker.input[0])
        value = context.graph.values.get(name)
        if value is not None and maker is not None and maker.op_type == "Concat":
            axis = next((a.i for a in maker.attribute if a.name == "axis"), 0)
            if -len(value.shape) <= axis < len(value.shape):
                found[k] = Growth(axis % len(value.shape))
    return found


def require_growth(
    step: ImportStep,
    name: str,
    state: int,
    growth: Growth,
    found: Element | None,
    before: Element,
    context: ImportContext,
) -> None:
    """Require of a body that a state has `growth.by` elements more behind an iteration than before
    it; raises OtherGrowth where it is another number, `UnsupportedOp` where it is none."""
    more = None if found is None else combined(context, "Sub", found, before)
    if not isinstance(more, int) or more < 0:
        raise UnsupportedOp(
            f"{step}: its state {name} has other extents along axis {growth.axis} after an "
            "iteration than before, and they do not grow by one number in each, which is not "
            "built; append as many elements in each iteration, or keep the state's shape"
        )
    if more != growth.by:
        raise OtherGrowth(state, Growth(growth.axis, more))


def require_no_growth(state: int, before: Value, value: Value) -> None:
    """Raise OtherGrowth where a state has more elements after an iteration than before, along one
    axis."""
    if len(before.shape) != len(value.shape):
        return
    more = {a: m - n for a, (n, m) in enumerate(zip(before.shape, value.shape, strict=True))}
    grown = [(axis, by) for axis, by in more.items() if by]
    if len(grown) == 1 and grown[0][1] > 0:
        raise OtherGrowth(state, Growth(*grown[0]))


def require_growing_room(step: ImportStep, form: LoopSpec, values: Mapping[str, Value]) -> None:
    """Refuse states with room for too many elements."""
    for k in form.growth:
        if prod(form.room(k, values)) > MOST_ROOM:
            raise UnsupportedOp(
                f"{step}: its state {form.states[k]} grows, and has room for more than "
                f"{MOST_ROOM} elements after the most iterations, which is not built; lower the "
                "trip count"
            )


def counts_before(
    context: ImportContext, counts: Counts, growth: Growth, first: Element, iteration: str
) -> Counts:
    """The counts of a state in a body, before an iteration, from those before the loop."""
    extent = growth.extent(context, first, iteration)
    rest = {axis: count for axis, count in counts.items() if axis != growth.axis}
    return {**rest, growth.axis: extent} if isinstance(extent, str) else rest


def loop_attempts(step: ImportStep, form: LoopSpec, context: ImportContext) -> Iterator[LoopSpec]:
    """The forms that a loop may have, of which the first that is not refused is taken.

    Where the number of an iteration is a size, shapes may depend on it; elsewhere it is data, which
    takes no kernels to compute with.
    """
    counting = replace(form, is_counting=True)
    if not form.can_count:
        yield form
        return
    growth = growing_states(step, form.states, context)
    if growth:
        yield replace(counting, growth=growth)
    yield form
    yield counting


def state_before(step: ImportStep, whole: str, room: tuple[int, ...], sub: ImportContext) -> str:
    """Add the kernel that slices from the memory of a growing state what may be filled before an
    iteration; the memory behind it is for what the iteration appends."""
    value, before = sub.graph.values[whole], sub.unique_tensor_name(f"{whole}/before")
    func = selection.take_slice(value.shape, [range(n) for n in room], value.dtype)
    node = sub.unique_node_name(f"{step.name}/{before}")
    sub.graph.add(Node(node, f"{step.op}.state", func, (whole,), (before,), (step.name,)))
    return before


def count_grown(form: LoopSpec, number: str, region: RegionBuilder) -> None:
    """Record how many elements the states have that grew, and that a run decides no more than the
    most iterations."""
    context, step = region.context, region.step
    if form.all_trips:
        trips: Element = form.size or form.most or 0
    else:
        trips = number
        if form.most is not None and form.most < BOUNDLESS:
            size = Size(f"the number of iterations of {step.name}", 0, form.most)
            add_data_size(context, number, size)
    for k, growth in form.growth.items():
        name = step.node.output[k] if k < len(step.node.output) else ""
        first = context.elements_along(form.states[k], growth.axis)
        extent = growth.extent(context, first, trips)
        counts = {**context.counted.get(name, {}), growth.axis: extent}
        if name:
            context.counted[name] = {a: n for a, n in counts.items() if isinstance(n, str)}
