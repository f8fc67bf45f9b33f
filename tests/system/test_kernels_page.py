"""docs/kernels.md: each block of code runs, in order, in one namespace."""

from __future__ import annotations

import linecache
import re
from typing import Any

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
