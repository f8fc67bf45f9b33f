"""Unification: whether statements are an instance of a kernel's body, and with which arguments.

In: a definition and statements.  Out: the call that performs them, with windows, offsets and
scalars inferred, or `NotUnifiable` with the first difference.  What always holds: statements and
body agree node by node; only names of loops, blocks and allocated buffers differ, and the kinds of
loops may.

For example, with the definition

    def fma(acc: inout[f32[8]], a: f32[8], b: f32[()], n: index):
        for j in serial(0, 8):
            if j < n:
                acc[j] = acc[j] + a[j] * b[()]

the statement

    for l in serial(0, 8):
        if l < m:
            y[r, 8*c + l] = y[r, 8*c + l] + x[8*c + l] * w[r]

is the call with the windows y[r, 8*c:8*c + 8], x[8*c:8*c + 8] and w[r], and the scalar m.  The walk
through both bodies pairs j with l, and collects for each parameter the indices of its accesses, j
and (r, 8*c + l) for acc, and for the scalars the equation n = m.  A window begins where the two
indices of an access differ by the same offset in all accesses, here at (r, 8*c).

That is another question than whether two values are equal (`effects.equal_values`): windows and
scalars are unknowns, and statements that differ in form are no instance even if they do the same.

A window keeps as many axes of its buffer as the parameter has, in their order, with step one.
Where several choices of axes fit, the last axes of the buffer are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import NoReturn, TypeAlias, cast

from graphflow import arith
from graphflow.base.fields import replace
from graphflow.tir.nodes import exprs, printer, stmts

MOST_CANDIDATES = 7
"""Variables around a statement that a scalar may be, where no equation determines it."""


class NotUnifiable(Exception):
    """Statements are no instance of a definition; the message is the first difference."""


def unify(definition: stmts.PrimFunc, body: stmts.Body, name: str) -> stmts.Call:
    """The call `name` of `definition` that performs `body`; NotUnifiable where there is none."""
    call = _call_with_same_names(definition, body, name) if definition.scalars else None
    if call is not None:
        return call
    matcher = _Matcher(definition)
    matcher.bodies(definition.body, body)
    return stmts.Call(name, definition, *matcher.arguments())


def _call_with_same_names(
    definition: stmts.PrimFunc, body: stmts.Body, name: str
) -> stmts.Call | None:
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
    """Walks both bodies at once and collects what the arguments must satisfy.

    `pattern` is always a part of the definition, `subject` the part of the statements at its place.
    """

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

    def differ(self, pattern: str, subject: str) -> NoReturn:
        raise NotUnifiable(
            f"{self.definition.name} has `{pattern}` where the statement has `{subject}`"
        )

    # -- statements

    def bodies(self, pattern: stmts.Body, subject: stmts.Body) -> None:
        for a, b in zip(pattern, subject, strict=False):
            self.stmt(a, b)
        if len(pattern) != len(subject):
            common = min(len(pattern), len(subject))
            self.differ(_line(pattern[common:]), _line(subject[common:]))

    def stmt(self, pattern: stmts.Stmt, subject: stmts.Stmt) -> None:
        match pattern, subject:
            case stmts.Store(), stmts.Store():
                self.expr(pattern.value, subject.value)
                self.access(pattern.buffer, pattern.indices, subject.buffer, subject.indices)
            case stmts.Reduce(), stmts.Reduce() if pattern.op is subject.op:
                self.expr(pattern.value, subject.value)
                self.access(pattern.buffer, pattern.indices, subject.buffer, subject.indices)
            case stmts.For(), stmts.For():
                self.index(pattern.start, subject.start, (pattern, subject))
                self.index(pattern.stop, subject.stop, (pattern, subject))
                self.loops[pattern.var] = subject.var
                self.bodies(pattern.body, subject.body)
            case stmts.If(), stmts.If():
                self.condition(pattern.condition, subject.condition)
                self.bodies(pattern.then, subject.then)
                self.bodies(pattern.orelse, subject.orelse)
            case stmts.Allocate(), stmts.Allocate():
                a, b = pattern.buffer, subject.buffer
                if (a.shape, a.dtype, a.scope) != (b.shape, b.dtype, b.scope):
                    self.differ(_line((pattern,)), _line((subject,)))
                self.local[a] = b
            case stmts.Block(), stmts.Block():
                if pattern.annotations != subject.annotations:
                    self.differ(_line((pattern,)), _line((subject,)))
                self.bodies(pattern.body, subject.body)
            case stmts.Assume(), stmts.Assume():
                self.condition(pattern.unless, subject.unless)
                self.expr(pattern.claim, subject.claim)
            case stmts.Let(), stmts.Let():
                self.expr(pattern.value, subject.value)
                self.local[pattern.buffer] = subject.buffer
                self.bodies(pattern.body, subject.body)
            case stmts.NamedWindow(), stmts.NamedWindow() if (
                pattern.buffer.shape == subject.buffer.shape
            ):
                self.window_access(pattern.window, subject.window)
                self.local[pattern.buffer] = subject.buffer
                self.bodies(pattern.body, subject.body)
            case stmts.Call(), stmts.Call():
                self.call(pattern, subject)
            case _:
                self.differ(_line((pattern,)), _line((subject,)))

    def call(self, pattern: stmts.Call, subject: stmts.Call) -> None:
        if pattern.definition != subject.definition:
            self.differ(_line((pattern,)), _line((subject,)))
        for a, b in zip(pattern.windows, subject.windows, strict=True):
            if len(a.kept) != len(b.kept):
                self.differ(_line((pattern,)), _line((subject,)))
            self.window_access(a, b)
        for x, y in zip(pattern.scalars, subject.scalars, strict=True):
            self.index(x, y)

    def window_access(self, pattern: stmts.BufferWindow, subject: stmts.BufferWindow) -> None:
        """Two elements of a window fix the axes along which it runs."""
        for inner in ((0,) * len(pattern.kept), tuple(range(1, len(pattern.kept) + 1))):
            indices = tuple(arith.const(n) for n in inner)
            self.access(
                pattern.buffer, pattern.place(indices), subject.buffer, subject.place(indices)
            )

    # -- expressions

    def condition(self, pattern: exprs.Condition, subject: exprs.Condition) -> None:
        if exprs.is_predicate(pattern) and exprs.is_predicate(subject):
            if not self.predicate(cast(arith.Predicate, pattern), cast(arith.Predicate, subject)):
                self.differ(printer.condition_text(pattern), printer.condition_text(subject))
        elif exprs.is_predicate(pattern) or exprs.is_predicate(subject):
            self.differ(printer.condition_text(pattern), printer.condition_text(subject))
        else:
            self.expr(cast(exprs.Expr, pattern), cast(exprs.Expr, subject))

    def predicate(self, pattern: arith.Predicate, subject: arith.Predicate) -> bool:
        self.seen |= arith.predicate_variables(subject)
        if arith.substitute_in(pattern, self.loops) == subject:
            return True  # the order of members and signs may depend on names
        match pattern, subject:
            case arith.AtLeastZero(), arith.AtLeastZero():
                self.index(pattern.expr, subject.expr)
                return True
            case arith.IsZero(), arith.IsZero():
                self.index(pattern.expr, subject.expr)
                return True
            case arith.Not(), arith.Not():
                return self.predicate(pattern.member, subject.member)
            case arith.And(), arith.And():
                return self.members(pattern.members, subject.members)
            case arith.Or(), arith.Or():
                return self.members(pattern.members, subject.members)
            case _:
                return False

    def members(
        self, pattern: Sequence[arith.Predicate], subject: Sequence[arith.Predicate]
    ) -> bool:
        pairs = zip(pattern, subject, strict=False)
        return len(pattern) == len(subject) and all(self.predicate(a, b) for a, b in pairs)

    def expr(self, pattern: exprs.Expr, subject: exprs.Expr) -> None:
        match pattern, subject:
            case exprs.Load(), exprs.Load():
                self.access(pattern.buffer, pattern.indices, subject.buffer, subject.indices)
                return
            case exprs.IndexValue(), exprs.IndexValue() if pattern.dtype == subject.dtype:
                self.index(pattern.index, subject.index)
                return
            case (exprs.Unary(), exprs.Unary()) if pattern.op == subject.op:
                self.expr(pattern.operand, subject.operand)
                return
            case exprs.Cast(), exprs.Cast() if pattern.dtype == subject.dtype:
                self.expr(pattern.operand, subject.operand)
                return
            case exprs.Binary(), exprs.Binary() if pattern.op == subject.op:
                self.expr(pattern.left, subject.left)
                self.expr(pattern.right, subject.right)
                return
            case exprs.Comparison(), exprs.Comparison() if pattern.op == subject.op:
                self.expr(pattern.left, subject.left)
                self.expr(pattern.right, subject.right)
                return
            case exprs.Select(), exprs.Select():
                self.condition(pattern.condition, subject.condition)
                self.expr(pattern.if_true, subject.if_true)
                self.expr(pattern.if_false, subject.if_false)
                return
            case (exprs.Literal(), exprs.Literal()) | (exprs.Undef(), exprs.Undef()) if (
                pattern == subject
            ):
                return
        self.differ(printer.expr_text(pattern), printer.expr_text(subject))

    def index(
        self,
        pattern: arith.IndexExpr,
        subject: arith.IndexExpr,
        loops: tuple[stmts.For, stmts.For] | None = None,
    ) -> None:
        pattern = arith.substitute(pattern, self.loops)
        self.seen |= arith.variables(subject)
        if pattern is subject:
            return
        if not any(_unknown(var) in arith.variables(pattern) for var in self.definition.scalars):
            if loops is not None:
                self.differ(*(_line((loop,)) for loop in loops))
            self.differ(str(pattern), str(subject))
        self.equations.append((pattern, subject))

    def access(
        self,
        pattern: exprs.Buffer,
        pattern_at: Sequence[arith.IndexExpr],
        subject: exprs.Buffer,
        subject_at: _Indices,
    ) -> None:
        inside = tuple(arith.substitute(index, self.loops) for index in pattern_at)

        def differ(of: tuple[str, str] = ("", "")) -> NoReturn:
            texts = (
                printer.element_text(pattern, pattern_at),
                printer.element_text(subject, subject_at),
            )
            self.differ(*(f"{text}{end}" for text, end in zip(texts, of, strict=True)))

        if pattern.dtype != subject.dtype:
            differ((f" of {pattern.dtype}", f" of {subject.dtype}"))
        if pattern.is_field or subject.is_field:
            if pattern != subject:
                differ()
            return
        if pattern in self.local:
            if self.local[pattern] != subject:
                differ()
            for a, b in zip(inside, subject_at, strict=True):
                self.index(a, b)
            return
        known, pairs = self.accesses.setdefault(pattern, (subject, []))
        if known != subject or subject in self.local.values():
            differ()
        pairs.append((inside, subject_at))
        self.seen.update(var for index in subject_at for var in arith.variables(index))

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
            if all(arith.substitute(pattern, solution) is subject for pattern, subject in left):
                windows = tuple(self.window(p.buffer, solution) for p in self.definition.params)
                complete = tuple(window for window in windows if window is not None)
                if len(complete) == len(windows):
                    return complete, tuple(solution[_unknown(v)] for v in self.definition.scalars)
        self.refuse_misfits(left, {**dict.fromkeys(unknown, arith.const(0)), **known})
        raise NotUnifiable(f"no scalars make the statement {self.definition.name}")

    def refuse_misfits(
        self, left: Sequence[_IndexPair], scalars: dict[arith.Var, arith.IndexExpr]
    ) -> None:
        """NotUnifiable with the first equation left open, or else the first parameter without a
        window for these scalars, if there is one."""
        for pattern, subject in left:
            self.differ(self.named(pattern), str(subject))
        for param in self.definition.params:
            if self.window(param.buffer, scalars) is None:
                self.differ(*self.access_texts(param.buffer))

    def linear_solution(self) -> tuple[dict[arith.Var, arith.IndexExpr], list[_IndexPair]]:
        """The scalars that linear equations determine, and the equations left open."""
        known: dict[arith.Var, arith.IndexExpr] = {}
        wanted = [_unknown(var) for var in self.definition.scalars]
        left = list(self.equations)
        progress = True
        while progress:
            progress = False
            for pair in tuple(left):
                pattern, subject = arith.substitute(pair[0], known), pair[1]
                unknowns = [var for var in wanted if var in arith.variables(pattern)]
                if not unknowns and pattern is not subject:
                    self.differ(self.named(pattern), str(subject))
                value = self.solved(pattern, subject, unknowns[0]) if len(unknowns) == 1 else None
                if value is not None:
                    known[unknowns[0]] = value
                if value is not None or not unknowns:
                    left.remove(pair)
                    progress = True
        return known, left

    def solved(
        self, pattern: arith.IndexExpr, subject: arith.IndexExpr, unknown: arith.Var
    ) -> arith.IndexExpr | None:
        """The value of `unknown` that makes `pattern` the `subject`; None if it is not linear."""
        within = [
            (atom, k) for atom, k in arith.terms_of(pattern)[0] if unknown in arith.variables(atom)
        ]
        if len(within) != 1 or within[0][0] is not unknown or within[0][1] not in (1, -1):
            return None
        step, rest = within[0][1], arith.substitute(pattern, {unknown: arith.const(0)})
        value = (subject - rest) * step
        if arith.substitute(pattern, {unknown: value}) is not subject or self.bound(value):
            return None
        return value

    def inner(self) -> list[arith.Var]:
        """The variables of loops in the statement."""
        scalars = self.definition.scalars
        return [cast(arith.Var, there) for var, there in self.loops.items() if var not in scalars]

    def named(self, expr: arith.IndexExpr) -> str:
        """An expression in the names of the definition."""
        back = {cast(arith.Var, there): var for var, there in self.loops.items()}
        return str(arith.substitute(expr, dict(back)))

    def access_texts(self, param: exprs.Buffer) -> tuple[str, str]:
        buffer, pairs = self.accesses[param]
        patterns = (f"{param.name}[{', '.join(map(self.named, at)) or '()'}]" for at, _ in pairs)
        texts = (printer.element_text(buffer, at) for _, at in pairs)
        return ", ".join(dict.fromkeys(patterns)), ", ".join(dict.fromkeys(texts))

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
        known = [
            (tuple(arith.substitute(i, scalars) for i in pattern), subject)
            for pattern, subject in pairs
        ]
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
        starts: list[arith.IndexExpr] = []
        for axis in range(rank):
            offsets = {
                subject[axis] - pattern[inner[axis]] if axis in inner else subject[axis]
                for pattern, subject in pairs
            }
            if len(offsets) > 1:
                return None
            (offset,) = offsets
            if self.bound(offset):
                return None
            starts.append(offset)
        return tuple(starts)


def _unknown(var: arith.Var) -> arith.Var:
    return arith.Var(f"?{var.name}")


def _line(body: stmts.Body) -> str:
    """The first line of the first statement."""
    return printer.stmt_text(body[0]).splitlines()[0] if body else "nothing"
