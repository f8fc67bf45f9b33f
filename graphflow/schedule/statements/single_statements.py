"""Primitives on single statements: their order, their names, and the operands in them.

In: a kernel and the places of statements, names or addresses.  Out: the kernel with the statements
in another order, under a name, or with operands exchanged.
"""

from __future__ import annotations

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.facts.dependence import ordered_commute
from graphflow.schedule.places import addresses, obligations, place_names, places
from graphflow.schedule.places.step_arguments import ExprGiven, value_of
from graphflow.schedule.steps.frame import Rewrite

COMMUTATIVE: tuple[tir.BinaryOp, ...] = ("add", "mul", "max", "min", "and", "or", "xor")


def reorder_stmts(func: tir.PrimFunc, first: str, second: str) -> Rewrite:
    """`S1; S2` → `S2; S1`, where they commute.

    1. S2 follows S1 directly.
    2. S1 and S2 commute: in one iteration of the loops around, no element is touched by both of
       which one writes it, unless both reduce into it with the same operator.
    3. S1 does not allocate what S2 uses.
    """
    proofs: list[arith.Proof] = []
    _require_adjacent(func, first, second)

    def change(body: tir.Body, position: int, domain: arith.Domain) -> tir.Body:
        one, other = body[position], body[position + 1]
        if isinstance(one, tir.Allocate) and one.buffer in _touched(other):
            raise ScheduleError(f"{first} allocates {one.buffer.name}, which {second} uses")
        condition = f"{first} and {second} commute"
        proofs.extend(ordered_commute((one,), (other,), domain, (), arith.TRUE, condition))
        return (*body[:position], other, one, *body[position + 2 :])

    return Rewrite(places.rewrite_around(func, first, change), tuple(proofs))


def _touched(stmt: tir.Stmt) -> set[tir.Buffer]:
    """The buffers that a statement reads, writes or makes a claim about."""
    return {access.buffer for access in (*tir.accesses((stmt,)), *effects.claimed_loads((stmt,)))}


def _require_adjacent(func: tir.PrimFunc, first: str, second: str) -> None:
    """ScheduleError unless the second statement follows the first one directly."""
    *around, (position, _) = addresses.path_of(func, first)
    if addresses.path_of(func, second) != (*around, (position + 1, False)):
        raise ScheduleError(f"{second} does not follow {first} directly")


def name_statement(func: tir.PrimFunc, place: str, name: str) -> Rewrite:
    """`S` → `block name: S`, so that handles follow S wherever later steps take it.

    1. S is no allocation, for that would end with the block.

    Makes the block in the role `block`.
    """
    stmt, _ = places.find(func, place)
    place_names.require_names(name)
    place_names.require_fresh(func, name)
    if isinstance(stmt, tir.Allocate):
        raise ScheduleError(f"{place} is an allocation, which would end with the block")
    new = places.exchange_at(func, place, (tir.Block(name, (stmt,)),))
    return Rewrite(
        new, (obligations.structural("a block runs what is in it"),), made={"block": (name,)}
    )


def commute_expr(func: tir.PrimFunc, place: str, expr: ExprGiven) -> Rewrite:
    """`x + y` → `y + x`, wherever the expression stands in the statement at `place`.

    The expression may be given as its text.

    1. It stands in the statement.
    2. Its operator commutes, bit by bit: +, *, max, min and the logical ones.
    """
    stmt, _ = places.find(func, place)
    value = value_of(func, expr)
    text = tir.expr_text(value)
    found: list[tir.Expr] = []

    def change(node: tir.Expr) -> tir.Expr:
        if node != value:
            return node
        found.append(node)
        if not isinstance(node, tir.Binary) or node.op not in COMMUTATIVE:
            raise ScheduleError(f"the operands of {text} do not commute")
        return tir.Binary(node.op, node.right, node.left)

    body = tir.map_expressions((stmt,), change)
    if not found:
        raise ScheduleError(f"{text} does not stand in {place}")
    return Rewrite(
        places.exchange_at(func, place, body),
        (obligations.structural(f"{text} commutes"),),
    )
