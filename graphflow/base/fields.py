"""Records: the names of their fields, copies with other fields, and rows of JSON.

Records are structs, and dataclasses where structs do not serve: values that change, public types,
nodes of the IR, whose comparisons leave fields out, and types with abstract methods.  Python takes
0.45 ms to create a dataclass, and 0.01 ms to create a struct.

A row has the values of the fields of a record, in their order: integers, strings, bools, tuples of
these and of other such records, or None.  What always holds: of what was read every type, length
and range is checked before a value is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from dataclasses import replace as replace_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)
from typing import get_type_hints as hints

from msgspec import Struct
from msgspec.structs import replace as replace_struct

from graphflow.base.plain import boolean, integer, listed, text

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any], Any]

Signed: TypeAlias = Annotated[int, "signed"]
"""A field that may be negative, of 64 bits; one that is an `int` may not."""


if TYPE_CHECKING:  # mypy checks the fields in calls of this name, for structs too
    from dataclasses import replace as replace
else:

    def replace(record, /, **changes):
        """A copy of a record with other values of the fields that `changes` names."""
        copied = replace_struct if isinstance(record, Struct) else replace_dataclass
        return copied(record, **changes)


def field_names(kind: Any) -> tuple[str, ...] | None:
    """The names of the fields of a struct or a dataclass, in order; None for any other type."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def row_of(value: Any) -> Any:
    """A value as JSON: a record as the list of its fields, a tuple as a list."""
    if isinstance(value, int | str | None):
        return value
    if isinstance(value, tuple | list):
        return [row_of(part) for part in value]
    return [row_of(getattr(value, name)) for name in _names(type(value))]


def of_row(kind: type[T], row: Any) -> T:
    """The value of this type that `row_of` gave the row of; TypeError or ValueError if it gave
    another one."""
    made: T = _reader(cast(Any, kind))(row)
    return made


@lru_cache(maxsize=256)
def _reader(kind: Any) -> Reader:
    """What reads a value of a type, as an annotation names it."""
    simple: dict[Any, Reader] = {int: integer, str: text, bool: boolean}
    origin, parts = get_origin(kind), get_args(kind)
    if kind in simple:
        return simple[kind]
    names = field_names(kind)
    if names is not None:
        types = hints(kind, include_extras=True)
        readers = [_reader(types[name]) for name in names]
        make: Any = kind
        return lambda row: make(*_each(readers, row))
    if origin is Annotated:
        return lambda value: integer(value, -(1 << 63))
    if origin is Literal:
        return lambda value: _chosen(value, parts)
    if origin is tuple and parts[-1] is Ellipsis:
        item = _reader(parts[0])
        return lambda row: tuple(map(item, listed(row)))
    if origin is tuple:
        items = [_reader(part) for part in parts]
        return lambda row: tuple(_each(items, row))
    if origin in (Union, UnionType) and NoneType in parts:
        only = _reader(parts[0])
        return lambda value: None if value is None else only(value)
    if origin in (Union, UnionType):  # of records, which differ in the number of their fields
        of_length = {len(_names(part)): _reader(part) for part in parts}
        return lambda row: of_length[len(listed(row))](row)
    raise TypeError(f"{kind} is no type of a field in rows")


def _names(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a record; TypeError for any other type."""
    names = field_names(kind)
    if names is None:
        raise TypeError(f"{kind} has no fields")
    return names


def _each(readers: Sequence[Reader], row: Any) -> Iterator[Any]:
    """The values of a list, each by its own reader."""
    for reader, value in zip(readers, listed(row, len(readers)), strict=True):
        yield reader(value)


def _chosen(value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise ValueError(f"{value!r:.60} is none of {', '.join(map(str, known))}")
    return value
