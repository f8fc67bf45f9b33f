"""Ranges of sizes without a most: which bounds the next program gets, and when it is made.

In: the sizes of a model, and the shapes of its runs.  Out: sizes with bounds.  What always holds: a
most is never taken back, so a program that is used is one for all extents up to now.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from enum import IntEnum

from graphflow.api.open_shapes.rooms import Given
from graphflow.base.fields import replace
from graphflow.base.sizes import Size
from graphflow.program import OpenTensor

LEAST_MOST = 8
"""The least most of a program that the compiler chooses: below it, rows cost less than steps."""


def most_for(extent: int, earlier: int = 0) -> int:
    """The most of a program for a run with this extent: the power of two from twice of it on, and
    from four times of it on if an earlier program had less.

    A program works on what a run gives, so room takes memory alone; a program takes time to make.
    """
    most = LEAST_MOST
    while most < (4 if earlier else 2) * extent:
        most *= 2
    return most


class Room(IntEnum):
    """How much room a program has beyond the extents of the run for which it is made."""

    AMPLE = 0
    """What `most_for` says."""
    SOME = 1
    """Up to the next power of two."""
    LITTLE = 2
    """Up to the next eighth of it."""


def _tight_most(extent: int, room: Room) -> int:
    power = 1 << max(extent - 1, 0).bit_length()
    if room is Room.SOME:
        return max(power, LEAST_MOST)
    step = max(power // 8, 1)
    return -(-extent // step) * step


class Ranges:
    """The sizes of a model; those without a most get one that grows with the extents of runs."""

    def __init__(self, inputs: Sequence[OpenTensor], sizes: Sequence[Size]) -> None:
        self._sizes = tuple(sizes)
        self.is_open = any(not size.is_bounded for size in sizes)
        self._axes: dict[str, tuple[str, int]] = {}
        for tensor in inputs:
            for axis, extent in enumerate(tensor.shape or ()):
                if isinstance(extent, str):
                    self._axes.setdefault(extent, (tensor.name, axis))
        self._most: dict[str, int] = {}
        self._ahead: set[tuple[Size, ...]] = set()
        self._room = Room.AMPLE
        self._lock = threading.Lock()

    def around(self, given: Given) -> tuple[Size, ...]:
        """The sizes, with bounds that the extents of a run are within, if they may be.

        Where one has to grow, so do those that soon would, as each growth takes a program.
        """
        extents = self._extents(given)
        with self._lock:
            if any(extent > self._most.get(name, -1) for name, extent in extents.items()):
                self._most = self._grown(extents)
            return self._bounded(self._most)

    def tighten(self) -> bool:
        """From now on leave less room for extents to come, as a program with more is refused:
        tables of a model end somewhere, such as those of positions.  False if there is little."""
        with self._lock:
            if self._room is Room.LITTLE or not self.is_open:
                return False
            self._room, self._most = Room(self._room + 1), {}
            return True

    def ahead(self, given: Given) -> tuple[Size, ...] | None:
        """The sizes of the program that runs will need soon, given once; None if none will."""
        extents = self._extents(given)
        with self._lock:
            near = {name for name, n in extents.items() if 4 * n > 3 * self._most.get(name, 0)}
            if not near:
                return None
            if self._room is not Room.AMPLE:  # the most grows with the extents alone
                extents = {name: self._most.get(name, 0) + 1 for name in near}
            sizes = self._bounded(self._grown(extents))
            if sizes in self._ahead:
                return None
            self._ahead.add(sizes)
            return sizes

    def adopt(self, sizes: Sequence[Size]) -> None:
        """Use the program of these sizes from now on: it is made."""
        with self._lock:
            for size in sizes:
                self._most[size.name] = max(size.hi, self._most.get(size.name, 0))

    def _grown(self, extents: Mapping[str, int]) -> dict[str, int]:
        """The most of each size, where those grow that are more than half of it, and if no room is
        left, more than all of it."""
        most = dict(self._most)
        for name, extent in extents.items():
            if self._room is not Room.AMPLE:
                most[name] = max(most.get(name, 0), _tight_most(extent, self._room))
            elif 2 * extent > most.get(name, -1):
                most[name] = most_for(extent, most.get(name, 0))
        return most

    def _bounded(self, most: Mapping[str, int]) -> tuple[Size, ...]:
        return tuple(
            size if size.is_bounded else replace(size, hi=most[size.name])
            for size in self._sizes
            if size.is_bounded or size.name in most
        )

    def _extents(self, given: Given) -> dict[str, int]:
        """The extents of a run along axes of sizes without a most."""
        found = {}
        for size in self._sizes:
            name, axis = self._axes.get(size.name, ("", 0))
            if not size.is_bounded and axis < len(given.get(name, ())):
                found[size.name] = given[name][axis]
        return found
