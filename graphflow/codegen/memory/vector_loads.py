"""Emits loads: one element, or a vector of which each lane has an address.

In: a buffer, index expressions and the mask of the active lanes.  Out: a value.  What always holds:
an inactive lane reads at most elements of the buffer, such as the first one, which exists.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from graphflow.arith import IndexExpr, growth, linear
from graphflow.base.fields import replace
from graphflow.codegen.avx512 import masks_narrow_elements, permuted_words
from graphflow.codegen.emit_mask import Mask, mask_value
from graphflow.codegen.memory.buffer_places import WORD, Address, BufferAddress, BufferPlaces
from graphflow.codegen.memory.emit_transpose import column_of
from graphflow.cost import MOST_STRIDE
from graphflow.llvm import ELEMENTS, IrValue, int_constant, typed_constant
from graphflow.tir import Buffer

WORDS = ("float32", "int32")
"""The element types that one instruction permutes, by places that are computed."""

NEAR = 4
"""Lanes from which on a vector and a permutation cost less than a load of each."""

MORE = 2
"""Elements, and lanes, that are more than one."""


class ElementsApart(Struct, frozen=True):
    """Elements near each other that lanes load, by their constants in an address."""

    first: Address
    """That of the first element."""
    elements: dict[int, int]
    """Of each lane that loads."""
    end: int
    """Behind the last element."""

    @property
    def step(self) -> int:
        """The distance from lane to lane, where it is always the same; else 1."""
        places = [*self.elements.values()]
        steps = {later - one for one, later in pairwise(places)}
        return max(steps.pop(), 1) if len(steps) == 1 else 1

    @property
    def is_once(self) -> bool:
        """Whether no two lanes load the same element."""
        return len({*self.elements.values()}) == len(self.elements)


class LoadedBuffers(BufferPlaces):
    """The buffers of one kernel, whose elements are loaded."""

    def load(self, buffer: Buffer, indices: tuple[IndexExpr, ...], mask: Mask | None) -> IrValue:
        """The element; a vector of them where the address depends on the lane."""
        if not indices and buffer in self.values:
            return self.values[buffer]
        address = self.address(buffer, indices)
        if address.place.size == 0 and mask is not None:
            # No lane that runs reads it, and there is no first element for the others.
            return typed_constant(0, buffer.dtype)
        if mask is None or address.stride == 0:
            return self._load_one(address, mask)
        if address.stride == 1:
            return self._reordered(address, self._load_vector(address, mask))
        if self._is_column(address, mask):
            return self._load_column(address, mask)
        apart = self._some_apart(address, mask)
        if apart is not None and mask.dynamic is None:
            return self._load_apart(apart, mask)
        if apart is not None and apart.is_once and masks_narrow_elements(self.target):
            return self._load_apart_where(apart, mask)
        if self._is_near(address, mask):
            return self._load_near(address, mask)
        return self._load_lanes(address, mask)

    # ---- lanes that follow one another

    def _load_vector(self, address: Address, mask: Mask) -> IrValue:
        place, width = address.place, mask.width
        pointer, alignment = self._pointer(place, address.terms, address.constant)
        if mask.is_full or (place.local and self._may_touch_whole(address, mask)):
            return self._load_at(place, pointer, alignment, width)
        # Zero in the lanes that do not run: a number, so that nothing is undefined in them.
        if mask.dynamic is None and not place.local and self._tests_lanes(place):
            apart = self._some_apart(address, mask)
            if apart is not None:
                return self._load_apart(apart, mask, "zeroinitializer")
        truth = mask_value(self.builder, mask)

        def some() -> IrValue:
            return self._as_value(place, self._load_where(address, mask, truth))

        if mask.dynamic is None or not all(mask.active) or not self._tests_lanes(place):
            return some()
        return self.builder.choose(
            self._all(mask), lambda: self._load_at(place, pointer, alignment, width), some
        )

    def _load_where(self, address: Address, mask: Mask, truth: IrValue) -> IrValue:
        """The elements in the lanes of `truth`, which is that of `mask`; zero in the others.

        In pieces where a whole vector of the processor is known to be idle: of several vectors
        under a mask of AVX2 that a run decides, LLVM 22 loads such a one without a mask, even
        behind the end of the buffer.
        """
        place, b, most = address.place, self.builder, self.target.lanes(address.place.dtype)
        runs = [any(mask.active[start : start + most]) for start in range(0, mask.width, most)]
        if mask.dynamic is None or all(runs):
            pointer, alignment = self._pointer(place, address.terms, address.constant)
            return b.masked_load(pointer, place.element, alignment, truth)
        pieces = [IrValue("zeroinitializer", place.element, most)] * len(runs)
        for k in (k for k, some in enumerate(runs) if some):
            start, constant = most * k, address.constant + most * k
            pointer, alignment = self._pointer(place, address.terms, constant)
            where = b.part(truth, start, most)
            pieces[k] = b.masked_load(pointer, place.element, alignment, where)
        return b.joined(pieces)

    def _tests_lanes(self, place: BufferAddress) -> bool:
        """Whether a load under a mask is a test and a load for each lane: AVX2 has masks for words
        alone, and a branch around all lanes is cheaper."""
        return place.itemsize < WORD and not masks_narrow_elements(self.target)

    # ---- lanes in a column, or some elements apart

    def _is_column(self, address: Address, mask: Mask) -> bool:
        """Whether the lanes load a column: one element of each row of a local buffer.

        The rows are successive, and each fits a vector.
        """
        place, most = address.place, self.target.lanes(address.place.dtype)
        return (
            place.local
            and place.dtype != "bool"
            and not address.terms
            and mask.is_prefix
            and address.stride == place.row
            and max(place.row, mask.width) <= most
        )

    def _load_column(self, address: Address, mask: Mask) -> IrValue:
        """Load whole rows and transpose them; LLVM merges the shuffles that several columns share.

        Lanes beyond the rows are poison; `lanes_where` and `integer_div` freeze the values that
        they test.
        """
        place = address.place
        column = address.constant % place.row
        rows: list[IrValue] = []
        for lane in range(mask.count):
            start = address.constant - column + lane * place.row
            pointer, alignment = self._pointer(place, (), start)
            rows.append(self._load_at(place, pointer, alignment, place.row))
        value = column_of(self.builder, rows, column, place.itemsize)
        return self.builder.part(value, 0, mask.width)

    def _some_apart(self, address: Address, mask: Mask) -> ElementsApart | None:
        """The elements that the lanes load, where a few vectors hold all of them: they are known
        distances apart, such as two or four, or as the first two of each four elements are.

        In local buffers only where the distance is always the same: what is loaded across vectors
        that were stored there would wait for these.
        """
        place = address.place
        if place.dtype == "bool" or mask.count < MORE:
            return None
        found = self._in_lanes(address, mask)
        if found is None or (place.local and (address.stride or 0) < MORE):
            return None
        terms, elements = found
        begin, end = min(elements.values()), max(elements.values()) + 1
        if not MORE <= end - begin <= MOST_STRIDE * mask.count:
            return None
        return ElementsApart(replace(address, terms=terms, constant=begin, stride=0), elements, end)

    def _load_apart(self, apart: ElementsApart, mask: Mask, idle: str = "poison") -> IrValue:
        """Vectors over all elements from the first one to the last one, which exist, then shuffles.

        The vectors begin at multiples of the stride, so that neighbouring taps of a window load the
        same ones.  Where that would load something outside the buffer, they begin at the first
        element and the last of them ends at the last one.  Lanes that do not run are `idle`, where
        nothing else is said poison, as in `_load_lanes`.
        """
        first, begin, end = apart.first, apart.first.constant, apart.end
        place, most = first.place, self.target.lanes(first.place.dtype)
        width = min(most, 1 << (end - begin - 1).bit_length())
        start = begin - begin % apart.step
        starts = [*range(start, end, width)]
        if not self._inside(replace(first, constant=start), len(starts) * width):
            width = min(most, 1 << ((end - begin).bit_length() - 1))
            starts = [min(at, end - width) for at in range(begin, end, width)]
        value = IrValue(idle, ELEMENTS[place.dtype], mask.width)
        for at in starts:
            vector = self._load_at(place, *self._pointer(place, first.terms, at), width)
            held = {lane: e - at for lane, e in apart.elements.items() if at <= e < at + width}
            value = self._with_lanes(value, vector, held)
        return value

    def _load_apart_where(self, apart: ElementsApart, mask: Mask) -> IrValue:
        """The same where a run decides which lanes load: each vector is loaded under a mask of the
        elements that they load, and lanes that do not are zero."""
        first, place = apart.first, apart.first.place
        truth, width = mask_value(self.builder, mask), mask.width
        none = IrValue("zeroinitializer", "i1", width)
        value = IrValue("zeroinitializer", ELEMENTS[place.dtype], width)
        for at in range(first.constant, apart.end, width):
            held = {lane: e - at for lane, e in apart.elements.items() if 0 <= e - at < width}
            if not held:
                continue
            loaded = {element: lane for lane, element in held.items()}
            places = [loaded.get(element, width) for element in range(width)]
            where = self.builder.shuffled(truth, none, places)
            pointer, alignment = self._pointer(place, first.terms, at)
            vector = self.builder.masked_load(pointer, place.element, alignment, where)
            value = self._with_lanes(value, vector, held)
        return value

    def _with_lanes(self, value: IrValue, vector: IrValue, held: dict[int, int]) -> IrValue:
        """`value` with the elements of `vector` at the places `held` in those lanes."""
        size = max(value.lanes, vector.lanes)
        low, high = (self.builder.widened(x, size) for x in (value, vector))
        places = [size + held[lane] if lane in held else lane for lane in range(value.lanes)]
        return self.builder.shuffled(low, high, places)

    # ---- lanes near the first one

    def _is_near(self, address: Address, mask: Mask) -> bool:
        """Whether all lanes load from the vector that begins with the first lane's element, at
        distances that are not the same from lane to lane."""
        place, lanes = address.place, self.indices.lanes
        most = self.target.lanes(place.dtype)
        if address.stride is not None or lanes is None or not mask.is_prefix or mask.count < NEAR:
            return False
        if place.dtype not in WORDS or place.size < most or mask.width > most:
            return False
        moving, _ = self._parted(address)
        steps = (growth(linear(moving, 0), lanes.var, lane) for lane in range(1, mask.count))
        return all(step is not None and step[0] >= 0 and step[1] < most for step in steps)

    def _load_near(self, address: Address, mask: Mask) -> IrValue:
        """The vector from the first lane's element on, whose elements are permuted.

        At the end of the buffer it begins as much earlier as it would go beyond it.  The distances
        from the first lane do not depend on loops of the other terms, and are computed outside.
        """
        place, b, indices = address.place, self.builder, self.indices
        most = self.target.lanes(place.dtype)
        moving, rest = self._parted(address)
        first, constant = indices.at_lane(moving, address.constant, 0)
        begin = indices.sum((*rest, *first), constant)

        def distances() -> IrValue:
            lanes = [indices.sum(*indices.at_lane(moving, 0, k)) for k in range(mask.count)]
            steps = [b.binary("sub nsw", lane, lanes[0]) for lane in lanes]
            filled = [*steps, *[int_constant(0)] * (mask.width - mask.count)]
            return b.convert("trunc", b.gathered(filled, mask.width), "i32")

        places = b.remembered(("distances", moving, mask), distances)
        if not self._inside(Address(place, (*rest, *first), constant, 0), most):
            start = b.intrinsic("smin", begin, int_constant(place.size - most))
            later = b.convert("trunc", b.binary("sub nsw", begin, start), "i32")
            places, begin = b.binary("add", places, b.splat(later, mask.width)), start
        vector = self._load_at(place, self._at(place, begin), place.itemsize, most)
        return permuted_words(b, vector, places)

    # ---- elements by themselves

    def _load_one(self, address: Address, mask: Mask | None) -> IrValue:
        place = address.place
        if mask is not None and mask.dynamic is not None and not self._inside(address, 1):
            offset = self.indices.sum(address.terms, address.constant)
            pointer = self._at(place, self.builder.select(self._any(mask), offset, int_constant(0)))
            alignment = place.itemsize
        else:
            pointer, alignment = self._pointer(place, address.terms, address.constant)
        return self._load_at(place, pointer, alignment, 1)

    def _load_lanes(self, address: Address, mask: Mask) -> IrValue:
        """One load per lane; an inactive lane loads the buffer's first element, which exists.

        Lanes beyond the loop's extent are poison, which costs no instruction.  The poison stays in
        its lane: such a lane is neither stored nor reduced, and a condition on it is frozen
        (`lanes_where`).
        """
        place = address.place
        items: list[IrValue] = []
        for lane in range(mask.width):
            if not mask.active[lane]:
                items.append(IrValue("poison", ELEMENTS[place.dtype]))
                continue
            pointer, alignment = self._lane_pointer(address, lane, mask)
            items.append(self._load_at(place, pointer, alignment, 1))
        return self.builder.gathered(items, mask.width)

    def _lane_pointer(self, address: Address, lane: int, mask: Mask) -> tuple[IrValue, int]:
        terms, constant = self._lane_terms(address, lane)
        if mask.dynamic is None:
            return self._pointer(address.place, terms, constant)
        runs = self.builder.extract(mask.dynamic, lane)
        offset = self.builder.select(runs, self.indices.sum(terms, constant), int_constant(0))
        return self._at(address.place, offset), address.place.itemsize
