"""What an executable says of itself: in one line, and as HTML in a notebook.

In: its models and its interface.  Out: texts, which need no compilation and start none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphflow.api.model import Models, Tensors, describe_key
from graphflow.base.notebook import folded, line, shown, table

_MOST_NAMED = 3
"""The most inputs, or outputs, that one line names."""

_MOST_PROGRAMS = 4
"""The most programs whose decisions a notebook shows."""

_COLUMNS = ("tensor", "shape", "where", "layout", "in memory", "variant", "conversions")


def one_line(models: Models, inputs: Tensors, outputs: Tensors) -> str:
    """The model, its interface and its programs, for `repr`."""
    return (
        f"<Executable {title_of(models)}: {_named(inputs)} → {_named(outputs)}; {_facts(models)}>"
    )


def as_html(models: Models, inputs: Tensors, outputs: Tensors) -> str:
    """The same as tables, with the decisions about all tensors of each program."""
    rows = [("input", tensor) for tensor in inputs] + [("output", tensor) for tensor in outputs]
    interface = table(
        ("", "name", "dtype", "shape"),
        ((kind, t.name, t.dtype, _shape(t.shape)) for kind, t in rows),
    )
    return shown(title_of(models), line(_facts(models)), interface, *_programs(models))


def _programs(models: Models) -> Iterator[str]:
    made = models.made
    for model in made[:_MOST_PROGRAMS]:
        report = model.report()
        edges = report["edges"]
        key = f" for {describe_key(model, models.deciding)}" if models.deciding else ""
        yield folded(f"the layouts of {len(edges)} tensors{key}", table(_COLUMNS, map(_row, edges)))
    if len(made) > _MOST_PROGRAMS:
        yield line(f"… and {len(made) - _MOST_PROGRAMS} more programs")


def _row(edge: Mapping[str, Any]) -> tuple[str, ...]:
    box = edge["physical_shape"]
    return (
        edge["name"],
        _shape(edge["logical_shape"]),
        edge["where"],
        edge["layout"] or "-",
        "-" if box is None else _shape(box),
        edge["variant"] or "-",
        ", ".join(made["kind"] for made in edge["conversions"]) or "-",
    )


def title_of(models: Models) -> str:
    """The model's name, and that of the target as soon as there is a program."""
    return models.made[0].title if models.made else models.interface.title


def _facts(models: Models) -> str:
    if not models.made:
        return "no program yet, runs compile them"
    threads = models.made[0].program.threads
    facts = [f"{threads} thread{'s' * (threads != 1)}"]
    count = len(models.made)
    facts += [f"{count} program{'s' * (count != 1)}"] * bool(models.deciding)
    sizes = [size for model in models.made for size in model.program.spec.sizes]
    facts += dict.fromkeys(f"one for {size.name} from {size.lo} to {size.hi}" for size in sizes)
    return ", ".join(facts)


def _named(tensors: Tensors) -> str:
    named = ", ".join(str(tensor) for tensor in tensors[:_MOST_NAMED]) or "nothing"
    more = len(tensors) - _MOST_NAMED
    return f"{named}, … and {more} more" if more > 0 else named


def _shape(shape: Sequence[int | str] | None) -> str:
    if shape is None:
        return "unknown"
    return "×".join(map(str, shape)) or "scalar"
