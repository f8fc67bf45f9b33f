"""Opening of sections: the only place that imports onnxruntime, and only if a program has a
section.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from graphflow.foreign.section import Section


class RunnableSection(Protocol):
    """A section that is ready to run."""

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs and outgoing objects by name; GraphflowError if the section fails."""


def open_section(section: Section, threads: int) -> RunnableSection:
    """A session for the section; UnsupportedOp if onnxruntime refuses it."""
    session: RunnableSection = import_module("graphflow.foreign.session").Session(section, threads)
    return session
