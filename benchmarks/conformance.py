"""ONNX's backend tests, run by graphflow and by onnxruntime: how many pass, and why others fail.

    python benchmarks/conformance.py [--by NAME]… [--only TEXT,…] [--jobs N] [--json FILE]

Each test compiles and runs a model and compares its outputs with the expected ones, within the
tolerances that ONNX sets.  Tests run in processes of their own with a time limit, so that a test
that hangs or crashes is counted and the others go on.  `--by` names the backends: graphflow alone
(`strict`), graphflow with a fallback for nodes without a kernel (`graphflow`), and onnxruntime
(`onnxruntime`); the default is all three.  The output is a table of the outcomes, the refusals by
reason with the number of these tests that onnxruntime passes, and a list of the tests that neither
pass nor are refused.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
import unittest
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from queue import Empty, Queue
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest
from rich.console import Console
from rich.table import Table

from graphflow.api.backend import GraphflowBackend, GraphflowRep
from graphflow.api.compilation import compile
from graphflow.base.errors import UnsupportedOp
from graphflow.base.options import Options

TIME_LIMIT = 20.0
"""Seconds that one test may take, including compilation."""

QUANTIZED = ("quantizelinear", "convinteger", "matmulinteger", "qlinear")
"""What the names of the tests of quantized tensors have."""

RIGHT, REFUSED, WRONG, ERROR, HANGS, DIES = "right", "refused", "wrong", "error", "hangs", "dies"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test; `reason` is empty if it passed."""

    test: str
    outcome: str
    reason: str
    seconds: float


class PeerRep(BackendRep):  # type: ignore[misc]
    """A model in an onnxruntime session."""

    def __init__(self, model: onnx.ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the graph's order."""
        names = [given.name for given in self._session.get_inputs()]
        return tuple(self._session.run(None, dict(zip(names, inputs, strict=False))))


class Peer(Backend):  # type: ignore[misc]
    """onnxruntime as a backend for ONNX's test runner."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PeerRep:
        """A session; onnxruntime's own errors pass."""
        return PeerRep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Processors only."""
        return device == "CPU"


class Compiled(GraphflowBackend):
    """graphflow with its fallback to onnxruntime."""

    options = Options(workers=0)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> GraphflowRep:
        """A compiled model."""
        return GraphflowRep(compile(model, options=cls.options), model)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True for every model: finding out would compile it twice."""
        return True


class Strict(Compiled):
    """graphflow without a fallback."""

    options = Options(workers=0, fallback=None)


PEER = "onnxruntime"
BACKENDS: dict[str, type[Backend]] = {"strict": Strict, "graphflow": Compiled, PEER: Peer}


def all_tests(backend: type[Backend]) -> dict[str, Callable[[], None]]:
    """ONNX's tests for processors by name, without the real networks, which need downloads."""
    found = {}
    for category, cases in BackendTest(backend, __name__).test_cases.items():
        if category == "OnnxBackendRealModelTest":
            continue
        for name in unittest.TestLoader().getTestCaseNames(cases):
            if name.endswith("_cpu"):
                found[name.removesuffix("_cpu")] = getattr(cases(name), name)
    return found


def outcome_of(test: Callable[[], None], backend: str) -> tuple[str, str]:
    """Outcome and reason of one test."""
    try:
        test()
    except UnsupportedOp as error:
        return REFUSED, reason_of(str(error))
    except AssertionError as error:
        return WRONG, " ".join(str(error).split())[:300]
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return (REFUSED if backend == PEER else ERROR), text
    return RIGHT, ""


def reason_of(message: str) -> str:
    """The part of a refusal that does not depend on the node."""
    operators = re.match(r"operators that are not built: (.*?)\. Rewrite", message)
    if operators:
        return "not built: " + re.sub(r" \([^)]*\)", "", operators[1])
    message = re.sub(r"^\w+ node \S+: ", "", message)
    return re.sub(r"(input|initializer|tensor|output) \S+", r"\1", message)[:110]


def serve(backend: str) -> None:
    """Read names of tests from stdin, and write their outcomes to stdout as lines of JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr
    np.seterr(all="ignore")
    tests = all_tests(BACKENDS[backend])
    print(json.dumps(sorted(tests)), file=answers, flush=True)
    for line in sys.stdin:
        name = line.strip()
        start = time.perf_counter()
        outcome, reason = outcome_of(tests[name], backend)
        found = Outcome(name, outcome, reason, time.perf_counter() - start)
        print(json.dumps(asdict(found)), file=answers, flush=True)


class Server:
    """A process that runs tests, and is replaced if a test ends it."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.names: list[str] = []
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-W", "ignore", __file__, "--serve", self._backend]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        self.names = json.loads(self._lines.get())

    def _read(self, process: subprocess.Popen[str]) -> None:
        lines = self._lines
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def run(self, name: str) -> Outcome:
        """The outcome of one test; afterwards the process is ready for the next one."""
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=TIME_LIMIT)
        except Empty:
            return self._replaced(Outcome(name, HANGS, f"over {TIME_LIMIT:.0f} s", TIME_LIMIT))
        if not line:
            return self._replaced(Outcome(name, DIES, f"signal {self._process.wait()}", 0.0))
        return Outcome(**json.loads(line))

    def _replaced(self, outcome: Outcome) -> Outcome:
        self.close()
        self._start()
        return outcome

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def run_all(backend: str, only: Sequence[str], jobs: int) -> list[Outcome]:
    """The outcomes of all tests whose names contain one of `only`, run on `jobs` processes."""
    servers = [Server(backend) for _ in range(jobs)]
    names: Queue[str] = Queue()
    for name in servers[0].names:
        if any(text in name for text in only):
            names.put(name)
    outcomes: list[Outcome] = []

    def work(server: Server) -> None:
        while True:
            try:
                name = names.get_nowait()
            except Empty:
                return
            outcomes.append(server.run(name))

    threads = [threading.Thread(target=work, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.close()
    return sorted(outcomes, key=lambda outcome: outcome.test)


def show_counts(found: Mapping[str, Sequence[Outcome]], console: Console) -> None:
    """Print the number of tests by outcome, one column for each backend."""
    counts = {name: Counter(o.outcome for o in outcomes) for name, outcomes in found.items()}
    table = Table("outcome", *found, title=f"{len(next(iter(found.values())))} tests")
    for outcome in (RIGHT, REFUSED, WRONG, ERROR, HANGS, DIES):
        table.add_row(outcome, *(str(counts[name][outcome]) for name in found))
    slowest = {
        name: max((o.seconds for o in outcomes), default=0.0) for name, outcomes in found.items()
    }
    table.add_row("slowest, s", *(f"{slowest[name]:.1f}" for name in found))
    console.print(table)


def show_reasons(
    name: str, outcomes: Sequence[Outcome], peer: Mapping[str, Outcome], console: Console
) -> None:
    """Print why `name` refuses tests, and which tests neither pass nor are refused."""
    refused: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.outcome == REFUSED:
            refused.setdefault(outcome.reason, []).append(outcome.test)
    table = Table("tests", f"right by {PEER}", f"refused by {name} because")
    for reason, tests in sorted(refused.items(), key=lambda item: -len(item[1])):
        right = sum(test in peer and peer[test].outcome == RIGHT for test in tests)
        table.add_row(str(len(tests)), str(right) if peer else "-", reason)
    console.print(table)
    for outcome in outcomes:
        if outcome.outcome not in (RIGHT, REFUSED):
            console.print(
                f"{name}: {outcome.outcome}: {outcome.test}: {outcome.reason}", markup=False
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--by", action="append", choices=BACKENDS, help="only this one; repeatable")
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[""],
        metavar="TEXT,…",
        help=f"tests whose names have a TEXT; those of quantized tensors: {','.join(QUANTIZED)}",
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--json", metavar="FILE", help="write each test's outcome")
    parser.add_argument("--serve", choices=BACKENDS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve is not None:
        serve(chosen.serve)
        return
    found = {name: run_all(name, chosen.only, chosen.jobs) for name in chosen.by or BACKENDS}
    if chosen.json:
        plain = {name: [asdict(o) for o in outcomes] for name, outcomes in found.items()}
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(plain, file, indent=1)
    console = Console(width=140)
    peer = {outcome.test: outcome for outcome in found.get(PEER, ())}
    for name, outcomes in found.items():
        if name != PEER:
            show_reasons(name, outcomes, peer, console)
    show_counts(found, console)


if __name__ == "__main__":
    main()
