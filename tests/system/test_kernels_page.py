"""Tests that run each code block of docs/kernels.md, in order, in one namespace."""

from __future__ import annotations

import inspect
import linecache
import re
from typing import Any

from graphflow import schedule
from support.paths import ROOT

PAGE = ROOT / "docs" / "kernels.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_block_of_the_page_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "kernels_page"}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) > 15
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        source = "\n" * line + block[1]  # tracebacks then show the line of the page
        name = f"{PAGE}:{line}"
        # Functions under @gf.kernel are read from their source, which Python looks up here.
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec", dont_inherit=True), namespace)


def test_the_page_lists_each_primitive_with_its_arguments() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name: re.findall(r"`(\w+)`", arguments) for name, arguments in rows}
    functions = {
        name: inspect.signature(value)
        for name in schedule.__all__
        if inspect.isfunction(value := getattr(schedule, name))
    }
    primitives = {
        name: list(signature.parameters)[1:]
        for name, signature in functions.items()
        if signature.return_annotation == "Rewrite"
    }
    assert listed == primitives
