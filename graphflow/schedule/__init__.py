"""Scheduling: primitives that rewrite one kernel, and the schedule that keeps steps and proofs.

In: a kernel (`PrimFunc`) and plain arguments.  Out: an equal kernel.  What always holds: a
primitive proves its safety condition before it rewrites, and raises ScheduleError where the
condition is refuted or not decided.
"""

from graphflow.schedule.buffers.annotations import set_memory, set_precision
from graphflow.schedule.buffers.dimensions import (
    divide_dim,
    expand_dim,
    mult_dim,
    rearrange_dim,
    resize_dim,
    unroll_buffer,
)
from graphflow.schedule.buffers.flattening import flatten_buffer
from graphflow.schedule.buffers.layouts import (
    PadFunction,
    PadValue,
    StatedPad,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.schedule.buffers.lifetimes import delete_buffer, reuse_buffer
from graphflow.schedule.buffers.memory import cache_read, cache_write, lift_alloc, stage_mem
from graphflow.schedule.buffers.named_windows import inline_window, set_window
from graphflow.schedule.buffers.staging import scan, stage_window
from graphflow.schedule.calls.configuration import bind_config, delete_config, write_config
from graphflow.schedule.calls.kernel_calls import call_eqv, extract_subproc, inline, replace
from graphflow.schedule.calls.prefetching import prefetch
from graphflow.schedule.conditions.branches import merge_conditions, replace_known_loads
from graphflow.schedule.conditions.conditions import (
    eliminate_dead_code,
    lift_conditions,
    simplify,
)
from graphflow.schedule.conditions.extents import (
    interior,
    partition_loop,
    restrict_loop,
    stride_loop,
)
from graphflow.schedule.conditions.no_ops import remove_no_op
from graphflow.schedule.facts.bound_inference import (
    LoopRange,
    Requirement,
    all_elements,
    element_variables,
    infer_bounds,
)
from graphflow.schedule.facts.claims import claims, forbids_access
from graphflow.schedule.facts.dependence import independent
from graphflow.schedule.facts.known_state import in_state
from graphflow.schedule.facts.memory_spaces import require_memories
from graphflow.schedule.facts.padding import PaddingKind, may_load
from graphflow.schedule.facts.phase_independence import phase_proofs
from graphflow.schedule.facts.soundness import require_consistent, require_in_bounds, require_sound
from graphflow.schedule.loops.accumulators import rfactor
from graphflow.schedule.loops.kinds import mark_unrolled, parallelize_loop, vectorize_loop
from graphflow.schedule.loops.loops import (
    cut_loop,
    divide_loop,
    mult_loops,
    reorder_loops,
    shift_loop,
)
from graphflow.schedule.loops.parts import fission, fuse, split_condition
from graphflow.schedule.loops.pieces import join_loops, unroll_loop
from graphflow.schedule.loops.recompute import divide_with_recompute
from graphflow.schedule.padding.absorb import absorb_padding
from graphflow.schedule.padding.assumptions import (
    assume_finite,
    assume_reciprocal,
    is_finite_claim,
    is_reciprocal_claim,
)
from graphflow.schedule.padding.derived_padding import (
    derive_padding,
    derived_stages,
    require_derived,
)
from graphflow.schedule.padding.elided_padding import elide_padding
from graphflow.schedule.padding.overcompute import (
    remove_branching_through_overcompute,
    remove_overcompute_through_branching,
)
from graphflow.schedule.places.addresses import places_in
from graphflow.schedule.places.place_names import (
    declared_names,
    fresh_copy,
    fresh_name,
    fresh_names,
    names_of_places,
)
from graphflow.schedule.places.places import constant_extent, find_loop, rewrite_at
from graphflow.schedule.stages.attach import compute_at, reverse_compute_at
from graphflow.schedule.stages.lifting import (
    Marked,
    UnliftableStages,
    is_marked,
    lift_stages,
    marked_stage,
    state_padding,
)
from graphflow.schedule.stages.private import sink_alloc
from graphflow.schedule.statements.expressions import bind_expr, rewrite_expr
from graphflow.schedule.statements.lets import bind_let, inline_let, lift_lets
from graphflow.schedule.statements.repetition import add_loop, remove_loop
from graphflow.schedule.statements.scopes import lift_scope, specialize
from graphflow.schedule.statements.single_statements import (
    commute_expr,
    name_statement,
    reorder_stmts,
)
from graphflow.schedule.statements.writes import inline_assign, merge_writes
from graphflow.schedule.steps.base_schedule import replay, replayed
from graphflow.schedule.steps.frame import Handle, Refusal, Rewrite, ScheduleStep
from graphflow.schedule.user.methods import Schedule
from graphflow.schedule.user.parameter_layouts import ParameterLayout, parameter_layouts
from graphflow.schedule.user.search_space import ChoiceValue, Point, SearchSpace, choices_text
from graphflow.schedule.user.sketches import Sketch, require_sketches, sketch

__all__ = [
    "ChoiceValue",
    "Handle",
    "LoopRange",
    "Marked",
    "PadFunction",
    "PadValue",
    "PaddingKind",
    "ParameterLayout",
    "Point",
    "Refusal",
    "Requirement",
    "Rewrite",
    "Schedule",
    "ScheduleStep",
    "SearchSpace",
    "Sketch",
    "StatedPad",
    "UnliftableStages",
    "absorb_padding",
    "add_loop",
    "all_elements",
    "assume_finite",
    "assume_reciprocal",
    "bind_config",
    "bind_expr",
    "bind_let",
    "cache_read",
    "cache_write",
    "call_eqv",
    "choices_text",
    "claims",
    "commute_expr",
    "compute_at",
    "constant_extent",
    "cut_loop",
    "declared_names",
    "delete_buffer",
    "delete_config",
    "derive_padding",
    "derived_stages",
    "divide_dim",
    "divide_loop",
    "divide_with_recompute",
    "element_variables",
    "elide_padding",
    "eliminate_dead_code",
    "expand_dim",
    "extract_subproc",
    "find_loop",
    "fission",
    "flatten_buffer",
    "forbids_access",
    "fresh_copy",
    "fresh_name",
    "fresh_names",
    "fuse",
    "in_state",
    "independent",
    "infer_bounds",
    "inline",
    "inline_assign",
    "inline_let",
    "inline_window",
    "interior",
    "is_finite_claim",
    "is_marked",
    "is_reciprocal_claim",
    "join_loops",
    "lift_alloc",
    "lift_conditions",
    "lift_lets",
    "lift_scope",
    "lift_stages",
    "mark_unrolled",
    "marked_stage",
    "may_load",
    "merge_conditions",
    "merge_writes",
    "mult_dim",
    "mult_loops",
    "name_statement",
    "names_of_places",
    "parallelize_loop",
    "parameter_layouts",
    "partition_loop",
    "phase_proofs",
    "places_in",
    "prefetch",
    "rearrange_dim",
    "remove_branching_through_overcompute",
    "remove_loop",
    "remove_no_op",
    "remove_overcompute_through_branching",
    "reorder_loops",
    "reorder_stmts",
    "replace",
    "replace_known_loads",
    "replay",
    "replayed",
    "require_consistent",
    "require_derived",
    "require_in_bounds",
    "require_memories",
    "require_sketches",
    "require_sound",
    "resize_dim",
    "restrict_loop",
    "reuse_buffer",
    "reverse_compute_at",
    "rewrite_at",
    "rewrite_expr",
    "rfactor",
    "scan",
    "sequential_buffer_access",
    "set_memory",
    "set_precision",
    "set_window",
    "shift_loop",
    "simplify",
    "sink_alloc",
    "sketch",
    "specialize",
    "split_condition",
    "stage_mem",
    "stage_window",
    "state_padding",
    "stride_loop",
    "transform_layout",
    "unroll_buffer",
    "unroll_loop",
    "vectorize_loop",
    "write_config",
]
