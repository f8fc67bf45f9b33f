"""The schedule that users have: each primitive is a method of it, and it shows what was done.

In: a kernel as its definition says.  Out: the kernel one primitive further, or the text of it.
What always holds: `s.divide_loop(…)` is `s.apply(divide_loop, …)`, for every primitive of the
package, with the types of its arguments; and the source that `trace` returns makes the same kernel.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TextIO, TypeVar, overload

import graphflow.schedule.buffers.annotations as annotations
import graphflow.schedule.buffers.dimensions as dimensions
import graphflow.schedule.buffers.flattening as flattening
import graphflow.schedule.buffers.layouts as layouts
import graphflow.schedule.buffers.lifetimes as lifetimes
import graphflow.schedule.buffers.memory as memory
import graphflow.schedule.buffers.named_windows as named_windows
import graphflow.schedule.buffers.staging as staging
import graphflow.schedule.calls.configuration as configuration
import graphflow.schedule.calls.kernel_calls as kernel_calls
import graphflow.schedule.calls.prefetching as prefetching
import graphflow.schedule.conditions.branches as branches
import graphflow.schedule.conditions.conditions as conditions
import graphflow.schedule.conditions.extents as extents
import graphflow.schedule.conditions.no_ops as no_ops
import graphflow.schedule.loops.accumulators as accumulators
import graphflow.schedule.loops.kinds as kinds
import graphflow.schedule.loops.loops as loops
import graphflow.schedule.loops.parts as parts
import graphflow.schedule.loops.pieces as pieces
import graphflow.schedule.loops.recompute as recompute
import graphflow.schedule.padding.absorb as absorb
import graphflow.schedule.padding.assumptions as assumptions
import graphflow.schedule.padding.derived_padding as derived_padding
import graphflow.schedule.padding.elided_padding as elided_padding
import graphflow.schedule.padding.overcompute as overcompute
import graphflow.schedule.stages.attach as attach
import graphflow.schedule.stages.lifting as lifting
import graphflow.schedule.stages.private as private
import graphflow.schedule.statements.expressions as expressions
import graphflow.schedule.statements.lets as lets
import graphflow.schedule.statements.repetition as repetition
import graphflow.schedule.statements.scopes as scopes
import graphflow.schedule.statements.single_statements as single_statements
import graphflow.schedule.statements.writes as writes
from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.steps.base_schedule import BaseSchedule, replay
from graphflow.schedule.steps.frame import Rewrite
from graphflow.schedule.user.script import script_of

GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"
"""What turns a terminal's text green, red, and back."""

Arguments = ParamSpec("Arguments")
Scheduled = TypeVar("Scheduled", bound=BaseSchedule)


class Method(Generic[Arguments]):
    """A primitive as a method of schedules, with the arguments that it takes behind the kernel."""

    def __init__(self, primitive: Callable[Concatenate[tir.PrimFunc, Arguments], Rewrite]) -> None:
        self.primitive = primitive

    @overload
    def __get__(
        self, schedule: None, owner: type[BaseSchedule]
    ) -> Callable[Concatenate[tir.PrimFunc, Arguments], Rewrite]: ...

    @overload
    def __get__(
        self, schedule: Scheduled, owner: type[Scheduled]
    ) -> Callable[Arguments, Scheduled]: ...

    def __get__(
        self, schedule: Scheduled | None, owner: type[BaseSchedule]
    ) -> Callable[Concatenate[tir.PrimFunc, Arguments], Rewrite] | Callable[Arguments, Scheduled]:
        """The method of a schedule; of the class, the primitive."""
        primitive = self.primitive
        if schedule is None:
            return primitive

        @wraps(primitive)
        def method(*arguments: Arguments.args, **options: Arguments.kwargs) -> Scheduled:
            return schedule.apply(primitive, *arguments, **options)

        return method


@dataclass(frozen=True, slots=True)
class Schedule(BaseSchedule):
    """A kernel under transformation: the definition, the kernel now, and the steps between.

    `made` holds the handles of what the last step made, by role; each primitive documents its
    roles.  `refusals` are the steps that were attempted and refused, in that order.
    """

    absorb_padding = Method(absorb.absorb_padding)
    add_loop = Method(repetition.add_loop)
    assume_finite = Method(assumptions.assume_finite)
    assume_reciprocal = Method(assumptions.assume_reciprocal)
    bind_config = Method(configuration.bind_config)
    bind_expr = Method(expressions.bind_expr)
    bind_let = Method(lets.bind_let)
    cache_read = Method(memory.cache_read)
    cache_write = Method(memory.cache_write)
    call_eqv = Method(kernel_calls.call_eqv)
    commute_expr = Method(single_statements.commute_expr)
    compute_at = Method(attach.compute_at)
    cut_loop = Method(loops.cut_loop)
    delete_buffer = Method(lifetimes.delete_buffer)
    delete_config = Method(configuration.delete_config)
    derive_padding = Method(derived_padding.derive_padding)
    divide_dim = Method(dimensions.divide_dim)
    divide_loop = Method(loops.divide_loop)
    divide_with_recompute = Method(recompute.divide_with_recompute)
    elide_padding = Method(elided_padding.elide_padding)
    eliminate_dead_code = Method(conditions.eliminate_dead_code)
    expand_dim = Method(dimensions.expand_dim)
    extract_subproc = Method(kernel_calls.extract_subproc)
    fission = Method(parts.fission)
    flatten_buffer = Method(flattening.flatten_buffer)
    fuse = Method(parts.fuse)
    inline = Method(kernel_calls.inline)
    inline_assign = Method(writes.inline_assign)
    inline_let = Method(lets.inline_let)
    inline_window = Method(named_windows.inline_window)
    join_loops = Method(pieces.join_loops)
    lift_alloc = Method(memory.lift_alloc)
    lift_conditions = Method(conditions.lift_conditions)
    lift_lets = Method(lets.lift_lets)
    lift_scope = Method(scopes.lift_scope)
    lift_stages = Method(lifting.lift_stages)
    mark_unrolled = Method(kinds.mark_unrolled)
    merge_conditions = Method(branches.merge_conditions)
    merge_writes = Method(writes.merge_writes)
    mult_dim = Method(dimensions.mult_dim)
    mult_loops = Method(loops.mult_loops)
    name_statement = Method(single_statements.name_statement)
    parallelize_loop = Method(kinds.parallelize_loop)
    partition_loop = Method(extents.partition_loop)
    prefetch = Method(prefetching.prefetch)
    rearrange_dim = Method(dimensions.rearrange_dim)
    remove_branching_through_overcompute = Method(overcompute.remove_branching_through_overcompute)
    remove_loop = Method(repetition.remove_loop)
    remove_no_op = Method(no_ops.remove_no_op)
    remove_overcompute_through_branching = Method(overcompute.remove_overcompute_through_branching)
    reorder_loops = Method(loops.reorder_loops)
    reorder_stmts = Method(single_statements.reorder_stmts)
    replace = Method(kernel_calls.replace)
    replace_known_loads = Method(branches.replace_known_loads)
    resize_dim = Method(dimensions.resize_dim)
    restrict_loop = Method(extents.restrict_loop)
    reuse_buffer = Method(lifetimes.reuse_buffer)
    reverse_compute_at = Method(attach.reverse_compute_at)
    rewrite_expr = Method(expressions.rewrite_expr)
    rfactor = Method(accumulators.rfactor)
    sequential_buffer_access = Method(layouts.sequential_buffer_access)
    set_memory = Method(annotations.set_memory)
    set_precision = Method(annotations.set_precision)
    set_window = Method(named_windows.set_window)
    shift_loop = Method(loops.shift_loop)
    simplify = Method(conditions.simplify)
    sink_alloc = Method(private.sink_alloc)
    specialize = Method(scopes.specialize)
    split_condition = Method(parts.split_condition)
    stage_mem = Method(memory.stage_mem)
    stage_window = Method(staging.stage_window)
    state_padding = Method(lifting.state_padding)
    stride_loop = Method(extents.stride_loop)
    transform_layout = Method(layouts.transform_layout)
    unroll_buffer = Method(dimensions.unroll_buffer)
    unroll_loop = Method(pieces.unroll_loop)
    vectorize_loop = Method(kinds.vectorize_loop)
    write_config = Method(configuration.write_config)

    def trace(self, proofs: bool = False) -> str:
        """Python source of a function `schedule`, which makes this kernel of the definition again.

        With `proofs`, comments give what permitted each step, and what was refused.  ScheduleError
        where a step was given what has no source, such as a function.
        """
        return script_of(self, proofs)

    def show(
        self, since: int | None = None, colour: bool | None = None, file: TextIO | None = None
    ) -> None:
        """Prints the kernel, with the lines that are new since `since` steps, and those gone.

        Without `since` that is what the last step changed.  New lines are marked `+`, removed ones
        `-`; a terminal shows them in colour, or any file where `colour` says so.  ScheduleError
        where there are fewer steps.
        """
        count = max(len(self.steps) - 1, 0) if since is None else since
        if not 0 <= count <= len(self.steps):
            raise ScheduleError(f"{self.describe()} has no state after {count} steps")
        out = sys.stdout if file is None else file
        before = replay(self.definition, self.steps[:count])
        in_colour = out.isatty() if colour is None else colour
        print(_changed_listing(before, self.func, in_colour), file=out)


def _changed_listing(before: tir.PrimFunc, after: tir.PrimFunc, colour: bool) -> str:
    """The text of `after`: new lines begin with `+`, lines of `before` that are gone with `-`.

    With `colour`, the new lines are green and the others red.
    """
    old, new = (tir.to_text(func).splitlines() for func in (before, after))
    lines: list[str] = []
    # A line that stands in a kernel often, such as a loop, counts like any other.
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [f"  {line}".rstrip() for line in new[k:m]]
            continue
        lines += [_marked("-", line, RED if colour else None) for line in old[i:j]]
        lines += [_marked("+", line, GREEN if colour else None) for line in new[k:m]]
    return "\n".join(lines)


def _marked(mark: str, line: str, shade: str | None) -> str:
    text = f"{mark} {line}"
    return text if shade is None else f"{shade}{text}{PLAIN}"
