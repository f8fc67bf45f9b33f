"""How far an index can grow along one variable, whatever the others are.

In: an expression, a variable, and the steps it takes from 0 on.  Out: an interval that contains the
difference, or None.  Unlike the bounds of the two expressions it knows that all other variables
have the same values in both: `(23*i + 7*j) // 95` grows by 0 or 1 while j goes from 0 to 4.
"""

from __future__ import annotations

from graphflow.arith import index_expr


def growth(expr: index_expr.IndexExpr, var: index_expr.Var, steps: int) -> tuple[int, int] | None:
    """The least and the most that `expr` grows by while `var` goes from 0 to `steps`.

    None where a remainder contains the variable, which may fall at any step.
    """
    match expr:
        case index_expr.Const():
            return 0, 0
        case index_expr.Var():
            return (steps, steps) if expr is var else (0, 0)
        case index_expr.Sum():
            return _of_sum(expr, var, steps)
        case index_expr.FloorDiv():
            inside = growth(expr.numerator, var, steps)
            if inside is None:
                return None
            # ⌊(a + d) / m⌋ − ⌊a / m⌋ is ⌊d / m⌋ or one more where m does not divide d.
            return inside[0] // expr.divisor, -(-inside[1] // expr.divisor)
        case index_expr.FloorMod():
            return None if var in index_expr.variables(expr) else (0, 0)
        case index_expr.Extremum():
            # The extremum grows by no less than the operand that grows least, and no more than the
            # one that grows most.
            a, b = (growth(operand, var, steps) for operand in expr.operands)
            return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
    raise TypeError(f"not an index expression: {expr!r}")


def _of_sum(expr: index_expr.Sum, var: index_expr.Var, steps: int) -> tuple[int, int] | None:
    low = high = 0
    for atom, k in expr.terms:
        part = growth(atom, var, steps)
        if part is None:
            return None
        low, high = low + min(k * part[0], k * part[1]), high + max(k * part[0], k * part[1])
    return low, high
