"""Which test modules ask for the host's target: the marker `decisions`, applied by itself.

What always holds: a module is marked if some test of it, or its import, asked in an earlier run
that was not of a part of it; that is kept in pytest's cache.  Tests that `support.targets`
parametrizes are marked without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import graphflow.codegen.targets as targets

KEY = "graphflow/host_users"


class Forgotten:
    """In place of pytest's cache, where that is switched off."""

    def get(self, key: str, default: list[str]) -> list[str]:
        return default

    def set(self, key: str, value: list[str]) -> None:
        pass


class HostUsers:
    """A plugin of pytest that notes the modules, also those that other processes ran."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.cache: Any = getattr(config, "cache", None) or Forgotten()
        self.asking: set[str] = set()
        self.module = ""
        assumed = targets.assumed_host

        def noted() -> str | None:
            self.asking.add(self.module)
            return assumed()

        targets.assumed_host = noted

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        self.module = collector.nodeid.partition("::")[0]
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.module = item.nodeid.partition("::")[0]
        return (yield)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if item.nodeid.partition("::")[0] in self.known():
            item.add_marker("decisions")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.asking |= {*getattr(node, "workeroutput", {}).get(KEY, [])}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[KEY] = sorted(self.asking)
        else:
            self.cache.set(KEY, sorted({*self.known(), *self.asking} - {""}))

    def known(self) -> list[str]:
        """The modules that asked in earlier runs."""
        found: list[str] = self.cache.get(KEY, [])
        return found
