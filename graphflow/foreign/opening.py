"""Opening of sections: the only place that imports onnxruntime, and only if a program has a
section.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from graphflow.foreign.section import Section


class Runs(Protocol):
    """A section that is ready to run."""

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs and outgoing objects by name; GraphflowError where that fails."""


def open_section(section: Section, threads: int) -> Runs:
    """A session of the section; UnsupportedOp where onnxruntime cannot run it either."""
    session: Runs = import_module("graphflow.foreign.session").Session(section, threads)
    return session
