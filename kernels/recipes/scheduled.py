"""Variants given by a user: kernels whose parameters are cached, laid out and padded by marked
stages.

In: a scheduled kernel.  Out: the `KernelVariant` that it is once its stages are lifted out, with
everything it claims proven; its kernel; and what it leaves in the padding of its output.

What the stages state is the contract.  An input that they pad with a constant is demanded with it,
one that they pad with `undef` must be readable, and of one that they do not pad the padding is
nobody's business.  An output that is cropped under a constant holds it, which must be proven.  One
cropped under `undef` promises nothing, unless no input is padded with a constant: then what is in
its padding follows from what is in theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from graphflow.arith import Var, constant_value
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.cost import NO_WORK, Work, operation_cycles
from graphflow.kernels.recipes.roles import multiply_adds
from graphflow.kernels.recipes.sharing import is_shareable, run_by_one_thread
from graphflow.kernels.recipes.staged import in_lanes_and_threads
from graphflow.kernels.recipes.variant import KernelVariant, Padding, Scheduled
from graphflow.layout import (
    LOGICAL,
    Constant,
    Demand,
    Equal,
    Fact,
    Layout,
    NoAccess,
    Range,
    Readable,
    RegionFacts,
    Undefined,
    fact_of,
    output_facts,
    packed_facts,
    row_major,
)
from graphflow.schedule import (
    Marked,
    PadValue,
    Schedule,
    UnstatedPadding,
    forbids_access,
    is_finite_claim,
    lift_stages,
    marked_stage,
    transform_layout,
)
from graphflow.tir import (
    Assume,
    Block,
    BlockNote,
    Literal,
    Load,
    LoopKind,
    PrimFunc,
    Reduce,
    Site,
    Stmt,
    Store,
    loops_of,
    sites,
    walk,
    walk_expr,
)

ONE_THREAD = ", by one thread: its parallel loop is not all it does"
"""What the name of a variant says whose parallel loop was made serial."""


@lru_cache(maxsize=1024)
def lifted(scheduled: PrimFunc, target: Target) -> KernelVariant:
    """The variant that a scheduled kernel is without its marked stages.

    ScheduleError where the stages do more than to copy and pad, where a claim is not proven, and
    where the kernel assumes what no stage states.
    """
    stated = _stated(scheduled)
    outputs = {b.name for b in scheduled.outputs}
    layouts, demands = _layouts(scheduled), {}
    for name, marked in stated.items():
        demand = None if name in outputs else _demand(marked)
        if demand is not None:
            demands[name] = demand
    finite = _finite_inputs(scheduled)
    recipe = Scheduled(scheduled, finite)
    padding = _padding(recipe, stated, demands)
    made = finished(recipe, (), target)
    final = made.func
    lanes = any(loop.kind is LoopKind.VECTORIZED for loop in loops_of(final.body))
    alone = any(step.primitive is run_by_one_thread for step in made.steps)
    return KernelVariant(
        _name(scheduled, layouts, stated) + (ONE_THREAD if alone else ""),
        layouts,
        frozenset(),
        demands,
        padding,
        recipe,
        _work(final, target),
        lanes,
    )


def left_facts(
    definition: PrimFunc, variant: KernelVariant, facts: RegionFacts
) -> dict[tuple[str, str], Fact]:
    """What a variant of `definition` that runs over its padding leaves there, by output and
    region."""
    if not isinstance(variant.recipe, Scheduled):
        return output_facts(definition, variant.layouts, facts)
    known = dict(facts)
    for buffer in variant.recipe.kernel.inputs:
        if buffer.name in variant.recipe.finite:
            high = float(np.finfo(buffer.dtype).max)
            known[buffer.name, LOGICAL] = Range(-high, high)
    left = packed_facts(_packed(variant.recipe.kernel), variant.layouts, known)
    # What is not known of what was stored can be read nevertheless.
    return {key: Undefined() if fact == NoAccess() else fact for key, fact in left.items()}


def finished(
    recipe: Scheduled, placements: tuple[tuple[str, Layout, PadValue], ...], target: Target
) -> Schedule:
    """The kernel with its stages lifted out and its parameters placed.

    A kernel all of whose loops are serial also gets lanes and threads.  A parallel loop that is not
    all the kernel does, as where a stage beside it writes padding, becomes serial.
    """
    s = Schedule.of(recipe.kernel)
    stated = _stated(recipe.kernel)
    given = {name: (layout, pad) for name, layout, pad in placements}
    outputs = {b.name for b in recipe.kernel.outputs}
    for param in recipe.kernel.params:
        name = param.buffer.name
        own = stated[name].layout if name in stated else row_major(param.buffer.shape)
        layout, pad = given.get(name, (own, None))
        if name in stated:
            inside = name in given and pad is None and stated[name].pad is not None
            if name in outputs and layout.is_padded and inside:
                raise ScheduleError(
                    f"{recipe.kernel.name} runs over the padding of {name}, which is other "
                    "memory here"
                )
            wanted = pad if name in outputs and layout.is_padded else None
            s = s.apply(lift_stages, name, layout, wanted)
        elif layout != own:
            s = s.apply(transform_layout, name, layout, pad)
    if all(loop.kind is LoopKind.SERIAL for loop in loops_of(s.func.body)):
        return in_lanes_and_threads(s, target)
    return s if is_shareable(s.func) else s.apply(run_by_one_thread)


@lru_cache(maxsize=1024)
def _packed(scheduled: PrimFunc) -> PrimFunc:
    s = Schedule.of(scheduled)
    for name in _stated(scheduled):
        s = s.apply(lift_stages, name)
    return s.func


def _stated(scheduled: PrimFunc) -> dict[str, Marked]:
    """What the stages of each parameter state, of those that are lifted out.

    Stages that pad with a function of the index stay in the kernel, as no graph can state that.
    """
    found: dict[str, Marked] = {}
    for param in scheduled.params:
        try:
            marked = marked_stage(scheduled, param.buffer.name)
        except UnstatedPadding:
            continue
        if marked is not None:
            found[param.buffer.name] = marked
    return found


def _layouts(scheduled: PrimFunc) -> dict[str, Layout]:
    stated = _stated(scheduled)
    return {
        p.buffer.name: stated[p.buffer.name].layout
        if p.buffer.name in stated
        else row_major(p.buffer.shape)
        for p in scheduled.params
    }


def _demand(marked: Marked) -> Demand | None:
    if not marked.layout.is_padded or marked.pad is None:
        return None
    return Equal(marked.pad) if isinstance(marked.pad, Literal) else Readable()


def _finite_inputs(scheduled: PrimFunc) -> tuple[str, ...]:
    """The inputs that blocks marked `states` assume to be finite; nothing else may be assumed."""
    found: list[str] = []
    for stmt in scheduled.body:
        name = stmt.note(BlockNote.STATES) if isinstance(stmt, Block) else None
        if name is not None and _states_finite(stmt, name):
            found.append(name)
        elif any(
            isinstance(inner, Assume) and not forbids_access(inner.claim) for inner in walk((stmt,))
        ):
            place = stmt.name if isinstance(stmt, Block) else scheduled.name
            raise ScheduleError(
                f"{place} assumes what nobody has proven; a variant may assume of an input what "
                "its marked stages pad it with, and that it is finite (assume_finite)"
            )
    return tuple(found)


def _states_finite(stmt: Stmt, name: str) -> bool:
    """Whether a block assumes nothing but that elements of this buffer are finite."""
    return all(
        any(
            isinstance(node, Load)
            and node.buffer.name == name
            and is_finite_claim(inner.claim, node)
            for node in walk_expr(inner.claim)
        )
        for inner in walk((stmt,))
        if isinstance(inner, Assume)
    )


def _padding(
    recipe: Scheduled, stated: Mapping[str, Marked], demands: Mapping[str, Demand]
) -> Padding:
    """What the variant leaves in the padding of its output: proven where it claims a constant.

    A kernel of several outputs promises nothing of any.
    """
    if len(recipe.kernel.outputs) != 1:
        return Padding.UNDEF
    (output,) = recipe.kernel.outputs
    marked = stated.get(output.name)
    if marked is None or not marked.layout.is_padded or marked.pad is None:
        return Padding.NONE
    given = {
        (name, region.name): fact_of(demand.literal.value, demand.literal.dtype)
        if isinstance(demand, Equal)
        else Undefined()
        for name, demand in demands.items()
        for region in stated[name].layout.regions()
        if region.name != LOGICAL
    }
    if isinstance(marked.pad, Literal):
        _proven(recipe, output.name, marked, given)
        return Padding.EVALUATED
    free = not any(isinstance(demand, Equal) for demand in demands.values())
    return Padding.EVALUATED if free else Padding.UNDEF


def _proven(
    recipe: Scheduled, output: str, marked: Marked, given: Mapping[tuple[str, str], Fact]
) -> None:
    """Whether the kernel leaves what its crop states, for what it demands of its inputs."""
    assert isinstance(marked.pad, Literal)
    layouts = _layouts(recipe.kernel)
    probe = KernelVariant("", layouts, frozenset(), {}, Padding.EVALUATED, recipe, NO_WORK, False)
    left = left_facts(recipe.kernel, probe, given)
    for region in marked.layout.regions():
        fact = left.get((output, region.name), Undefined())
        if region.name != LOGICAL and fact != Constant(marked.pad):
            raise ScheduleError(
                f"{recipe.kernel.name} crops {output} stating that {region.name} holds "
                f"{marked.pad.value}, and it is only known to hold {fact}; state undef, or write "
                "the padding"
            )


def _name(scheduled: PrimFunc, layouts: Mapping[str, Layout], stated: Mapping[str, Marked]) -> str:
    """What a user recognizes: the parameters that have stages, and what these state."""
    said = []
    for name, marked in stated.items():
        pad = "untouched" if marked.pad is None else "undef"
        if isinstance(marked.pad, Literal):
            pad = str(marked.pad.value)
        padding = f" [{pad}]" if marked.layout.is_padded else ""
        said.append(f"{name} {marked.layout.describe()}{padding}")
    return f"{scheduled.name} as scheduled: " + (", ".join(said) or "row-major")


def _work(final: PrimFunc, target: Target) -> Work:
    """The cost of the kernel as it stands: each operation once an iteration, or once a vector."""
    kinds = {loop.var: loop.kind for loop in loops_of(final.body)}
    cycles = 0.0
    for site in sites(final.body):
        if isinstance(site.stmt, Store | Reduce):
            nodes = walk_expr(site.stmt.value)
            operations = isinstance(site.stmt, Reduce) + sum(
                not isinstance(node, Load | Literal) for node in nodes
            )
            runs = _runs(site, kinds, target.computed_lanes(site.stmt.buffer.dtype))
            cycles += operation_cycles(max(1, operations) * runs)
    shared = [loop.extent or 1 for loop in loops_of(final.body) if loop.kind is LoopKind.PARALLEL]
    read = sum(b.bytes for b in final.inputs)
    written = sum(b.bytes for b in final.outputs)
    return Work(2.0 * multiply_adds(final), cycles, max(shared, default=1), read, written)


def _runs(site: Site, kinds: Mapping[Var, LoopKind], lanes: int) -> float:
    """Iterations of a statement, those of lanes counted a vector at a time."""
    total = 1.0
    for axis in site.domain.axes:
        extent = constant_value(axis.stop - axis.start) or 1
        if kinds.get(axis.var) is LoopKind.VECTORIZED:
            extent = -(-extent // lanes)
        total *= extent
    return total
