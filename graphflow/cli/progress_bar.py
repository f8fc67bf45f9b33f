"""The progress bar that commands show on stderr while a model is compiled or tuned.

In: the name of each stage as it begins, and how many kernels it has made.  Out: one line on an
interactive terminal, and nothing elsewhere.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class ProgressBar:
    """One line: the current stage, and how many of its kernels are done; restarts at each stage."""

    def __init__(self, what: str) -> None:
        self._what = what
        console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_interactive,
        )
        self._task = self._begin(what)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, name: str) -> None:
        """Show that the stage `name` begins."""
        self._progress.remove_task(self._task)
        self._task = self._begin(f"{self._what}: {name}")

    def count(self, done: int, total: int) -> None:
        """Show that the current stage has made `done` of `total` kernels."""
        count = f"{done}/{total} kernels"
        self._progress.update(self._task, completed=done, total=total, count=count)

    def _begin(self, text: str) -> TaskID:
        return self._progress.add_task(text, total=None, count="")
