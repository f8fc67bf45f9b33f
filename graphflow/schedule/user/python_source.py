"""Python source of the values that steps of a schedule are given.

In: numbers, names, index expressions, conditions, layouts, kernels, and nodes of the kernel IR.
Out: source that makes an equal value, and the imports and constants that it uses.  What always
holds: the source of a layout makes the same index map with the same inverse; a kernel is written as
its text, once, under its name.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from inspect import Parameter, signature
from keyword import iskeyword
from math import isfinite
from typing import Any

import numpy as np

from graphflow import arith, tir
from graphflow.base.errors import ParseError, ScheduleError
from graphflow.base.fields import field_names
from graphflow.layout import IndexMap, Layout, blocked, channels_last, row_major
from graphflow.schedule.places.place_names import fresh_name

_WORD = re.compile(r"[A-Za-z_][\w.]*\(?")


class Source:
    """The imports, the constants and the names of a script that is being written."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._imports: dict[str, set[str]] = {}
        self._names = {*reserved, *dir(builtins)}
        self._kernels: dict[tir.PrimFunc, str] = {}
        self.definitions: list[str] = []

    def imports(self) -> list[str]:
        """One line for each module, in the order of their names."""
        return [
            f"from {module} import {', '.join(sorted(self._imports[module]))}"
            for module in sorted(self._imports)
        ]

    def name(self, wanted: str) -> str:
        """A name of the script that nothing else has, called after a place or a kernel."""
        plain = re.sub(r"\W", "_", wanted)
        unused = fresh_name(plain, lambda n: n in self._names or iskeyword(n))
        self._names.add(unused)
        return unused

    def global_name(self, thing: Any) -> str:
        """The name of a class or a function of a module, which is imported.

        ScheduleError where it has none, as a function inside another one has.
        """
        name, module = thing.__name__, thing.__module__
        if getattr(sys.modules.get(module), name, None) is not thing:
            raise ScheduleError(
                f"{thing.__qualname__} of {module} has no name that can be imported"
            )
        exporters = (
            p for p in _packages(module) if getattr(sys.modules.get(p), name, None) is thing
        )
        self._imports.setdefault(next(exporters, module), set()).add(name)
        self._names.add(name)
        return str(name)

    def of(self, value: Any) -> str:
        """Source that makes this value; ScheduleError where there is none."""
        match value:
            case np.generic():
                return self.of(value.item())
            case float() if not isfinite(value):
                return f'float("{value}")'
            case str():
                return quoted(value)
            case None | bool() | int() | float():
                return repr(value)
            case Enum():
                return f"{self.global_name(type(value))}.{value.name}"
            case tuple():
                inside = ", ".join(map(self.of, value))
                return f"({inside},)" if len(value) == 1 else f"({inside})"
            case list():
                return f"[{', '.join(map(self.of, value))}]"
            case arith.IndexExpr():
                return self._index(value)
            case Layout():
                return self._layout(value)
            case tir.PrimFunc():
                return self.kernel(value)
            case _ if isinstance(value, arith.Predicate):
                return self._predicate(value)
            case _ if field_names(type(value)) is not None:
                return self._fields(value)
            case _:
                raise ScheduleError(f"a {type(value).__name__} has no Python source: {value!r}")

    def kernel(self, func: tir.PrimFunc) -> str:
        """The name under which the script has a kernel, which it parses from its text."""
        if func not in self._kernels:
            text = tir.to_text(func)
            if tir.parse(text) != func:
                raise ScheduleError(f"the text of {func.name} does not parse to the same kernel")
            self._kernels[func] = self.name(func.name)
            plain = "\\" not in text and '"""' not in text
            literal = f'"""\n{text.strip()}\n"""' if plain else repr(text)
            parsed = f"{self.global_name(tir.parse)}({literal})"
            self.definitions.append(f"{self._kernels[func]} = {parsed}")
        return self._kernels[func]

    def _index(self, value: arith.IndexExpr) -> str:
        if isinstance(value, arith.Const):
            return f"{self.global_name(arith.const)}({value.value})"
        return self._words(str(value), lambda name: f'{self.global_name(arith.Var)}("{name}")')

    def _words(self, text: str, variable: Callable[[str], str]) -> str:
        """The text of an index expression as Python, which has `min` and `max` of numbers alone."""

        def word(match: re.Match[str]) -> str:
            name = match[0]
            if not name.endswith("("):
                return variable(name)
            self._imports.setdefault("graphflow.arith", set()).add(f"{name[:-1]}imum")
            return f"{name[:-1]}imum("

        return _WORD.sub(word, text)

    def _predicate(self, value: arith.Predicate) -> str:
        """The predicate as text, unless another one has the same."""
        try:
            parsed: arith.Predicate | None = tir.parse_predicate(str(value))
        except ParseError:
            parsed = None
        if parsed != value:
            return self._fields(value)
        return f"{self.global_name(tir.parse_predicate)}({quoted(str(value))})"

    def _fields(self, value: Any) -> str:
        """The constructor with the fields, without those at the end that have their defaults."""
        given = [*signature(type(value)).parameters.values()]
        while given and given[-1].default is not Parameter.empty:
            if getattr(value, given[-1].name) != given[-1].default:
                break
            given.pop()
        inside = ", ".join(self.of(getattr(value, each.name)) for each in given)
        return f"{self.global_name(type(value))}({inside})"

    # Layouts ----------------------------------------------------------------------------------

    def _layout(self, layout: Layout) -> str:
        """The layout by its common name, else by its map as a function, else by its inverse."""
        for function, arguments in _named_layouts(layout):
            if _same(function(*arguments), layout):
                return f"{self.global_name(function)}{self.of(arguments)}"
        shape, rank = layout.logical_shape, len(layout.logical_shape)
        index_map = layout.index_map
        text = self._map_text(index_map)
        try:
            from_text: IndexMap | None = IndexMap.from_function(
                rank, lambda *i: index_map.apply(i), shape
            )
        except ScheduleError:
            from_text = None
        if from_text is not None and _same_map(from_text, index_map):
            if _same(Layout.of(from_text, shape), layout):
                return text
            text = f"{self.global_name(IndexMap)}.from_function({rank}, {text}, {self.of(shape)})"
        else:
            text = self._fields(index_map)
        arguments = (shape, layout.physical_shape)
        rest = f", {self.of(layout.separators)}" if layout.separators else ""
        inside = ", ".join((text, *map(self.of, arguments)))
        return f"{self.global_name(Layout)}.of({inside}{rest})"

    def _map_text(self, index_map: IndexMap) -> str:
        """`lambda i0, i1: (i0 // 4, i1)`: the logical indices to the physical ones."""
        outputs = [self._words(str(e), str) for e in index_map.outputs]
        inside = f"({', '.join(outputs)}{',' if len(outputs) == 1 else ''})"
        return f"lambda {', '.join(map(str, index_map.inputs))}: {inside}"


def _named_layouts(
    layout: Layout,
) -> list[tuple[Callable[..., Layout], tuple[Any, ...]]]:
    """Functions that make common layouts, with arguments of which one may give this one."""
    shape = layout.logical_shape
    constructions: list[tuple[Callable[..., Layout], tuple[Any, ...]]] = [(row_major, (shape,))]
    if len(shape) >= 3:
        constructions.append((channels_last, (shape,)))
    if len(layout.physical_shape) == len(shape) + 1:
        width = layout.physical_shape[-1]
        constructions += [(blocked, (shape, axis, width)) for axis in range(len(shape))]
    return constructions


def _same(one: Layout, other: Layout) -> bool:
    return (
        one.physical_shape == other.physical_shape
        and one.separators == other.separators
        and _same_map(one.index_map, other.index_map)
    )


def _same_map(one: IndexMap, other: IndexMap) -> bool:
    """Whether maps and inverses are equal; those that compare equal may have other inverses."""
    return one == other and one.inverse == other.inverse


def _packages(module: str) -> Iterator[str]:
    """The packages around a module, from the innermost one: `a.b` and `a` for `a.b.c`."""
    while module := module.rpartition(".")[0]:
        yield module


def quoted(text: str) -> str:
    """A string in double quotes."""
    return '"' + repr("'" + text)[2:-1].replace('"', '\\"') + '"'


def arguments_of(parts: Sequence[str]) -> str:
    """Arguments in parentheses: on one line, or one a line where that would be long."""
    line = ", ".join(parts)
    if len(line) <= 72 and "\n" not in line:
        return f"({line})"
    return "(\n" + "".join(f"        {part},\n" for part in parts) + "    )"
