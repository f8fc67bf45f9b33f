"""The default number of threads: the processors that this process may use.

It is the size of the affinity mask, limited by the processor quotas of the control groups (v1 and
v2) above this process, and at least 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path, PurePosixPath

_CGROUP_MOUNT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def default_threads() -> int:
    """The number of processors in the affinity mask, at most the quota rounded up."""
    allowed = len(os.sched_getaffinity(0))
    quota = cgroup_quota(_CGROUP_MOUNT, _read(_MEMBERSHIP))
    return allowed if quota is None else max(1, min(allowed, ceil(quota)))


def cgroup_quota(mount: Path, membership: str) -> float | None:
    """The smallest quota, in processors, of the groups named in /proc/self/cgroup's text.

    A group's ancestors limit it as well.  Groups that a container does not show under `mount` count
    as their nearest visible ancestor.  None means unlimited.
    """
    quotas = []
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        for folder in _folders(mount, controllers, group):
            quota = _quota_v2(folder) if not controllers else _quota_v1(folder)
            if quota is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def _folders(mount: Path, controllers: str, group: str) -> Iterator[Path]:
    """The folders of a group and of its ancestors."""
    if not controllers:
        roots = [mount, mount / "unified"]
    elif "cpu" in controllers.split(","):
        roots = [mount / controllers, mount / "cpu"]
    else:
        roots = []
    path = PurePosixPath("/", group).relative_to("/")
    for root in roots:
        for part in (path, *path.parents):
            yield root / part


def _quota_v2(folder: Path) -> float | None:
    """The quota in processors of "QUOTA PERIOD" in cpu.max, where the quota may be "max"."""
    words = _read(folder / "cpu.max").split()
    return _ratio(*words) if len(words) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    """The quota in processors of cgroup v1's two files, where a quota of -1 means unlimited."""
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    try:
        microseconds, every = int(quota), int(period)
    except ValueError:
        return None
    return microseconds / every if microseconds > 0 and every > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
