"""What one row of docs/rfc77.md holds: a behaviour that is asked for, and what shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A behaviour, the functions that have it, and the tests that show it.

    `functions` are dotted names below `graphflow`.  `tests` are a path below tests/, without
    `.py`, with the names of tests behind it: `schedule/loops/test_loops: test_fuse test_fission`.
    `missing` says in words what is asked and not built or not shown; empty where nothing is.
    """

    name: str
    asks: str
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    missing: str = ""

    @property
    def state(self) -> str:
        """`built`, `in part` where something is missing, `not built` where no test shows any."""
        if not self.missing:
            return "built"
        return "in part" if self.tests else "not built"

    def found_tests(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The test files below tests/, each with the names of its tests."""
        parted = (entry.split(":") for entry in self.tests)
        return tuple((f"{path}.py", tuple(names.split())) for path, names in parted)
