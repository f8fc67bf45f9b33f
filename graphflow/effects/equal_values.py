"""Whether two values are equal wherever they are computed: the one service that decides it.

In: a kernel, and two expressions at places of it; a store, and what its element holds before; two
expressions in one unknown state of the memory; or a load that may be of a constant.  Out: a proof
for all instances of the places: PROVEN, REFUTED with an instance in which the values differ, or
UNKNOWN with the reason.  What always holds: equal values have the same bits, except that operands
which commute may be exchanged.

Three layers are asked in turn, from the cheapest to the dearest, each for what the ones before
leave open:

1. *normal forms* (`equal_in_any_state`): the same operators on the same elements, with indices and
   conditions proven equal on the domain of the place.  Nothing is asked about the memory.
2. *relations* (`value_comparison`): what is loaded is traced to the writes that left it, for all
   instances at once.
3. *single instances* (`instance_values`): the first instances one by one, in which sums of integers
   are compared as such (`value_numbers`).

For example `x[i] + t[]` and `x[i]` are equal behind `t[] = 0` by layer 2, `b + a` and `a + b` by
layer 1.  `tir.unify` asks another question: there windows and scalars are unknowns to be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.effects.dataflow import states_constant
from graphflow.effects.instance_values import Value, equal_in_instances
from graphflow.effects.paths import Path, domain_at, exchange_path
from graphflow.effects.questions import METHOD
from graphflow.effects.relations import Relations, answered, relations_of
from graphflow.effects.statements import StatementAccess
from graphflow.effects.value_comparison import (
    ComputedValue,
    HeldValue,
    ValueComparison,
    ValuesDiffer,
    plain,
)


def equal_values(
    func: tir.PrimFunc, path: Path, one: tir.Expr, other: tir.Expr, later: Path | None = None
) -> arith.Proof:
    """Whether `one` where the statement at `path` begins is `other` where that at `later` begins.

    `later` is a later statement of the same body, by default that at `path` itself; ValueError for
    any other.
    """
    claim = f"{tir.expr_text(one)} is {tir.expr_text(other)}"
    if later is None:
        domain = domain_at(func, path)
        proof = equal_in_any_state(one, other, domain)
        if proof.proven:
            return proof
        one, other = _normal_form(one, domain), _normal_form(other, domain)
    elif later[:-1] != path[:-1] or later <= path:
        raise ValueError(f"{later} does not follow {path} in one body of {func.name}")
    probed, second = _with_probe(func, path if later is None else later, other)
    probed, first = _with_probe(probed, path, one)
    second = (*second[:-1], (second[-1][0] + 2, False))
    relations = relations_of(probed)
    values = [
        ComputedValue(expr, relations.model.at(place))
        for expr, place in ((one, first), (other, second))
    ]
    return _compared(relations, values[0], values[1], claim)


def _with_probe(func: tir.PrimFunc, path: Path, expr: tir.Expr) -> tuple[tir.PrimFunc, Path]:
    """The kernel with a store of an expression in front of a statement, and the store's path.

    The name of its target is that of no buffer: names have no quotes.
    """
    held = tir.Buffer("value'", (), expr.dtype)
    probe = (tir.Allocate(held), tir.Store(held, (), expr))
    return exchange_path(func, path, probe, 0), (*path[:-1], (path[-1][0] + 1, False))


def stores_known_value(func: tir.PrimFunc, path: Path) -> arith.Proof:
    """Whether each element that the store at `path` writes holds the stored value before.

    So it is for `x[i] = x[i]`, for a constant over the same constant, and for a copy that is copied
    back.  Then the kernel computes the same without the store.  ValueError if it is no store.
    """
    relations = relations_of(func)
    statement = relations.model.at(path)
    if not isinstance(statement.stmt, tir.Store):
        raise ValueError(f"statement {statement.number} of {func.name} is no store")
    write = relations.model.made_by(statement)[-1]
    claim = f"{write} holds what {statement.title} stores before it does"
    stored = ComputedValue(statement.stmt.value, statement)
    return _compared(relations, HeldValue(write), stored, claim)


def _compared(relations: Relations, one: Value, other: ComputedValue, claim: str) -> arith.Proof:
    """Whether two values at equal iterations of the same loops are the same, by layers 2 and 3.

    `other` is the value of a store.  Only one that certainly runs can refute.
    """
    write = relations.model.made_by(other.statement)[-1]
    certain = write.access.certain

    def ask(context: Any) -> arith.Proof:
        same_instance = plain(relations.domain(context, write).identity())
        try:
            ValueComparison(relations, context).require_same(one, other, same_instance)
        except ValuesDiffer as difference:
            sure = difference.verdict is arith.Verdict.REFUTED and certain
            verdict = arith.Verdict.REFUTED if sure else arith.Verdict.UNKNOWN
            witness = difference.witness if sure else ()
            return arith.Proof(verdict, claim, METHOD, difference.reason, witness)
        return arith.Proof(arith.Verdict.PROVEN, claim, METHOD)

    proof = answered(claim, ask)
    if proof.verdict is not arith.Verdict.UNKNOWN:
        return proof
    by_instance = answered(
        claim, lambda context: equal_in_instances(relations, context, one, other, claim, certain)
    )
    return proof if by_instance.verdict is arith.Verdict.UNKNOWN else by_instance


def held_constant(
    func: tir.PrimFunc, path: Path, load: tir.Load
) -> tuple[tir.Literal | None, arith.Proof]:
    """The constant that `load` reads wherever the statement at `path` begins, with the proof.

    A load that the statement makes itself counts only in the instances in which it does.  None,
    with a proof that is not PROVEN, where there is no such constant or it is not found.
    """
    relations = relations_of(func)
    statement = relations.model.at(path)
    name = tir.element_text(load.buffer, load.indices)
    claim = f"{name} is one constant in {statement.title}"
    if not any(_leaves_constant(access) for access in relations.model.of(load.buffer)):
        reason = "no store and no assumption says so"
        return None, arith.Proof(arith.Verdict.UNKNOWN, claim, "structure", reason)
    reads = _reads(relations, path, load)
    if not reads:
        probed, there = _with_probe(func, path, load)
        relations = relations_of(probed)
        reads = _reads(relations, there, load)
    held: list[tir.Literal] = []

    def ask(context: Any) -> arith.Proof:
        compared = ValueComparison(relations, context)
        try:
            for access in reads:
                same = plain(relations.domain(context, access).identity())
                for value, _ in compared.contents(access, same):
                    literal = (
                        tir.constant_of(value.expr) if isinstance(value, ComputedValue) else None
                    )
                    if literal is None or (held and held[0] != literal):
                        texts = [_text_of(known) for known in (*held, literal)]
                        reason = f"{name} may hold {' or '.join(texts)}"
                        return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, reason)
                    held.append(literal)
        except ValuesDiffer as difference:
            return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, difference.reason)
        if not held:
            return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, f"{name} is never read")
        text = f"{name} is {held[0].value} in {statement.title}"
        return arith.Proof(arith.Verdict.PROVEN, text, METHOD)

    proof = answered(claim, ask)
    return (held[0] if proof.proven else None), proof


def _leaves_constant(access: StatementAccess) -> bool:
    """Whether an access stores a constant, or an assumption says by it that one is there."""
    stmt = access.statement.stmt
    if isinstance(stmt, tir.Store) and access.access.writes:
        return tir.constant_of(stmt.value) is not None
    return states_constant(access)


def _reads(relations: Relations, path: Path, load: tir.Load) -> Sequence[StatementAccess]:
    """The accesses by which the statement at a path makes a load itself."""
    made = relations.model.made_by(relations.model.at(path))
    of = (load.buffer, load.indices)
    return [a for a in made if not a.access.writes and (a.access.buffer, a.access.indices) == of]


def _text_of(value: tir.Literal | None) -> str:
    return "another value" if value is None else str(value.value)


# Equal in any state of the memory -----------------------------------------------------------------

_COMMUTATIVE: tuple[tir.BinaryOp, ...] = ("add", "mul", "max", "min", "and", "or", "xor")


def equal_in_any_state(
    one: tir.Condition, other: tir.Condition, domain: arith.Domain
) -> arith.Proof:
    """Whether two expressions have the same value at each point of a domain, whatever is in memory.

    They have where they apply the same operators to the same elements, in some order for those
    that commute.  Of two conditions on indices: whether each implies the other.
    """
    claim = f"{tir.condition_text(one)} is {tir.condition_text(other)}"
    if tir.is_predicate(one) and tir.is_predicate(other):
        both = arith.equivalent(cast(arith.Predicate, one), cast(arith.Predicate, other))
        proof = arith.prove(both, domain)
        return proof.of(f"{claim}: {proof.claim}")
    same = not (tir.is_predicate(one) or tir.is_predicate(other)) and _same_form(
        _normal_form(cast(tir.Expr, one), domain),
        _normal_form(cast(tir.Expr, other), domain),
        domain,
    )
    verdict = arith.Verdict.PROVEN if same else arith.Verdict.UNKNOWN
    return arith.Proof(verdict, claim, "normal forms", "" if same else "their forms differ")


def equal_indices(
    one: Sequence[arith.IndexExpr], other: Sequence[arith.IndexExpr], domain: arith.Domain
) -> bool:
    """Whether it is proven that indices are equal, one by one, at each point of a domain."""
    pairs = zip(one, other, strict=True)
    return all(a is b or arith.prove(arith.equal(a, b), domain).proven for a, b in pairs)


def _same_form(one: tir.Expr, other: tir.Expr, domain: arith.Domain) -> bool:
    """Whether expressions differ in indices and conditions only, which are proven equal."""
    if one == other:
        return True
    match one, other:
        case tir.Load(), tir.Load():
            same = one.buffer == other.buffer
            return same and equal_indices(one.indices, other.indices, domain)
        case tir.IndexValue(), tir.IndexValue():
            same = one.dtype == other.dtype
            return same and equal_indices((one.index,), (other.index,), domain)
        case (
            (tir.Unary(op=own), tir.Unary(op=its))
            | (tir.Binary(op=own), tir.Binary(op=its))
            | (tir.Comparison(op=own), tir.Comparison(op=its))
            | (tir.Cast(dtype=own), tir.Cast(dtype=its))
        ):
            same = own == its
        case tir.Select(), tir.Select():
            same = equal_in_any_state(one.condition, other.condition, domain).proven
            sides = ((one.if_true, other.if_true), (one.if_false, other.if_false))
            return same and all(_same_form(a, b, domain) for a, b in sides)
        case _:
            return False
    pairs = zip(tir.children(one), tir.children(other), strict=True)
    return same and all(_same_form(a, b, domain) for a, b in pairs)


def _normal_form(expr: tir.Expr, domain: arith.Domain) -> tir.Expr:
    """An expression of the same value at each point of a domain, in a form that many share.

    Operands that commute are in the order of their text, indices simplified, selects on decided
    conditions resolved, integer constants folded, and neutral integers dropped.
    """
    ranges = domain.ranges()

    def change(node: tir.Expr) -> tir.Expr:
        match node:
            case tir.Load():
                indices = tuple(arith.simplify_index(index, ranges) for index in node.indices)
                return tir.Load(node.buffer, indices)
            case tir.IndexValue():
                return replace(node, index=arith.simplify_index(node.index, ranges))
            case tir.Select() if tir.is_predicate(node.condition):
                condition = arith.simplify_predicate(cast(arith.Predicate, node.condition), ranges)
                sides: dict[arith.Predicate, tir.Expr] = {
                    arith.TRUE: node.if_true,
                    arith.FALSE: node.if_false,
                }
                return sides.get(condition, replace(node, condition=condition))
            case tir.Binary() if node.op in _COMMUTATIVE:
                left, right = sorted((node.left, node.right), key=tir.expr_text)
                return _folded(replace(node, left=left, right=right))
            case _:
                return node

    return tir.map_expr(expr, change)


def _folded(node: tir.Binary) -> tir.Expr:
    """A sum or product of integers without constant operands that change nothing."""
    if node.op not in ("add", "mul") or not np.issubdtype(tir.DTYPES[node.dtype], np.integer):
        return node
    neutral = tir.Literal(int(node.op == "mul"), node.dtype)
    left, right = node.left, node.right
    if neutral in (left, right):
        return right if left == neutral else left
    if isinstance(left, tir.Literal) and isinstance(right, tir.Literal):
        with np.errstate(over="ignore"):
            values = (tir.DTYPES[node.dtype].type(side.value) for side in (left, right))
            return tir.Literal(int(tir.BINARY_FUNCTIONS[node.op](*values)), node.dtype)
    return node
