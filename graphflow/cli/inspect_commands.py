"""The commands that show decisions: inspect, view, explain."""

from __future__ import annotations

import argparse
import json
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from graphflow.api.executable import Executable
from graphflow.base.errors import InvalidModel
from graphflow.cli.executables import executable_or_decisions
from graphflow.cli.graph_files import only_report, require_paths, write_dot, write_file, write_onnx
from graphflow.cli.on_demand import on_demand


def run_inspect(wanted: argparse.Namespace) -> int:
    """`graphflow inspect MODEL`."""
    if wanted.profile and wanted.html is None:
        raise InvalidModel("--profile measures for the page; give --html FILE too")
    require_profile(wanted)
    _require_one_answer(wanted)
    require_paths(wanted.model, wanted.html, wanted.onnx, wanted.dot)
    with executable_or_decisions(wanted) as exe:
        pass
    if wanted.html is not None:
        write_page(Path(wanted.html), page_of_model(exe, wanted))
    if wanted.onnx is not None:
        write_onnx(Path(wanted.onnx), exe)
    if wanted.dot is not None:
        write_dot(Path(wanted.dot), exe)
    if _files(wanted):
        return 0
    if wanted.json:
        print(json.dumps(_report_of(exe, wanted.edge), indent=1))
    elif wanted.edge is not None:
        print(exe.explain(wanted.edge))
    else:
        on_demand("cli.decision_table").show_table(exe, wanted.all, wanted.only, wanted.sort)
    return 0


def _report_of(exe: Any, tensor: str | None) -> Any:
    """The whole report, or the part about a tensor; InvalidModel for an unknown one."""
    if tensor is None:
        return exe.report()
    edges = only_report(exe)["edges"]
    exe.explain(tensor)  # raises for a name that the model does not have
    return next(edge for edge in edges if edge["name"] == tensor)


def _files(wanted: argparse.Namespace) -> list[str]:
    """The options that ask for a file."""
    return [f"--{name}" for name in ("html", "onnx", "dot") if getattr(wanted, name) is not None]


def _require_one_answer(wanted: argparse.Namespace) -> None:
    """InvalidModel for options that ask for different things; several files may be written."""
    texts = [f"--{name}" for name in ("json", "edge") if getattr(wanted, name)]
    files = _files(wanted)
    if texts and files:
        raise InvalidModel(
            f"{texts[0]} prints and {files[0]} writes a file; ask for them one after the other"
        )
    for name in ("only", "sort", "all"):
        if getattr(wanted, name) and (texts or files):
            raise InvalidModel(
                f"--{name} says what the table shows, and {(*texts, *files)[0]} asks for something "
                "else than the table; leave one of them out"
            )


def run_view(wanted: argparse.Namespace) -> int:
    """`graphflow view MODEL`."""
    require_profile(wanted)
    with executable_or_decisions(wanted) as exe:
        pass
    path = Path(tempfile.mkdtemp(prefix="graphflow-")) / "model.html"
    write_page(path, page_of_model(exe, wanted))
    if not webbrowser.open(path.as_uri()):
        print("no browser could be started; open the file in one")
    return 0


def require_profile(wanted: argparse.Namespace) -> None:
    """InvalidModel if another program's profile is wanted for a page without one of graphflow."""
    if wanted.against is not None and not wanted.profile:
        raise InvalidModel("--against compares with a profile in the page; give --profile too")


def page_of_model(exe: Any, wanted: argparse.Namespace) -> str:
    """The page of a model, with the measured steps of a run if they are wanted."""
    if not wanted.profile:
        return str(exe.page())
    return str(on_demand("cli.profile_command").profiled_page(exe, wanted))


def write_page(path: Path, page: str) -> None:
    """Write a page and print where; GraphflowError if the file cannot be written."""
    write_file(path, page.encode(), "page")


def run_explain(wanted: argparse.Namespace) -> int:
    """`graphflow explain MODEL TENSOR`."""
    with executable_or_decisions(wanted) as exe:
        pass
    if isinstance(exe, Executable) and not exe.specializations:
        exe.decisions()  # raises, and names the inputs whose shapes or values are missing
    print(exe.explain(wanted.tensor, full=wanted.full))
    return 0


COMMANDS = {"explain": run_explain, "inspect": run_inspect, "view": run_view}
"""The commands of this module, by name."""
