"""Variants that a user scheduled: kernels whose marked stages lay out and pad their parameters.

In: a scheduled kernel, some of whose blocks are marked as stages that copy a parameter into a cache
(an input) or out of one (an output).  Out: the `KernelVariant` that the kernel is without these
stages, its contract proven; its schedule; and what it leaves in the padding of its output.  Stages
that do more than copy and pad stay in the kernel, and the schedule says why.

The stages state the contract.  An input that they pad with a constant is demanded with that
constant; one that they pad with `undef` must be readable; where they do not pad, there is no
demand.  An output cropped under a constant holds it in its padding, which must be proven.  One
cropped under `undef` promises nothing, unless no input is padded with a constant: then what its
padding holds follows from what the padding of the inputs holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import cast

import numpy as np

from graphflow import arith, schedule, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.cost import NO_WORK, Work, operation_cycles
from graphflow.kernels.recipes.analysis.parallel_loops import is_shareable, run_by_one_thread
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Padding, Scheduled
from graphflow.kernels.recipes.schedules.on_host import on_host
from graphflow.kernels.recipes.schedules.staged import in_lanes_and_threads
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
from graphflow.schedule import PadValue, Schedule

ONE_THREAD = ", by one thread: its parallel loop is not all it does"
"""The end of the name of a variant whose parallel loop was made serial."""


@lru_cache(maxsize=1024)
def scheduled_variants(scheduled: tir.PrimFunc, target: Target) -> tuple[KernelVariant, ...]:
    """The variants that a scheduled kernel is: `lifted` first, then those that elide padding.

    Where nothing touches the padding of some parameters, these are inputs, outputs or both that are
    in row-major memory without it.
    """
    inputs = {b.name for b in scheduled.inputs}
    reads = frozenset(name for name in _elidable(scheduled) if name in inputs)
    writes = _elidable(scheduled) - reads
    without = dict.fromkeys((frozenset[str](), reads, writes, reads | writes))
    return tuple(lifted(scheduled, target, elided) for elided in without)


@lru_cache(maxsize=1024)
def lifted(
    scheduled: tir.PrimFunc, target: Target, elided: frozenset[str] = frozenset()
) -> KernelVariant:
    """The variant that a scheduled kernel is once its marked stages are lifted out.

    The parameters in `elided` are row-major.  Stages that do more than copy and pad stay in the
    kernel.  ScheduleError where what stages state of the output's padding is not proven, where the
    kernel assumes what no stage states, and where it touches padding that is to be elided;
    VerifyError as of `on_host`.
    """
    scheduled = on_host(scheduled)
    stated = _stated(scheduled)
    outputs = {b.name for b in scheduled.outputs}
    layouts, demands = _layouts(scheduled), {}
    for name, marked in stated.items():
        demand = None if name in outputs or name in elided else _demand(marked)
        if demand is not None:
            demands[name] = demand
    layouts |= {name: row_major(layouts[name].logical_shape) for name in elided}
    finite = _finite_inputs(scheduled)
    recipe = Scheduled(scheduled, finite)
    padding = Padding.NONE if elided & outputs else _padding(recipe, stated, demands, layouts)
    made = finished(recipe, tuple((name, layouts[name], None) for name in sorted(elided)), target)
    final = made.func
    lanes = any(loop.kind is tir.LoopKind.VECTORIZED for loop in tir.loops_of(final.body))
    alone = any(step.primitive is run_by_one_thread for step in made.steps)
    return KernelVariant(
        _name(scheduled, stated, elided) + (ONE_THREAD if alone else ""),
        layouts,
        frozenset(),
        demands,
        padding,
        recipe,
        _work(final, target),
        lanes,
    )


def _elidable(scheduled: tir.PrimFunc) -> frozenset[str]:
    """The parameters whose stages pad them, and whose padding nothing but these touches."""
    found: set[str] = set()
    for name, marked in _stated(scheduled).items():
        if marked.layout.is_padded:
            with suppress(ScheduleError):
                bare = schedule.lift_stages(scheduled, name).func
                schedule.elide_padding(bare, name, marked.layout)
                found.add(name)
    return frozenset(found)


def _is_elided(marked: schedule.Marked, layout: Layout) -> bool:
    """Whether a parameter that is padded by its stages is placed without padding."""
    return marked.layout.is_padded and layout == row_major(layout.logical_shape)


def left_facts(
    definition: tir.PrimFunc, variant: KernelVariant, facts: RegionFacts
) -> dict[tuple[str, str], Fact]:
    """The facts that a variant with `Padding.EVALUATED` leaves, by output and region.

    `facts` are those of its inputs, by input and region.
    """
    if not isinstance(variant.recipe, Scheduled):
        return output_facts(definition, variant.layouts, facts)
    known = dict(facts)
    for buffer in variant.recipe.kernel.inputs:
        if buffer.name in variant.recipe.finite:
            high = float(np.finfo(buffer.dtype).max)
            known[buffer.name, LOGICAL] = Range(-high, high)
    stated = _stated(variant.recipe.kernel)
    elided = {name for name in stated if _is_elided(stated[name], variant.layouts[name])}
    kernel = _packed(variant.recipe.kernel, frozenset(elided))
    left = packed_facts(kernel, variant.layouts, known)
    # Every element is stored, so one of unknown value may be read all the same.
    return {key: Undefined() if fact == NoAccess() else fact for key, fact in left.items()}


def finished(
    recipe: Scheduled, placements: tuple[tuple[str, Layout, PadValue], ...], target: Target
) -> Schedule:
    """The schedule with the stages lifted out and the parameters placed.

    A kernel all of whose loops are serial is vectorized and parallelized besides.  A parallel loop
    becomes serial where the kernel does something beside it, such as writing padding.
    Where stages cannot be lifted, the schedule keeps the reason.  ScheduleError where the kernel
    runs over the padding of an output that is a view here: that memory belongs to other tensors.
    """
    s = Schedule.of(recipe.kernel)
    for _, reason in _stages(recipe.kernel):
        s = s.refusing(reason) if isinstance(reason, schedule.UnliftableStages) else s
    stated = _stated(recipe.kernel)
    given = {name: (layout, pad) for name, layout, pad in placements}
    outputs = {b.name for b in recipe.kernel.outputs}
    for param in recipe.kernel.params:
        name = param.buffer.name
        own = stated[name].layout if name in stated else row_major(param.buffer.shape)
        layout, pad = given.get(name, (own, None))
        if name in stated and _is_elided(stated[name], layout):
            s = s.apply(schedule.lift_stages, name).apply(schedule.elide_padding, name, own)
        elif name in stated:
            inside = name in given and pad is None and stated[name].pad is not None
            if name in outputs and layout.is_padded and inside:
                raise ScheduleError(
                    f"{recipe.kernel.name} runs over the padding of {name}, which is other "
                    "memory here"
                )
            wanted = pad if name in outputs and layout.is_padded else None
            s = s.apply(schedule.lift_stages, name, layout, wanted)
        elif layout != own:
            s = s.apply(schedule.transform_layout, name, layout, pad)
    if all(loop.kind is tir.LoopKind.SERIAL for loop in tir.loops_of(s.func.body)):
        return in_lanes_and_threads(s, target)
    return s if is_shareable(s.func) else s.apply(run_by_one_thread)


@lru_cache(maxsize=1024)
def _packed(scheduled: tir.PrimFunc, elided: frozenset[str]) -> tir.PrimFunc:
    """The kernel without its stages, over its parameters in the layouts of their caches.

    Those in `elided` are in row-major memory instead.
    """
    s = Schedule.of(scheduled)
    for name, marked in _stated(scheduled).items():
        s = s.apply(schedule.lift_stages, name)
        if name in elided:
            s = s.apply(schedule.elide_padding, name, marked.layout)
    return s.func


def _stated(scheduled: tir.PrimFunc) -> dict[str, schedule.Marked]:
    """By parameter what its stages state, for the stages that are lifted out."""
    return {name: found for name, found in _stages(scheduled) if isinstance(found, schedule.Marked)}


def _stages(
    scheduled: tir.PrimFunc,
) -> Iterator[tuple[str, schedule.Marked | schedule.UnliftableStages]]:
    """By parameter what its stages state, or why they stay in the kernel: they do more than copy
    and pad, or pad with a function of the index, which no edge type can say."""
    for param in scheduled.params:
        try:
            marked = schedule.marked_stage(scheduled, param.buffer.name)
        except schedule.UnliftableStages as reason:
            yield param.buffer.name, reason
        else:
            if marked is not None:
                yield param.buffer.name, marked


def _layouts(scheduled: tir.PrimFunc) -> dict[str, Layout]:
    stated = _stated(scheduled)
    return {
        p.buffer.name: stated[p.buffer.name].layout
        if p.buffer.name in stated
        else row_major(p.buffer.shape)
        for p in scheduled.params
    }


def _demand(marked: schedule.Marked) -> Demand | None:
    if not marked.layout.is_padded or marked.pad is None:
        return None
    return Equal(marked.pad) if isinstance(marked.pad, tir.Literal) else Readable()


def _finite_inputs(scheduled: tir.PrimFunc) -> tuple[str, ...]:
    """The inputs that blocks marked `states` assume to be finite.

    ScheduleError for any other assumption, except that padding may not be touched, and that the
    kernel leaves a constant in padding that it writes, which is proven.
    """
    schedule.require_derived(scheduled)
    derived = schedule.derived_stages(scheduled)
    found: dict[str, None] = {}
    for stmt in scheduled.body:
        if stmt in derived:
            continue
        for name, site in _assumed_in(stmt):
            if name is not None and _states_finite(scheduled, site, name):
                found[name] = None
            elif not schedule.forbids_access(cast(tir.Assume, site.stmt).claim):
                place = stmt.name if isinstance(stmt, tir.Block) else scheduled.name
                raise ScheduleError(
                    f"{place} assumes what nobody has proven; a variant may assume of an input "
                    "what its marked stages pad it with, and that it is finite (assume_finite)"
                )
    return tuple(found)


def _assumed_in(stmt: tir.Stmt) -> Iterator[tuple[str | None, tir.Site]]:
    """The assumptions in a statement, each with the input that a block around it is marked with."""
    marked = [block for block in tir.walk((stmt,)) if isinstance(block, tir.Block)]
    about = {
        inner: block.note(tir.BlockNote.STATES)
        for block in marked
        for inner in tir.walk(block.body)
        if block.note(tir.BlockNote.STATES) is not None
    }
    for site in tir.sites((stmt,)):
        if isinstance(site.stmt, tir.Assume):
            yield about.get(site.stmt), site


def _states_finite(func: tir.PrimFunc, site: tir.Site, name: str) -> bool:
    """Whether an assumption is that elements of the input `name`, or copies of them, are finite."""
    stmt = cast(tir.Assume, site.stmt)
    return any(
        isinstance(node, tir.Load)
        and schedule.is_finite_claim(stmt.claim, node)
        and _is_copy(func, name, node, site.domain, frozenset())
        for node in tir.walk_expr(stmt.claim)
    )


def _is_copy(
    func: tir.PrimFunc,
    name: str,
    load: tir.Load,
    domain: arith.Domain,
    around: frozenset[tir.Buffer],
) -> bool:
    """Whether what a load reads is proven to be an element of the input `name`: all that is stored
    there is."""
    if load.buffer.name == name or load.buffer in around:
        return load.buffer.name == name
    for site in tir.sites(func.body):
        stmt = site.stmt
        if not isinstance(stmt, tir.Store | tir.Reduce) or stmt.buffer != load.buffer:
            continue
        copy, fresh = site.domain.renamed("'")
        there = (arith.substitute(index, fresh) for index in stmt.indices)
        same = arith.conjunction(
            arith.equal(a, b) for a, b in zip(load.indices, there, strict=True)
        )
        if arith.prove_empty(arith.joined_domains(domain, copy).given(same)).proven:
            continue
        if isinstance(stmt, tir.Reduce) or not isinstance(stmt.value, tir.Load):
            return False
        if not _is_copy(func, name, stmt.value, site.domain, around | {load.buffer}):
            return False
    return load.buffer not in func.inputs


def _padding(
    recipe: Scheduled,
    stated: Mapping[str, schedule.Marked],
    demands: Mapping[str, Demand],
    layouts: Mapping[str, Layout],
) -> Padding:
    """What the variant in these layouts leaves in the padding of its output; a constant is proven.

    UNDEF for a kernel of several outputs, and where a stage writes a constant and the evaluation
    does not find it: then nobody relies on it.  ScheduleError where a crop states one that no stage
    writes, and it is not proven.
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
    if isinstance(marked.pad, tir.Literal):
        wrong = _unproven(recipe, output.name, marked, given, layouts)
        if wrong is not None and not marked.written:
            raise ScheduleError(wrong)
        return Padding.EVALUATED if wrong is None else Padding.UNDEF
    free = not any(isinstance(demand, Equal) for demand in demands.values())
    return Padding.EVALUATED if free else Padding.UNDEF


def _unproven(
    recipe: Scheduled,
    output: str,
    marked: schedule.Marked,
    given: Mapping[tuple[str, str], Fact],
    layouts: Mapping[str, Layout],
) -> str | None:
    """Why the kernel is not proven to leave the constant in the padding of its output; None if it
    is.

    `given` are the facts that follow from its demands.
    """
    assert isinstance(marked.pad, tir.Literal)
    probe = KernelVariant("", layouts, frozenset(), {}, Padding.EVALUATED, recipe, NO_WORK, False)
    left = left_facts(recipe.kernel, probe, given)
    for region in marked.layout.regions():
        fact = left.get((output, region.name), Undefined())
        if region.name != LOGICAL and fact != Constant(marked.pad):
            return (
                f"{recipe.kernel.name} crops {output} stating that {region.name} holds "
                f"{marked.pad.value}, and it is only known to hold {fact}; state undef, or write "
                "the padding"
            )
    return None


def _name(
    scheduled: tir.PrimFunc, stated: Mapping[str, schedule.Marked], elided: frozenset[str]
) -> str:
    """The name of the variant: the parameters that have stages, with layouts and padding."""
    said = []
    for name, marked in stated.items():
        pad = "untouched" if marked.pad is None else "undef"
        if isinstance(marked.pad, tir.Literal):
            pad = str(marked.pad.value)
        pad = "elided" if name in elided else pad
        padding = f" [{pad}]" if marked.layout.is_padded else ""
        said.append(f"{name} {marked.layout.describe()}{padding}")
    return f"{scheduled.name} as scheduled: " + (", ".join(said) or "row-major")


def _work(final: tir.PrimFunc, target: Target) -> Work:
    """The work of the kernel as scheduled: each operation once an iteration, or once a vector."""
    kinds = {loop.var: loop.kind for loop in tir.loops_of(final.body)}
    cycles = 0.0
    for site in tir.sites(final.body):
        if isinstance(site.stmt, tir.Store | tir.Reduce):
            nodes = tir.walk_expr(site.stmt.value)
            operations = isinstance(site.stmt, tir.Reduce) + sum(
                not isinstance(node, tir.Load | tir.Literal) for node in nodes
            )
            runs = _runs(site, kinds, target.computed_lanes(site.stmt.buffer.dtype))
            cycles += operation_cycles(max(1, operations) * runs)
    shared = [
        loop.extent or 1 for loop in tir.loops_of(final.body) if loop.kind is tir.LoopKind.PARALLEL
    ]
    read = sum(b.bytes for b in final.inputs)
    written = sum(b.bytes for b in final.outputs)
    return Work(2.0 * tir.multiply_add_count(final), cycles, max(shared, default=1), read, written)


def _runs(site: tir.Site, kinds: Mapping[arith.Var, tir.LoopKind], lanes: int) -> float:
    """Iterations of a statement, where those of a vectorized loop count once for each vector."""
    total = 1.0
    for axis in site.domain.axes:
        extent = arith.constant_value(axis.stop - axis.start) or 1
        if kinds.get(axis.var) is tir.LoopKind.VECTORIZED:
            extent = -(-extent // lanes)
        total *= extent
    return total
