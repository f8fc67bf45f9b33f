"""The code blocks of README.md and docs/, and running those of a page in order.

In: a page.  Out: its blocks with the language of each, and what they print.  `python -m
support.pages PAGE GIVEN` runs a page in a process of its own and in the current folder, where only
Python and what the page uses have to be installed; it prints the outputs as a list in JSON.
"""

import ast
import contextlib
import io
import json
import linecache
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.paths import ROOT

BLOCK = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```$(?P<shown>\n\n^```text\n.*?^```$)?",
    re.DOTALL | re.MULTILINE,
)
"""A block of code, and the text block right behind it, which has what the block prints."""

FILE = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that is a file, which is written and not run."""

INSTALLS = re.compile(r"\bpip install\b")
"""Commands that make an environment; whoever runs a page has made it."""

IN_THIS_PROCESS = ("extending.md", "kernels.md", "onnxruntime.md", "schedules.md", "search.md")
"""Pages without commands, which the ordinary tests run in their own process."""

MEASUREMENTS = ("performance.md",)
"""Pages whose commands take an hour; a test checks that they and their options exist."""


@dataclass(frozen=True)
class CodeBlock:
    """A block in Python or for a shell, and the number of lines before it."""

    line: int
    language: str
    code: str


def code_blocks(page: Path) -> Iterator[CodeBlock]:
    """The blocks of code on a page, in order."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        line = text[: block.start("code")].count("\n")
        yield CodeBlock(line, block["language"], block["code"])


def pages_with_commands() -> list[Path]:
    """The pages of docs/ that processes run, with the installed package."""
    return [
        page
        for page in sorted((ROOT / "docs").glob("*.md"))
        if any(code_blocks(page)) and page.name not in (*IN_THIS_PROCESS, *MEASUREMENTS)
    ]


def trees_of_pages() -> dict[str, ast.Module]:
    """The syntax trees of the code blocks in docs/, by page and line."""
    return {
        f"{page.name}:{block.line}": ast.parse(block.code)
        for page in sorted((ROOT / "docs").glob("*.md"))
        for block in code_blocks(page)
        if block.language == "python"
    }


def run_page(page: Path, given: str = "") -> list[tuple[CodeBlock, str]]:
    """Run the blocks of a page: Python in one namespace, in which the statements of `given` ran
    first, commands by bash.  Returns each block with what it printed."""
    namespace: dict[str, Any] = {"__name__": f"{page.stem}_page"}
    exec(given, namespace)
    printed = []
    for block in code_blocks(page):
        if block.language == "sh":
            output = "" if INSTALLS.search(block.code) else _run_commands(block.code)
        elif file := FILE.match(block.code):
            Path(file[1]).write_text(block.code, encoding="utf-8")
            output = ""
        else:
            output = _run_python(page, block, namespace)
        printed.append((block, output))
    return printed


def _run_commands(code: str) -> str:
    """What the commands of a block print; RuntimeError with all that they say if one fails."""
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{code}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _run_python(page: Path, block: CodeBlock, namespace: dict[str, Any]) -> str:
    """What a block of Python prints when it runs in this namespace."""
    source = "\n" * block.line + block.code  # tracebacks then show the line of the page
    name = f"{page}:{block.line}"
    # Functions under @gf.kernel are read from their source, which Python looks up here.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(source, name, "exec", dont_inherit=True), namespace)
    return out.getvalue()


def with_output(page: Path, outputs: Sequence[str], all_outputs: bool = False) -> str:
    """The text of a page with what each block printed right behind it; of blocks that show nothing
    only with `all_outputs`."""
    left = iter(outputs)

    def fenced(block: re.Match[str]) -> str:
        output = next(left)
        code = f"```{block['language']}\n{block['code']}```"
        shown = output and (all_outputs or block["shown"])
        return f"{code}\n\n```text\n{output}```" if shown else code

    return BLOCK.sub(fenced, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    outputs = [output for _, output in run_page(Path(sys.argv[1]), sys.argv[2])]
    print(json.dumps(outputs))
