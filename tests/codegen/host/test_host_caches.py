"""Tests of the host's cache sizes, as the system describes them."""

from pathlib import Path

import pytest

from graphflow.base.target import Target
from graphflow.codegen.host.host_caches import host_caches

ZEN5 = (
    ("1", "Data", "48K", "12"),
    ("1", "Instruction", "32K", "8"),
    ("2", "Unified", "1024K", "16"),
    ("3", "Unified", "32M", "16"),
)


def described(folder: Path, *caches: tuple[str, str, str, str], line: str = "64") -> Path:
    names = ("level", "type", "size", "ways_of_associativity")
    for number, cache in enumerate(caches):
        index = folder / f"index{number}"
        index.mkdir()
        for name, text in zip((*names, "coherency_line_size"), (*cache, line), strict=True):
            (index / name).write_text(text + "\n")
    return folder


def test_data_caches_are_read_and_others_are_not(tmp_path: Path) -> None:
    found = host_caches(described(tmp_path, *ZEN5))
    assert found == {
        "l1_bytes": 48 << 10, "l1_ways": 12, "line_bytes": 64,
        "l2_bytes": 1 << 20, "l3_bytes": 32 << 20,
    }  # fmt: skip
    assert Target("t", "", "", 32, 16, **found).l1_ways == 12


def test_what_is_unknown_keeps_its_default(tmp_path: Path) -> None:
    assert host_caches(tmp_path / "nowhere") == {}
    folder = described(tmp_path, *ZEN5)
    (folder / "index0" / "size").unlink()
    (folder / "index2" / "size").write_text("much\n")
    assert host_caches(folder) == {"l3_bytes": 32 << 20}


@pytest.mark.parametrize(
    "cache",
    [
        ("1", "Data", "48K", "7"),
        ("1", "Data", "48K", "1"),
        ("1", "Data", "0K", "8"),
        ("1", "Data", "", "8"),
        ("4", "Unified", "64M", "16"),
    ],
)
def test_what_is_not_sensible_is_left_out(tmp_path: Path, cache: tuple[str, ...]) -> None:
    """Sets that do not divide the cache, ways that the model keeps free, sizes that are none."""
    level, kind, size, ways = cache
    assert host_caches(described(tmp_path, (level, kind, size, ways))) == {}
