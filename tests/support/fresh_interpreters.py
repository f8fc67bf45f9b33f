"""Scripts in interpreters of their own, for tests of exits, forks, signals and first uses."""

import os
import subprocess
import sys
import textwrap

from support.paths import TESTS

HANG = 480.0
"""Seconds, on a machine with much else to do."""


def run_fresh(body: str, names: str = "") -> None:
    """Run statements to their end, behind those that bring `names` into scope.

    AssertionError with what the interpreter says, if it ends with an error or before them.  What is
    imported, each script imports again: half a second more where Hypothesis is among it.
    """
    script = f"{names}{textwrap.dedent(body)}\nprint('end')"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
