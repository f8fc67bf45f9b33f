"""Reductions of what a kernel stores, made where it stores it: the output is not read once more.

In: the schedule of a kernel whose iterations threads share, and partial results of its output.
Out: the same schedule, in which each iteration also reduces what it stores.

    for t in parallel(0, 112):            for t in parallel(0, 112):
        for v in vectorized(0, 16):  →        lanes = −∞
            y[t, v] = e                       for v in vectorized(0, 16):
                                                  y[t, v] = e; lanes[v] max= f(e)
                                              parts[t] = max(lanes)

What always holds: an iteration stores elements of one part alone, and another iteration none of
them; each element is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from graphflow import arith, schedule, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.recipes.analysis.parallel_loops import shared_loop
from graphflow.kernels.recipes.analysis.partial_results import Cut, PartialResults
from graphflow.kernels.recipes.analysis.roles import roles_of
from graphflow.kernels.recipes.analysis.variant import Tiled
from graphflow.kernels.recipes.schedules.image_loops import ImageLoops
from graphflow.schedule import Rewrite

MOST_COUNTED = 1 << 16
"""The points of a condition that are tried one by one."""


def iteration_cuts(
    definition: tir.PrimFunc, recipe: Tiled, order: Sequence[int]
) -> tuple[Cut, ...] | None:
    """The parts of the output that iterations of the loop store that threads share, where it has
    its axes in this `order` in memory; None where that is not known, or there is one iteration.

    It is the loop that `tile.register_tile` makes.
    """
    kind, roles = recipe.kind, roles_of(definition)
    if not isinstance(kind, ImageLoops) or roles is None or kind.group:
        return None
    if any(count > 1 for count in roles.phases):
        return None  # tiles part the iterations of such an axis
    shape = roles.output.shape
    *outer, lane = [axis for axis in order if shape[axis] > 1] or [0]
    cuts = [(axis, 1) for axis in outer]
    if kind.has_rows and cuts:
        row, _ = cuts.pop()
        if kind.joined:
            if kind.blocks:
                return None  # a block ends within a row of the tensor
            cuts = cuts[: -kind.joined]
        if kind.blocks:
            cuts.append((row, -(-shape[row] // kind.blocks)))  # the last block may lack rows
    panels = recipe.tiling.panels[0]
    if recipe.tiling.panel_outermost and panels.count > 1:
        cuts.insert(len(cuts) if kind.blocks_outermost else 0, (lane, panels.width))
    return tuple(cuts) or None


def reduced_where_stored(
    func: tir.PrimFunc, output: str, results: tuple[PartialResults, ...]
) -> Rewrite:
    """`func` with the partial results of what it stores to `output` as further outputs.

    1. Threads share one loop, which is all that the kernel does.
    2. Nothing reads the output, and each of its elements is stored once.
    3. An iteration stores elements of one part, which no other iteration does.
    """
    loop = shared_loop(func)
    if loop is None:
        raise ScheduleError("there is no loop whose iterations could each have a partial result")
    stores = _stores(func, output)
    taken = {*schedule.names_of_places(func)}
    proofs, first, last = [_stored_once(stores)], list[tir.Stmt](), list[tir.Stmt]()
    lanes_of = {site.stmt: _lanes(site, loop) for site in stores}
    width = max((lane.extent or 1 for lane in lanes_of.values() if lane), default=1)
    behind: dict[tir.Stmt, list[tir.Stmt]] = {site.stmt: [] for site in stores}
    for one in results:
        at, proven = _part(one, stores, loop)
        proofs += proven
        lanes = tir.Buffer(stages.fresh("lanes", taken), (width,), one.parts.dtype, "register")
        start = stages.neutral(one.op, one.parts.dtype)
        clear, fold = (arith.Var(stages.fresh(name, taken)) for name in ("clear", "fold"))
        first += [tir.Allocate(lanes), _in_lanes(clear, width, tir.Store(lanes, (clear,), start))]
        kept = tir.Reduce(one.op, one.parts, at, tir.Load(lanes, (fold,)))
        last += [tir.Store(one.parts, at, start), _in_lanes(fold, width, kept)]
        for site in stores:
            assert isinstance(site.stmt, tir.Store)
            lane = lanes_of[site.stmt]
            place = arith.const(0) if lane is None else lane.var - lane.start
            value = one.value_of(site.stmt.value)
            behind[site.stmt].append(tir.Reduce(one.op, lanes, (place,), value))

    def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        if stmt in behind:
            return (stmt, *behind[stmt])
        if isinstance(stmt, tir.For) and stmt.var == loop.var:
            return replace(stmt, body=(*first, *stmt.body, *last), kind=tir.LoopKind.SERIAL)
        return stmt

    params = (*func.params, *(tir.Param(one.parts, tir.Role.OUTPUT) for one in results))
    made = replace(func, params=params, body=tir.map_body(func.body, change))
    shared = schedule.parallelize_loop(made, loop.var.name)
    return Rewrite(shared.func, (*proofs, *shared.proofs))


def _in_lanes(var: arith.Var, width: int, stmt: tir.Stmt) -> tir.For:
    return tir.For(var, arith.const(0), arith.const(width), tir.LoopKind.VECTORIZED, (stmt,))


def _stores(func: tir.PrimFunc, output: str) -> list[tir.Site]:
    """The stores to an output, which nothing else accesses, and which no data decide about."""
    stores = [
        site
        for site in tir.sites(func.body)
        if isinstance(site.stmt, tir.Store) and site.stmt.buffer.name == output
    ]
    accesses = [a for a in tir.accesses(func.body) if a.buffer.name == output]
    if len(accesses) > len(stores) or any(site.guards for site in stores):
        raise ScheduleError(f"{output} is not only stored, or data decide what is stored")
    return stores


def _stored_once(stores: Sequence[tir.Site]) -> arith.Proof:
    """The proof that no element is stored twice: there are as many stores as elements, and each
    element is stored, as the kernel computes it."""
    count = sum(_runs(site) for site in stores)
    (buffer,) = {site.stmt.buffer for site in stores if isinstance(site.stmt, tir.Store)}
    if count != buffer.size:
        raise ScheduleError(f"{buffer.size} elements of {buffer.name} are stored {count} times")
    claim = f"each of the {count} elements of {buffer.name} is stored once"
    return arith.Proof(arith.Verdict.PROVEN, claim, "structure")


def _runs(site: tir.Site) -> int:
    """How often a store is executed, in all lanes."""
    extents = {x.var: arith.constant_value(x.stop - x.start) for x in site.domain.axes}
    tested = sorted(arith.predicate_variables(site.domain.where), key=str)
    starts = {x.var: arith.constant_value(x.start) for x in site.domain.axes}
    points = prod(extents.get(var) or 0 for var in tested)
    if None in extents.values() or not {*tested} <= {*extents} or points > MOST_COUNTED:
        raise ScheduleError(f"how often `{tir.stmt_text(site.stmt)}` is executed is not known")
    sides = [range(starts[var] or 0, (starts[var] or 0) + (extents[var] or 0)) for var in tested]
    admitted = sum(
        arith.holds(site.domain.where, dict(zip(tested, point, strict=True)))
        for point in product(*sides)
    )
    return admitted * prod(n or 0 for var, n in extents.items() if var not in tested)


def _lanes(site: tir.Site, loop: tir.For) -> tir.For | None:
    """The vectorized loop around a store, if it has lanes."""
    around = {axis.var for axis in site.domain.axes}
    loops = (x for x in tir.loops_of(loop.body) if x.kind is tir.LoopKind.VECTORIZED)
    return next((x for x in loops if x.var in around), None)


def _part(
    results: PartialResults, stores: Sequence[tir.Site], loop: tir.For
) -> tuple[tuple[arith.IndexExpr, ...], list[arith.Proof]]:
    """The part of the elements that an iteration of `loop` stores, and proofs that it is the one
    part of all of them."""
    found: list[arith.IndexExpr] = []
    proofs: list[arith.Proof] = []
    for axis, count in results.cuts:
        places = [
            (arith.floor_div(site.stmt.indices[axis], count), site.domain)
            for site in stores
            if isinstance(site.stmt, tir.Store)
        ]
        index, domain = places[0]
        begin = {axis.var: axis.start for axis in domain.axes if axis.var != loop.var}
        part = arith.simplify_index(arith.substitute(index, begin), domain.ranges())
        for place, points in places:
            proof = arith.prove(arith.equal(place, part), points)
            if not proof.proven:
                raise ScheduleError(f"an iteration of {loop.var} stores several parts: {proof}")
            proofs.append(proof)
        found.append(part)
    return tuple(found), list(dict.fromkeys(proofs))
