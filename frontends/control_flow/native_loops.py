"""Loops of which a run decides how often they iterate.

In: a `Loop` or `Scan` node in one form (`LoopSpec`), and the tensors of the graph around it.  Out:
a control region that executes the body in each iteration.  What always holds: states keep their
shapes, or grow by as many elements in each iteration, in room for the most of them; a body that
cannot be a graph of its own is refused, with the graph as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from msgspec import Struct

from graphflow.base.errors import InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.base.fields import replace
from graphflow.base.sizes import Size
from graphflow.frontends.control_flow.growing_states import (
    OtherGrowth,
    count_grown,
    counts_before,
    loop_attempts,
    require_growing_room,
    require_growth,
    require_no_growth,
    state_before,
)
from graphflow.frontends.control_flow.loop_specs import LoopSpec, Scanned
from graphflow.frontends.control_flow.native_bodies import (
    RegionBody,
    RegionBuilder,
    allowed_contents,
    placed,
    region_body,
)
from graphflow.frontends.protos.steps import (
    ImportStep,
    existing_axis,
)
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import MOST_ROOM, Counts, SizedArray
from graphflow.frontends.tensors.data_sizes import add_data_size
from graphflow.graph import (
    Node,
    RegionJump,
    Value,
    ValueGuard,
)
from graphflow.kernels.definitions.data_dependent import control_steps
from graphflow.kernels.definitions.movements import movement


def add_loop_region(step: ImportStep, form: LoopSpec, context: ImportContext) -> None:
    """Add a loop whose iterations are not unrolled.

    Raises `UnsupportedOp` where its body cannot be a graph of its own.
    """
    mark, refusals = context.mark(), list[UnsupportedOp]()
    for attempt in loop_attempts(step, form, context):
        try:
            _add_with_growth(step, attempt, context)
        except ValuesNeeded:
            raise
        except UnsupportedOp as error:
            refusals.append(error)
        except InvalidModel as error:
            if not attempt.is_counting:
                raise
            refusals.append(UnsupportedOp(str(error)))  # of more elements than there are
        else:
            return
        context.undo(mark)
    raise refusals[0]


def _add_with_growth(step: ImportStep, form: LoopSpec, context: ImportContext) -> None:
    """Add a loop whose states grow by one element in each iteration, or by as many as shows."""
    mark = context.mark()
    for _ in range(1 + len(form.states)):
        try:
            _add_loop(step, form, context)
        except OtherGrowth as found:
            context.undo(mark)
            growth = {**form.growth, found.state: found.growth}
            if not found.growth.by:
                del growth[found.state]
            form = replace(form, growth=growth, is_counting=True)
        else:
            return
    raise UnsupportedOp(
        f"{step}: how many elements its states get in an iteration depends on how many they have, "
        "which is not built; append as many in each iteration"
    )


def _add_loop(step: ImportStep, form: LoopSpec, context: ImportContext) -> None:
    names = (form.trips, form.condition, *form.states, *(one.name for one in form.taken))
    if step.guard is not None:
        raise UnsupportedOp(f"{step}: a run decides whether it is executed at all")
    for name in filter(None, names):
        if name not in context.graph.values:
            raise UnsupportedOp(f"{step}: its input {name} is no tensor")
        data = {*context.counted.get(name, {}).values()} - context.sizes.keys()
        if data or (name in (form.trips, form.condition) and name in context.counted):
            raise UnsupportedOp(f"{step}: data decides how many elements its input {name} has")
    _require_order(step, form, context)
    require_growing_room(step, form, context.graph.values)
    body = region_body(step, "body", context, lambda sub: _loop_inputs(step, form, context, sub))
    region = RegionBuilder(step, context)
    first = int(form.given)
    states = [body.value(first + k) for k in range(len(form.states))]
    rows = [body.value(first + len(states) + k) for k in range(len(form.made))]
    for k in range(len(states)):
        _require_state(form, body, k, context)
    counts = [body.sizes_of(first + len(states) + k, context) for k in range(len(rows))]
    made = [one for one in form.made if one.name]
    if made and form.most is None:
        raise UnsupportedOp(
            f"{step}: nothing bounds how many iterations it has, and each makes a row of "
            f"{made[0].name}, which is not built; give it a constant as its trip count"
        )
    if made and not form.all_trips and context.counts_lost:
        raise UnsupportedOp(context.counts_lost)
    if any(row.size * (form.most or 0) > MOST_ROOM for row in rows):
        raise UnsupportedOp(
            f"{step}: it makes tensors with room for more than {MOST_ROOM} elements"
        )
    ends = (
        replace(one, axis=existing_axis(step, one.axis, len(row.shape) + 1))
        for row, one in zip(rows, form.made, strict=True)
    )
    form = replace(form, made=tuple(ends))
    _count_results(form, counts, region)
    number = _add_loop_parts(form, body, states, rows, region)
    count_grown(form, number, region)


def _require_state(form: LoopSpec, body: RegionBody, k: int, context: ImportContext) -> None:
    """Refuse a state that has another element type or shape after an iteration than before, but for
    as many elements more as it grows by."""
    step, name, position = body.step, form.states[k], int(form.given) + k
    before, value, growth = context.graph.values[name], body.value(position), form.growth.get(k)
    shapes = [list(before.shape), list(value.shape)]
    counts = dict(context.counted.get(name, {}))
    if growth is not None:
        sub, result = body.context, body.results[position]
        found = sub.elements_along(result, growth.axis)
        extent = sub.counted[body.given[position + 1]].get(growth.axis, before.shape[growth.axis])
        require_growth(step, name, k, growth, found, extent, sub)
        shapes = [shape[: growth.axis] + shape[growth.axis + 1 :] for shape in shapes]
        counts.pop(growth.axis, None)
    elif form.can_count and before.dtype == value.dtype:
        require_no_growth(k, before, value)
    if before.dtype != value.dtype or shapes[0] != shapes[1]:
        raise UnsupportedOp(
            f"{step}: {name} is {before.dtype}{before.shape}, and {value.dtype}{value.shape} "
            "after an iteration, which is not built; carry tensors of one shape"
        )
    grows = () if growth is None else (growth.axis,)
    if body.sizes_of(position, context, grows) != counts:
        raise UnsupportedOp(
            f"{step}: {name} may have another extent after an iteration than before, as sizes "
            "say, which is not built; carry tensors of one shape"
        )


def _require_order(step: ImportStep, form: LoopSpec, context: ImportContext) -> None:
    """Refuse rows that are taken or made from the end of as many as a run decides: the end is not
    that of the room."""
    for one in (*form.taken, *form.made):
        if one.reverse and form.size:
            raise UnsupportedOp(
                f"{step}: it begins at the end of axis {one.axis} of {one.name}, and how many "
                "elements are there is only known at run time, which is not built; reverse the "
                "tensor by a Slice"
            )
        counts = context.counted.get(one.name, {})
        if counts.get(one.axis, form.size) != form.size:
            raise UnsupportedOp(
                f"{step}: axis {one.axis} of {one.name} may have another extent than what else it "
                "scans; give them one name of a dimension"
            )


def _count_results(form: LoopSpec, rows: Sequence[Counts], region: RegionBuilder) -> None:
    """Note which outputs have room for more elements than a run gives: those that begin as such
    tensors, those of such rows, and those that have a row for each of a size."""
    names = list(region.step.node.output)
    made = names[len(form.states) :]
    for name, before in zip(names, form.states, strict=False):
        if name and before in region.context.counted:
            region.counted[name] = dict(region.context.counted[before])
    for name, one, counts in zip(made, form.made, rows, strict=False):
        found = {axis + (axis >= one.axis): count for axis, count in counts.items()}
        if form.size and form.all_trips:
            found[one.axis] = form.size
        if name and found:
            region.counted[name] = found


def _loop_inputs(
    step: ImportStep, form: LoopSpec, context: ImportContext, sub: ImportContext
) -> list[str]:
    """Add the inputs of a loop's body; the rows of what is scanned are made by kernels."""

    def added(wanted: str, dtype: str, shape: tuple[int, ...]) -> str:
        return sub.graph.add_input(sub.unique_tensor_name(wanted), dtype, shape)

    number = formal = added(f"{step.name}/number", "int64", ())
    if form.is_counting:
        assert form.most
        size = Size(f"the number of an iteration of {step.name}", 0, form.most - 1)
        add_data_size(sub, number, size)
        formal = sub.unique_tensor_name(f"{step.name}/iteration")
        sub.add_sized(formal, SizedArray(np.array(size.hi, np.int64), {0: number}))
    found = [formal, sub.new_constant(f"{step.name}/true", np.array(True))] if form.given else []
    for k, name in enumerate(form.states):
        value, growth = context.graph.values[name], form.growth.get(k)
        counts = dict(context.counted.get(name, {}))
        state = added(f"{step.name}/{name}", value.dtype, form.room(k, context.graph.values))
        if growth is not None:
            assert form.most is not None
            state = state_before(step, state, growth.room(value, form.most - 1), sub)
            first = context.elements_along(name, growth.axis)
            counts = counts_before(sub, counts, growth, first, number)
        found.append(state)
        if counts:
            sub.counted[state] = counts
    for one in form.taken:
        value = context.graph.values[one.name]
        whole = added(f"{step.name}/{one.name}", value.dtype, value.shape)
        found.append(_row(step, whole, value, one, number, sub))
        counts = context.counted.get(one.name, {})
        rest = {axis - (axis > one.axis): n for axis, n in counts.items() if axis != one.axis}
        if rest:
            sub.counted[found[-1]] = rest
    return found


def _row(
    step: ImportStep, whole: str, value: Value, one: Scanned, number: str, sub: ImportContext
) -> str:
    """Add the kernel that takes a row of a scanned tensor."""
    row = sub.unique_tensor_name(f"{whole}/row")
    func = control_steps.take_row(value.shape, one.axis, one.reverse, value.dtype)
    node = sub.unique_node_name(f"{step.name}/{row}")
    sub.graph.add(Node(node, f"{step.op}.row", func, (whole, number), (row,), (step.name,)))
    return row


def _add_loop_parts(
    form: LoopSpec,
    body: RegionBody,
    states: Sequence[Value],
    rows: Sequence[Value],
    region: RegionBuilder,
) -> str:
    """Add the parts of a loop: what comes before the first iteration, the body, and what follows
    each iteration.  Returns the tensor with the number of iterations that there were."""
    step, values = body.step, region.context.graph.values
    names = list(step.node.output)
    names += [""] * (len(states) + len(rows) - len(names))
    rooms = [form.room(k, values) for k in range(len(states))]
    carried = [
        region.write(name, value.dtype, room)
        for name, value, room in zip(names, states, rooms, strict=False)
    ]
    following = [region.hold(v.dtype, v.shape) for v in states]
    row_slots = [region.hold(v.dtype, v.shape) for v in rows]
    boxes = [
        region.write(name, value.dtype, _boxed(form, value, one))
        for name, value, one in zip(names[len(states) :], rows, form.made, strict=True)
    ]
    number = region.write(region.context.unique_tensor_name(f"{step.name}/trips"), "int64", ())
    if not form.all_trips:
        count = region.writes[number].name
        for name, one in zip(names[len(states) :], form.made, strict=True):
            if name:
                region.counted[name] = {**region.counted.get(name, {}), one.axis: count}
    guards = [_guard_state(body, k, guard, region) for k, guard in enumerate(body.graph.guards)]
    first = [region.read(name) for name in (form.condition, form.trips) if name]
    trips = (values[form.trips].shape, values[form.trips].dtype) if form.trips else None
    condition = values[form.condition].shape if form.condition else None
    for name, slot, room in zip(form.states, carried, rooms, strict=True):
        region.kernel(placed(values[name], room), (region.read(name),), slot)
    for guard in guards:
        value = region.writes[guard.kept]
        region.kernel(movement.fill(value.shape, guard.allowed, value.dtype), (), guard.kept)
    region.kernel(movement.fill((), 0, "int64"), (), number)
    flag, begin = region.hold("bool", ()), len(region.parts) + 1
    moved = [*zip(following, carried, states, strict=True)]
    moved += [(guard.following, guard.kept, region.writes[guard.kept]) for guard in guards]
    begins = control_steps.loop_begins(trips, condition)
    region.kernel(begins, first, flag)
    wholes = [region.read(one.name) for one in form.taken]
    again = [region.hold("bool", body.value(0).shape)] if form.given else []
    kept = [guard.kept for guard in guards]
    outputs = (*again, *following, *row_slots, *(guard.following for guard in guards))
    slots = region.body(body, (number, *carried, *wholes, *kept), outputs)
    for slot, box, row, one in zip(row_slots, boxes, rows, form.made, strict=True):
        extent = region.writes[box].shape[one.axis]
        func = control_steps.put_row(row.shape, extent, one.axis, one.reverse, row.dtype)
        region.kernel(func, (slot, number), box)
    given_on = body.results[int(form.given) :][: len(states)]
    for name, (made, slot, value) in zip_longest(given_on, moved):
        counts = body.context.counted.get(name, {})
        counted = {axis: slots[count] for axis, count in counts.items() if count in slots}
        region.hand_on(made, slot, value, counted)
    decides = again if not form.all_trips else []
    goes_on = control_steps.loop_goes_on(body.value(0).shape if decides else None, trips)
    region.kernel(goes_on, (*decides, number, *([region.read(form.trips)] if trips else [])), flag)
    region.kernel(control_steps.next_number(), (number,), number, RegionJump(flag, True, begin))
    region.let_jump(begin - 1, RegionJump(flag, False, len(region.parts)))
    often = f"at most {form.most} times" if form.most is not None else "as long as it says"
    region.add(f"a run executes its body {often}")
    return region.writes[number].name


class _GuardState(Struct, frozen=True):
    """What a guard of a loop's body checks, as a state: the first contents that violate it stay.

    kept, following: the region's names of it before and after an iteration; allowed: a number that
    satisfies the guard.
    """

    kept: str
    following: str
    allowed: int


def _guard_state(
    body: RegionBody, number: int, guard: ValueGuard, region: RegionBuilder
) -> _GuardState:
    """Make what a guard checks a state of the loop, and an output of the region."""
    sub, step = body.context, body.step
    value = body.graph.values[guard.value]
    wanted = f"{step.name}/checked{number}"
    before = sub.graph.add_input(sub.unique_tensor_name(wanted), value.dtype, value.shape)
    body.sources[before] = None
    after = sub.unique_tensor_name(wanted)
    func = control_steps.kept_violation(value.shape, value.dtype, guard.lo, guard.hi)
    node = sub.unique_node_name(f"{wanted}/kept")
    operands = (before, guard.value)
    sub.graph.add(Node(node, f"{step.op}.check", func, operands, (after,), (step.name,)))
    body.add_result(after)
    allowed = 0 if guard.lo <= 0 <= guard.hi else int(allowed_contents(guard, value).reshape(-1)[0])
    following = region.hold(value.dtype, value.shape)
    return _GuardState(region.check(guard, wanted, value), following, allowed)


def _boxed(form: LoopSpec, row: Value, one: Scanned) -> tuple[int, ...]:
    """The shape of the tensor that is made of rows."""
    assert form.most is not None
    return (*row.shape[: one.axis], form.most, *row.shape[one.axis :])
