"""Fuzzing of damaged models: each gives onnxruntime's result or a GraphflowError, never a crash, a
hang, another exception or gigabytes of memory.  Damaged saved models are refused, or run as before.

`-m slow --mutant-seeds LOW:HIGH` tries more of them; with `-rP` it says how many ended how.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from time import monotonic

import pytest

from support.paths import TESTS

CHILD = "support.mutants"
SECONDS = 30.0
"""For one mutant."""


@dataclass(frozen=True)
class End:
    """How a mutant ended, and what is wrong with that; empty where nothing is."""

    how: str
    wrong: str = ""


class Child:
    """A process that tries mutants; a new one replaces it when it dies or hangs."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)

    def attempt(self, seed: int) -> End:
        """Try one mutant."""
        first = self._process is None
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{seed}\n".encode())
        at_peer = False
        while True:
            line = self._line(process, SECONDS * (3 if first else 1))
            if at_peer and not line:
                return End("ran, and onnxruntime hangs or dies")
            if line is None:
                return self._ended(seed, f"no end after {SECONDS} s")
            if not line:
                return self._ended(seed, f"the process died: {self._last_words()}")
            _, what, *rest = line.rstrip("\n").split(" ", 2)
            if what == "peer":
                at_peer = True
                continue
            text = " ".join(rest)
            return End("wrong", f"seed {seed}: {text}") if what == "wrong" else End(_label(text))

    def _ended(self, seed: int, how: str) -> End:
        """What ended the process is onnxruntime's own where it dies of the whole model too.

        Without a fallback, and of saved models, nothing is.
        """
        if seed % 2 == 0 and self._kind != "saved":
            alone = Child(f"{self._kind}.peer")
            try:
                if alone.attempt(seed).wrong:
                    return End("dead, and onnxruntime alone dies too")
            finally:
                alone.close()
        return End("dead", f"seed {seed}: {how}")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", CHILD, self._kind],
                cwd=TESTS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
            )
        return self._process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> str | None:
        """The next line; empty after the process died, None where it has to be ended.

        Lines that came together are kept here: a buffered file would hide them from the selector.
        """
        assert process.stdout is not None
        end = monotonic() + seconds
        while b"\n" not in self._received:
            with DefaultSelector() as selector:
                selector.register(process.stdout, EVENT_READ)
                is_ready = selector.select(max(0.0, end - monotonic()))
            more = os.read(process.stdout.fileno(), 1 << 16) if is_ready else b""
            if not more:
                self.close()
                return "" if is_ready else None
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return line.decode() + "\n"

    def _last_words(self) -> str:
        self._errors.seek(0)
        return repr(self._errors.read()[-400:])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._received = b""


def _label(text: str) -> str:
    """The kind of an end, without what belongs to one mutant."""
    return text.partition(":")[0].partition(" after a change")[0]


def assert_all_end_well(kind: str, seeds: Iterable[int]) -> None:
    """Try all; prints how many ended how, by the parity of their seeds."""
    child = Child(kind)
    try:
        ends = [(seed, child.attempt(seed)) for seed in seeds]
    finally:
        child.close()
    for odd in (0, 1):
        counts = Counter(end.how for seed, end in ends if seed % 2 == odd)
        print(f"{kind}, {'odd' if odd else 'even'} seeds: {dict(counts.most_common())}")
    wrong = [end.wrong for _, end in ends if end.wrong]
    assert not wrong, "\n".join(wrong)


def slow_seeds(request: pytest.FixtureRequest, count: int) -> range:
    low, _, high = (request.config.getoption("--mutant-seeds") or f"0:{count}").partition(":")
    return range(int(low), int(high))


@pytest.mark.parametrize(("kind", "count"), [("model", 200), ("saved", 100)])
def test_mutants_end_well(kind: str, count: int) -> None:
    assert_all_end_well(kind, range(count))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"), [("model", 8000), ("operator", 8000), ("section", 4000), ("saved", 2000)]
)
def test_many_mutants_end_well(kind: str, count: int, request: pytest.FixtureRequest) -> None:
    assert_all_end_well(kind, slow_seeds(request, count))
