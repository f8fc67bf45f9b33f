"""What a refusal of a primitive is tested by: a kernel that fails one clause of its condition."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from graphflow.base.errors import ScheduleError
from graphflow.tir import PrimFunc

_NUMBERED = re.compile(r"^(\d)\. ", re.MULTILINE)
_NAMED = re.compile(r"\*(\w+)\*")


@dataclass(frozen=True)
class Refusal:
    """A kernel on which a primitive refuses by one clause of its condition."""

    primitive: Callable[..., Any]
    clause: str
    """Its number or name in the docstring; empty where that has none."""
    kernel: Callable[[], PrimFunc]
    apply: Callable[[PrimFunc], Any]
    message: str
    """What the refusal says, as a regular expression; the clause, and what fails it."""
    witness: str
    """The index or iteration that it shows, as a regular expression; empty for a clause about the
    form of the kernel, which has none."""

    @property
    def name(self) -> str:
        return f"{self.primitive.__name__} {self.clause}: {self.message}"

    def text(self) -> str:
        """What the refusal says; AssertionError where the step is not refused."""
        func = self.kernel()
        try:
            self.apply(func)
        except ScheduleError as error:
            return str(error).splitlines()[0]
        raise AssertionError(f"{self.name}: not refused")


def clauses(primitive: Callable[..., Any]) -> tuple[str, ...]:
    """The clauses of a primitive's condition, as its docstring numbers or names them."""
    text = getdoc(primitive) or ""
    return tuple(dict.fromkeys(_NUMBERED.findall(text) or _NAMED.findall(text)))
