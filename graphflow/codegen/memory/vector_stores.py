"""Emits stores under masks, and loads (`vector_loads`).

In: a buffer, index expressions, a value and the mask of the active lanes.  Out: stores.  What
always holds: an inactive lane writes nothing that the caller owns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from graphflow.arith import IndexExpr
from graphflow.base.fields import replace
from graphflow.codegen.emit_mask import Mask, mask_value
from graphflow.codegen.memory.buffer_places import WORD, Address
from graphflow.codegen.memory.vector_loads import LoadedBuffers
from graphflow.cost import in_pieces, tests_masks
from graphflow.llvm import IrValue, int_constant, mangled
from graphflow.tir import Buffer


class Memory(LoadedBuffers):
    """The buffers of one kernel, whose elements are loaded and stored."""

    def store(
        self, buffer: Buffer, indices: tuple[IndexExpr, ...], value: IrValue, mask: Mask | None
    ) -> None:
        """`buffer[indices] = value` in the lanes of `mask`; of equal addresses, the last lane's."""
        address = self.address(buffer, indices)
        raw = self.stored(address, value)
        if mask is None:
            self.store_window(address, raw)
        elif address.stride == 1:
            vector = self._reordered(address, self.builder.splat(raw, mask.width))
            self._store_vector(address, vector, mask)
        elif address.stride == 0 and mask.dynamic is None:
            self.store_window(address, self.builder.extract(raw, max(mask.lanes())))
        elif address.stride == 0 and raw.lanes == 1:
            with self.builder.when(self._any(mask)):
                self.store_window(address, raw)
        else:
            self._store_lanes(address, raw, mask)

    def stored(self, address: Address, value: IrValue) -> IrValue:
        """The value as it lies in memory at an address."""
        # Lane by lane, unless the lanes are neighbours.
        parts = value if address.stride == 1 else self.builder.readable(value)
        return self._as_memory(address.place, parts)

    def _store_vector(self, address: Address, raw: IrValue, mask: Mask) -> None:
        place = address.place
        pointer, alignment = self._pointer(place, address.terms, address.constant)
        if mask.is_full or (place.local and self.idle_lanes_in_padding(address, mask)):
            self.builder.store(raw, pointer, alignment)
        elif mask.dynamic is not None and all(mask.active) and tests_masks(self.target):
            with self.builder.either(self._all(mask)) as otherwise:
                self.builder.store(raw, pointer, alignment)
                otherwise()
                self._store_under(address, raw, mask)
        else:
            self._store_under(address, raw, mask)

    def _store_under(self, address: Address, raw: IrValue, mask: Mask) -> None:
        """Store the lanes of a mask that leaves out some, or may do so."""
        place = address.place
        pointer, alignment = self._pointer(place, address.terms, address.constant)
        if place.local and self._may_touch_whole(address, mask):
            old = self.builder.load(pointer, raw.element, alignment, raw.lanes)
            blended = self.builder.select(mask_value(self.builder, mask), raw, old)
            self.builder.store(blended, pointer, alignment)
        elif mask.dynamic is None and in_pieces(self.target):
            for start, lanes in mask.pieces():
                piece = replace(address, constant=address.constant + start)
                self.store_window(piece, self.builder.part(raw, start, lanes))
        elif mask.dynamic is None and mask.count == 1 and place.itemsize < WORD:
            # LLVM 22 stores the one lane of a vector that was truncated as a word of 4 bytes.
            self._store_lanes(address, raw, mask)
        else:
            name = f"llvm.masked.store.{mangled(place.element, mask.width)}.p0"
            truth = mask_value(self.builder, mask)
            self.builder.call_void(name, raw, pointer, int_constant(alignment, "i32"), truth)

    def _store_lanes(self, address: Address, raw: IrValue, mask: Mask) -> None:
        """Store lanes by themselves, in order; those that are surely neighbours, together."""
        found = self._in_lanes(address, mask) if mask.dynamic is None else None
        if found is not None:
            terms, elements = found
            raw = self.builder.splat(raw, mask.width)
            for start, lanes in _neighbours(elements, mask):
                piece = replace(address, terms=terms, constant=elements[start])
                self.store_window(piece, self.builder.part(raw, start, lanes))
            return
        for lane in mask.lanes():
            item = self.builder.extract(raw, lane)
            if mask.dynamic is None:
                self._store_lane(address, lane, item)
            else:
                with self.builder.when(self.builder.extract(mask.dynamic, lane)):
                    self._store_lane(address, lane, item)

    def _store_lane(self, address: Address, lane: int, item: IrValue) -> None:
        terms, constant = self._lane_terms(address, lane)
        pointer, alignment = self._pointer(address.place, terms, constant)
        self.builder.store(item, pointer, alignment)


def _neighbours(elements: Mapping[int, int], mask: Mask) -> Iterator[tuple[int, int]]:
    """The lanes of `mask` as runs (first lane, length) whose elements follow one another, each
    length a power of two."""
    begins = {lane for lane in elements if elements.get(lane - 1) != elements[lane] - 1}
    for begin, end in pairwise((*sorted(begins), mask.width)):
        run = Mask(tuple(begin <= k < end and active for k, active in enumerate(mask.active)))
        yield from run.pieces()
