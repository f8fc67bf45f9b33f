"""Make the pictures of docs/pictures/ anew, with a headless Chromium.

    python docs/pictures.py

They show what `graphflow view` shows of networks of the zoo, for a processor that need not be this
one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.inspect import page_of
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest

PICTURES = Path(__file__).parent / "pictures"

SIZE = {"width": 1280, "height": 800}


def page_text(name: str) -> str:
    """The page of a network of the zoo."""
    request = CompileRequest(
        zoo_model(name, 0), target=PROCESSORS["rocketlake-guest"], options=Options(threads=2)
    )
    return page_of(compile_graph(request))


def show_graph(page: Any) -> None:
    """The first conversion in an open block, and why it stands."""
    page.click("[data-filter=conversions]")
    page.press("#search", "Enter")
    page.wait_for_selector(".item.conversion.chosen")
    page.click("[data-filter=conversions]")


def show_tensor(page: Any) -> None:
    """A padded tensor, with a mark at the first lane of its padding."""
    page.click(".edge.padded .wide >> nth=0", force=True)
    page.get_by_label("Logical C").fill("57")
    page.get_by_label("Logical C").press("Tab")


def show_kernel(page: Any) -> None:
    """A kernel, the variants that were not taken, and its text."""
    page.click(".item.kernel[aria-label*=conv_3_node]")
    page.evaluate("document.querySelector('#panel').scrollTop = 330")


VIEWS = {
    "graph": ("shufflenet_v2", show_graph),
    "tensor": ("probe:concat:58", show_tensor),
    "kernel": ("probe:concat:58", show_kernel),
}
"""The pictures: of which network, and what is clicked."""


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, (network, show) in VIEWS.items():
            file = Path(folder) / "page.html"
            file.write_text(page_text(network), encoding="utf-8")
            page = browser.new_page(viewport=SIZE)
            page.goto(file.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            show(page)
            page.mouse.move(10, 400)
            page.wait_for_timeout(500)
            page.screenshot(path=PICTURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
