"""Damaged models end in a result that is onnxruntime's, or in a GraphflowError: never in a crash, a
hang, another exception or gigabytes of memory.  Damaged saved models are refused, or run as before.

`-m slow --mutant-seeds LOW:HIGH` tries more of them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import pytest

CHILD = Path(__file__).with_name("mutants.py")
SECONDS = 30.0
"""For one mutant."""


class Child:
    """A process that tries mutants; a new one replaces it when it dies or hangs."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)

    def attempt(self, seed: int) -> str:
        """What is wrong with a mutant's end; empty where nothing is."""
        first = self._process is None
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
        at_peer = False
        while True:
            line = self._line(process, SECONDS * (3 if first else 1))
            if line is None:
                return "" if at_peer else f"seed {seed}: no end after {SECONDS} s"
            if not line:
                return "" if at_peer else f"seed {seed}: the process died: {self._last_words()}"
            _, what, *rest = line.rstrip("\n").split(" ", 2)
            if what == "peer":
                at_peer = True
                continue
            return "" if what == "ok" else f"seed {seed}: {' '.join(rest)}"

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(CHILD), self._kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                bufsize=1,
            )
        return self._process

    def _line(self, process: subprocess.Popen[str], seconds: float) -> str | None:
        """The next line; empty after the process died, None where it has to be ended."""
        assert process.stdout is not None
        with DefaultSelector() as selector:
            selector.register(process.stdout, EVENT_READ)
            line = process.stdout.readline() if selector.select(seconds) else None
        if not line:
            self.close()
        return line

    def _last_words(self) -> str:
        self._errors.seek(0)
        return repr(self._errors.read()[-400:])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def assert_all_end_well(kind: str, seeds: Iterable[int]) -> None:
    child = Child(kind)
    try:
        wrong = [text for text in map(child.attempt, seeds) if text]
    finally:
        child.close()
    assert not wrong, "\n".join(wrong)


def slow_seeds(request: pytest.FixtureRequest, otherwise: int) -> range:
    low, _, high = (request.config.getoption("--mutant-seeds") or f"100:{otherwise}").partition(":")
    return range(int(low), int(high))


@pytest.mark.parametrize(("kind", "count"), [("model", 60), ("saved", 40)])
def test_mutants_end_well(kind: str, count: int) -> None:
    assert_all_end_well(kind, range(count))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "operator", "saved"])
def test_many_mutants_end_well(kind: str, request: pytest.FixtureRequest) -> None:
    assert_all_end_well(kind, slow_seeds(request, 3000))
