"""Index expressions, predicates and domains in isl's grammar.

In: a value of `graphflow.arith`.  Out: its text for isl.  What always holds: different variables
have different names, and sums are printed with brackets, so that isl reads what was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import assert_never

from graphflow.arith.domain import Domain
from graphflow.arith.index_expr import Const, Extremum, FloorDiv, FloorMod, IndexExpr, Sum, Var
from graphflow.arith.predicates import And, AtLeastZero, IsZero, Not, Or, Predicate, Truth

_OTHER_CHARACTER = re.compile("[^A-Za-z0-9]")


def isl_parameters(names: Iterable[Var]) -> str:
    """What declares parameters in front of a set or map in isl's grammar; nothing for none."""
    declared = ", ".join(map(isl_name, names))
    return f"[{declared}] -> " if declared else ""


def isl_constraints(domain: Domain) -> str:
    """The bounds and conditions of a domain in isl's grammar."""
    sides = (
        f"{isl_index(a.start)} <= {isl_name(a.var)} < {isl_index(a.stop)}" for a in domain.axes
    )
    return " and ".join((*sides, f"({_predicate(domain.where)})"))


@lru_cache(maxsize=4096)
def isl_name(var: Var) -> str:
    """The variable's name in isl's grammar: different variables have different names.

    ASCII letters and digits stay; `_` doubles, and any other character becomes `_x<hex>_`.
    """
    return "v" + _OTHER_CHARACTER.sub(_escaped, var.name)


def _escaped(match: re.Match[str]) -> str:
    return "__" if match[0] == "_" else f"_x{ord(match[0]):x}_"


def isl_index(expr: IndexExpr) -> str:
    """An index expression in isl's grammar."""
    match expr:
        case Const():
            return str(expr.value)
        case Var():
            return isl_name(expr)
        case Sum():
            terms = [f"{k}*({isl_index(atom)})" for atom, k in expr.terms]
            return " + ".join((*terms, str(expr.constant)))
        case FloorDiv():
            return f"floor(({isl_index(expr.numerator)})/{expr.divisor})"
        case FloorMod():
            return f"(({isl_index(expr.numerator)}) mod {expr.divisor})"
        case Extremum():
            return f"{expr.kind}({isl_index(expr.operands[0])}, {isl_index(expr.operands[1])})"
    raise TypeError(f"not an index expression: {expr!r}")


def _predicate(predicate: Predicate) -> str:
    match predicate:
        case Truth():
            return "true" if predicate.value else "false"
        case AtLeastZero():
            return f"{isl_index(predicate.expr)} >= 0"
        case IsZero():
            return f"{isl_index(predicate.expr)} = 0"
        case Not():
            return f"not ({isl_index(predicate.member.expr)} = 0)"
        case And():
            return _joined(predicate.members, "and")
        case Or():
            return _joined(predicate.members, "or")
    assert_never(predicate)


def _joined(members: Iterable[Predicate], word: str) -> str:
    return f" {word} ".join(f"({_predicate(member)})" for member in members)
