"""Scheduling: primitives that rewrite one kernel, and the schedule that keeps steps and proofs.

In: a kernel (`PrimFunc`) and plain arguments.  Out: an equal kernel.  What always holds: a
primitive proves its safety condition before it rewrites, and raises ScheduleError where the
condition is refuted or not decided.
"""

from graphflow.schedule.absorb import absorb_padding
from graphflow.schedule.accumulators import rfactor
from graphflow.schedule.assumptions import assume_finite, assume_reciprocal, is_finite_claim
from graphflow.schedule.attach import compute_at, reverse_compute_at
from graphflow.schedule.bound_inference import LoopRange, Requirement, infer_bounds
from graphflow.schedule.branches import merge_conditions, replace_known_loads
from graphflow.schedule.claims import claims, forbids_access
from graphflow.schedule.conditions import (
    eliminate_dead_code,
    lift_conditions,
    simplify_kernel,
)
from graphflow.schedule.extents import interior, partition_loop, restrict_loop, stride_loop
from graphflow.schedule.frame import Handle, Refusal, Rewrite, Schedule, ScheduleStep, replay
from graphflow.schedule.kinds import parallelize_loop, unroll_loop, vectorize_loop
from graphflow.schedule.layouts import (
    PadFunction,
    PadValue,
    StatedPad,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.schedule.lifting import (
    Marked,
    UnstatedPadding,
    is_marked,
    lift_stages,
    marked_stage,
    state_padding,
)
from graphflow.schedule.loops import (
    cut_loop,
    divide_loop,
    mult_loops,
    reorder_loops,
    shift_loop,
)
from graphflow.schedule.memory import bind_expr, cache_read, cache_write, lift_alloc, stage_mem
from graphflow.schedule.no_ops import remove_no_op
from graphflow.schedule.overcompute import (
    remove_branching_through_overcompute,
    remove_overcompute_through_branching,
)
from graphflow.schedule.padding import PaddingKind
from graphflow.schedule.parts import fission, fuse, split_condition
from graphflow.schedule.private import sink_alloc
from graphflow.schedule.recompute import divide_with_recompute
from graphflow.schedule.soundness import require_consistent, require_in_bounds, require_sound
from graphflow.schedule.staging import stage_window

__all__ = [
    "Handle",
    "LoopRange",
    "Marked",
    "PadFunction",
    "PadValue",
    "PaddingKind",
    "Refusal",
    "Requirement",
    "Rewrite",
    "Schedule",
    "ScheduleStep",
    "StatedPad",
    "UnstatedPadding",
    "absorb_padding",
    "assume_finite",
    "assume_reciprocal",
    "bind_expr",
    "cache_read",
    "cache_write",
    "claims",
    "compute_at",
    "cut_loop",
    "divide_loop",
    "divide_with_recompute",
    "eliminate_dead_code",
    "fission",
    "forbids_access",
    "fuse",
    "infer_bounds",
    "interior",
    "is_finite_claim",
    "is_marked",
    "lift_alloc",
    "lift_conditions",
    "lift_stages",
    "marked_stage",
    "merge_conditions",
    "mult_loops",
    "parallelize_loop",
    "partition_loop",
    "remove_branching_through_overcompute",
    "remove_no_op",
    "remove_overcompute_through_branching",
    "reorder_loops",
    "replace_known_loads",
    "replay",
    "require_consistent",
    "require_in_bounds",
    "require_sound",
    "restrict_loop",
    "reverse_compute_at",
    "rfactor",
    "sequential_buffer_access",
    "shift_loop",
    "simplify_kernel",
    "sink_alloc",
    "split_condition",
    "stage_mem",
    "stage_window",
    "state_padding",
    "stride_loop",
    "transform_layout",
    "unroll_loop",
    "vectorize_loop",
]
