"""Tests of the store: entries are complete or absent, after concurrent writes, kills and damage."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from graphflow.processes.store import LEFT_BEHIND, ROOM, EntryStore
from support.disk import read_only


def test_what_was_kept_is_there_for_other_stores_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert EntryStore(folder).get("k") is None and not folder.exists()
    assert EntryStore(folder).put("k", b"first") and EntryStore(folder).put("other", b"")
    assert EntryStore(folder).get("k") == b"first" and EntryStore(folder).get("other") == b""
    assert EntryStore(folder).put("k", b"second")
    assert EntryStore(folder).get("k") == b"second"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("size", [0, 1, 35, 36, 40])
def test_a_truncated_entry_is_absent_and_goes(tmp_path: Path, size: int) -> None:
    store = EntryStore(tmp_path)
    store.put("k", b"something")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:size])
    assert store.get("k") is None and not path.exists()
    assert store.put("k", b"again") and store.get("k") == b"again"


def test_each_byte_of_an_entry_is_under_the_checksum(tmp_path: Path) -> None:
    store = EntryStore(tmp_path)
    store.put("k", b"something")
    (path,) = tmp_path.iterdir()
    sound = path.read_bytes()
    for place in range(len(sound)):
        damaged = bytearray(sound)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert store.get("k") is None, place
    path.write_bytes(sound + b"x")
    assert store.get("k") is None
    path.write_bytes(sound)
    assert store.get("k") == b"something"


def test_beyond_the_bound_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    store = EntryStore(tmp_path, most_bytes=10_000)
    now = time.time()
    for number in range(20):
        store.put(f"k{number}", bytes(1000))
        os.utime(tmp_path / f"k{number}.entry", (now - 100 + number,) * 2)
    assert store.get("k3") is not None  # used now
    store.trim()
    left = [number for number in range(20) if (tmp_path / f"k{number}.entry").exists()]
    assert 3 in left and left[-6:] == [14, 15, 16, 17, 18, 19] and len(left) == 7
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= ROOM * 10_000


def test_within_the_bound_everything_stays(tmp_path: Path) -> None:
    store = EntryStore(tmp_path, most_bytes=10_000)
    for number in range(9):
        store.put(f"k{number}", bytes(1000))
    store.trim()
    assert len(list(tmp_path.iterdir())) == 9


def test_trimming_takes_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    old, new, foreign = (tmp_path / n for n in (".k.1.tmp", ".k.2.tmp", "notes.txt"))
    for path in (old, new, foreign):
        path.write_bytes(b"x")
    past = time.time() - LEFT_BEHIND - 10
    os.utime(old, (past, past))
    os.utime(foreign, (past, past))
    EntryStore(tmp_path, most_bytes=0).trim()
    assert not old.exists() and new.exists() and foreign.exists()


def test_a_folder_that_cannot_be_written_to_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EntryStore(tmp_path, most_bytes=0)
    store.put("k", b"something")
    read_only(monkeypatch)
    assert store.get("k") == b"something"
    assert not store.put("other", b"")
    store.trim()
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        EntryStore(tmp_path / "file" / "below")
    with pytest.raises(OSError, match="is not a folder"):
        EntryStore(tmp_path / "file")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(OSError, match="others may write to"):
        EntryStore(tmp_path)
    tmp_path.chmod(0o755)
    assert EntryStore(tmp_path).put("k", b"")


WRITER = """
import sys
from graphflow.processes.store import EntryStore
store = EntryStore(sys.argv[1], most_bytes=400_000)
print("ready", flush=True)
number = 0
while True:
    number += 1
    key = f"k{number % 7}"
    store.put(key, (key * 40_000).encode())
    found = store.get(f"k{(number + 3) % 7}")
    assert found is None or found == (f"k{(number + 3) % 7}" * 40_000).encode()
    if number % 5 == 0:
        store.trim()
"""


def test_processes_that_write_at_once_and_are_killed_leave_whole_entries(tmp_path: Path) -> None:
    for round_ in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-P", "-c", textwrap.dedent(WRITER), str(tmp_path)],
                stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        time.sleep(0.1 + 0.037 * round_)
        for writer in writers:
            assert writer.poll() is None, "a writer read what nobody wrote"
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()  # type: ignore[union-attr]
        store = EntryStore(tmp_path)
        entries = sorted(path for path in tmp_path.iterdir() if path.suffix == ".entry")
        for path in entries:
            assert store.get(path.stem) == (path.stem * 40_000).encode()
        assert entries
