"""The code blocks of a page of docs/, and running them as one program."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.paths import ROOT

BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n.*?^```$)?",
    re.DOTALL | re.MULTILINE,
)
"""A block of Python, and the text block right behind it, which has what the block prints."""


@dataclass(frozen=True)
class CodeBlock:
    """A block of Python, and the number of lines before it."""

    line: int
    code: str


def code_blocks(page: Path) -> Iterator[CodeBlock]:
    """The blocks of Python on a page, in order."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        yield CodeBlock(text[: block.start("code")].count("\n"), block["code"])


def trees_of_pages() -> dict[str, ast.Module]:
    """The syntax trees of the code blocks in docs/, by page and line."""
    return {
        f"{page.name}:{block.line}": ast.parse(block.code)
        for page in sorted((ROOT / "docs").glob("*.md"))
        for block in code_blocks(page)
    }


def run_page(page: Path) -> list[tuple[CodeBlock, str]]:
    """Run the blocks of a page in one namespace; each block with what it printed."""
    namespace: dict[str, Any] = {"__name__": f"{page.stem}_page"}
    printed = []
    for block in code_blocks(page):
        source = "\n" * block.line + block.code  # tracebacks then show the line of the page
        name = f"{page}:{block.line}"
        # Functions under @gf.kernel are read from their source, which Python looks up here.
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(source, name, "exec", dont_inherit=True), namespace)
        printed.append((block, out.getvalue()))
    return printed


def with_output(page: Path, printed: list[tuple[CodeBlock, str]]) -> str:
    """The text of a page with what each block printed right behind it."""
    outputs = iter([output for _, output in printed])

    def fenced(block: re.Match[str]) -> str:
        output = next(outputs)
        code = f"```python\n{block['code']}```"
        return f"{code}\n\n```text\n{output}```" if output else code

    return BLOCK.sub(fenced, page.read_text(encoding="utf-8"))
