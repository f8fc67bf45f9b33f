"""Arguments of steps as people write them: expressions as text, and whether values are of a type.

In: an argument of a primitive, and the kernel that it is applied to.  Out: the expression that it
stands for, in the normal form that kernels have: `x[10 - i]` is `x[-i + 10]`.  What always holds:
what cannot be read is a ScheduleError that names the text and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from inspect import signature
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from graphflow import arith, tir
from graphflow.base.errors import ParseError, ScheduleError

IndexGiven: TypeAlias = arith.IndexExpr | int | str
"""An index expression, or its text."""

ExprGiven: TypeAlias = tir.Expr | str
"""A scalar expression, or its text; some primitives take the name of a buffer too."""

Term: TypeAlias = tir.Expr | arith.IndexExpr | arith.Predicate
"""A scalar expression, an index, or a condition on indices."""

Read = TypeVar("Read")


# Text ---------------------------------------------------------------------------------------------


def index_of(value: IndexGiven) -> arith.IndexExpr:
    """The index expression that an argument stands for."""
    return _read(tir.parse_index, value) if isinstance(value, str) else arith.as_index(value)


def predicate_of(value: arith.Predicate | str) -> arith.Predicate:
    """The index predicate that an argument stands for."""
    return _read(tir.parse_predicate, value) if isinstance(value, str) else value


def condition_of(func: tir.PrimFunc, value: tir.Condition | str) -> tir.Condition:
    """The condition that an argument stands for: on indices, or `data(…)`."""
    if not isinstance(value, str):
        return value
    return _read(lambda text: tir.parse_condition(text, _buffers(func)), value)


def value_of(func: tir.PrimFunc, value: ExprGiven) -> tir.Expr:
    """The scalar expression over the buffers of a kernel that an argument stands for."""
    if not isinstance(value, str):
        return value
    return _read(lambda text: tir.parse_expression(text, _buffers(func)), value)


def value_or_buffer(func: tir.PrimFunc, value: ExprGiven) -> ExprGiven:
    """As `value_of`; the name of a buffer stays as it is."""
    return value if names_buffer(func, value) else value_of(func, value)


def names_buffer(func: tir.PrimFunc, value: object) -> bool:
    """Whether an argument is the name of a buffer that the kernel has."""
    return isinstance(value, str) and any(value == buffer.name for buffer in _buffers(func))


def term_of(func: tir.PrimFunc, value: Term | str) -> Term:
    """The scalar expression, index or predicate that an argument stands for.

    No text is two of these: loop variables stand in no scalar expression but inside brackets.
    """
    if not isinstance(value, str):
        return value
    failures = []
    for read in (
        lambda text: tir.parse_expression(text, _buffers(func)),
        tir.parse_index,
        tir.parse_predicate,
    ):
        try:
            return cast(Callable[[str], Term], read)(value)
        except ParseError as error:
            failures.append(_reason(error))
    raise ScheduleError(
        f"{value!r} is no scalar expression ({failures[0]}), no index ({failures[1]}) and no "
        f"condition on indices ({failures[2]})"
    )


def _buffers(func: tir.PrimFunc) -> Iterator[tir.Buffer]:
    """The buffers, names of values and windows, and fields that a kernel has."""
    yield from (param.buffer for param in func.params)
    for stmt in tir.statements_as_written(func.body):
        if isinstance(stmt, tir.Allocate | tir.NamedWindow):
            yield stmt.buffer
    yield from tir.fields_of(func)


def _read(parse: Callable[[str], Read], text: str) -> Read:
    try:
        return parse(text)
    except ParseError as error:
        raise ScheduleError(f"{text!r} cannot be read: {_reason(error)}") from None


def _reason(error: ParseError) -> str:
    return str(error).splitlines()[0]


# Types --------------------------------------------------------------------------------------------


def require_arguments(
    primitive: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """ScheduleError unless a primitive takes these arguments behind the kernel, by its
    annotations."""
    parameters, hints, positional = _signature(primitive)
    if not options and len(arguments) == len(positional):  # `bind` takes ten times as long
        given = dict(zip(positional, arguments, strict=True))
    else:
        try:
            bound = parameters.bind(None, *arguments, **options).arguments
        except TypeError as error:
            raise ScheduleError(f"{primitive.__name__}{_shown(parameters)}: {error}") from None
        given = dict([*bound.items()][1:])
    for name, value in given.items():
        hint = hints.get(name, Any)
        if type(value) is not hint and not _fits(value, hint):
            words = parameters.parameters[name].annotation
            if get_origin(hint) is Literal:
                words = f"one of {', '.join(map(repr, get_args(hint)))}"
            raise ScheduleError(f"{name} is {value!r}, and {primitive.__name__} takes {words}")


@cache
def _signature(primitive: Callable[..., Any]) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """The signature, the types by parameter, and the names behind the kernel's where all may be
    given by position."""
    found = signature(primitive)
    plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in found.parameters.values())
    return found, get_type_hints(primitive), (*found.parameters,)[1:] if plain else ()


def _shown(parameters: Any) -> str:
    return f"({', '.join(list(parameters.parameters)[1:])})"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; what functions take is not looked into."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inside)
    if origin is tuple and inside[-1] is not Ellipsis:
        same = isinstance(value, tuple) and len(value) == len(inside)
        return same and all(map(_fits, value, inside))
    if origin is tuple or origin is Sequence:
        return isinstance(value, tuple) and all(_fits(one, inside[0]) for one in value)
    if origin is not None:
        return isinstance(value, origin)
    if hint is None or hint is NoneType:
        return value is None
    if isinstance(value, bool):  # which is an integer to Python
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)
