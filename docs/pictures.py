"""Make the pictures of docs/pictures/ anew, with a headless Chromium.

    python docs/pictures.py

They show what `graphflow view` shows of networks of the zoo, for a processor that need not be this
one; the run is measured on this one.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import graphflow as gf
from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.bench import peer_profile, profile_run
from graphflow.inspect import page_of
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import random_inputs

PICTURES = Path(__file__).parent / "pictures"

SIZE = {"width": 1280, "height": 800}


@cache
def page_text(name: str) -> str:
    """The page of a network of the zoo."""
    request = CompileRequest(
        zoo_model(name, 0), target=PROCESSORS["rocketlake-guest"], options=Options(threads=2)
    )
    return page_of(compile_graph(request))


def measured_page(name: str) -> str:
    """The page of a network of the zoo, with a run on this machine beside that of onnxruntime."""
    model = zoo_model(name, 0)
    exe = gf.compile(model, options=Options(threads=2))
    inputs = random_inputs(exe.inputs)
    measured = profile_run(exe.compiled, exe.program, inputs)
    return page_of(exe.compiled, replace(measured, peer=peer_profile(model, 2, inputs)))


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


def show_both(page: Any) -> None:
    """The program beside the model, with a kernel and the operators that it is made of."""
    page.click("[data-graph=both]")
    page.wait_for_selector("[data-view=imported] .item")
    page.fill("#search", "conv_18_node")
    page.press("#search", "Enter")
    page.wait_for_selector(".item.twin")
    page.fill("#search", "")
    page.focus("#picture")


def show_memory(page: Any) -> None:
    """What lies where in the arena."""
    page.click("#show-memory")


def show_run(page: Any) -> None:
    """The steps of a run with their estimates, and the operators beside onnxruntime's."""
    page.click("#show-run")


VIEWS = {
    "graph": (page_text, "shufflenet_v2", show_graph),
    "both": (page_text, "shufflenet_v2", show_both),
    "tensor": (page_text, "probe:concat:58", show_tensor),
    "kernel": (page_text, "probe:concat:58", show_kernel),
    "memory": (page_text, "shufflenet_v2", show_memory),
    "run": (measured_page, "shufflenet_v2", show_run),
}
"""The pictures: which page of which network, and what is clicked."""


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, (text, network, show) in VIEWS.items():
            file = Path(folder) / "page.html"
            file.write_text(text(network), encoding="utf-8")
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
