"""Tests of cached files: the least recently used go first, and nothing else of the folder."""

import os
from pathlib import Path

import pytest

from graphflow.processes.cached_files import CachedFiles
from graphflow.processes.store import LEFT_BEHIND, ROOM


def kept(folder: Path, most: int = 100) -> CachedFiles:
    return CachedFiles(str(folder), (".a", ".b"), most)


def test_the_folder_is_made_for_the_first_file(tmp_path: Path) -> None:
    files = kept(tmp_path / "x" / "y")
    assert files.found("k.a") is None and not (tmp_path / "x").exists()
    place = files.place("k.a")
    assert place.parent.stat().st_mode & 0o777 == 0o700
    place.write_bytes(b"1")
    assert kept(tmp_path / "x" / "y").found("k.a") == place


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    files = kept(tmp_path)
    for number in range(5):
        place = files.place(f"{number}.{'ab'[number % 2]}")
        place.write_bytes(bytes(20))
        os.utime(place, ns=(number * 10**9, 0))
    (tmp_path / "of somebody else").write_bytes(bytes(1000))
    files.trim()
    assert len(list(tmp_path.iterdir())) == 6, "they are within their bound"
    assert files.found("0.a") is not None
    files.place("5.b").write_bytes(bytes(20))
    files.trim()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"0.a", "4.a", "5.b", "of somebody else"}
    assert len(left - {"of somebody else"}) * 20 <= ROOM * 100


def test_use_leaves_the_time_of_writing(tmp_path: Path) -> None:
    files = kept(tmp_path)
    place = files.place("k.a")
    place.write_bytes(b"1")
    os.utime(place, ns=(5, 7))
    files.found("k.a")
    assert place.stat().st_mtime_ns == 7 and place.stat().st_atime_ns > 5


def test_drafts_of_killed_processes_go(tmp_path: Path) -> None:
    files = kept(tmp_path)
    for name, age in ((".k.a.1.tmp", 2 * LEFT_BEHIND), (".k.a.2.tmp", 0)):
        draft = files.place(name)
        draft.write_bytes(b"1")
        os.utime(draft, (draft.stat().st_mtime - age,) * 2)
    files.trim()
    assert [path.name for path in tmp_path.iterdir()] == [".k.a.2.tmp"]


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(OSError, match="others may write"):
        kept(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="not a folder"):
        kept(tmp_path / "file")


def test_removing_what_is_gone_is_no_error(tmp_path: Path) -> None:
    kept(tmp_path).remove(tmp_path / "k.a")
    kept(tmp_path / "nowhere").trim()
