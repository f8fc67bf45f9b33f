"""Where the checkout, its tests and their golden texts are."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
GOLDENS = TESTS / "support" / "goldens"
