"""The trace of one compilation: it prints, dumps and times what the stages do.

In: names and texts; nothing here knows the IR. Out: lines on a stream by debug level, files in the
dump folder, and the times.  What always holds: a text given as a function is made only if it is
printed or dumped, and times are kept even if nothing is printed.

    DIR/04-flow.txt                    the graph or the plan after stage 4
    DIR/kernels/SYMBOL.KIND.txt        one text of a kernel: definition, schedule, tir, ll, s
    DIR/timings.json                   seconds by stage, and by step and kernel; notices
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeAlias

from graphflow.base.errors import GraphflowError
from graphflow.base.options import Options

Text: TypeAlias = "str | Callable[[], str]"
Times: TypeAlias = dict[str, dict[str, float]]
"""Seconds by step, then by the item that was timed."""

STAGES_LEVEL = 1
CHANGES_LEVEL = 2
PLAN_LEVEL = 3
LLVM_LEVEL = 4


class Trace:
    """Collects the events of one compilation.

    `progress`, if given, is called with the name of each stage when it begins, `counting` with the
    number of kernels that a stage has made and the number that it will make.
    """

    def __init__(
        self,
        options: Options,
        stream: TextIO | None = None,
        progress: Callable[[str], None] | None = None,
        counting: Callable[[int, int], None] | None = None,
    ) -> None:
        self._level = options.debug
        self._stream = stream
        self._progress = progress
        self._counting = counting
        self._folder = _dump_folder(options.dump)
        self._stages: dict[str, float] = {}
        self._steps: Times = {}
        self._notices: list[str] = []
        self._numbers: dict[str, int] = {}

    @property
    def dumps(self) -> bool:
        """Whether texts are written to files, so that callers have to make them."""
        return self._folder is not None

    def wants(self, level: int) -> bool:
        """Whether an event of this debug level is printed."""
        return self._level >= level

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage of the compiler; its number is its place among the stages begun so far."""
        self._numbers.setdefault(name, len(self._numbers) + 1)
        if self._progress is not None:
            self._progress(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self._stages[name] = self._stages.get(name, 0.0) + seconds
            self._print(STAGES_LEVEL, f"{self._title(name)}: {seconds:.3f} s")

    @contextmanager
    def timer(self, step: str, key: str) -> Iterator[None]:
        """Time one step of one item, such as the schedule of a kernel; times of an equal pair add
        up."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add({step: {key: time.perf_counter() - start}})

    def add(self, times: Times) -> None:
        """Add the times of another trace, such as that of a worker process."""
        for step, seconds in times.items():
            known = self._steps.setdefault(step, {})
            for key, value in seconds.items():
                known[key] = known.get(key, 0.0) + value

    def count(self, done: int, total: int) -> None:
        """Report that `done` of `total` kernels are made."""
        if self._counting is not None:
            self._counting(done, total)

    def notice(self, text: str) -> None:
        """Keep a notice of something that did not go as planned, and print it from debug level 1
        on."""
        self._notices.append(text)
        self._print(STAGES_LEVEL, f"notice: {text}")

    def event(self, stage: str, name: str, text: Text, level: int = CHANGES_LEVEL) -> None:
        """Print `text` if the debug level is at least `level`."""
        if self.wants(level):
            self._print(level, f"{self._title(stage)} {name}:\n{_made(text)}")

    def result(self, stage: str, text: Text, level: int = CHANGES_LEVEL) -> None:
        """Print the result of a stage as an event, and write it to the stage's dump file."""
        if not self.dumps and not self.wants(level):
            return
        made = _made(text)
        self.event(stage, "result", made, level)
        self._write(f"{self._title(stage)}.txt", made)

    def kernel(self, symbol: str, kind: str, text: Text, level: int = LLVM_LEVEL) -> None:
        """Print one text of a kernel, such as its `tir` or `ll`, as an event, and dump it."""
        if not self.dumps and not self.wants(level):
            return
        made = _made(text)
        if self.wants(level):
            self._print(level, f"kernel {symbol} {kind}:\n{made}")
        self._write(f"kernels/{symbol}.{kind}.txt", made)

    @property
    def times(self) -> Times:
        """The seconds that the timers measured."""
        return self._steps

    @property
    def notices(self) -> tuple[str, ...]:
        """All notices, in order."""
        return tuple(self._notices)

    def timings(self) -> dict[str, dict[str, float]]:
        """Seconds: `stages` by stage, `steps` by step of a timer, summed over its keys."""
        steps = {step: sum(times.values()) for step, times in self._steps.items()}
        return {"stages": dict(self._stages), "steps": steps}

    def close(self) -> None:
        """Print the times of each kernel, and write all times to the dump folder."""
        for key in dict.fromkeys(key for times in self._steps.values() for key in times):
            parts = [f"{s} {times[key]:.3f} s" for s, times in self._steps.items() if key in times]
            self._print(STAGES_LEVEL, f"kernel {key}: {', '.join(parts)}")
        times = {"stages": self._stages, "steps": self._steps, "notices": self._notices}
        self._write("timings.json", json.dumps(times, indent=1))

    def _title(self, stage: str) -> str:
        number = self._numbers.get(stage)
        slug = stage.replace(" ", "-")
        return slug if number is None else f"{number:02d}-{slug}"

    def _print(self, level: int, text: str) -> None:
        if self.wants(level):
            print(text, file=self._stream or sys.stderr, flush=True)

    def _write(self, name: str, text: str) -> None:
        if self._folder is None:
            return
        path = self._folder / name
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        except OSError as error:
            raise GraphflowError(
                f"cannot write the dump {path}: {error.strerror}; make room, or give another folder"
            ) from None


def _dump_folder(name: str | None) -> Path | None:
    if name is None:
        return None
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraphflowError(
            f"cannot make the dump folder {name}: {error.strerror}; give another path"
        ) from None
    return folder


def _made(text: Text) -> str:
    return text if isinstance(text, str) else text()
