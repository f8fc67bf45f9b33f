"""The commands that show decisions: inspect, view, explain."""

from __future__ import annotations

import argparse
import json
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.cli.executables import executable_or_decisions
from graphflow.cli.on_demand import on_demand


def run_inspect(wanted: argparse.Namespace) -> int:
    """`graphflow inspect MODEL`."""
    if wanted.profile and wanted.html is None:
        raise InvalidModel("--profile measures for the page; give --html FILE too")
    require_profile(wanted)
    with executable_or_decisions(wanted) as exe:
        pass
    if wanted.html is not None:
        write_page(Path(wanted.html), page_of_model(exe, wanted))
    elif wanted.json:
        found = exe.report()
        if wanted.edge is not None:
            exe.explain(wanted.edge)  # raises for a name that the model does not have
            found = next(edge for edge in found["edges"] if edge["name"] == wanted.edge)
        print(json.dumps(found, indent=1))
    elif wanted.edge is not None:
        print(exe.explain(wanted.edge))
    else:
        on_demand("cli.drawing").show_decisions(exe.decisions(), constants=wanted.all)
    return 0


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
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise GraphflowError(f"cannot write the page {path}: {error.strerror or error}") from None
    print(f"wrote {path}")


def run_explain(wanted: argparse.Namespace) -> int:
    """`graphflow explain MODEL TENSOR`."""
    with executable_or_decisions(wanted) as exe:
        pass
    print(exe.explain(wanted.tensor, full=wanted.full))
    return 0


COMMANDS = {"explain": run_explain, "inspect": run_inspect, "view": run_view}
"""The commands of this module, by name."""
