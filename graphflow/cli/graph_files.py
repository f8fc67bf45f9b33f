"""Files with the program as a graph, for other viewers: ONNX for Netron, text for Graphviz.

In: an executable or decisions, and a path.  Out: a file.  What always holds: the graph is made of
the report alone, so that saved models have it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.cli.on_demand import on_demand


def write_onnx(path: Path, exe: Any) -> None:
    """Write the program as an ONNX model that shows it and does not run."""
    graph = on_demand("reports.program_graph").program_graph(only_report(exe))
    model = on_demand("reports.onnx_graph").onnx_program(graph)
    write_file(path, model.SerializeToString(deterministic=True), "ONNX graph")


def write_dot(path: Path, exe: Any) -> None:
    """Write the program as Graphviz text."""
    graph = on_demand("reports.program_graph").program_graph(only_report(exe))
    text = on_demand("reports.graphviz").graphviz_text(graph)
    write_file(path, text.encode(), "Graphviz text")


def require_paths(model: str, html: str | None, onnx: str | None, dot: str | None) -> None:
    """InvalidModel for a path that is the model's own, or the name of which says something else."""
    for option, path in (("--html", html), ("--onnx", onnx), ("--dot", dot)):
        if path is not None:
            _require_other_file(option, path, model)
    if onnx is not None and Path(onnx).suffix != ".onnx":
        raise InvalidModel(
            f"--onnx writes to {onnx}, whose name has to end with .onnx, or viewers such as Netron "
            f"do not know what it is; give {onnx}.onnx"
        )


def require_output(path: str, model: str) -> None:
    """Refuse, before anything is compiled, an output that would be lost or would replace the model.

    InvalidModel if it is the model's own file, GraphflowError if its folder does not exist.
    """
    _require_other_file("-o", path, model)
    folder = Path(path).parent
    if not folder.is_dir():
        raise GraphflowError(f"cannot write {path}: there is no folder {folder}")


def _require_other_file(option: str, path: str, model: str) -> None:
    if Path(path).exists() and Path(model).exists() and Path(path).samefile(model):
        raise InvalidModel(f"{option} would overwrite the model {model}; give another name")


def write_file(path: Path, content: bytes, what: str) -> None:
    """Write a file and print where; GraphflowError if it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise GraphflowError(f"cannot write the {what} {path}: {error.strerror or error}") from None
    print(f"wrote {path}")


def only_report(exe: Any) -> Mapping[str, Any]:
    """The report of the only program; InvalidModel, which says what to do, if there are none or
    several."""
    report: Mapping[str, Any] = exe.report()
    if "specializations" not in report:
        return report
    exe.decisions()
    only: Mapping[str, Any] = report["specializations"][0]
    return only
