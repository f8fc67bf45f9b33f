"""Tests of docs/trust.md: every test that it names exists, and no package is missing."""

import re
from pathlib import Path

import pytest

from support.paths import ROOT

PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
NAMES = re.findall(r"`([^`\n]+)`", PAGE)
PATHS = sorted({name for name in NAMES if "/" in name and " " not in name})
TESTS = sorted({name for name in NAMES if name.startswith("test_") and "." not in name})


def defined_tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    }


def test_every_test_exists() -> None:
    assert len(TESTS) > 30
    assert sorted(set(TESTS) - defined_tests()) == []


@pytest.mark.parametrize("folder", ["arith", "tir", "layout", "schedule", "lower", "codegen"])
def test_every_package_that_proofs_pass_through_is_listed(folder: str) -> None:
    assert any(path.startswith(f"graphflow/{folder}/") for path in PATHS)


def test_every_caller_of_the_prover_is_in_a_package_that_is_listed() -> None:
    """A proof that enters in another package needs a row of its own."""
    entering = re.compile(r"\b(prove|prove_empty|prove_injective|images_cover)\(")
    packages = {
        "/".join(path.relative_to(ROOT).parts[:2])
        for folder in ("graphflow", "kernels", "frontends")
        for path in (ROOT / folder).rglob("*.py")
        if entering.search(path.read_text(encoding="utf-8"))
    }
    listed = {"/".join(Path(path).parts[:2]) for path in PATHS}
    assert packages <= listed
