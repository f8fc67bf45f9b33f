"""The folders of the checkout, of its tests and of their golden texts."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
GOLDENS = TESTS / "support" / "goldens"
BYTECODE = TESTS.parent / ".pytest_cache" / "bytecode"
OBJECTS = TESTS.parent / ".pytest_cache" / "objects"
