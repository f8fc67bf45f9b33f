"""Statements of a kernel that are like a pattern, which is text of a kernel with holes.

In: a kernel, and a pattern such as `for i in _: _`.  Out: the paths of the statements that match,
in program order.  What always holds: a statement matches by its own line as `print` shows it, so
what can be read can be found; the statements below it match where the pattern has some.

`_` stands for any expression, any indices or any statements, `f(_)` for a call with any arguments,
and `t: _` for the allocation of t.  A pattern of one name is the loop, block, call or allocation of
that name.  ` #n` behind a pattern chooses the match number n, from 0.  Indices and conditions on
indices are compared in normal form: `x[10 - i] = _` matches `x[-i + 10] = …`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from textwrap import dedent

from msgspec import Struct

from graphflow import effects, tir
from graphflow.base.errors import ParseError, ScheduleError
from graphflow.schedule.places.place_names import name_of

_NUMBER = re.compile(r"(.*?)\s*#\s*(\d+)\s*", re.DOTALL)


class StatementPattern(Struct, frozen=True):
    """A pattern as Python's syntax tree, or a name, and which of the matches is meant."""

    text: str
    name: str | None
    tree: ast.stmt | None
    number: int | None

    def matches(self, stmt: tir.Stmt) -> bool:
        """Whether a statement is like the pattern."""
        if self.tree is None:
            own = stmt.buffer.name if isinstance(stmt, tir.Allocate) else name_of(stmt)
            return own == self.name
        return _is_like(self.tree, stmt)


def pattern_of(text: str) -> StatementPattern:
    """The pattern that a text stands for; ScheduleError where it is none."""
    numbered = _NUMBER.fullmatch(text)
    plain = dedent(numbered[1] if numbered else text).strip()
    number = int(numbered[2]) if numbered else None
    if all(map(tir.is_identifier, plain.split("."))) and plain != "_":
        return StatementPattern(text, plain, None, number)
    try:
        body = ast.parse(plain).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ScheduleError(f"{text!r} is no pattern: {error}") from None
    if len(body) != 1:
        raise ScheduleError(
            f"{text!r} is no pattern: it is one statement, such as `for i in _: _` or `x[_] = _`"
        )
    return StatementPattern(text, None, body[0], number)


def found_in(
    func: tir.PrimFunc, pattern: StatementPattern, inside: effects.Path = ()
) -> tuple[effects.Path, ...]:
    """The paths of the statements that match, in program order; those below `inside` alone.

    ScheduleError where there is none, or fewer than the number that the pattern has.
    """
    paths = [
        path
        for path, stmt in _statements(func.body, ())
        if len(path) > len(inside) and _begins(path, inside) and pattern.matches(stmt)
    ]
    if pattern.number is not None:
        if pattern.number >= len(paths):
            raise ScheduleError(
                f"{pattern.text!r} matches {len(paths)} statements of {func.name}, counted from 0"
            )
        return (paths[pattern.number],)
    if not paths:
        heads = dict.fromkeys(tir.head_text(stmt) for _, stmt in _statements(func.body, ()))
        lines = "".join(f"\n    {head}" for head in heads)
        raise ScheduleError(f"nothing in {func.name} matches {pattern.text!r}; it has{lines}")
    return tuple(paths)


def _begins(path: effects.Path, start: effects.Path) -> bool:
    """Whether a path leads through the statement at another one."""
    here = tuple(position for position, _ in path[: len(start)])
    return here == tuple(position for position, _ in start)


def _statements(body: tir.Body, around: effects.Path) -> Iterator[tuple[effects.Path, tir.Stmt]]:
    """The statements that are written in a body, with their paths, parents before children."""
    for position, stmt in enumerate(body):
        yield (*around, (position, False)), stmt
        match stmt:
            case tir.For() | tir.Block() | tir.NamedWindow():
                yield from _statements(stmt.body, (*around, (position, False)))
            case tir.If():
                yield from _statements(stmt.then, (*around, (position, False)))
                yield from _statements(stmt.orelse, (*around, (position, True)))
            case tir.Let():  # it performs its allocation and its store first
                for path, inner in _statements(stmt.body, ()):
                    first, otherwise = path[0]
                    moved = ((first + 2, otherwise), *path[1:])
                    yield (*around, (position, False), *moved), inner
            case _:
                pass


# Matching -----------------------------------------------------------------------------------------


def _is_like(pattern: ast.stmt, stmt: tir.Stmt) -> bool:
    if isinstance(pattern, ast.Expr) and _is_hole(pattern.value):
        return True
    head = tir.head_text(stmt)
    (own,) = ast.parse(f"{head} pass" if head.endswith(":") else head).body
    if isinstance(pattern, ast.AnnAssign):  # `t: _`, as Exo writes an allocation
        wanted = pattern.target
        return isinstance(stmt, tir.Allocate) and isinstance(own, ast.Assign) and (
            _same(wanted, own.targets[0]) and _same(pattern.annotation, own.value)
        )  # fmt: skip
    if (
        isinstance(pattern, ast.Assign)
        and _is_hole(pattern.value)
        and isinstance(stmt, tir.Allocate)
    ):
        return False  # `t = _` is a store
    if type(pattern) is not type(own):
        return False
    for field in own._fields:
        if field in ("body", "orelse", "type_comment", "type_ignores"):
            continue
        if not _alike(getattr(pattern, field, None), getattr(own, field, None)):
            return False
    return _bodies_like(pattern, stmt)


def _bodies_like(pattern: ast.stmt, stmt: tir.Stmt) -> bool:
    below = getattr(pattern, "body", None)
    if below is None:
        return True
    own = stmt.then if isinstance(stmt, tir.If) else getattr(stmt, "body", ())
    orelse = stmt.orelse if isinstance(stmt, tir.If) else ()
    otherwise: Sequence[ast.stmt] = getattr(pattern, "orelse", ())
    return _statements_like(below, own) and (not otherwise or _statements_like(otherwise, orelse))


def _statements_like(patterns: Sequence[ast.stmt], body: tir.Body) -> bool:
    """Whether a body is like a sequence of patterns; `_` at its end stands for any statements."""
    last = patterns[-1]
    if isinstance(last, ast.Expr) and _is_hole(last.value):
        patterns, body = patterns[:-1], body[: len(patterns) - 1]
    return len(patterns) == len(body) and all(map(_is_like, patterns, body))


def _alike(pattern: object, own: object) -> bool:
    if isinstance(pattern, ast.expr) and isinstance(own, ast.expr):
        return _same(pattern, own)
    if isinstance(pattern, list) and isinstance(own, list):
        return len(pattern) == len(own) and all(map(_alike, pattern, own))
    if isinstance(pattern, ast.AST) and isinstance(own, ast.AST):
        fields = own._fields
        return type(pattern) is type(own) and all(
            _alike(getattr(pattern, field, None), getattr(own, field, None)) for field in fields
        )
    return pattern == own


def _same(pattern: ast.expr, own: ast.expr) -> bool:
    """Whether an expression of a kernel's text is like one of a pattern."""
    match pattern, own:
        case _ if _is_hole(pattern):
            return True
        case ast.Name(), ast.Subscript(value=value, slice=ast.Tuple(elts=[])):
            return _same(pattern, value)  # `x = _` for an element without axes, x[()]
        case ast.Call(args=[only], keywords=[]), ast.Call() if _is_hole(only):
            return _same(pattern.func, own.func)
        case ast.Subscript(), ast.Subscript() if _is_hole(pattern.slice):
            return _same(pattern.value, own.value)
    normal = _normal(pattern)
    if normal is not None:
        return normal == _normal(own)
    return type(pattern) is type(own) and all(
        _alike(getattr(pattern, field, None), getattr(own, field, None))
        for field in own._fields
        if field not in ("ctx", "kind")
    )


def _normal(node: ast.expr) -> str | None:
    """An index or a predicate on indices in normal form; None for others, and with holes."""
    if any(isinstance(inner, ast.expr) and _is_hole(inner) for inner in ast.walk(node)):
        return None
    for parse in (tir.parse_index, tir.parse_predicate):
        try:
            return str(parse(ast.unparse(node)))
        except ParseError:
            continue
    return None


def _is_hole(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "_"
