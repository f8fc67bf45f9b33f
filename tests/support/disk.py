"""A simulated read-only disk."""

import errno

import pytest


def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing can be written, also by root."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("os.utime", "os.unlink", "os.replace", "tempfile.mkstemp"):
        monkeypatch.setattr(name, refuse)
