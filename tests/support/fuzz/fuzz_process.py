"""Processes that run fuzz tests, so that a crash and a hang are failures like others.

`python -m support.fuzz.fuzz_process REGISTRY` imports a module of this folder with `FUZZ_TESTS` by
name, says so, and answers each line of stdin, which is JSON: `["run", NAME, SEED]` with a result,
and `["shrink", NAME, SEED, KIND, ENOUGH, VERDICTS]` with a line for each simpler case that was
tried (none where it is `ENOUGH`), and then with the source of the simplest one.  The search for it
is the same in every process: `VERDICTS` are those of a process that did not survive the case after
them.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import Any

from support.fuzz.case_source import case_in, source_of
from support.fuzz.fuzz_test import Failure, FuzzTest, Result, shrunk
from support.paths import TESTS

MEMORY = 6 << 30
"""Bytes of private memory of a process; what needs more is a failure."""

STARTING = 120.0
"""Seconds that a process may take for its imports."""

READY = "ready"

MOST_LOST = 15
"""Processes that may be lost while one case is shrunk; then the simplest case so far will do."""

SEEDS_OF_A_PROCESS = 500
"""After so many a new one is started: LLVM keeps memory of every kernel."""

DIED, HUNG = "died", "hung"


class Child:
    """A process that answers lines with lines; a new one replaces it when it dies or hangs.

    It says `READY` when it is.
    """

    def __init__(self, *module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)

    def send(self, line: str, seconds: float) -> str | None:
        """The first line of the answer: "" where the process died, None where it took too long."""
        if self._process is None:
            self._start()
            if self.line(STARTING) != f"{READY}\n":
                raise RuntimeError(f"{self._module} does not start: {self.last_words()}")
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return self.line(seconds)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self._module],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )

    def line(self, seconds: float) -> str | None:
        """The next line of an answer, as of `send`; whoever died or hung is ended.

        Lines that came together are kept here: a buffered file would hide them from the selector.
        """
        assert self._process is not None and self._process.stdout is not None
        answers = self._process.stdout
        end = monotonic() + seconds
        while b"\n" not in self._received:
            with DefaultSelector() as selector:
                selector.register(answers, EVENT_READ)
                is_ready = selector.select(max(0.0, end - monotonic()))
            more = os.read(answers.fileno(), 1 << 16) if is_ready else b""
            if not more:
                self.close()
                return "" if is_ready else None
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return line.decode() + "\n"

    def last_words(self) -> str:
        self._errors.seek(0)
        return repr(self._errors.read()[-400:])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._received = b""


@dataclass(frozen=True)
class Shrunk:
    """The simplest case that was found: its failure, and its source as a module."""

    failure: Failure
    source: str


class FuzzProcess:
    """Runs seeds of the tests of a registry in a process."""

    def __init__(self, registry: str) -> None:
        self._child = Child("support.fuzz.fuzz_process", registry)
        self._ran = 0

    def run(self, test: FuzzTest, seed: int) -> Result:
        if self._ran >= SEEDS_OF_A_PROCESS:
            self.close()
        self._ran += 1
        answer = self._child.send(json.dumps(["run", test.name, seed]), test.seconds)
        if not answer:
            return Result(self._lost(answer))
        failure, counts = json.loads(answer)
        return Result(Failure(*failure) if failure else None, Counter(counts))

    def shrink(self, test: FuzzTest, seed: int, failure: Failure) -> Shrunk | None:
        """The simplest case with a failure of the same kind; None where no case shows it."""
        verdicts: list[bool] = []
        lost = failure
        for times in range(MOST_LOST + 1):
            request = ["shrink", test.name, seed, failure.kind, times == MOST_LOST, verdicts]
            answer = self._child.send(json.dumps(request), test.seconds)
            while answer and answer.startswith(("true", "false")):
                verdicts.append(json.loads(answer))
                answer = self._child.line(test.seconds)
            if answer:
                found = json.loads(answer)
                return found and Shrunk(Failure(*(found[0] or (lost.kind, lost.text))), found[1])
            # The case that was tried ended the process: that is its verdict.
            ended = self._lost(answer)
            verdicts.append(ended.kind == failure.kind)
            lost = ended if verdicts[-1] else lost
        return None

    def _lost(self, answer: str | None) -> Failure:
        if answer is None:
            return Failure(HUNG, "no end within the time of a seed")
        return Failure(DIED, f"the process died: {self._child.last_words()}")

    def close(self) -> None:
        self._child.close()
        self._ran = 0


# The child ----------------------------------------------------------------------------------------


def registry_of(name: str) -> Mapping[str, FuzzTest]:
    found: Mapping[str, FuzzTest] = importlib.import_module(f"support.fuzz.{name}").FUZZ_TESTS
    return found


def _simplest(
    test: FuzzTest, seed: int, kind: str, enough: bool, verdicts: list[bool], say: Any
) -> tuple[tuple[str, str] | None, str] | None:
    """The failure and the source of the simplest case; without the failure where running that case
    again would end this process, and None where the case of the seed does not fail like this."""
    known = iter(verdicts)

    def fails(case: Any) -> bool:
        verdict = next(known, None)
        if verdict is None and enough:
            return False
        if verdict is None:
            failure = test.check(case)
            verdict = failure is not None and failure.kind == kind
            say(verdict)
        return verdict

    case = test.draw(seed)
    if not fails(case):
        return None
    case = shrunk(case, test.smaller, fails)
    failure = None if kind in (DIED, HUNG) else test.check(case)
    text = f"{kind}: {failure.text}" if failure else kind
    try:
        source = source_of(case, f"{test.name}, seed {seed}, {text}")
        written = case_in(source)
        if failure is not None and test.check(written) is None:
            raise ValueError("the case that was written does not fail")
    except Exception as error:  # then what is left to keep is the seed
        why = f"{type(error).__name__}: {error}"
        source = source_of(seed, f"{test.name}, seed {seed}, {text}\n\nNo case: {why}\n\n{case}")
    return (failure.kind, failure.text) if failure else None, source


def main() -> None:
    tests = registry_of(sys.argv[1])
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What native code prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        what, name, seed, *rest = json.loads(line)
        if what == "run":
            found = tests[name].run(seed)
            failure = found.failure
            say([failure and (failure.kind, failure.text), found.counts])
        else:
            say(_simplest(tests[name], seed, *rest, say))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(TESTS)))
    main()
