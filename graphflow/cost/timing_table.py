"""The timing table: a file of measured times that outlives the process, one line each.

In: timings, as they are measured.  Out: the `Timings` of one processor and number of threads.

What always holds: lines are only appended, each in one write under a lock of the file, so processes
that measure at the same time lose nothing, and an interrupted one loses at most the line that it
was about to write.  Each line is complete in itself and has a checksum.  A line that does not match
its checksum is refused, not skipped, for it may be any timing.  A last line without a line end was
cut off; it is not read, and the next writer drops it.  Of several lines with one key the median
counts.

    {"format":1,"host":H,"key":K,"seconds":S,"reference":R,"what":TEXT,"crc":C}

`host` is the digest of the target, the number of threads and the version; `key` that of the
kernel's or copy's structure; `crc` the CRC-32 of the line without `crc`.  `reference` is the time
that one and the same kernel took just then: a processor is not equally fast at all times, so times
of different moments are compared as multiples of the reference.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from graphflow.base.errors import InvalidTimings
from graphflow.base.target import Target
from graphflow.base.version import VERSION
from graphflow.cost.cost_model import Timings
from graphflow.processes.digest import text_digest

FORMAT = 1
REPAIR = "delete that line (or the file), and tune again"


class Timing(Struct, frozen=True):
    """Seconds of one run of the kernel or copy with this `key`; `what` names it for people.

    `reference` is the seconds that the reference kernel took at the time.
    """

    key: str
    seconds: float
    reference: float
    what: str


def host_key(target: Target, threads: int) -> str:
    """The digest of what timings depend on besides the kernel: processor, threads, version."""
    parts = (VERSION, target.cpu, target.features, target.vector_bytes, target.vector_registers)
    return text_digest("\n".join(map(str, (*parts, threads))))


class TimingTable:
    """The timings in one file for one target and number of threads.

    Lines for other targets stay in the file.  A file that does not exist yet is an empty table.
    InvalidTimings where the file cannot be read or is damaged.
    """

    def __init__(self, path: str | Path, target: Target, threads: int) -> None:
        self.path = Path(path)
        self._host = host_key(target, threads)
        self._name = f"{target.name} with {threads} thread{'s' if threads > 1 else ''}"
        self._timings: defaultdict[str, list[Timing]] = defaultdict(list)
        self._others = 0
        for host, timing in _read(self.path):
            if host == self._host:
                self._timings[timing.key].append(timing)
            else:
                self._others += 1

    @property
    def known(self) -> Mapping[str, float]:
        """Seconds by key, scaled to the moment at which the reference was fastest."""
        best = min((t.reference for ts in self._timings.values() for t in ts), default=1.0)
        return {
            key: best * median(t.seconds / t.reference for t in timings)
            for key, timings in self._timings.items()
        }

    def timed_less(self, times: int) -> frozenset[str]:
        """The keys that were timed at least once, but fewer than `times` times."""
        return frozenset(key for key, found in self._timings.items() if len(found) < times)

    def timings(self) -> Timings:
        """The timings for planning; InvalidTimings where there are none for this processor."""
        if not self._timings:
            others = f"; its {self._others} timings are for others" if self._others else ""
            raise InvalidTimings(
                f"{self.path} has no timings for {self._name} by graphflow {VERSION}{others}; fill "
                "it with `graphflow tune MODEL` (with the same --threads), or compile without it"
            )
        return Timings(self.known)

    def add(self, timings: Iterable[Timing]) -> None:
        """Append to the file, which is made with its folder if there is none."""
        found = tuple(timings)
        lines = "".join(_line(self._host, timing) for timing in found)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _append(self.path, lines.encode())
        except OSError as error:
            raise InvalidTimings(
                f"cannot write timings to {self.path}: {error.strerror}; give another file"
            ) from None
        for timing in found:
            self._timings[timing.key].append(timing)


def _append(path: Path, lines: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        _drop_torn_line(file)
        while lines:
            lines = lines[os.write(file, lines) :]
    finally:
        os.close(file)  # and the lock with it


def _drop_torn_line(file: int) -> None:
    """Cut the file behind its last whole line."""
    end = os.fstat(file).st_size
    if end and os.pread(file, 1, end - 1) != b"\n":
        os.ftruncate(file, os.pread(file, end, 0).rfind(b"\n") + 1)


def _line(host: str, timing: Timing) -> str:
    fields = {
        "format": FORMAT,
        "host": host,
        "key": timing.key,
        "seconds": timing.seconds,
        "reference": timing.reference,
        "what": timing.what,
    }
    return json.dumps({**fields, "crc": _checksum(fields)}, separators=(",", ":")) + "\n"


def _checksum(fields: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, separators=(',', ':')).encode()):08x}"


def _read(path: Path) -> Iterator[tuple[str, Timing]]:
    try:
        contents = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidTimings(
            f"cannot read timings from {path}: {error.strerror}; give another file"
        ) from None
    for number, line in enumerate(contents.split(b"\n")[:-1], 1):
        try:
            yield _parsed(line)
        except ValueError as error:
            raise InvalidTimings(
                f"line {number} of the timing table {path} is damaged: {error}; {REPAIR}"
            ) from None


def _parsed(line: bytes) -> tuple[str, Timing]:
    """What a line says; ValueError says what is wrong with it."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    if fields.get("format") != FORMAT:
        raise ValueError(f"its format is {fields.get('format')}, this version reads {FORMAT}")
    crc = fields.pop("crc", None)
    if crc != _checksum(fields):
        raise ValueError("it does not fit its checksum")
    match fields:
        case {
            "host": str(host), "key": str(key), "what": str(what),
            "seconds": float(seconds), "reference": float(reference),
        }:  # fmt: skip
            if 0 < seconds < float("inf") and 0 < reference < float("inf"):
                return host, Timing(key, seconds, reference, what)
    raise ValueError("a field is missing or has no sensible value")
