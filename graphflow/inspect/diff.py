"""Differences between two reports.

In: two reports as `graphflow inspect --json` prints them, as plain values or files.  Out:
`Change`s, each with the value before and after, in the order of the reports.  What always holds: a
report does not differ from itself.  Names of models and targets, and reasons, are not compared:
they do not say what was decided.  Numbers are compared to six digits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from graphflow.base.errors import InvalidModel

EDGE_FIELDS = ("dtype", "logical_shape", "where", "layout", "variant")
TOTALS = ("seconds", "unpinned_seconds", "gap")


class Change(Struct, frozen=True):
    """One difference; `before` or `after` is None where the thing is in one of the reports only.

    `kind` is `tensor` (present or not), a field of an edge, `padding`, `conversion`, `cancelled`,
    `refused`, `pinned`, `assumed` or `summary`; `name` is the tensor, or the number in the summary.
    """

    kind: str
    name: str
    before: str | None
    after: str | None


class _Compared(Struct, frozen=True):
    """The parts of a report that are compared.

    `edges` has texts by tensor and field, `found` counts equal texts by kind and tensor, and
    `numbers` are those of the summary and the totals.
    """

    edges: Mapping[str, Mapping[str, str]]
    found: Mapping[tuple[str, str], Counter[str]]
    numbers: Mapping[str, str]


def read_report(path: str | Path) -> dict[str, Any]:
    """The report in a file.  Raises InvalidModel where the file cannot be read or holds something
    else.
    """
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidModel(f"cannot read the report {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidModel(
            f"{path} is not JSON ({error}); write it with `graphflow inspect MODEL --json`"
        ) from None
    _compared(report, str(path))
    found: dict[str, Any] = report
    return found


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """The differences between two reports.  Raises InvalidModel where one of them is not a
    report.
    """
    return tuple(_changes(_compared(before, "the first"), _compared(after, "the second")))


def _changes(before: _Compared, after: _Compared) -> Iterator[Change]:
    for name in {**before.edges, **after.edges}:
        old, new = before.edges.get(name), after.edges.get(name)
        if old is None or new is None:
            yield Change("tensor", name, _there(old), _there(new))
        else:
            yield from (Change(k, name, old[k], new[k]) for k in old if old[k] != new[k])
    for kind, name in {**before.found, **after.found}:
        was, now = (side.found.get((kind, name), Counter()) for side in (before, after))
        gone, added = [*(was - now).elements()], [*(now - was).elements()]
        yield from (Change(kind, name, text, None) for text in gone)
        yield from (Change(kind, name, None, text) for text in added)
    for name in {**before.numbers, **after.numbers}:
        old_number, new_number = before.numbers.get(name), after.numbers.get(name)
        if old_number != new_number:
            yield Change("summary", name, old_number, new_number)


def _there(edge: Mapping[str, str] | None) -> str | None:
    return None if edge is None else f"{edge['where']}, {edge['layout']}"


def _compared(report: Any, name: str) -> _Compared:
    """The compared parts of a report.  Raises InvalidModel where one is missing or has another
    type.
    """
    try:
        edges = {str(edge["name"]): _edge(edge) for edge in report["edges"]}
        if len(edges) < len(report["edges"]):
            raise TypeError("two edges have one name")
        found: dict[tuple[str, str], Counter[str]] = {}
        for kind, edge, text in _records(report):
            found.setdefault((kind, str(edge)), Counter())[text] += 1
        numbers = {key: _text(value) for key, value in report["summary"].items()}
        numbers |= {key: _text(report[key]) for key in TOTALS if key in report}
    except (KeyError, TypeError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidModel(
            f"{name} is no report: {what}; a report is what `graphflow inspect MODEL --json` "
            "prints, without --edge"
        ) from None
    return _Compared(edges, found, numbers)


def _edge(edge: Mapping[str, Any]) -> dict[str, str]:
    facts = (f"{r['region']} = {r['fact']}" for r in edge["regions"])
    texts = {field: _text(edge[field]) for field in EDGE_FIELDS}
    return {**texts, "padding": "; ".join(facts) or "-"}


def _records(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What an edge can have several of: the kind, the edge, and the record as one text."""
    for edge in report["edges"]:
        for made in edge["conversions"]:
            text = f"{made['kind']} for {made['consumer']}, {made['bytes']} bytes"
            yield "conversion", edge["name"], text
    for gone in report["cancelled"]:
        yield "cancelled", gone["edge"], str(gone["proof"])
    for kept in report["refused"]:
        yield "refused", kept["edge"], f"{kept['reason']}; instead {kept['repair']}"
    for pin in report.get("pinned", ()):
        yield "pinned", pin["edge"], f"{pin['layout']}, costs {_text(pin['cost'])}"
    for said in report.get("assumed", ()):
        uses = ", ".join(f"{use['node']}: {use['fact']}" for use in said["used_by"])
        yield "assumed", said["tensor"], f"{said['assumption']}, used by {uses or 'none'}"


def _text(value: Any) -> str:
    """A value as short text: extents with `×`, numbers to six digits, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return "×".join(map(str, value)) or "scalar"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
