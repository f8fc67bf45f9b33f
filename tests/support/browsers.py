"""A browser for the tests of pages.

The tests are skipped where there is none; where CI is set they fail instead.
"""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""The names of Chromium; Debian's package is `chromium`."""


def missing() -> str | None:
    """Why there is no browser; None if there is one."""
    if not any(map(shutil.which, BROWSERS)):
        return f"no browser is installed: none of {', '.join(BROWSERS)} (apt-get install chromium)"
    if find_spec("playwright") is None:
        return "playwright is not installed (pip install -e '.[test]')"
    return None


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, driven by playwright."""
    reason = missing()
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        # Root, as which CI runs, has no sandbox.
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()
