"""Pages of the site that are made of other files of the checkout, or of the code.

In: mkdocs calls `on_startup`, `on_files` and `on_page_markdown` (`hooks` in mkdocs.yml).  Out: the
pages of `COPIED` and `GENERATED`.  What always holds: a link between two documents is written as
the path from one to the other in the checkout, where it can be followed too, and leads to the page
of that document.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import graphflow
from graphflow.cli import main

ROOT = Path(__file__).parents[1]

COPIED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "graphflow/cli/operators.md": "operators.md",
    "LICENSE": "LICENSE.txt",
    "NOTICE": "NOTICE.txt",
}
"""Pages, and files that pages link to, by the files that they are."""

SECTIONS = {
    "Models": (
        "compile",
        "load",
        "Executable",
        "Binding",
        "StateTensor",
        "Options",
        "Target",
        "tune",
        "quantize",
        "Quantization",
        "QuantizationCosts",
        "TensorDecision",
    ),
    "Sessions": (
        "InferenceSession",
        "SessionOptions",
        "RunOptions",
        "IOBinding",
        "OrtValue",
        "NodeArg",
        "ModelMetadata",
        "GraphOptimizationLevel",
        "ExecutionMode",
        "ExecutionOrder",
        "get_available_providers",
        "get_all_providers",
        "get_device",
        "get_version_string",
        "set_default_logger_severity",
        "set_default_logger_verbosity",
        "set_seed",
        "enable_telemetry_events",
        "disable_telemetry_events",
    ),
    "Kernels": ("build", "kernel", "call", "OperatorGraph", "Schedule", "sketch", "Sketch"),
}
"""The order of names in the reference; what is in none follows."""

MAPPED = ("kernels", "frontends", "models")
"""Folders of the checkout that are packages below `graphflow`, as pyproject.toml says."""

LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")

VIEW = ROOT / "build" / "package" / "graphflow"

COLUMNS = 84
"""Of the texts that `--help` prints."""


def on_startup(**_: Any) -> None:
    """Make a folder of links that shows the package as it is installed, which mkdocs.yml names:
    docstrings are read from files."""
    VIEW.mkdir(parents=True, exist_ok=True)
    for link in VIEW.iterdir():
        link.unlink()
    for path in [*(ROOT / "graphflow").iterdir(), *(ROOT / folder for folder in MAPPED)]:
        (VIEW / path.name).symlink_to(path)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files of docs/."""
    for path, page in COPIED.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for page, generate in GENERATED.items():
        files.append(File.generated(config, page, content=generate()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page with links to pages of the site."""
    return linked(markdown, page.file.src_uri)


def linked(text: str, page: str) -> str:
    """`text` with each link to a document as a link to its page; others are left as they are."""
    sources = {target: path for path, target in COPIED.items()}
    folder = posixpath.dirname(sources.get(page, f"docs/{page}"))

    def to_page(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        target = COPIED.get(path, path.removeprefix("docs/"))
        if target == path:  # no document: the strict build says so
            return link[0]
        return f"]({target}{link['anchor'] or ''})"

    return LINK.sub(to_page, text)


def command_reference() -> str:
    """What `--help` prints of each command."""
    texts = ["# Command line", "`python -m graphflow` is the same program."]
    texts += [_help_of(), *(f"## {name}\n\n{_help_of(name)}" for name in _commands())]
    return "\n\n".join(texts)


def _help_of(*command: str) -> str:
    """The help of a command, as a block."""
    os.environ["COLUMNS"] = str(COLUMNS)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return f"```text\n{out.getvalue()}```"


def _commands() -> list[str]:
    """The names of the commands, which the help of the program lists in order."""
    return re.findall(r"^    (\w+)\b", _help_of(), flags=re.MULTILINE)


def python_reference() -> str:
    """The names that `import graphflow` exports, whose docstrings mkdocstrings inserts."""
    sectioned = {name for names in SECTIONS.values() for name in names}
    rest = [name for name in graphflow.__all__ if name not in sectioned]
    modules = [name for name in rest if inspect.ismodule(getattr(graphflow, name))]
    others = [name for name in rest if name not in modules]
    texts = ["# Python", "```python\nimport graphflow as gf\n```"]
    for title, names in {**SECTIONS, "More": others, "Modules": modules}.items():
        if names:
            texts.append(f"## {title}")
            texts += [f"::: {_definition(name)}" for name in names]
    return "\n\n".join(texts) + "\n"


def _definition(name: str) -> str:
    """Where to find the docstring of an exported name."""
    found = getattr(graphflow, name)
    return found.__name__ if inspect.ismodule(found) else f"graphflow.{name}"


GENERATED = {"command_line.md": command_reference, "api.md": python_reference}
"""Pages by the functions that write them."""
