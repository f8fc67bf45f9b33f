"""Whether two expressions have the same value where a statement runs.

In: a kernel, the place of a statement, and two expressions.  Out: a `Proof` of the effect analysis.
"""

from __future__ import annotations

from dataclasses import replace

from graphflow import arith, effects, tir
from graphflow.schedule.places import addresses, place_names, places


def same_value(func: tir.PrimFunc, place: str, one: tir.Expr, other: tir.Expr) -> arith.Proof:
    """Whether two expressions have the same value in each instance of the statement at `place`.

    The effect analysis is asked whether a store of the second one changes an element that holds the
    first one.
    """
    name = place_names.fresh_name("value", lambda wanted: place_names.has_place(func, wanted))
    held = tir.Buffer(name, (), one.dtype)
    *around, (position, _) = addresses.path_of(func, place)
    head = (tir.Allocate(held), tir.Store(held, (), one), tir.Store(held, (), other))

    def change(body: tir.Body, at: int, _: arith.Domain) -> tir.Body:
        return (*body[:at], *head, *body[at:])

    probe = places.rewrite_around(func, place, change)
    proof = effects.stores_known_value(probe, (*around, (position + 2, False)))
    return replace(proof, claim=f"{tir.expr_text(one)} is {tir.expr_text(other)}")
