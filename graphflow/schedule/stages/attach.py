"""Computing one stage inside the loops of another one.

In: a kernel with a stage that stores an intermediate, and one that reads it.  Out: the kernel in
which one of them runs in the loops of the other, so that the intermediate can be small.  What
always holds: each iteration stores every element of the intermediate before it reads it, and
computes the value that it had.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce

from msgspec import Struct

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts.bound_inference import Requirement, demands, instances_of, read_by
from graphflow.schedule.facts.stage_ranges import Range, StageRanges, stage_ranges_of
from graphflow.schedule.loops.parts import fuse
from graphflow.schedule.places import obligations, place_names
from graphflow.schedule.places.places import exchange_at, find, find_loop, loop_at, stmt_at
from graphflow.schedule.stages.private import sink_alloc
from graphflow.schedule.steps.frame import Rewrite


def compute_at(func: tir.PrimFunc, stage: str, loop: str, scope: tir.Scope = "scratch") -> Rewrite:
    """`stage: for a: t[a] = f(a)`, `for i: S[t[e(i)]]` → `for i: {t'; for a in (e(i)): …; S}`.

    Each iteration of `loop` computes what it reads of the stage's buffer, found exactly
    (`bound_inference`): elements that several iterations read are computed again by each.  The
    loops of the stage run over the ranges that this takes, under a condition where they would do
    more; where the elements lie in several boxes that are smaller than one, there is a nest for
    each.  The buffer is allocated in the loop, as small as the largest box.

    The stage must store one buffer, which the kernel allocates and nothing else stores; only the
    loop may read it.  The stage must come before the loop, in the same loops and under no condition
    on data; what it reads, other than the buffer, nothing may write until the loop ends; what it
    reads of the buffer must be among what the loop needs.

    Makes the nests in the role `stages`, in the order of the program.
    """
    site = _site(func, stage, loop)
    proofs = _inputs_stay(site)
    try:
        bodies = _bodies(site)
    except arith.Undecided as error:
        needed = f"what {loop} needs of {site.buffer.name}"
        raise ScheduleError(f"{needed} is not found: {error}") from error
    nests: list[tir.Stmt] = []
    places: dict[str, tuple[str, ...]] = {}
    taken = {*place_names.names_of_places(func)}
    for number, body in enumerate(bodies):
        if number:
            body, copies = place_names.fresh_copy(body, f"_{number + 1}", taken)
            taken |= {*copies.values()}
            for old, new in copies.items():
                places[old] = (*places.get(old, (old,)), new)
        nests += body
    moved = exchange_at(func, stage, ())
    moved = replace(moved, body=tir.map_body(moved.body, _without_empty))
    target = loop_at(moved, loop)
    inside = replace(target, body=(*nests, *target.body))
    moved = exchange_at(moved, loop, (inside,))
    sunk = sink_alloc(moved, site.buffer.name, loop, scope)
    names = places.get(stage, (stage,))
    return Rewrite(sunk.func, (*proofs, *sunk.proofs), places, {"stages": names})


class _Site(Struct, frozen=True):
    """A stage, the buffer it stores, and the loop that it moves into."""

    model: effects.KernelStatements
    stage: effects.Statement
    loop: effects.Statement
    buffer: tir.Buffer

    @property
    def path(self) -> tuple[arith.Var, ...]:
        """The loops around the new place."""
        assert isinstance(self.loop.stmt, tir.For)
        return (*(axis.var for axis in self.loop.domain.axes), self.loop.stmt.var)

    @property
    def place(self) -> arith.Domain:
        """The points of the path."""
        loop = self.loop.stmt
        assert isinstance(loop, tir.For)
        return self.loop.domain.inside(loop.var, loop.start, loop.stop)

    def in_stage(self) -> list[effects.StatementAccess]:
        """The accesses in the stage."""
        return [a for a in self.model.accesses if self.stage.holds(a.statement)]

    def writes(self) -> dict[int, effects.StatementAccess]:
        """The writes in the stage, by the number of the statement."""
        return {a.statement.number: a for a in self.in_stage() if a.access.writes}

    def reads(self) -> list[effects.StatementAccess]:
        """The reads of the buffer in the loop, each once: a statement may read an element several
        times."""
        reads = {
            (read.domain, read.access.indices): read
            for read in self.model.of(self.buffer)
            if self.loop.holds(read.statement)
        }
        return [*reads.values()]

    def required(self) -> Requirement:
        """What an iteration of the loop reads of the buffer."""
        asked = [
            read_by(arith.IntegerSet.of(read.domain), read, self.path) for read in self.reads()
        ]
        return Requirement(self.buffer, self.path, reduce(lambda a, b: a | b, asked))


def _site(func: tir.PrimFunc, stage: str, loop: str) -> _Site:
    """The places of a `compute_at`; ScheduleError where the stage cannot move there."""
    model = effects.statements_of(func)
    find(func, stage), find_loop(func, loop)  # where they are not, these say so
    here, there = _statement(model, stage), _statement(model, loop)
    stmt = here.stmt
    if here.holds(there) or there.number < here.number:
        raise ScheduleError(f"{stage} does not come before {loop}")
    if here.loops != there.loops[: len(here.loops)]:
        raise ScheduleError(f"{stage} is in a loop that is not around {loop}")
    if here.guards:
        raise ScheduleError(f"{stage} is under a condition on data")
    for inner in tir.walk((stmt,)):
        if isinstance(inner, tir.Assume):
            raise ScheduleError(f"{stage} assumes something, and must stay")
        if isinstance(inner, tir.Block) and inner.annotations:
            raise ScheduleError(f"{inner.name} has annotations, and must stay a stage")
        if isinstance(inner, tir.For) and inner.kind is tir.LoopKind.VECTORIZED:
            raise ScheduleError(f"{inner.var} is vectorized; vectorize after the stage has moved")
    return _Site(model, here, there, _stored(model, here, there, stage, loop))


def _statement(model: effects.KernelStatements, place: str) -> effects.Statement:
    # By name: the model may be that of an equal kernel, with statements of its own.
    found = next((one for one in model.statements if place_names.name_of(one.stmt) == place), None)
    if found is None:
        raise ScheduleError(f"{place} has no name; give it one with name_statement first")
    return found


def _stored(
    model: effects.KernelStatements,
    here: effects.Statement,
    there: effects.Statement,
    stage: str,
    loop: str,
) -> tir.Buffer:
    """The buffer that a stage stores for a loop; ScheduleError where it is not that one's alone."""
    private = {s.buffer for s in tir.walk((here.stmt,)) if isinstance(s, tir.Allocate)}
    inside = [a for a in model.accesses if here.holds(a.statement)]
    stored = list(dict.fromkeys(a.access.buffer for a in inside if a.access.writes))
    stored = [buffer for buffer in stored if buffer not in private]
    if len(stored) != 1:
        names = " and ".join(buffer.name for buffer in stored) or "nothing"
        raise ScheduleError(f"{stage} stores {names}; a stage that moves stores one buffer")
    (buffer,) = stored
    if any(buffer == param.buffer for param in model.func.params):
        raise ScheduleError(f"{buffer.name} is a parameter, which others see")
    outside = [a for a in model.of(buffer) if not here.holds(a.statement)]
    for access in outside:
        if access.access.writes:
            raise ScheduleError(f"{buffer.name} is stored outside {stage} too, as {access}")
        if access.is_claim:
            raise ScheduleError(f"something is assumed of {access}")
        if not there.holds(access.statement):
            raise ScheduleError(f"{buffer.name} is read outside {loop} too, as {access}")
    if not outside:
        raise ScheduleError(f"{loop} does not read {buffer.name}")
    return buffer


def _inputs_stay(site: _Site) -> list[arith.Proof]:
    """Proofs that nothing between the stage and the end of the loop writes what the stage reads."""
    reads = [a for a in site.in_stage() if not a.access.writes and a.access.buffer != site.buffer]
    name = place_names.name_of(site.stage.stmt)
    between = range(site.stage.stop, site.loop.stop)
    proofs: list[arith.Proof] = []
    for write in site.model.accesses:
        if not write.access.writes or write.statement.number not in between:
            continue
        for read in reads:
            if read.access.buffer != write.access.buffer:
                continue
            claim = f"{write} is not among the elements {read} that {name} reads"
            condition = f"what {name} reads stays the same until the loop ends"
            apart = effects.apart_in_iteration(read.access, write.access, claim)
            proofs.append(obligations.require(apart, condition))
    if not proofs:
        proofs.append(
            obligations.structural(f"nothing writes what {name} reads until the loop ends")
        )
    return proofs


def _without_empty(stmt: tir.Stmt) -> tir.Body:
    """The statement, or nothing for a block or condition that the stage left empty."""
    empty = (isinstance(stmt, tir.Block) and not stmt.body) or (
        isinstance(stmt, tir.If) and not stmt.then and not stmt.orelse
    )
    return () if empty else (stmt,)


def _bodies(site: _Site) -> list[tir.Body]:
    """The stage with loops over what the loop needs of it, once for each box of that."""
    stage, reads = site.in_stage(), [read.access for read in site.reads()]
    ranges = stage_ranges_of([access.access for access in stage], reads, site.place)
    if ranges is None:
        needed = [_needed(site, part).__getitem__ for part in site.required().boxes()]
        return [_Restriction(site, None, instances).of_stage() for instances in needed]
    required = cache(site.required)  # a box of what the stage stores without reading it
    instances = cache(lambda number: instances_of(site.writes()[number], required().needed))
    return [_Restriction(site, ranges, instances).of_stage()]


class _Restriction(Struct, frozen=True):
    """The rewrite of a stage that keeps the instances of its writes that are needed."""

    site: _Site
    ranges: StageRanges | None
    """Those that the form of indices shows; others are found from the instances."""
    needed: Callable[[int], arith.IntegerSet]
    """The instances of each write that are needed, over the path and the loops of the stage around
    it, by the number of the statement."""

    def of_stage(self) -> tir.Body:
        """The stage at its new place."""
        stage = self.site.stage
        return self.of((stage.stmt,), stage.number, self.site.place)

    def of(self, body: tir.Body, number: int, domain: arith.Domain) -> tir.Body:
        """A body whose first statement has this number; `domain` is that of its new place."""
        out: list[tir.Stmt] = []
        for stmt in body:
            stop = number + sum(1 for _ in tir.walk((stmt,)))
            out += self._statement(stmt, number, stop, domain)
            number = stop
        return tuple(out)

    def _statement(self, stmt: tir.Stmt, number: int, stop: int, domain: arith.Domain) -> tir.Body:
        match stmt:
            case tir.For():
                return self._loop(stmt, number, stop, domain)
            case tir.Block():
                body = self.of(stmt.body, number + 1, domain)
                return (replace(stmt, body=body),) if body else ()
            case tir.Call() | tir.Let() | tir.NamedWindow():
                body = self.of(tir.performed(stmt), number + 1, domain)
                # A call that performs nothing is a hint, which stays where its stage is.
                return (tir.with_performed(stmt, body),) if body or not tir.performed(stmt) else ()
            case tir.If():
                then, orelse = domain, domain
                if tir.is_predicate(stmt.condition):
                    then = domain.given(stmt.condition)  # type: ignore[arg-type]
                    orelse = domain.given(arith.negation(stmt.condition))  # type: ignore[arg-type]
                first = self.of(stmt.then, number + 1, then)
                behind = number + 1 + sum(1 for _ in tir.walk(stmt.then))
                second = self.of(stmt.orelse, behind, orelse)
                return _without_empty(replace(stmt, then=first, orelse=second))
            case tir.Store() | tir.Reduce():
                return self._write(stmt, number, domain)
            case _:
                return (stmt,)

    def _loop(self, stmt: tir.For, number: int, stop: int, domain: arith.Domain) -> tir.Body:
        ends = self.ranges.exact(stmt.var) if self.ranges is not None else None
        ends = ends or self._found(stmt, number, stop, domain)
        if ends is None:
            return ()
        kind = tir.LoopKind.SERIAL if stmt.kind is tir.LoopKind.PARALLEL else stmt.kind
        loop = replace(stmt, start=ends[0], stop=ends[1], kind=kind)
        body = self.of(stmt.body, number + 1, domain.inside(loop.var, loop.start, loop.stop))
        return (replace(loop, body=body),)

    def _found(self, stmt: tir.For, number: int, stop: int, domain: arith.Domain) -> Range | None:
        """The range of a loop on integer sets; None where nothing inside is needed."""
        around = tuple(axis.var for axis in domain.axes)
        if self.ranges is not None:
            linked = self.ranges.linked(stmt.var)
            around = tuple(var for var in around if var in linked)
        inside = [
            self.needed(place).over((*around, stmt.var))
            for place in self.site.writes()
            if number <= place < stop
        ]
        values = reduce(lambda a, b: a | b, inside) if inside else None
        if values is None or values.is_empty:
            return None
        low, high = values.bounds(stmt.var, around)
        return low.expr, high.expr + 1

    def _write(self, stmt: tir.Stmt, number: int, domain: arith.Domain) -> tir.Body:
        known = self.ranges
        if known is not None and not any(axis.var in known.narrowed for axis in domain.axes):
            return (stmt,)
        here = arith.IntegerSet.of(domain)
        kept = self.needed(number).over(here.variables)
        if (here - kept).is_empty:
            return (stmt,)
        if kept.is_empty:
            return ()
        return (tir.If(kept.predicate(here), (stmt,)),)


def _needed(site: _Site, required: Requirement) -> dict[int, arith.IntegerSet]:
    found = demands(site.model, site.in_stage(), {site.buffer: required.needed}, {})
    for read, missing in found.own_reads:
        if not missing.is_empty:
            at = ", ".join(f"{var}={value}" for var, value in missing.sample().items())
            loop = site.path[-1]
            raise ScheduleError(
                f"{place_names.name_of(site.stage.stmt)} reads {read} of its own buffer, of which "
                f"{loop} does not need all: not the element at {at}"
            )
    return {number: found.instances[write.number] for number, write in site.writes().items()}


def reverse_compute_at(func: tir.PrimFunc, tail: str, block: str) -> Rewrite:
    """`block: for i: for j: S1` and `tail: for k: for l: S2` → `block: for i: for j: {S1; S2}`.

    The tail must follow the block, and each of its iterations may read only what the same iteration
    of the block computes.  Loops are joined from the outside in, each under the conditions of
    `fuse`, until one of the two has no single loop left.  The tail's annotations go, for it is no
    stage of its own any more.  ScheduleError where not even the outermost loops can be joined, and
    where one of the two states padding.

    Makes the block and the joined loops in it, from the outermost in, in the role `joined`.
    """
    done = fuse(_unmarked(func, tail, block), block, tail)
    proofs: list[arith.Proof] = list(done.proofs)
    places: dict[str, tuple[str, ...]] = {tail: (block,)}
    new = done.func
    stmt = stmt_at(new, block)
    assert isinstance(stmt, tir.Block)
    if len(stmt.body) < 2:
        raise ScheduleError(f"one of {tail} and {block} does nothing, so there is nothing to join")
    pair = stmt.body[-2:]
    while (names := _both_loops(pair)) is not None:
        joined = fuse(new, *names)
        new, proofs = joined.func, [*proofs, *joined.proofs]
        places[names[1]] = (names[0],)
        loop = stmt_at(new, names[0])
        assert isinstance(loop, tir.For)
        if len(loop.body) != 2:
            break
        pair = loop.body
    if len(places) == 1:
        raise ScheduleError(f"{tail} and {block} do not both begin with a loop")
    joint = tuple(dict.fromkeys(name for names in places.values() for name in names))
    return Rewrite(new, tuple(dict.fromkeys(proofs)), places, {"joined": joint})


def _unmarked(func: tir.PrimFunc, tail: str, block: str) -> tir.PrimFunc:
    kept = stmt_at(func, block)
    stmt = stmt_at(func, tail)
    if not isinstance(kept, tir.Block) or not isinstance(stmt, tir.Block):
        raise ScheduleError(f"{tail} and {block} must both be blocks")
    if any(block.note(tir.BlockNote.PADDING_OF) for block in (kept, stmt)):
        raise ScheduleError(f"one of {tail} and {block} states where padding lies, and must stay")
    return exchange_at(func, tail, (replace(stmt, annotations=kept.annotations),))


def _both_loops(pair: tuple[tir.Stmt, ...]) -> tuple[str, str] | None:
    first, second = pair
    if isinstance(first, tir.For) and isinstance(second, tir.For):
        return first.var.name, second.var.name
    return None
