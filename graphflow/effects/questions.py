"""Questions about the effects of a kernel, each answered by a proof with one of three verdicts.

In: a kernel, and the path of a statement, a buffer or a region.  Out: a `Proof`: PROVEN for all
data; REFUTED with a witness that fails for all data; UNKNOWN with the reason, where data decide,
where a buffer has too many accesses, or where isl's operation limit is reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import islpy as isl

from graphflow import arith, tir
from graphflow.effects.dataflow import FlowEdge, flow_to_reads, reaching
from graphflow.effects.own_iterations import stored_before_read
from graphflow.effects.paths import Path, domain_at, statement_at
from graphflow.effects.relations import Relations, answered, relations_of
from graphflow.effects.statements import (
    Statement,
    StatementAccess,
    claimed_loads,
    statement_title,
    statements_of,
)

METHOD = "dataflow"


def overwritten_unread(func: tir.PrimFunc, path: Path) -> arith.Proof:
    """Whether nothing sees what the statement at `path`, with all inside it, writes.

    A reduction does not see what it adds to; who reads its result does.
    Then the kernel computes the same without it.  What it reads of its own writes does not count;
    an assumption about a written element does, and so does the end of the kernel for outputs and
    for configuration state.
    """
    relations = relations_of(func)
    statement = relations.model.at(path)
    claim = f"nothing sees what {statement.title} writes"
    writes = [a for a in relations.model.accesses if statement.holds(a.statement)]
    return _answered_of(relations, statement, [a for a in writes if a.access.writes], True, claim)


def state_unread(func: tir.PrimFunc, path: Path, after_kernel: bool) -> arith.Proof:
    """Whether nothing outside of the statement at `path` sees what it writes to configuration.

    The end of the kernel counts with `after_kernel` only.  What is written to other buffers does
    not count.
    """
    relations = relations_of(func)
    statement = relations.model.at(path)
    writes = [
        a
        for a in relations.model.accesses
        if statement.holds(a.statement) and a.access.writes and a.access.buffer.is_field
    ]
    names = ", ".join(dict.fromkeys(str(a) for a in writes))
    claim = f"nothing sees what {statement.title} leaves in {names}"
    return _answered_of(relations, statement, writes, after_kernel, claim)


def unread_outside(func: tir.PrimFunc, path: Path, buffer: tir.Buffer) -> arith.Proof:
    """Whether nothing outside of the statement at `path` sees what it writes to a buffer.

    The end of the kernel counts for outputs and configuration state.
    """
    stmt = statement_at(func, path)
    claim = f"nothing outside {statement_title(stmt)} sees what it writes to {buffer.name}"
    # Mostly the statement alone accesses the buffer: then the others need not be looked at.
    if (
        not buffer.is_field
        and buffer not in func.outputs
        and _accesses(func.body, buffer) == _accesses((stmt,), buffer, domain_at(func, path))
    ):
        return arith.Proof(arith.Verdict.PROVEN, claim, "structure")
    relations = relations_of(func)
    statement = relations.model.at(path)
    inside = [a for a in relations.model.of(buffer) if statement.holds(a.statement)]
    return _answered_of(relations, statement, [a for a in inside if a.access.writes], True, claim)


def _accesses(body: tir.Body, buffer: tir.Buffer, domain: arith.Domain = arith.ANYWHERE) -> int:
    """The number of accesses to a buffer in a body, with loads in assumptions."""
    found = (*tir.accesses(body, domain), *claimed_loads(body, domain))
    return [access.buffer for access in found].count(buffer)


def never_read(func: tir.PrimFunc, buffer: tir.Buffer) -> arith.Proof:
    """Whether no statement reads a buffer, nor assumes anything of it.

    A read in code that never runs counts; the reason says so.
    """
    claim = f"nothing reads {buffer.name}"
    for access in statements_of(func).of(buffer):
        if access.access.kind is tir.AccessKind.READ:
            point = arith.point_in(access.domain)
            witness = tuple((var.name, value) for var, value in (point or {}).items())
            where = f"at {point_text(witness)}"
            if point is None:
                where = "in code that never runs; eliminate it first"
            return arith.Proof(
                arith.Verdict.REFUTED, f"{access} is no read", "structure", where, witness
            )
    return arith.Proof(arith.Verdict.PROVEN, claim, "structure")


def _answered_of(
    relations: Relations,
    statement: Statement,
    writes: Sequence[StatementAccess],
    after_kernel: bool,
    claim: str,
) -> arith.Proof:
    """Whether nothing outside of a statement sees what these accesses inside it write."""
    decided = _decided_by_form(relations, statement, writes, after_kernel, claim)

    def ask(context: Any) -> arith.Proof:
        return _unseen(relations, context, statement, writes, after_kernel, claim)

    return decided or answered(claim, ask)


def _decided_by_form(
    relations: Relations,
    statement: Statement,
    writes: Sequence[StatementAccess],
    after_kernel: bool,
    claim: str,
) -> arith.Proof | None:
    """The answer where no dataflow is needed for it.

    Proven where nothing outside of the statement loads an element that it writes, at any time, and
    a later store writes those of outputs again; refuted where it is the last to write an output, or
    where something loads what it writes before any other store can overwrite it.
    """
    outside = [a for a in relations.model.accesses if not statement.holds(a.statement)]
    outputs = relations.model.func.outputs
    for write in writes:
        others = [a for a in outside if a.access.buffer == write.access.buffer]
        if write.access.buffer.is_field and after_kernel:
            return None
        if write.access.buffer in outputs:
            last = not any(a.access.writes and _may_follow(a, statement) for a in others)
            point = arith.point_in(write.domain) if last and write.access.certain else None
            if point is not None:
                return _left(write, point, claim)
            if not any(_overwrites(a, write, statement) for a in others):
                return None
        # A reduction leaves what it finds in the same element, so that loads alone count.
        is_met = False
        for load in (a for a in others if a.access.kind is tir.AccessKind.READ):
            if not _apart(write, load):
                proof = _loaded(relations, write, load, others, statement, claim)
                if proof is not None:
                    return proof
                is_met = True
        if is_met:
            return None
    return arith.Proof(arith.Verdict.PROVEN, claim, "structure")


def _may_follow(access: StatementAccess, statement: Statement) -> bool:
    """Whether an access outside of a statement may happen after an instance of it."""
    shared = set(access.statement.loops) & set(statement.loops)
    return bool(shared) or access.statement.number > statement.number


def _overwrites(store: StatementAccess, write: StatementAccess, statement: Statement) -> bool:
    """Whether a store is proven to write each element of a write in a statement again, after all
    instances of the statement.

    Its indices have to be constants and the variables of its loops, so that an element names the
    instance: so it is of the stage that says what the padding of an output holds.
    """
    if store.access.kind is not tir.AccessKind.WRITE or not store.access.certain:
        return False
    shared = set(store.statement.loops) & set(statement.loops)
    if shared or store.statement.number < statement.stop:
        return False
    variables = [e for e in store.element if isinstance(e, arith.Var)]
    if set(variables) != {axis.var for axis in store.domain.axes}:
        return False
    copy, fresh = write.domain.renamed("'")
    element = [arith.substitute(e, fresh) for e in write.element]
    pairs = list(zip(store.element, element, strict=True))
    instance = {e: there for e, there in pairs if isinstance(e, arith.Var)}
    runs = [arith.substitute_in(store.domain.where, instance)]
    for axis in store.domain.axes:
        bounds = (arith.substitute(end, instance) for end in (axis.start, axis.stop))
        runs.append(arith.within(instance[axis.var], *bounds))
    same = [arith.equal(arith.substitute(e, instance), there) for e, there in pairs]
    return arith.prove(arith.conjunction((*runs, *same)), copy).proven


def _apart(write: StatementAccess, read: StatementAccess) -> bool:
    """Whether an access is proven not to touch the elements that a write does, at any time."""
    copy, fresh = write.domain.renamed("'")
    here = (arith.substitute(e, fresh) for e in write.element)
    same = [arith.equal(a, b) for a, b in zip(read.element, here, strict=True)]
    return arith.prove_empty(
        arith.joined_domains(read.domain, copy).given(arith.conjunction(same))
    ).proven


def _loaded(
    relations: Relations,
    write: StatementAccess,
    load: StatementAccess,
    others: Sequence[StatementAccess],
    statement: Statement,
    claim: str,
) -> arith.Proof | None:
    """A refutation by one instance of a write and a load that follows it, or None.

    Both are in one iteration of all loops that they share, and outside of the statement no store
    to the buffer can come between them; reductions may, for they keep what they find.
    """
    if not (write.access.certain and load.access.certain):
        return None
    pairs = zip(write.statement.loops, load.statement.loops, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    inner = (*write.statement.loops[shared:], write.statement.number)
    if load.statement.number < statement.stop or load.statement.loops[shared:][:1] == inner[:1]:
        return None
    # A store behind the load comes before it in an earlier iteration of a loop around the load.
    around = load.statement.loops[shared:]
    end = relations.model.statements[around[0]].stop if around else load.statement.number
    stores = (a for a in others if a.access.kind is tir.AccessKind.WRITE)
    if any(inner[0] <= a.statement.number < end and not _comes_first(a, write) for a in stores):
        return None
    point = _meeting_point(write, load, shared)
    if point is None:
        return None
    axes = write.domain.axes
    there = tuple((f"{axis.var.name}'", point[axis.var]) for axis in load.domain.axes)
    own = (arith.Var(f"{axis.var.name}'") for axis in axes[shared:])
    values = [point[var] for var in (*(axis.var for axis in axes[:shared]), *own)]
    at = tuple(zip((axis.var.name for axis in axes), values, strict=True))
    text = f"{write} at {point_text(at)} is read by {load} at {point_text(there)}"
    return arith.Proof(arith.Verdict.REFUTED, claim, "structure", text, (*at, *there))


def _meeting_point(
    write: StatementAccess, load: StatementAccess, shared: int
) -> dict[arith.Var, int] | None:
    """An instance of each of two accesses, at which they access the same element, or None where
    none is found.

    They share the outermost `shared` loops; the other variables of the write are primed.  Those
    that are indices of the element are what the load has in their place: points are looked for one
    variable at a time, so that equations between two of them would hide most points.
    """
    copy, fresh = arith.Domain(write.domain.axes[shared:], write.domain.where).renamed("'")
    free, known = ({axis.var for axis in domain.axes} for domain in (copy, load.domain))
    named: dict[arith.Var, arith.IndexExpr] = {}
    same = []
    for index, there in zip(write.element, load.element, strict=True):
        here = arith.substitute(index, fresh)
        if isinstance(here, arith.Var) and here in free and arith.variables(there) <= known:
            free.remove(here)
            named[here] = there
        else:
            same.append(arith.equal(there, here))
    axes = []
    for axis in copy.axes:
        start, stop = (arith.substitute(end, named) for end in (axis.start, axis.stop))
        if axis.var in named:
            same.append(arith.within(named[axis.var], start, stop))
        else:
            axes.append(arith.Axis(axis.var, start, stop))
    met = arith.conjunction((copy.where, *same))
    left = arith.Domain(tuple(axes), arith.substitute_in(met, named))
    point = arith.point_in(arith.joined_domains(load.domain, left))
    if point is None:
        return None
    return point | {var: arith.evaluate(there, point) for var, there in named.items()}


def _comes_first(store: StatementAccess, write: StatementAccess) -> bool:
    """Whether no instance of a store to an element follows one of a write to it, by their form.

    So it is of the start of a reduction: the store stands before the write in the loops around it,
    at the same indices, among which is the variable of each of these loops.
    """
    loops = store.statement.loops
    return (
        store.element == write.element
        and store.statement.number < write.statement.number
        and loops == write.statement.loops[: len(loops)]
        and {axis.var for axis in store.domain.axes} <= set(store.element)
    )


def is_first_to_touch(func: tir.PrimFunc, path: Path) -> bool:
    """Whether each instance of the store at `path` is the first access of its element that writes
    it or claims something of it, in a buffer that begins undefined.

    Other accesses follow it by their form, or are proven to be of other elements, as those in the
    other branch of a condition are.
    """
    relations = relations_of(func)
    store = relations.model.made_by(relations.model.at(path))[-1]
    buffer = store.access.buffer
    if any(buffer == p.buffer and p.role is not tir.Role.OUTPUT for p in func.params):
        return False
    others = [a for a in relations.model.of(buffer) if a is not store]
    touching = [a for a in others if a.access.writes or a.is_claim]
    return {axis.var for axis in store.domain.axes} <= set(store.element) and all(
        _comes_first(store, other) or _apart(store, other) for other in touching
    )


def _left(write: StatementAccess, point: Mapping[arith.Var, int], claim: str) -> arith.Proof:
    """A refutation by one instance of a write to an output that nothing else writes later."""
    buffer = write.access.buffer.name
    here = tuple((axis.var.name, point[axis.var]) for axis in write.domain.axes)
    text = f"{write} at {point_text(here)} is left in the output"
    indices = write.access.indices
    if not all(arith.variables(index) <= point.keys() for index in indices):
        return arith.Proof(
            arith.Verdict.REFUTED, claim, "structure", text, here
        )  # scalars decide where
    names = (f"{buffer}.{n}" for n in range(len(indices)))
    there = tuple(zip(names, (arith.evaluate(e, point) for e in indices), strict=True))
    text += f" at {point_text(there)}"
    return arith.Proof(arith.Verdict.REFUTED, claim, "structure", text, (*here, *there))


def _unseen(
    relations: Relations,
    context: Any,
    statement: Statement,
    writes: Sequence[StatementAccess],
    after_kernel: bool,
    claim: str,
) -> arith.Proof:
    open_reason = ""
    for buffer in dict.fromkeys(write.access.buffer for write in writes):
        outside = [a for a in relations.limited(buffer) if not statement.holds(a.statement)]
        through = frozenset(a for a in outside if a.access.kind is tir.AccessKind.REDUCE)
        own = [write for write in writes if write.access.buffer == buffer]
        for reader in _readers(relations, own, outside, after_kernel):
            flow = reaching(relations, context, buffer, reader, through=through)
            certain = {edge.source.number: edge for edge in flow.must}
            for edge in flow.may:
                if not statement.holds(edge.source.statement):
                    continue
                sure = certain.get(edge.source.number)
                happens = edge.source.access.certain and (
                    edge.reader is None or edge.reader.access.certain
                )
                if sure is not None and happens:
                    text, witness = _seen(sure)
                    return arith.Proof(arith.Verdict.REFUTED, claim, METHOD, text, witness)
                open_reason = open_reason or f"where data decide, {_seen(edge)[0]}"
    if open_reason:
        return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, open_reason)
    return arith.Proof(arith.Verdict.PROVEN, claim, METHOD)


def _readers(
    relations: Relations,
    writes: Sequence[StatementAccess],
    outside: Sequence[StatementAccess],
    after_kernel: bool,
) -> Iterator[StatementAccess | None]:
    """Who may see what accesses inside a statement write to a buffer; None is the end of the
    kernel.

    Stores see nothing, and reductions pass on what they find.  A load of other elements is left
    out by a proof, which is memoized and costs less than its dataflow.
    """
    for access in outside:
        if access.access.kind is tir.AccessKind.READ and not all(_apart(w, access) for w in writes):
            yield access
    if after_kernel and writes and relations.model.outlives(writes[0].access.buffer):
        yield None


def _seen(edge: FlowEdge) -> tuple[str, arith.Witness]:
    """The first pair of an edge, as text and as a point: variables of the reader are primed."""
    values = first_pair(edge.pairs)
    source = tuple(axis.var.name for axis in edge.source.domain.axes)
    if edge.reader is None:
        reader = tuple(f"{edge.source.access.buffer.name}.{n}" for n in range(len(values)))
        reader = reader[: len(values) - len(source)]
        field = edge.source.access.buffer.is_field
        seen = "is left in the configuration" if field else "is left in the output"
    else:
        reader = tuple(f"{axis.var.name}'" for axis in edge.reader.domain.axes)
        seen = f"is read by {edge.reader}"
    witness = tuple(zip((*source, *reader), values, strict=True))
    here, there = witness[: len(source)], witness[len(source) :]
    return f"{edge.source} at {point_text(here)} {seen} at {point_text(there)}", witness


def written_before_read(func: tir.PrimFunc, buffer: tir.Buffer) -> arith.Proof:
    """Whether no read of a buffer, and no assumption, sees what it held before the kernel."""
    claim = f"{buffer.name} is written before it is read"
    assumes = any(True for _ in claimed_loads(func.body))
    order = [a.access for a in statements_of(func).accesses] if assumes else tir.accesses(func.body)
    own = stored_before_read([access for access in order if access.buffer == buffer])
    if all(proof.proven for proof in own):
        return arith.Proof(arith.Verdict.PROVEN, claim, "each iteration by itself")
    relations = relations_of(func)

    def ask(context: Any) -> arith.Proof:
        for read, flow in flow_to_reads(relations, context, buffer):
            if flow.may_initial is not None:
                names = (axis.var.name for axis in read.domain.axes)
                witness = tuple(zip(names, point_of(flow.may_initial), strict=False))
                text = f"{read} at {point_text(witness)} may see what it held before"
                return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, text, witness)
        return arith.Proof(arith.Verdict.PROVEN, claim, METHOD)

    return answered(claim, ask)


def never_touched(
    func: tir.PrimFunc, buffer: tir.Buffer, names: Sequence[arith.Var], region: arith.Predicate
) -> arith.Proof:
    """Whether no statement reads or writes an element of `buffer` in a region.

    `region` is a condition on `names`, the index along each axis.  For a buffer that is allocated
    inside of loops, it means every copy.  Claims of assumptions are no accesses here.
    """
    relations = relations_of(func)
    claim = f"nothing touches {buffer.name}[{', '.join(map(str, names))}] where {region}"
    where = arith.box(names, buffer.shape).given(region)

    def ask(context: Any) -> arith.Proof:
        reason = ""
        for access in relations.limited(buffer):
            if access.is_claim:
                continue
            met = _in_region(relations, context, access, where)
            if met.is_empty():
                continue
            values = point_of(met)
            axes = tuple(axis.var.name for axis in access.domain.axes)
            elements = (*(f"{v}'" for v in access.copies), *(str(v) for v in names))
            witness = tuple(zip((*axes, *elements), values, strict=True))
            text = f"{access} at {point_text(witness[: len(axes)])} touches it"
            if access.access.certain:
                return arith.Proof(arith.Verdict.REFUTED, claim, METHOD, text, witness)
            reason = reason or f"where data decide, {text}"
        verdict = arith.Verdict.UNKNOWN if reason else arith.Verdict.PROVEN
        return arith.Proof(verdict, claim, METHOD, reason)

    return answered(claim, ask)


def _in_region(
    relations: Relations, context: Any, access: StatementAccess, where: arith.Domain
) -> Any:
    """The relation from instances to the elements they access, inside a region of the buffer."""
    copies = [f"c{n}" for n in range(len(access.copies))]
    parts = ", ".join((*copies, *(arith.isl_name(axis.var) for axis in where.axes)))
    region = isl.Set.read_from_str(context, f"{{ B[{parts}] : {arith.isl_constraints(where)} }}")
    return relations.elements(context, access).intersect_range(region)


def first_pair(pairs: Any) -> tuple[int, ...]:
    """The coordinates of the first pair of a map: a message names it, however isl has the map."""
    return point_of(pairs.wrap().detect_equalities().lexmin().unwrap())


def point_of(pairs: Any) -> tuple[int, ...]:
    """The coordinates of one pair of a map: those of its source, then those of its target."""
    point = pairs.wrap().sample_point()
    count = pairs.dim(isl.dim_type.in_) + pairs.dim(isl.dim_type.out)
    kind = isl.dim_type.set
    return tuple(arith.integer_of(point.get_coordinate_val(kind, n)) for n in range(count))


def point_text(witness: arith.Witness) -> str:
    """`i=3, j=5`; `()` for a statement outside of all loops."""
    return ", ".join(f"{name}={value}" for name, value in witness) or "()"
