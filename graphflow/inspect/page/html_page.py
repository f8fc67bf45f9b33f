"""The page as text: data, program and style in one file.

In: a `ShownModel`.  Out: HTML without references to other files.  What always holds: equal models
give equal text, and no text of a model is markup, as the data is compressed and encoded in base64.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from msgspec.structs import asdict

from graphflow.base.run_profile import RunProfile
from graphflow.inspect.page.page_data import ShownModel
from graphflow.inspect.page.shown_difference import shown_difference
from graphflow.inspect.page.shown_model import shown_model
from graphflow.pipeline.compiler import Compiled

ASSETS = Path(__file__).parent / "assets"

SCRIPTS = (
    "elements.js",
    "index_code.js",
    "model.js",
    "folding.js",
    "graph_layout.js",
    "box_grid.js",
    "box_picture.js",
    "memory_panel.js",
    "tensor_panel.js",
    "kernel_texts.js",
    "node_panel.js",
    "run_panel.js",
    "difference_panel.js",
    "viewport.js",
    "drawing.js",
    "graph_view.js",
    "finding.js",
    "page.js",
)
"""The scripts in their order; they share one scope."""

LAYOUT_LIBRARY = "elk-worker.min.js"
"""elkjs 0.12.1, unchanged, under the Eclipse Public License 2.0 (elk-LICENSE.md)."""


def page_of(compiled: Compiled, profile: RunProfile | None = None) -> str:
    """The page of a compiled model, with the measured steps of a run if there are some."""
    return page_html(shown_model(compiled, profile))


def difference_page(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The page of the differences between two reports.  Raises InvalidModel where one is none."""
    return page_html(shown_difference(before, after))


def page_html(model: ShownModel) -> str:
    """The page that shows these values."""
    data = json.dumps(model, default=asdict, ensure_ascii=False, separators=(",", ":"))
    return Template(_asset("page.html")).substitute(
        title=escape(model.model),
        style=_asset("page.css"),
        script="\n".join(map(_asset, SCRIPTS)),
        layout_library=_packed_asset(LAYOUT_LIBRARY),
        data=_packed(data),
    )


def _packed(text: str) -> str:
    """A text as base64 of its gzip file, which the browser unpacks."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def _packed_asset(name: str) -> str:
    return _packed(_asset(name))


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
