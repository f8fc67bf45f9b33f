"""A schedule as Python source that makes it again.

In: a schedule.  Out: the source of `def schedule(func)`, which applies each step to a kernel equal
to the definition.  A place of the definition is called by its name; one that a step made is a
variable with its handle, so that the script still works where a name in it is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from graphflow import tir
from graphflow.schedule.steps.base_schedule import BaseSchedule
from graphflow.schedule.steps.frame import Refusal, ScheduleStep, proof_text
from graphflow.schedule.user.python_source import Source, arguments_of, quoted

_PLACES = ("str", "str | None", "Sequence[str]")
"""How primitives annotate the names of places; names that they give are a `str` too, and new."""

Key = tuple[int, str, int]
"""A place that a step made: the number of the step, the role, and its position there."""


def script_of(schedule: BaseSchedule, proofs: bool = False) -> str:
    """The source; with `proofs`, comments give what permitted each step, and what was refused."""
    source = Source(("func", "s", "schedule"))
    for needed in (type(schedule), type(schedule.definition)):
        source.global_name(needed)
    function = _Function(source, schedule, "schedule", proofs).lines()
    parts = ["\n".join(source.imports()), *source.definitions, "\n".join(function)]
    return "\n\n\n".join(part for part in parts if part) + "\n"


@dataclass
class _Function:
    """The function that makes one schedule: `name(func)`."""

    source: Source
    schedule: BaseSchedule
    name: str
    proofs: bool = False

    def lines(self) -> list[str]:
        """The function, whose body has a line for each step, and those that name handles."""
        kind, func = type(self.schedule), type(self.schedule.definition)
        lines = [
            f"def {self.name}(func: {func.__name__}) -> {kind.__name__}:",
            f"    s = {kind.__name__}.of(func)",
        ]
        uses = list(self._uses())
        used = {key for found in uses for key in found.values()}
        variables: dict[Key, str] = {}
        for number, step in enumerate(self.schedule.steps):
            names = {text: f"s[{variables[key]}]" for text, key in uses[number].items()}
            lines.append(f"    s = s.{self._call(step, names)}")
            if self.proofs:
                lines += [f"    # {line}" for proof in step.proofs for line in _lines(str(proof))]
            for role, made in step.made.items():
                keys = [(number, role, k) for k in range(len(made))]
                here = {k: self.source.name(made[k[2]] or "") for k in keys if k in used}
                if here:
                    left = ", ".join(here.get(key, "_") for key in keys)
                    left = f"({left},)" if len(keys) == 1 else left
                    lines.append(f'    {left} = s.made["{role}"]')
                variables |= here
        if self.proofs:
            lines += [f"    # refused: {line}" for line in _refusals(self.schedule.refusals)]
        return [*lines, "    return s"]

    def _call(self, step: ScheduleStep, names: dict[str, str]) -> str:
        """A step as the call of a method, or of `apply` for what is no method of schedules."""
        primitive = step.primitive
        types = [str(p.annotation) for p in signature(primitive).parameters.values()][1:]
        kinds = dict(zip(list(signature(primitive).parameters)[1:], types, strict=True))
        given = zip(types, step.arguments, strict=False)
        parts = [self._argument(kind, value, names) for kind, value in given]
        parts += [f"{n}={self._argument(kinds.get(n, ''), v, names)}" for n, v in step.options]
        if getattr(type(self.schedule), primitive.__name__, None) is primitive:
            return f"{primitive.__name__}{arguments_of(parts)}"
        return "apply" + arguments_of([self.source.global_name(primitive), *parts])

    def _argument(self, kind: str, value: Any, names: dict[str, str]) -> str:
        match value:
            case str() if kind in _PLACES and value in names:
                return names[value]
            case tuple() | list() if kind in _PLACES:
                inside = ", ".join(self._argument(kind, v, names) for v in value)
                return f"({inside},)" if len(value) == 1 else f"({inside})"
            case BaseSchedule():
                return self._nested(value)
            case _ if _takes_text(kind) and isinstance(value, tir.EXPRESSIONS):
                return quoted(tir.expr_text(value))
            case _:
                return self.source.of(value)

    def _nested(self, schedule: BaseSchedule) -> str:
        """The call of a function that makes another schedule, on its definition."""
        kernel = self.source.kernel(schedule.definition)
        name = self.source.name(f"schedule_{schedule.definition.name}")
        function = _Function(self.source, schedule, name).lines()
        self.source.definitions.append("\n".join(function))
        return f"{name}({kernel})"

    def _uses(self) -> Iterator[dict[str, Key]]:
        """For each step the names in its arguments of places that an earlier step made."""
        now: dict[Key, str] = {}
        for number, step in enumerate(self.schedule.steps):
            given = set(_strings((step.arguments, [value for _, value in step.options])))
            yield {name: key for key, name in now.items() if name in given}
            now = dict(_forwarded(now, step))
            for role, made in step.made.items():
                for position, name in enumerate(made):
                    if name is not None:
                        now[number, role, position] = name


def _takes_text(kind: str) -> bool:
    """Whether a parameter of this annotation takes a scalar expression as its text too."""
    return kind.endswith("| str") or kind.startswith("ExprGiven")


def _forwarded(names: Mapping[Key, str], step: ScheduleStep) -> Iterator[tuple[Key, str]]:
    """The names of places after a step, without those that are gone or have become several."""
    for key, name in names.items():
        now = step.places.get(name, (name,))
        if len(now) == 1:
            yield key, now[0]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _strings(item)


def _lines(text: str) -> list[str]:
    return text.splitlines()


def _refusals(refusals: tuple[Refusal, ...]) -> Iterator[str]:
    for refusal in refusals:
        proof = f": {proof_text(refusal.proof)}" if refusal.proof else ""
        yield from _lines(f"{refusal}{proof}")
