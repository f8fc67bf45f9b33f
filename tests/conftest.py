"""Settings and fixtures of all tests: deterministic property tests, and golden texts."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from graphflow.base.options import KERNELS_VARIABLE
from support.paths import GOLDENS

os.environ[KERNELS_VARIABLE] = "off"  # tests that want a cache say which

settings.register_profile(
    "graphflow",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("graphflow")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write goldens instead of comparing with them"
    )
    parser.addoption(
        "--fuzz-seeds",
        metavar="LOW:HIGH",
        help="seeds of the slow runs of test_fuzz.py and test_native_fuzz.py in tests/system",
    )
    parser.addoption(
        "--mutant-seeds",
        metavar="LOW:HIGH",
        help="seeds of the slow runs of tests/system/test_mutants.py",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with support/goldens/NAME.txt, or writes it there."""

    def compare(name: str, text: str) -> None:
        path = GOLDENS / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not path.exists():
            pytest.fail(f"no golden {path.name}; run pytest --update-golden and look at it")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; see --update-golden"

    return compare
