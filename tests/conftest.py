"""Settings and fixtures of all tests: deterministic property tests, golden texts, a collector of
garbage that runs after each module alone, bytecode that is written once, and native code that is
made once."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import graphflow.codegen as codegen
import graphflow.codegen.host.targets as targets
from graphflow.base.options import HOST_VARIABLE, KERNELS_VARIABLE, assumed_host
from graphflow.base.processors import Caches
from support.kernels.compiled_once import compiled_once, emitted_once
from support.kernels.planned_only import code_left_out
from support.paths import BYTECODE, GOLDENS, OBJECTS
from support.seeds import FRESH
from support.targets import USUAL
from support.verified_steps import verified_steps

# Tests start hundreds of processes, each of which would compile all modules that it imports.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(BYTECODE)
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(BYTECODE)}

# Tests interrupt themselves and their children.  A shell that runs the tests in the background lets
# them ignore interrupts, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ[KERNELS_VARIABLE] = "off"  # tests that want a cache say which

# No decision that a test expects may follow from the caches of the machine that runs it.
os.environ[HOST_VARIABLE] = assumed_host() or USUAL


def refused_caches() -> Caches:
    raise AssertionError(
        f"a test asks for the caches of this machine; set {HOST_VARIABLE}, or give a target"
    )


targets.host_caches = refused_caches

codegen.object_code = compiled_once(codegen.object_code, OBJECTS)
codegen.emit_ir = emitted_once(codegen.emit_ir)

# Hypothesis tries numbers that it finds in the sources of all imported modules: reading them takes
# seconds in each process, and which they are depends on the tests that ran before.
providers.is_local_module_file = lambda path: False

settings.register_profile(
    "graphflow",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("fresh", settings.get_profile("graphflow"), derandomize=False)
settings.load_profile("graphflow")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write goldens instead of comparing with them"
    )
    parser.addoption(
        "--fuzz-seeds",
        metavar="LOW:HIGH",
        help="seeds of tests/system/fuzz/test_explore.py and of tests by support.seeds",
    )
    parser.addoption(
        "--verify-steps",
        action="store_true",
        help="verify each kernel after each step of its schedule, which takes several times longer",
    )


def pytest_configure(config: pytest.Config) -> None:
    """With `--hypothesis-seed` the examples of properties are those of that seed."""
    if config.getoption("--hypothesis-seed", None) is not None:
        settings.load_profile("fresh")
    if text := config.getoption("--fuzz-seeds"):
        FRESH.extend(range(*map(int, text.split(":"))))
    if getattr(config, "workerinput", {}).get("workerid") == "gw1" and len(config.args) == 1:
        config.pluginmanager.register(Backward())


class Backward:
    """Collects the modules below a path from the last one on, and then has them in order.

    Where the second of two processes does so, each compiles one half of the modules, and not both
    all.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Directory):
            report.result.reverse()
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: item.path.parts)


gc.disable()  # passes over all that a long process keeps take 8 % of the time of the tests


def pytest_collection_finish() -> None:
    """What collecting made, a million objects, lives as long as the process."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def garbage_is_collected_after_a_module() -> Iterator[None]:
    """What then is left belongs to caches: later passes skip it.

    A test that switches the collector on has to switch it off again.  Else the later compilations
    of the process defer it, and each counts what is frozen, a million objects: a quarter of their
    time.
    """
    yield
    on = gc.isenabled()
    gc.disable()
    assert not on, "a test of this module left the collector on"
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def steps_are_verified(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every step of every schedule, with `--verify-steps`."""
    with verified_steps() if request.config.getoption("--verify-steps") else nullcontext():
        yield


@pytest.fixture
def code_is_left_out() -> Iterator[None]:
    """For tests that look at what was decided: their kernels do nothing."""
    with code_left_out():
        yield


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
