"""A browser for the tests of the page, and pages that tests share.

What a page costs is to open it, so tests of one network get the same page, turned back to its
beginning.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest

from graphflow.inspect.page import shown_pins
from support.browsers import browser

__all__ = ["Opened", "Opener", "browser", "few_pins", "open_page"]

WAIT = 20_000
"""The most milliseconds until something is there; the machine may be busy."""

WINDOW = {"width": 1400, "height": 1000}

TURN_BACK = """() => {
  document.querySelectorAll("#filters button[aria-pressed=true]").forEach((b) => b.click());
  document.querySelector("[data-graph=program]").click();
  if (document.querySelector(".item.block")) document.getElementById("unfold-all").click();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  document.getElementById("zoom-fit").click();
}"""


NEXT_FRAME = "() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))"


@pytest.fixture(scope="session", autouse=True)
def few_pins() -> Iterator[None]:
    """Few pins are planned, as each of them takes as long as the plan."""
    with patch.object(shown_pins, "MOST_PLANNED", 150):
        yield


@dataclass
class Opened:
    """A page in the browser, with what went wrong in it and what it asked of the network."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def panel(self, kind: str) -> str:
        """The text of the panel, which must be of this kind."""
        found = self.page.locator(f"#panel [data-panel={kind}]")
        found.wait_for(timeout=WAIT)
        return str(found.inner_text())

    def items(self) -> int:
        """How many boxes the graphs have that are shown."""
        return int(self.page.locator(".graph-view:not([hidden]) .item").count())

    def node(self, text: str) -> Any:
        """The box whose label contains a text, in a graph that is shown."""
        return self.page.locator(f'.graph-view:not([hidden]) .item[aria-label*="{text}"]').first

    def opened(self, wanted: str) -> None:
        """Wait for a condition in the page."""
        self.page.wait_for_function(wanted, timeout=WAIT)

    def has_items(self, count: int) -> None:
        """Wait until the graphs that are shown have so many boxes."""
        boxes = "document.querySelectorAll('.graph-view:not([hidden]) .item').length"
        self.opened(f"{boxes} === {count}")

    def processor_seconds(self) -> float:
        """What the page has used of processors so far, in all of its threads."""
        session = self.page.context.new_cdp_session(self.page)
        session.send("Performance.enable")
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "ProcessTime"))

    def turn_back(self) -> None:
        """Show what the page showed at its beginning."""
        self.page.emulate_media(media="null", color_scheme="null")
        self.page.evaluate(NEXT_FRAME)  # in which the page learns of its medium
        self.page.evaluate(TURN_BACK)
        self.opened("!document.querySelector('.item.block')")


Opener: TypeAlias = "Callable[[str], Opened]"


@pytest.fixture(scope="module")
def open_page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """A function that writes a page to disk and opens it in a browser without network."""
    contexts = []

    def opened(text: str) -> Opened:
        path: Path = tmp_path_factory.mktemp("page") / "page.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(offline=True, viewport=WINDOW))
        found = Opened(contexts[-1].new_page())
        found.page.on("pageerror", lambda error: found.problems.append(str(error)))
        found.page.on("console", lambda said: found.problems.append(said.text))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(path.as_uri())
        found.page.wait_for_selector("html[data-ready]", timeout=WAIT, state="attached")
        return found

    yield opened
    for context in contexts:
        context.close()
