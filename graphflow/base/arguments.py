"""Type checks of the arguments of `graphflow.compile`, made before anything else.

In: arguments of any type.  Out: nothing, or the options that they state; or a TypeError that names
the argument, the value that was given and what to give instead.  Values of the right type are
checked where they are used.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from types import FrameType
from typing import Any, TypeAlias

from graphflow.base.fields import replace
from graphflow.base.options import Options, is_index
from graphflow.base.target import Target

Shapes: TypeAlias = "Mapping[str, Sequence[int]]"
"""The extents of inputs, by name."""


def chosen_options(options: Options | None, threads: int | None) -> Options:
    """The options given, or those of the environment; with `threads`, unless that is None."""
    if threads is not None and not is_index(threads):
        raise TypeError(f"threads is {threads!r}; give a number of threads, or None for all")
    if options is None:
        options = Options.from_environment()
    elif not isinstance(options, Options):
        raise TypeError(f"options is of type {_kind(options)}; give a graphflow.Options")
    return options if threads is None else replace(options, threads=threads)


def caller_level() -> int:
    """The `stacklevel` of a warning in the function that asks, for the code that called this
    package."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _package_of(frame) == package:
        level, frame = level + 1, frame.f_back
    return level


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def check_arguments(
    *,
    input_shapes: Any,
    layouts: Any,
    assume: Any,
    overridable: Any,
    operators: Any,
    target: Any,
    **functions: Any,
) -> None:
    """TypeError for the first argument of a type that `graphflow.compile` does not accept.

    `functions` are those that are called if they are not None.
    """
    _check_names("input_shapes", input_shapes, "{name: (extents…)}")
    for name, shape in input_shapes.items():
        if not _is_shape(shape):
            raise TypeError(
                f"input_shapes gives {shape!r} for {name}; give its extents, a sequence of integers"
            )
    _check_names("layouts", layouts, '{name: "NHWC"}')
    _check_names("assume", assume, '{name: "finite"}')
    if isinstance(overridable, str) or not isinstance(overridable, Collection):
        raise TypeError(f"overridable is {overridable!r}; give a list of names of graph inputs")
    _check_each_name("overridable", overridable)
    if operators is not None:
        _check_names("operators", operators, '{"com.example.Twice": function}', "operators")
        functions |= {f"operators[{name!r}]": emit for name, emit in operators.items()}
    if not isinstance(target, Target):
        raise TypeError(f"target is of type {_kind(target)}; give a graphflow.Target or a name")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} is of type {_kind(function)}; give a function")


def _check_names(what: str, value: Any, example: str, named: str = "tensors") -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} is of type {_kind(value)}; give a mapping such as {example}")
    _check_each_name(what, value, named)


def _check_each_name(what: str, names: Collection[Any], named: str = "tensors") -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what} names {name!r}, which is not a string; give names of {named}")


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, Collection)
        and not isinstance(value, str | bytes)
        and all(is_index(extent) for extent in value)
    )


def _kind(value: Any) -> str:
    return type(value).__name__
