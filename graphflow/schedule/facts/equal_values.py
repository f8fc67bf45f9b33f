"""Whether two expressions have the same value where a statement runs.

In: a kernel, the place of a statement, and two expressions.  Out: a `Proof` of the effect analysis.
"""

from __future__ import annotations

from dataclasses import replace

from graphflow.arith import Domain, Proof
from graphflow.effects import stores_known_value
from graphflow.schedule.places.addresses import path_of
from graphflow.schedule.places.place_names import fresh_name, has_place
from graphflow.schedule.places.places import rewrite_around
from graphflow.tir import Allocate, Body, Buffer, Expr, PrimFunc, Store, expr_text


def same_value(func: PrimFunc, place: str, one: Expr, other: Expr) -> Proof:
    """Whether two expressions have the same value in each instance of the statement at `place`.

    The effect analysis is asked whether a store of the second one changes an element that holds the
    first one.
    """
    name = fresh_name("value", lambda wanted: has_place(func, wanted))
    held = Buffer(name, (), one.dtype)
    *around, (position, _) = path_of(func, place)
    head = (Allocate(held), Store(held, (), one), Store(held, (), other))

    def change(body: Body, at: int, _: Domain) -> Body:
        return (*body[:at], *head, *body[at:])

    probe = rewrite_around(func, place, change)
    proof = stores_known_value(probe, (*around, (position + 2, False)))
    return replace(proof, claim=f"{expr_text(one)} is {expr_text(other)}")
