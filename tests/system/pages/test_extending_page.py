"""Tests that run the walks of docs/extending.md, each of which adds something from outside."""

import re

import pytest

import graphflow as gf
from graphflow import codegen, frontends, schedule
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.kernels.recipes.tiled_kernels import image_tiles
from graphflow.layout import families
from support.pages import code_blocks, run_page
from support.paths import ROOT

PAGE = ROOT / "docs" / "extending.md"

MOST_FILES = {
    "An elementwise operator": 2,
    "A fused norm": 2,
    "A primitive": 3,
    "A kind of tile": 2,
    "A target": 3,
    "A layout family": 2,
}
"""How many files of the repository a contributor touches at most, besides tests, by section."""


def tables() -> tuple[object, ...]:
    """What the compiler knows by itself of all that the page adds."""
    return (
        dict(frontends.OPERATORS),
        {name: getattr(schedule, name) for name in schedule.__all__},
        dir(gf.Schedule),
        dict(PROCESSORS),
        [families(rank, 16) for rank in range(6)],
        codegen.host_target(),
        image_tiles(codegen.host_target()),
    )


@pytest.mark.parametrize(
    "target", [codegen.host_target(), codegen.avx2_target()], ids=lambda target: target.name
)
def test_each_walk_runs_and_leaves_nothing_behind(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codegen, "host_target", lambda: target)
    before = tables()
    assert len(run_page(PAGE)) > 9
    assert tables() == before


def test_no_walk_uses_a_private_name() -> None:
    for block in code_blocks(PAGE):
        assert not re.search(r"(\.|import |, )_[a-z]\w*", block.code)


@pytest.mark.parametrize("section", MOST_FILES)
def test_a_contributor_touches_few_files(section: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = text.split(f"\n## {section}\n", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    files = re.findall(r"^\| `([\w/]+\.py)` \|", part, re.MULTILINE)
    assert 0 < len(files) <= MOST_FILES[section]
    assert all((ROOT / file).is_file() for file in files)
