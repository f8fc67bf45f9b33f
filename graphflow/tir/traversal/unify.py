"""Unification: whether statements are an instance of a kernel's body, and with which arguments.

In: a definition and statements.  Out: the call that performs them, with windows, offsets and
scalars inferred, or `NotUnifiable` with the first difference.  What always holds: statements and
body agree node by node; only names of loops, blocks and allocated buffers differ, and the kinds of
loops may.

That is another question than whether two values are equal (`effects.equal_values`): windows and
scalars are unknowns, and statements that differ in form are no instance even if they do the same.

A window keeps as many axes of its buffer as the parameter has, in their order, with step one.
Where several choices of axes fit, the last axes of the buffer are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import NoReturn, TypeAlias, cast

from graphflow import arith
from graphflow.tir.nodes import exprs, printer, stmts

MOST_CANDIDATES = 7
"""Variables around a statement that a scalar may be, where no equation determines it."""


class NotUnifiable(Exception):
    """Statements are no instance of a definition; the message is the first difference."""


def unify(definition: stmts.PrimFunc, body: stmts.Body, name: str) -> stmts.Call:
    """The call `name` of `definition` that performs `body`; NotUnifiable where there is none."""
    found = _with_own_names(definition, body, name) if definition.scalars else None
    if found is not None:
        return found
    matcher = _Matcher(definition)
    matcher.bodies(definition.body, body)
    return stmts.Call(name, definition, *matcher.arguments())


def _with_own_names(definition: stmts.PrimFunc, body: stmts.Body, name: str) -> stmts.Call | None:
    """The call where the scalars are the variables of the same names, as after extraction.

    With unknowns the members of a condition may be ordered otherwise than in the statement.
    """
    matcher = _Matcher(replace(definition, scalars=()))
    try:
        matcher.bodies(definition.body, body)
        windows, _ = matcher.arguments()
    except NotUnifiable:
        return None
    # A variable of the statement's own loops is no argument, nor one that is not there.
    around = matcher.seen.difference(matcher.inner())
    if not around.issuperset(definition.scalars):
        return None
    return stmts.Call(name, definition, windows, definition.scalars)


_Indices: TypeAlias = tuple[arith.IndexExpr, ...]
_IndexPair: TypeAlias = tuple[arith.IndexExpr, arith.IndexExpr]
"""An index of the definition, in the statement's loop variables, and the statement's own."""


@dataclass(slots=True)
class _Matcher:
    """Walks both bodies at once and collects what the arguments must satisfy."""

    definition: stmts.PrimFunc
    loops: dict[arith.Var, arith.IndexExpr] = field(default_factory=dict)
    """The statement's loop variable for each of the definition's."""
    local: dict[exprs.Buffer, exprs.Buffer] = field(default_factory=dict)
    equations: list[_IndexPair] = field(default_factory=list)
    """Indices that must be equal once the scalars are put in."""
    accesses: dict[exprs.Buffer, tuple[exprs.Buffer, list[tuple[_Indices, _Indices]]]] = field(
        default_factory=dict
    )
    """The statement's buffer for each parameter, and the indices of each access to it."""
    seen: set[arith.Var] = field(default_factory=set)
    """The variables in indices of the statement."""

    def __post_init__(self) -> None:
        # Scalars must not be taken for variables of the statement that have the same name.
        self.loops |= {var: _unknown(var) for var in self.definition.scalars}

    def differ(self, own: str, found: str) -> NoReturn:
        raise NotUnifiable(f"{self.definition.name} has `{own}` where the statement has `{found}`")

    # -- statements

    def bodies(self, own: stmts.Body, found: stmts.Body) -> None:
        for a, b in zip(own, found, strict=False):
            self.stmt(a, b)
        if len(own) != len(found):
            common = min(len(own), len(found))
            self.differ(_line(own[common:]), _line(found[common:]))

    def stmt(self, own: stmts.Stmt, found: stmts.Stmt) -> None:
        match own, found:
            case stmts.Store(), stmts.Store():
                self.expr(own.value, found.value)
                self.access(own.buffer, own.indices, found.buffer, found.indices)
            case stmts.Reduce(), stmts.Reduce() if own.op is found.op:
                self.expr(own.value, found.value)
                self.access(own.buffer, own.indices, found.buffer, found.indices)
            case stmts.For(), stmts.For():
                self.index(own.start, found.start, (own, found))
                self.index(own.stop, found.stop, (own, found))
                self.loops[own.var] = found.var
                self.bodies(own.body, found.body)
            case stmts.If(), stmts.If():
                self.condition(own.condition, found.condition)
                self.bodies(own.then, found.then)
                self.bodies(own.orelse, found.orelse)
            case stmts.Allocate(), stmts.Allocate():
                a, b = own.buffer, found.buffer
                if (a.shape, a.dtype, a.scope) != (b.shape, b.dtype, b.scope):
                    self.differ(_line((own,)), _line((found,)))
                self.local[a] = b
            case stmts.Block(), stmts.Block():
                if own.annotations != found.annotations:
                    self.differ(_line((own,)), _line((found,)))
                self.bodies(own.body, found.body)
            case stmts.Assume(), stmts.Assume():
                self.condition(own.unless, found.unless)
                self.expr(own.claim, found.claim)
            case stmts.Let(), stmts.Let():
                self.expr(own.value, found.value)
                self.local[own.buffer] = found.buffer
                self.bodies(own.body, found.body)
            case stmts.NamedWindow(), stmts.NamedWindow() if own.buffer.shape == found.buffer.shape:
                self.window_access(own.window, found.window)
                self.local[own.buffer] = found.buffer
                self.bodies(own.body, found.body)
            case stmts.Call(), stmts.Call():
                self.call(own, found)
            case _:
                self.differ(_line((own,)), _line((found,)))

    def call(self, own: stmts.Call, found: stmts.Call) -> None:
        if own.definition != found.definition:
            self.differ(_line((own,)), _line((found,)))
        for a, b in zip(own.windows, found.windows, strict=True):
            if len(a.kept) != len(b.kept):
                self.differ(_line((own,)), _line((found,)))
            self.window_access(a, b)
        for x, y in zip(own.scalars, found.scalars, strict=True):
            self.index(x, y)

    def window_access(self, own: stmts.BufferWindow, found: stmts.BufferWindow) -> None:
        """Two elements of a window fix the axes along which it runs."""
        for inner in ((0,) * len(own.kept), tuple(range(1, len(own.kept) + 1))):
            indices = tuple(arith.const(n) for n in inner)
            self.access(own.buffer, own.place(indices), found.buffer, found.place(indices))

    # -- expressions

    def condition(self, own: exprs.Condition, found: exprs.Condition) -> None:
        if exprs.is_predicate(own) and exprs.is_predicate(found):
            if not self.predicate(cast(arith.Predicate, own), cast(arith.Predicate, found)):
                self.differ(printer.condition_text(own), printer.condition_text(found))
        elif exprs.is_predicate(own) or exprs.is_predicate(found):
            self.differ(printer.condition_text(own), printer.condition_text(found))
        else:
            self.expr(cast(exprs.Expr, own), cast(exprs.Expr, found))

    def predicate(self, own: arith.Predicate, found: arith.Predicate) -> bool:
        self.seen |= arith.predicate_variables(found)
        if arith.substitute_in(own, self.loops) == found:
            return True  # the order of members and signs may depend on names
        match own, found:
            case arith.AtLeastZero(), arith.AtLeastZero():
                self.index(own.expr, found.expr)
                return True
            case arith.IsZero(), arith.IsZero():
                self.index(own.expr, found.expr)
                return True
            case arith.Not(), arith.Not():
                return self.predicate(own.member, found.member)
            case arith.And(), arith.And():
                return self.members(own.members, found.members)
            case arith.Or(), arith.Or():
                return self.members(own.members, found.members)
            case _:
                return False

    def members(self, own: Sequence[arith.Predicate], found: Sequence[arith.Predicate]) -> bool:
        pairs = zip(own, found, strict=False)
        return len(own) == len(found) and all(self.predicate(a, b) for a, b in pairs)

    def expr(self, own: exprs.Expr, found: exprs.Expr) -> None:
        match own, found:
            case exprs.Load(), exprs.Load():
                self.access(own.buffer, own.indices, found.buffer, found.indices)
                return
            case exprs.IndexValue(), exprs.IndexValue() if own.dtype == found.dtype:
                self.index(own.index, found.index)
                return
            case (exprs.Unary(), exprs.Unary()) if own.op == found.op:
                self.expr(own.operand, found.operand)
                return
            case exprs.Cast(), exprs.Cast() if own.dtype == found.dtype:
                self.expr(own.operand, found.operand)
                return
            case exprs.Binary(), exprs.Binary() if own.op == found.op:
                self.expr(own.left, found.left)
                self.expr(own.right, found.right)
                return
            case exprs.Comparison(), exprs.Comparison() if own.op == found.op:
                self.expr(own.left, found.left)
                self.expr(own.right, found.right)
                return
            case exprs.Select(), exprs.Select():
                self.condition(own.condition, found.condition)
                self.expr(own.if_true, found.if_true)
                self.expr(own.if_false, found.if_false)
                return
            case (exprs.Literal(), exprs.Literal()) | (exprs.Undef(), exprs.Undef()) if (
                own == found
            ):
                return
        self.differ(printer.expr_text(own), printer.expr_text(found))

    def index(
        self,
        own: arith.IndexExpr,
        found: arith.IndexExpr,
        loops: tuple[stmts.For, stmts.For] | None = None,
    ) -> None:
        own = arith.substitute(own, self.loops)
        self.seen |= arith.variables(found)
        if own is found:
            return
        if not any(_unknown(var) in arith.variables(own) for var in self.definition.scalars):
            if loops is not None:
                self.differ(*(_line((loop,)) for loop in loops))
            self.differ(str(own), str(found))
        self.equations.append((own, found))

    def access(
        self,
        own: exprs.Buffer,
        own_at: Sequence[arith.IndexExpr],
        found: exprs.Buffer,
        found_at: _Indices,
    ) -> None:
        inside = tuple(arith.substitute(index, self.loops) for index in own_at)

        def differ(of: tuple[str, str] = ("", "")) -> NoReturn:
            texts = printer.element_text(own, own_at), printer.element_text(found, found_at)
            self.differ(*(f"{text}{end}" for text, end in zip(texts, of, strict=True)))

        if own.dtype != found.dtype:
            differ((f" of {own.dtype}", f" of {found.dtype}"))
        if own.is_field or found.is_field:
            if own != found:
                differ()
            return
        if own in self.local:
            if self.local[own] != found:
                differ()
            for a, b in zip(inside, found_at, strict=True):
                self.index(a, b)
            return
        known, pairs = self.accesses.setdefault(own, (found, []))
        if known != found or found in self.local.values():
            differ()
        pairs.append((inside, found_at))
        self.seen.update(var for index in found_at for var in arith.variables(index))

    # -- arguments

    def arguments(self) -> tuple[tuple[stmts.BufferWindow, ...], tuple[arith.IndexExpr, ...]]:
        """The windows and scalars for which everything collected is equal.

        Scalars follow from equations that are linear in one of them; where there is none, they are
        sought among zero and the variables around the statement.
        """
        known, left = self.linear_solution()
        unknown = [var for var in map(_unknown, self.definition.scalars) if var not in known]
        around = sorted(self.seen - set(self.inner()), key=str)[:MOST_CANDIDATES]
        for values in product((arith.const(0), *around), repeat=len(unknown)):
            solution = {**known, **dict(zip(unknown, values, strict=True))}
            if all(arith.substitute(own, solution) is found for own, found in left):
                windows = tuple(self.window(p.buffer, solution) for p in self.definition.params)
                complete = tuple(window for window in windows if window is not None)
                if len(complete) == len(windows):
                    return complete, tuple(solution[_unknown(v)] for v in self.definition.scalars)
        for own, found in left:
            self.differ(self.named(own), str(found))
        zeros = {**dict.fromkeys(unknown, arith.const(0)), **known}
        for param in self.definition.params:
            if self.window(param.buffer, zeros) is None:
                own_texts, texts = self.access_texts(param.buffer)
                self.differ(own_texts, texts)
        raise NotUnifiable(f"no scalars make the statement {self.definition.name}")

    def linear_solution(self) -> tuple[dict[arith.Var, arith.IndexExpr], list[_IndexPair]]:
        """The scalars that linear equations determine, and the equations left open."""
        known: dict[arith.Var, arith.IndexExpr] = {}
        wanted = [_unknown(var) for var in self.definition.scalars]
        left = list(self.equations)
        progress = True
        while progress:
            progress = False
            for pair in tuple(left):
                own, found = arith.substitute(pair[0], known), pair[1]
                unknowns = [var for var in wanted if var in arith.variables(own)]
                if not unknowns and own is not found:
                    self.differ(self.named(own), str(found))
                value = self.solved(own, found, unknowns[0]) if len(unknowns) == 1 else None
                if value is not None:
                    known[unknowns[0]] = value
                if value is not None or not unknowns:
                    left.remove(pair)
                    progress = True
        return known, left

    def solved(
        self, own: arith.IndexExpr, found: arith.IndexExpr, unknown: arith.Var
    ) -> arith.IndexExpr | None:
        """The value of `unknown` for which `own` is `found`; None where it is not linear in it."""
        within = [
            (atom, k) for atom, k in arith.terms_of(own)[0] if unknown in arith.variables(atom)
        ]
        if len(within) != 1 or within[0][0] is not unknown or within[0][1] not in (1, -1):
            return None
        step, rest = within[0][1], arith.substitute(own, {unknown: arith.const(0)})
        value = (found - rest) * step
        if arith.substitute(own, {unknown: value}) is not found or self.bound(value):
            return None
        return value

    def inner(self) -> list[arith.Var]:
        """The variables of loops in the statement."""
        scalars = self.definition.scalars
        return [cast(arith.Var, there) for own, there in self.loops.items() if own not in scalars]

    def named(self, expr: arith.IndexExpr) -> str:
        """An expression in the names of the definition."""
        back = {cast(arith.Var, there): own for own, there in self.loops.items()}
        return str(arith.substitute(expr, dict(back)))

    def access_texts(self, param: exprs.Buffer) -> tuple[str, str]:
        buffer, pairs = self.accesses[param]
        own = (f"{param.name}[{', '.join(map(self.named, at)) or '()'}]" for at, _ in pairs)
        texts = (printer.element_text(buffer, at) for _, at in pairs)
        return ", ".join(dict.fromkeys(own)), ", ".join(dict.fromkeys(texts))

    def bound(self, expr: arith.IndexExpr) -> bool:
        """Whether an expression uses a variable of a loop in the statement."""
        return not arith.variables(expr).isdisjoint(self.inner())

    def window(
        self, param: exprs.Buffer, scalars: dict[arith.Var, arith.IndexExpr]
    ) -> stmts.BufferWindow | None:
        """The window that makes every access to `param` the statement's own; None if there is
        none."""
        if param not in self.accesses:
            raise NotUnifiable(
                f"{self.definition.name} does not access {param.name}, so no window follows"
            )
        buffer, pairs = self.accesses[param]
        known = [(tuple(arith.substitute(i, scalars) for i in own), found) for own, found in pairs]
        rank = len(buffer.shape)
        for kept in reversed(list(combinations(range(rank), len(param.shape)))):
            starts = self.starts(known, kept, rank)
            if starts is not None:
                return stmts.BufferWindow(buffer, starts, kept)
        return None

    def starts(
        self,
        pairs: Sequence[tuple[_Indices, _Indices]],
        kept: tuple[int, ...],
        rank: int,
    ) -> tuple[arith.IndexExpr, ...] | None:
        """Where a window along the axes `kept` begins; None if no window along them fits."""
        inner = {axis: k for k, axis in enumerate(kept)}
        found: list[arith.IndexExpr] = []
        for axis in range(rank):
            offsets = {
                there[axis] - own[inner[axis]] if axis in inner else there[axis]
                for own, there in pairs
            }
            if len(offsets) > 1:
                return None
            (offset,) = offsets
            if self.bound(offset):
                return None
            found.append(offset)
        return tuple(found)


def _unknown(var: arith.Var) -> arith.Var:
    return arith.Var(f"?{var.name}")


def _line(body: stmts.Body) -> str:
    """The first line of the first statement."""
    return printer.stmt_text(body[0]).splitlines()[0] if body else "nothing"
