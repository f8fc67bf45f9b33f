"""Tests of the site that .ci/release built: it loads nothing from the network, and its reference
has everything that is public."""

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import graphflow as gf
from support.paths import ROOT

pytestmark = pytest.mark.release

SITE = ROOT / "site"

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(https?:[^\s\">]*)")


def text_of(page: str) -> str:
    return (SITE / page).read_text(encoding="utf-8")


def test_no_page_loads_anything_from_elsewhere() -> None:
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 20
    found = {page.name: LOADED.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert {name: urls for name, urls in found.items() if urls} == {}


def test_the_reference_has_every_public_name() -> None:
    anchors = set(re.findall(r'id="(graphflow[\w.]*)"', text_of("api.html")))
    modules = {name: getattr(gf, name).__name__ for name in ("backend", "errors", "options")}
    wanted = {modules.get(name, f"graphflow.{name}") for name in gf.__all__}
    assert wanted <= anchors
    assert {"graphflow.Executable.run", "graphflow.base.errors.InvalidModel"} <= anchors


def test_the_reference_has_every_command() -> None:
    text = text_of("command_line.html")
    for command in ("demo", "compile", "run", "check", "operators", "inspect", "view", "tune"):
        assert f'<h2 id="{command}"' in text and f"usage: graphflow {command}" in text


def test_a_reader_finds_a_word_and_follows_a_link(browser: Any) -> None:
    """Served as it will be; requests that leave this machine fail the test."""
    handler = partial(QuietHandler, directory=str(SITE))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}"
    requested: list[str] = []
    try:
        page = browser.new_page()
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{home}/index.html")
        page.click("text=docs/deploy.md >> nth=0")
        page.wait_for_url("**/deploy.html")
        page.keyboard.press("/")
        page.keyboard.type("lanes")
        page.wait_for_selector(".md-search-result__item a")
        page.goto(f"{home}/kernels.html")
        assert page.locator("h1").inner_text().startswith("Kernels of your own")
    finally:
        server.shutdown()
    assert [url for url in requested if not url.startswith((home, "data:", "blob:"))] == []


class QuietHandler(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def test_what_is_loaded_is_found() -> None:
    """A trap for the test itself."""
    assert LOADED.findall('<script async src="https://a/b.js">') == ["https://a/b.js"]
    assert LOADED.findall('<a href="https://a">') == [] and Path(SITE).is_dir()
