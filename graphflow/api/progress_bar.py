"""The progress bar of a long compilation or tuning, in a terminal and in a notebook.

In: the name of each stage as it begins, and how many kernels it has made.  Out: one line on an
interactive terminal (on stderr) or below a cell, which disappears at the end; nothing elsewhere, so
that logs and pipes have none of it.
"""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

LEAST_BETWEEN = 0.1
"""Seconds between two changes of a notebook's line while kernels are counted."""


class _Line(Protocol):
    """Where the line is shown."""

    def begin(self) -> None:
        """Show the line."""

    def stage(self, text: str) -> None:
        """Show a stage of which nothing is done."""

    def count(self, done: int, total: int) -> None:
        """Show how much of the stage is done."""

    def end(self) -> None:
        """Remove the line."""


class ProgressBar:
    """One line: the current stage, and how many of its kernels are done; restarts at each stage.

        with gf.ProgressBar("compiling") as bar:
            exe = gf.compile(model, progress=bar.stage, counting=bar.count)

    It is silent where nobody looks: when stderr is no terminal, outside of a notebook.
    """

    def __init__(self, what: str, console: Console | None = None) -> None:
        self._what = what
        console = Console(stderr=True) if console is None else console
        display = _notebook_display() if console.is_jupyter else None
        self._line: _Line = (
            _TerminalLine(what, console) if display is None else _NotebookLine(what, display)
        )

    def __enter__(self) -> ProgressBar:
        self._line.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._line.end()

    def stage(self, name: str) -> None:
        """Show that the stage `name` begins."""
        self._line.stage(f"{self._what}: {name}")

    def count(self, done: int, total: int) -> None:
        """Show that the current stage has made `done` of `total` kernels."""
        self._line.count(done, total)


def _notebook_display() -> Any:
    """IPython's module with `display` and `HTML`, which a notebook has imported; else None."""
    return sys.modules.get("IPython.display")


class _TerminalLine:
    """A line of rich, which shows nothing on a console that is not interactive."""

    def __init__(self, text: str, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_interactive or console.is_jupyter,
        )
        self._task = self._begin(text)

    def begin(self) -> None:
        self._progress.start()

    def stage(self, text: str) -> None:
        self._progress.remove_task(self._task)
        self._task = self._begin(text)

    def count(self, done: int, total: int) -> None:
        count = f"{done}/{total} kernels"
        # Rich draws ten times a second: a stage that is shorter would end without its last count.
        self._progress.update(
            self._task, completed=done, total=total, count=count, refresh=done >= total
        )

    def end(self) -> None:
        self._progress.stop()

    def _begin(self, text: str) -> TaskID:
        return self._progress.add_task(text, total=None, count="")


class _NotebookLine:
    """An output of a cell with the HTML element for progress, which every browser draws."""

    def __init__(self, text: str, display: Any) -> None:
        self._display, self._text = display, text
        self._handle: Any = None
        self._started = self._changed = time.monotonic()

    def begin(self) -> None:
        self._handle = self._display.display(self._html("<progress></progress>"), display_id=True)

    def stage(self, text: str) -> None:
        self._text = text
        self._show("<progress></progress>")

    def count(self, done: int, total: int) -> None:
        if done >= total or time.monotonic() - self._changed >= LEAST_BETWEEN:
            bar = f'<progress value="{done}" max="{total}"></progress>'
            self._show(f"{bar} {done}/{total} kernels")

    def end(self) -> None:
        if self._handle is not None:
            self._handle.update(self._display.HTML(""))

    def _show(self, bar: str) -> None:
        self._changed = time.monotonic()
        if self._handle is not None:
            self._handle.update(self._html(bar))

    def _html(self, bar: str) -> Any:
        seconds = time.monotonic() - self._started
        return self._display.HTML(f"{escape(self._text)} {bar} {seconds:.0f} s")
