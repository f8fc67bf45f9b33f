"""Index expressions: integers, variables, sums, floor division and modulo, minimum and maximum.

Every expression is in normal form and interned, so two equal expressions are the same object and
`is` compares them.  The normal form is a sum `Σ coefficient·atom + constant`, where an atom is a
variable, `FloorDiv`, `FloorMod` or an `Extremum`; a sum of a single atom with coefficient one is
that atom itself.  Floor and mod keep the constants they were written with: nothing here rewrites
`x // 16` into another shape than the one a user would read.

What is always true: division and modulo round towards minus infinity, divisors are positive
constants, and no expression contains a load.  Products of two variables cannot be built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

_interned: WeakValueDictionary[tuple[object, ...], IndexExpr] = WeakValueDictionary()
_recent: dict[tuple[object, ...], IndexExpr] = {}
_lock = threading.Lock()

MOST_RECENT = 1 << 15
"""Expressions kept alive after their last user is gone, some 15 MB: most are soon made again."""

MOST_DIVIDED = 1 << 13
"""Cached results of `floor_div` and `floor_mod`: the same few are asked for again and again."""

Term: TypeAlias = "tuple[IndexExpr, int]"


class IndexExpr:
    """Base of all index expressions; use the operators, or the functions of this module.

    `fields` are what it was interned with; those that `__match_args__` names are attributes too,
    in slots, since reading a property takes three times as long.
    """

    __slots__ = ("__weakref__", "_inside", "_written", "fields")
    __match_args__: tuple[str, ...] = ()
    fields: tuple[object, ...]
    _written: str | None
    _inside: frozenset[Var] | None

    def __add__(self, other: IndexLike) -> IndexExpr:
        return _add(self, other)

    def __radd__(self, other: IndexLike) -> IndexExpr:
        return _add(other, self)

    def __sub__(self, other: IndexLike) -> IndexExpr:
        if isinstance(other, int):
            return _shifted(self, -other)
        if isinstance(other, Const):
            return _shifted(self, -other.value)
        return weighted(((self, 1), (other, -1)))

    def __rsub__(self, other: IndexLike) -> IndexExpr:
        return weighted(((as_index(other), 1), (self, -1)))

    def __neg__(self) -> IndexExpr:
        return _multiply(self, -1)

    def __mul__(self, other: IndexLike) -> IndexExpr:
        return _multiply(self, other)

    def __rmul__(self, other: IndexLike) -> IndexExpr:
        return _multiply(self, other)

    def __floordiv__(self, other: int) -> IndexExpr:
        return floor_div(self, other)

    def __mod__(self, other: int) -> IndexExpr:
        return floor_mod(self, other)

    def __reduce__(self) -> tuple[Callable[..., IndexExpr], tuple[object, ...]]:
        return _intern, (type(self), *self.fields)

    def __str__(self) -> str:
        """The expression as text, made when it is first asked for."""
        if self._written is None:
            self._written = _text(self)
        return self._written

    __repr__ = __str__


IndexLike: TypeAlias = IndexExpr | int


class Const(IndexExpr):
    """An integer."""

    __slots__ = __match_args__ = ("value",)
    value: int


class Var(IndexExpr):
    """A loop variable or an integer parameter, known by its name."""

    __slots__ = __match_args__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Var:
        return _intern(cls, name)  # type: ignore[return-value]


class Sum(IndexExpr):
    """`Σ coefficient·atom + constant`, terms ordered by falling coefficient, then by text."""

    __slots__ = __match_args__ = ("terms", "constant")
    terms: tuple[Term, ...]
    constant: int


class _Division(IndexExpr):
    """A numerator and the constant that it is divided by."""

    __slots__ = __match_args__ = ("numerator", "divisor")
    numerator: IndexExpr
    divisor: int


class FloorDiv(_Division):
    """`numerator // divisor`, rounded towards minus infinity."""

    __slots__ = ()


class FloorMod(_Division):
    """`numerator % divisor`, never negative."""

    __slots__ = ()


class Extremum(IndexExpr):
    """`min(a, b)` or `max(a, b)`."""

    __slots__ = __match_args__ = ("kind",)
    kind: Literal["min", "max"]

    @property
    def operands(self) -> tuple[IndexExpr, IndexExpr]:
        return self.fields[1], self.fields[2]  # type: ignore[return-value]


def _intern(cls: type[IndexExpr], *fields: object) -> IndexExpr:
    key = (cls, *fields)
    node = _recent.get(key)
    if node is not None:
        return node
    with _lock:
        node = _interned.get(key)
        if node is None:
            node = object.__new__(cls)
            node.fields = fields
            for name, field in zip(cls.__match_args__, fields, strict=False):
                setattr(node, name, field)
            node._written = node._inside = None
            _interned[key] = node
        if len(_recent) >= MOST_RECENT:
            _recent.clear()
        _recent[key] = node
        return node


def forget_unused() -> None:
    """Free the expressions that nobody uses, which are otherwise kept for a while."""
    with _lock:
        _recent.clear()


def const(value: int) -> Const:
    """The integer `value` as an expression."""
    small = _small.get(value)
    return _intern(Const, int(value)) if small is None else small  # type: ignore[return-value]


_small: dict[int, Const] = {n: _intern(Const, n) for n in range(-1, 257)}  # type: ignore[misc]
"""Held, so that those that occur everywhere are looked up at once."""


def as_index(value: IndexLike) -> IndexExpr:
    """An expression as it is, an integer as a `Const`."""
    return value if isinstance(value, IndexExpr) else const(value)


def terms_of(expr: IndexExpr) -> tuple[tuple[Term, ...], int]:
    """The terms and the constant of `expr`, whatever its class."""
    if isinstance(expr, Sum):
        return expr.fields  # type: ignore[return-value]
    if isinstance(expr, Const):
        return (), expr.value
    return ((expr, 1),), 0


def constant_value(expr: IndexExpr) -> int | None:
    """The integer that `expr` is, or None."""
    return expr.value if isinstance(expr, Const) else None


def linear(terms: Iterable[Term], constant: int = 0) -> IndexExpr:
    """`Σ coefficient·atom + constant` in normal form; atoms may repeat."""
    coefficients: dict[IndexExpr, int] = {}
    rests = False
    for atom, coefficient in terms:
        coefficients[atom] = coefficients.get(atom, 0) + coefficient
        rests = rests or isinstance(atom, FloorMod)
    if 0 in coefficients.values():
        coefficients = {atom: c for atom, c in coefficients.items() if c}
    if rests:
        merged = _merge_quotient_and_rest(coefficients)
        if merged is not None:
            return linear(merged[0], constant + merged[1])
    if not coefficients:
        return const(constant)
    if len(coefficients) == 1 and constant == 0:
        ((atom, coefficient),) = coefficients.items()
        if coefficient == 1:
            return atom
    return _intern(Sum, _ordered(coefficients), constant)


def _ordered(coefficients: dict[IndexExpr, int]) -> tuple[Term, ...]:
    """The terms by falling coefficient, then by text, which is made only where it is needed."""
    if len(coefficients) == 1:
        return tuple(coefficients.items())
    if len(set(map(abs, coefficients.values()))) == len(coefficients):
        return tuple(sorted(coefficients.items(), key=_size, reverse=True))
    return tuple(sorted(coefficients.items(), key=lambda term: (-abs(term[1]), str(term[0]))))


def _size(term: Term) -> int:
    return abs(term[1])


def _merge_quotient_and_rest(
    coefficients: dict[IndexExpr, int],
) -> tuple[list[Term], int] | None:
    """`k·c·(x // c) + k·(x % c)` → terms and constant of `k·x`; None where it does not occur.

    Likewise `k·c·(x // c % m) + k·(x % c)` → `k·(x % (c·m))`.
    """
    for atom, coefficient in coefficients.items():
        if not isinstance(atom, FloorMod):
            continue
        for whole, wanted in coefficients.items():
            if wanted != coefficient * atom.divisor:
                continue
            joined = _joined(whole, atom)
            if joined is not None:
                rest = [(a, c) for a, c in coefficients.items() if a is not atom and a is not whole]
                terms, extra = terms_of(joined)
                return rest + [(a, c * coefficient) for a, c in terms], extra * coefficient
    return None


def _joined(whole: IndexExpr, rest: FloorMod) -> IndexExpr | None:
    """`c·whole + rest` for `rest = x % c` as one expression: x where `whole` is `x // c`, and
    `x % (c·m)` where it is `x // c % m`.

    The x of the rest has lost whole multiples of c, as in `(64·i + j) // 56` and `(8·i + j) % 56`,
    in `(6·i + j // 197) % 32` and `j % 197`, or in `(21·p + (64·i + j) // 58) % 28` and
    `(6·i + j) % 58`.
    """
    c = rest.divisor
    quotient = whole.numerator if isinstance(whole, FloorMod) else whole
    x = rest.numerator
    lost = _difference(quotient, floor_div(x, c))
    for atom, k in terms_of(quotient)[0]:
        if lost is not None:
            break
        if isinstance(atom, FloorDiv) and (k, atom.divisor) == (1, c):
            if floor_mod(atom.numerator, c) is not rest:
                continue
            x, lost = atom.numerator, _difference(quotient, atom)
    if lost is None:
        return None
    x = weighted(((x, 1), (lost, c)))
    return floor_mod(x, c * whole.divisor) if isinstance(whole, FloorMod) else x


def _difference(expr: IndexExpr, part: IndexExpr) -> IndexExpr | None:
    """`expr - part` where `expr` contains the terms of `part`; else None."""
    if expr is part:
        return const(0)
    terms, constant = terms_of(expr)
    taken, extra = terms_of(part)
    if not isinstance(expr, Sum) or not set(taken) <= set(terms):
        return None
    return linear([term for term in terms if term not in taken], constant - extra)


def weighted(parts: Iterable[Term]) -> IndexExpr:
    """`Σ coefficient·expression`, whatever the expressions are."""
    collected: list[Term] = []
    constant = 0
    for expr, k in parts:
        terms, extra = terms_of(expr)
        collected += terms if k == 1 else [(atom, c * k) for atom, c in terms]
        constant += extra * k
    return linear(collected, constant)


def _add(left: IndexLike, right: IndexLike) -> IndexExpr:
    """`left + right`."""
    a, b = as_index(left), as_index(right)
    if isinstance(b, Const):
        return _shifted(a, b.value)
    if isinstance(a, Const):
        return _shifted(b, a.value)
    return weighted(((a, 1), (b, 1)))


def _shifted(expr: IndexExpr, amount: int) -> IndexExpr:
    """`expr + amount`: the same terms, which are in normal form already."""
    if not amount:
        return expr
    terms, constant = terms_of(expr)
    if not terms:
        return const(constant + amount)
    if constant + amount == 0 and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return _intern(Sum, terms, constant + amount)


def _multiply(left: IndexLike, right: IndexLike) -> IndexExpr:
    """`left · right`; one of the two must be a constant."""
    a, b = as_index(left), as_index(right)
    if isinstance(a, Const):
        a, b = b, a
    if not isinstance(b, Const):
        raise ValueError(
            f"index expressions are quasi-affine: cannot multiply {a} by {b}; make one a constant"
        )
    if b.value == 1:
        return a
    if b.value == 0:
        return const(0)
    # What is in normal form stays so: the same terms are there, in the same order.
    terms, constant = terms_of(a)
    if not terms:
        return const(constant * b.value)
    scaled = tuple((atom, c * b.value) for atom, c in terms)
    if len(scaled) == 1 and scaled[0][1] == 1 and constant == 0:
        return scaled[0][0]
    return _intern(Sum, scaled, constant * b.value)


def _positive(divisor: IndexLike) -> int:
    value = divisor.value if isinstance(divisor, Const) else divisor
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"an index can only be divided by a positive constant, not {divisor}")
    return value


def floor_div(numerator: IndexLike, divisor: IndexLike) -> IndexExpr:
    """`numerator // divisor`; whole multiples of the divisor are taken out of the floor."""
    c = _positive(divisor)
    expr = as_index(numerator)
    return expr if c == 1 else _floor_div(expr, c)


@lru_cache(maxsize=MOST_DIVIDED)
def _floor_div(expr: IndexExpr, c: int) -> IndexExpr:
    terms, constant = terms_of(expr)
    whole = [(atom, k // c) for atom, k in terms if k % c == 0]
    rest = [(atom, k) for atom, k in terms if k % c]
    if not rest:
        return linear(whole, constant // c)
    inner = linear(rest, constant % c)
    return linear((*whole, *terms_of(_floor_atom(inner, c))[0]), constant // c)


def _floor_atom(expr: IndexExpr, c: int) -> IndexExpr:
    terms, constant = terms_of(expr)
    common = c
    for _, k in terms:
        common = gcd(common, k)
    if common > 1:
        reduced = linear([(atom, k // common) for atom, k in terms], constant // common)
        return floor_div(reduced, c // common)
    if isinstance(expr, FloorDiv):
        return floor_div(expr.numerator, expr.divisor * c)
    if isinstance(expr, FloorMod) and expr.divisor % c == 0:
        return floor_mod(floor_div(expr.numerator, c), expr.divisor // c)
    return _intern(FloorDiv, expr, c)


def floor_mod(numerator: IndexLike, divisor: IndexLike) -> IndexExpr:
    """`numerator % divisor`; whole multiples of the divisor are dropped."""
    c = _positive(divisor)
    return const(0) if c == 1 else _floor_mod(as_index(numerator), c)


@lru_cache(maxsize=MOST_DIVIDED)
def _floor_mod(expr: IndexExpr, c: int) -> IndexExpr:
    terms, constant = terms_of(expr)
    rest = linear([(atom, k % c if k > 0 else -(-k % c)) for atom, k in terms], constant % c)
    if isinstance(rest, Const):
        return const(rest.value % c)
    if isinstance(rest, FloorMod) and rest.divisor % c == 0:
        return floor_mod(rest.numerator, c)
    rest_terms, rest_constant = terms_of(rest)
    if any(abs(k) >= c for _, k in rest_terms) or not 0 <= rest_constant < c:
        # A quotient and a rest have merged into terms that are not reduced yet.
        return floor_mod(rest, c)
    common = c
    for _, k in rest_terms:
        common = gcd(common, k)
    if common > 1 and rest_constant % common == 0:
        reduced = linear([(a, k // common) for a, k in rest_terms], rest_constant // common)
        return _multiply(floor_mod(reduced, c // common), common)
    return _intern(FloorMod, rest, c)


def minimum(left: IndexLike, right: IndexLike) -> IndexExpr:
    """`min(left, right)`."""
    return _extremum("min", as_index(left), as_index(right))


def maximum(left: IndexLike, right: IndexLike) -> IndexExpr:
    """`max(left, right)`."""
    return _extremum("max", as_index(left), as_index(right))


def _extremum(kind: str, a: IndexExpr, b: IndexExpr) -> IndexExpr:
    difference = constant_value(a - b)
    if difference is not None:
        return a if (difference <= 0) == (kind == "min") else b
    if str(a) > str(b):
        a, b = b, a
    return _intern(Extremum, kind, a, b)


def substitute(expr: IndexExpr, values: Mapping[Var, IndexExpr]) -> IndexExpr:
    """`expr` with each variable replaced by its value, where it has one."""
    match expr:
        case Const():
            return expr
        case Var():
            return values.get(expr, expr)
        case Sum():
            replaced = [(substitute(atom, values), k) for atom, k in expr.terms]
            if all(new is old for (new, _), (old, _) in zip(replaced, expr.terms, strict=True)):
                return expr
            return weighted((*replaced, (const(1), expr.constant)))
        case FloorDiv():
            inner = substitute(expr.numerator, values)
            return expr if inner is expr.numerator else floor_div(inner, expr.divisor)
        case FloorMod():
            inner = substitute(expr.numerator, values)
            return expr if inner is expr.numerator else floor_mod(inner, expr.divisor)
        case Extremum():
            a, b = (substitute(operand, values) for operand in expr.operands)
            return _extremum(expr.kind, a, b)
    raise TypeError(f"not an index expression: {expr!r}")


def variables(expr: IndexExpr) -> frozenset[Var]:
    """The variables that occur in `expr`."""
    if isinstance(expr, Var):
        return frozenset((expr,))  # held by itself it would never go
    if expr._inside is None:
        expr._inside = _variables(expr)
    return expr._inside


def _variables(expr: IndexExpr) -> frozenset[Var]:
    match expr:
        case Const():
            return frozenset()
        case Sum():
            return frozenset().union(*(variables(atom) for atom, _ in expr.terms))
        case FloorDiv() | FloorMod():
            return variables(expr.numerator)
        case Extremum():
            return variables(expr.operands[0]) | variables(expr.operands[1])
    raise TypeError(f"not an index expression: {expr!r}")


def evaluate(expr: IndexExpr, values: Mapping[Var, int]) -> int:
    """The integer that `expr` is when its variables have these values."""
    match expr:
        case Const():
            return expr.value
        case Var():
            return values[expr]
        case Sum():
            return sum(k * evaluate(atom, values) for atom, k in expr.terms) + expr.constant
        case FloorDiv():
            return evaluate(expr.numerator, values) // expr.divisor
        case FloorMod():
            return evaluate(expr.numerator, values) % expr.divisor
        case Extremum():
            pick = min if expr.kind == "min" else max
            return pick(evaluate(operand, values) for operand in expr.operands)
    raise TypeError(f"not an index expression: {expr!r}")


def _text(expr: IndexExpr) -> str:
    match expr:
        case Const():
            return str(expr.value)
        case Var():
            return expr.name
        case Sum():
            return _sum_text(expr)
        case FloorDiv():
            return f"{_factor_text(expr.numerator)} // {expr.divisor}"
        case FloorMod():
            return f"{_factor_text(expr.numerator)} % {expr.divisor}"
        case Extremum():
            return f"{expr.kind}({expr.operands[0]}, {expr.operands[1]})"
    raise TypeError(f"not an index expression: {type(expr)}")


def _factor_text(expr: IndexExpr) -> str:
    simple = isinstance(expr, Var | Extremum) or (isinstance(expr, Const) and expr.value >= 0)
    return str(expr) if simple else f"({expr})"


def _sum_text(expr: Sum) -> str:
    text = ""
    for atom, k in expr.terms:
        size = abs(k)
        factor = _factor_text(atom) if size != 1 else str(atom)
        piece = factor if size == 1 else f"{size}*{factor}"
        sign = "-" if k < 0 else "+"
        if text:
            # A quotient or rest after a minus needs no brackets: // and % bind tighter than ±.
            text += f" {sign} {piece}"
        else:
            text = f"-{_factor_text(atom)}" if k == -1 else (f"-{piece}" if k < 0 else piece)
    if expr.constant:
        text += f" {'-' if expr.constant < 0 else '+'} {abs(expr.constant)}"
    return text
