"""Emits loads and stores: flattened addresses, masked vectors, and the local buffers of a kernel.

In: a buffer, index expressions and the mask of the active lanes.  Out: values, and stores.  What
always holds: an inactive lane writes nothing that the caller owns, and of its memory reads at most
elements of the buffer, such as the first one, which exists.  Local buffers
(scopes "register" and "scratch") have a padded last axis and spare elements at their end.  A whole
vector may therefore be loaded from them, and stored to them where the inactive lanes fall into the
padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd, prod

from graphflow.arith import IndexExpr, growth, linear, variables, weighted
from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.avx512 import masks_narrow_elements, permuted_words
from graphflow.codegen.emit_index import Indices, Terms
from graphflow.codegen.emit_mask import Mask, mask_value
from graphflow.codegen.emit_transpose import column_of
from graphflow.codegen.transposed_sums import LANE_ORDER
from graphflow.cost import MOST_STRIDE, in_pieces, tests_masks
from graphflow.llvm import (
    ELEMENTS,
    IrBuilder,
    IrValue,
    int_constant,
    mangled,
    typed_constant,
)
from graphflow.tir import DTYPES, Buffer, BufferWindow

ALIGNMENT = 64
"""Bytes; of local buffers: a cache line, and the widest vector."""
SLACK_VECTORS = 4
"""Spare float32 vectors at the end of a local buffer: as many as a vectorized loop may span, so
that a load of all its lanes from the last element on stays in the buffer's memory."""
LOCAL_BYTES_LIMIT = 4 * 1024 * 1024
"""Stack that one kernel may take; a thread's stack is commonly 8 MiB."""


@dataclass(frozen=True, slots=True)
class BufferAddress:
    """Where a buffer lies; `strides` and `row` are those of memory, padded for local buffers.

    Vectors of one that is `transposed` are kept in another order of lanes (`transposed_sums`).
    """

    base: IrValue
    dtype: str
    strides: tuple[int, ...]
    size: int
    local: bool
    length: int
    row: int
    transposed: bool = False
    read_only: bool = False

    @property
    def element(self) -> str:
        return _memory_element(self.dtype)

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Address:
    """A flattened element offset; `stride` is the lane's, None where it is not linear."""

    place: BufferAddress
    terms: Terms
    constant: int
    stride: int | None


class Memory:
    """The buffers of one kernel."""

    def __init__(
        self,
        builder: IrBuilder,
        indices: Indices,
        target: Target,
        transposed: frozenset[str] = frozenset(),
    ) -> None:
        self.builder = builder
        self.indices = indices
        self.target = target
        self._transposed = transposed
        self._places: dict[str, BufferAddress] = {}
        self._flat: dict[tuple[str, tuple[IndexExpr, ...]], IndexExpr] = {}
        self._local_bytes = 0
        self.values: dict[Buffer, IrValue] = {}
        """The values that the lets around name, by their buffers, which have no address."""

    # ---- buffers

    @contextmanager
    def named(self, buffer: Buffer, value: IrValue) -> Iterator[None]:
        """Within it, loads of the buffer of a let give `value`."""
        self.values[buffer] = value
        yield
        del self.values[buffer]

    def add_parameter(self, buffer: Buffer, base: IrValue, read_only: bool) -> None:
        """A buffer that the caller owns; nothing changes one that is `read_only` meanwhile."""
        length = buffer.shape[-1] if buffer.shape else 1
        self._places[buffer.name] = BufferAddress(
            base, buffer.dtype, buffer.strides, buffer.size, False, length, length, False, read_only
        )

    def allocate(self, buffer: Buffer, cleared: bool = False) -> None:
        """A buffer on the stack, once in the function however often its scope is entered.

        With `cleared`, a buffer in registers begins with zeros.  Else LLVM keeps what lanes that
        are never stored hold from one iteration of a loop to the next, and computes with it: one
        kernel took eight times as long where these numbers were denormal.
        """
        if buffer.name not in self._places:
            self._allocate(buffer)
        if not cleared or buffer.scope != "register":
            return
        place = self._places[buffer.name]
        for start in range(0, place.size, place.row):
            pointer, alignment = self._pointer(place, (), start)
            none = IrValue("zeroinitializer", place.element, place.row)
            self.builder.store(none, pointer, alignment)

    def _allocate(self, buffer: Buffer) -> None:
        if buffer.scope == "global":
            raise CodegenError(
                f"buffer {buffer.name} is allocated inside a kernel in scope global; kernels own "
                "no memory that others see: make it a parameter, or scope register or scratch"
            )
        lanes = self.target.lanes(buffer.dtype)
        length = buffer.shape[-1] if buffer.shape else 1
        row = _padded(length, lanes)
        shape = (*buffer.shape[:-1], row)
        strides = Buffer(buffer.name, shape, buffer.dtype).strides[: len(buffer.shape)]
        size = prod(shape) + SLACK_VECTORS * self.target.computed_lanes("float32")
        self._local_bytes += size * DTYPES[buffer.dtype].itemsize
        if self._local_bytes > LOCAL_BYTES_LIMIT:
            raise CodegenError(
                f"local buffers up to {buffer.name} take {self._local_bytes} bytes of stack, more "
                f"than {LOCAL_BYTES_LIMIT}; make the tile smaller or the buffer a parameter"
            )
        element, name = _memory_element(buffer.dtype), f"local.{len(self._places)}"
        base = self.builder.alloca(f"[{size} x {element}]", ALIGNMENT, name)
        self._places[buffer.name] = BufferAddress(
            base,
            buffer.dtype,
            strides,
            prod(shape),
            True,
            length,
            row,
            buffer.name in self._transposed,
        )

    # ---- addresses

    def address(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Address:
        """Where `buffer[indices]` lies under the bindings now in force."""
        place = self._places.get(buffer.name)
        if place is None:
            raise CodegenError(f"buffer {buffer.name} is neither a parameter nor allocated here")
        key = (buffer.name, indices)
        flat = self._flat.get(key)
        if flat is None:
            flat = self._flat[key] = weighted(zip(indices, place.strides, strict=True))
        return self.indices.resolved_once(flat, key, lambda: self._address(place, flat))

    def _address(self, place: BufferAddress, flat: IndexExpr) -> Address:
        terms, constant = self.indices.terms(flat)
        stride = self.indices.lane_stride(terms)
        if stride:
            lanes = self.indices.lanes
            assert lanes is not None
            terms = tuple(term for term in terms if term[0] is not lanes.var)
        return Address(place, terms, constant, stride)

    def _pointer(self, place: BufferAddress, terms: Terms, constant: int) -> tuple[IrValue, int]:
        """A pointer to one element, and its alignment."""
        key = (place.base.text, terms, constant)
        return self.builder.remembered_in_block(
            key, lambda: self._new_pointer(place, terms, constant)
        )

    def _new_pointer(
        self, place: BufferAddress, terms: Terms, constant: int
    ) -> tuple[IrValue, int]:
        pointer, step = place.base, constant
        if terms:
            key = (place.base.text, terms)
            pointer = self.builder.remembered(key, lambda: self._moved(place, terms))
        for _, k in terms:
            step = gcd(step, k)
        if constant:
            moved = (int_constant(constant),)
            pointer = self.builder.element_address(place.element, pointer, moved)
        # A parameter may begin at any element of a storage.
        known = ALIGNMENT if place.local else place.itemsize
        alignment = gcd(known, step * place.itemsize) if step else known
        return pointer, alignment

    def _moved(self, place: BufferAddress, terms: Terms) -> IrValue:
        return self._at(place, self.indices.sum(terms, 0))

    def _at(self, place: BufferAddress, offset: IrValue) -> IrValue:
        return self.builder.element_address(place.element, place.base, (offset,))

    def surely_inside(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> bool:
        """Whether the element is in bounds for all values of the enclosing loops' variables."""
        return buffer in self.values or self._whole_lanes_inside(self.address(buffer, indices))

    def _whole_lanes_inside(self, address: Address) -> bool:
        lanes = self.indices.lanes
        if address.stride and lanes is not None:
            last = address.stride * (lanes.extent - 1)
            low, high = self.indices.bounds(address.terms, address.constant)
            if low is None or high is None:
                return False
            return low + min(last, 0) >= 0 and high + max(last, 0) < address.place.size
        return self._inside(address, 1)

    def _inside(self, address: Address, lanes: int) -> bool:
        """Whether `lanes` elements from this address on are in bounds, whatever the mask."""
        low, high = self.indices.bounds(address.terms, address.constant)
        if low is None or high is None:
            return False
        return low >= 0 and high + lanes <= address.place.size

    # ---- windows of instructions

    def window(
        self, window: BufferWindow, shape: tuple[int, ...], rows_apart: bool = False
    ) -> Address | None:
        """Where a window begins whose elements follow one another; None if they do not, or if
        they are stored in other types than they are computed in.

        With `rows_apart` the elements of each row do, and rows along the first axis may be apart.
        """
        address = self.address(window.buffer, window.starts)
        strides = [address.place.strides[axis] for axis in window.kept]
        pairs = [*zip(strides, Buffer("", shape).strides, shape, strict=True)]
        together = pairs[1:] if rows_apart else pairs
        if address.place.dtype == "bool" or any(a != b for a, b, n in together if n > 1):
            return None
        return address

    def pointer_to(self, address: Address) -> IrValue:
        """The pointer to the element at an address."""
        return self._pointer(address.place, address.terms, address.constant)[0]

    def load_window(self, address: Address, lanes: int) -> IrValue:
        """The first `lanes` elements from an address on."""
        pointer, alignment = self._pointer(address.place, address.terms, address.constant)
        return self._load_at(address.place, pointer, alignment, lanes)

    def load_first(self, address: Address, truth: IrValue) -> IrValue:
        """The elements from an address on in the lanes of `truth`, zero in the others."""
        pointer, alignment = self._pointer(address.place, address.terms, address.constant)
        return self.builder.masked_load(pointer, address.place.element, alignment, truth)

    def store_window(self, address: Address, raw: IrValue) -> None:
        """Store all lanes of a value from an address on."""
        pointer, alignment = self._pointer(address.place, address.terms, address.constant)
        self.builder.store(raw, pointer, alignment)

    # ---- loads

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
        if self._is_strided(address, mask):
            if mask.dynamic is None:
                return self._load_strided(address, mask)
            if masks_narrow_elements(self.target):
                return self._load_strided_where(address, mask)
        if self._is_near(address, mask):
            return self._load_near(address, mask)
        return self._load_lanes(address, mask)

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

    def _is_strided(self, address: Address, mask: Mask) -> bool:
        """Whether the lanes load every second to fourth element, so that a few vectors hold all."""
        stride = address.stride
        if stride is None or not 2 <= stride <= MOST_STRIDE:
            return False
        return mask.count > 1 and address.place.dtype != "bool"

    def _load_strided(self, address: Address, mask: Mask) -> IrValue:
        """Vectors over all elements from the first lane's to the last lane's, which exist, then
        shuffles.

        The vectors begin at multiples of the stride, so that neighbouring taps of a window load the
        same ones; where that would load something outside the buffer, they begin at the first
        lane's element and the last of them ends at the last lane's.  Idle lanes are poison, as in
        `_load_lanes`.
        """
        place, stride = address.place, address.stride
        assert stride is not None
        elements = {lane: address.constant + stride * lane for lane in mask.lanes()}
        first, end = min(elements.values()), max(elements.values()) + 1
        width = min(self.target.lanes(place.dtype), 1 << ((end - first).bit_length() - 1))
        start = first - first % stride
        starts = [*range(start, end, width)]
        if not self._inside(replace(address, constant=start), len(starts) * width):
            starts = [min(at, end - width) for at in range(first, end, width)]
        value = IrValue("poison", ELEMENTS[place.dtype], mask.width)
        for at in starts:
            vector = self._load_at(place, *self._pointer(place, address.terms, at), width)
            held = {lane: e - at for lane, e in elements.items() if at <= e < at + width}
            value = self._with_lanes(value, vector, held)
        return value

    def _load_strided_where(self, address: Address, mask: Mask) -> IrValue:
        """The same where a run decides which lanes load: each vector is loaded under a mask of the
        elements that they load, and lanes that do not are zero."""
        place, stride = address.place, address.stride
        assert stride is not None
        truth, width = mask_value(self.builder, mask), mask.width
        none = IrValue("zeroinitializer", "i1", width)
        value = IrValue("zeroinitializer", ELEMENTS[place.dtype], width)
        for at in range(0, stride * width, width):
            held = {
                lane: stride * lane - at for lane in mask.lanes() if 0 <= stride * lane - at < width
            }
            if not held:
                continue
            loaded = {element: lane for lane, element in held.items()}
            places = [loaded.get(element, width) for element in range(width)]
            where = self.builder.shuffled(truth, none, places)
            pointer, alignment = self._pointer(place, address.terms, address.constant + at)
            vector = self.builder.masked_load(pointer, place.element, alignment, where)
            value = self._with_lanes(value, vector, held)
        return value

    def _with_lanes(self, value: IrValue, vector: IrValue, held: dict[int, int]) -> IrValue:
        """`value` with the elements of `vector` at the places `held` in those lanes."""
        size = max(value.lanes, vector.lanes)
        low, high = (self.builder.widened(x, size) for x in (value, vector))
        places = [size + held[lane] if lane in held else lane for lane in range(value.lanes)]
        return self.builder.shuffled(low, high, places)

    def _load_one(self, address: Address, mask: Mask | None) -> IrValue:
        place = address.place
        if mask is not None and mask.dynamic is not None and not self._inside(address, 1):
            offset = self.indices.sum(address.terms, address.constant)
            pointer = self._at(place, self.builder.select(self._any(mask), offset, int_constant(0)))
            alignment = place.itemsize
        else:
            pointer, alignment = self._pointer(place, address.terms, address.constant)
        return self._load_at(place, pointer, alignment, 1)

    def _any(self, mask: Mask) -> IrValue:
        name = f"llvm.vector.reduce.or.v{mask.width}i1"
        return self.builder.call(name, "i1", self.builder.readable(mask_value(self.builder, mask)))

    def _all(self, mask: Mask) -> IrValue:
        """Whether all lanes of a mask run, of which each may."""
        truth = mask_value(self.builder, mask)
        return self.builder.call(f"llvm.vector.reduce.and.v{mask.width}i1", "i1", truth)

    def _load_at(
        self, place: BufferAddress, pointer: IrValue, alignment: int, lanes: int
    ) -> IrValue:
        def load() -> IrValue:
            raw = self.builder.load(pointer, place.element, alignment, lanes)
            return self._as_value(place, raw)

        if not place.read_only:
            return load()
        return self.builder.remembered_in_block((pointer.text, lanes), load)

    def _as_value(self, place: BufferAddress, raw: IrValue) -> IrValue:
        if place.dtype != "bool":
            return raw
        return self.builder.compare("icmp ne", raw, int_constant(0, "i8"))

    def _as_memory(self, place: BufferAddress, value: IrValue) -> IrValue:
        return self.builder.convert("zext", value, "i8") if place.dtype == "bool" else value

    def _load_vector(self, address: Address, mask: Mask) -> IrValue:
        place, width = address.place, mask.width
        pointer, alignment = self._pointer(place, address.terms, address.constant)
        if mask.is_full or (place.local and self._may_touch_whole(address, mask)):
            return self._load_at(place, pointer, alignment, width)
        # Zero in the lanes that do not run: a number, so that nothing is undefined in them.
        truth = mask_value(self.builder, mask)

        def some() -> IrValue:
            raw = self.builder.masked_load(pointer, place.element, alignment, truth)
            return self._as_value(place, raw)

        if mask.dynamic is None or not all(mask.active) or not self._tests_lanes(place):
            return some()
        return self.builder.choose(
            self._all(mask), lambda: self._load_at(place, pointer, alignment, width), some
        )

    def _tests_lanes(self, place: BufferAddress) -> bool:
        """Whether a load under a mask is a test and a load for each lane: AVX2 has masks for words
        alone, and a branch around all lanes is cheaper."""
        return place.itemsize < WORD and not masks_narrow_elements(self.target)

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

    def _parted(self, address: Address) -> tuple[Terms, Terms]:
        """The terms of an address in which the lane occurs, and the others."""
        lanes = self.indices.lanes
        assert lanes is not None
        moving = tuple(term for term in address.terms if lanes.var in variables(term[0]))
        return moving, tuple(term for term in address.terms if term not in moving)

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

    def _lane_terms(self, address: Address, lane: int) -> tuple[Terms, int]:
        if address.stride is None:
            return self.indices.at_lane(address.terms, address.constant, lane)
        return address.terms, address.constant + lane * address.stride

    def _lane_pointer(self, address: Address, lane: int, mask: Mask) -> tuple[IrValue, int]:
        terms, constant = self._lane_terms(address, lane)
        if mask.dynamic is None:
            return self._pointer(address.place, terms, constant)
        runs = self.builder.extract(mask.dynamic, lane)
        offset = self.builder.select(runs, self.indices.sum(terms, constant), int_constant(0))
        return self._at(address.place, offset), address.place.itemsize

    # ---- stores

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

    def _reordered(self, address: Address, vector: IrValue) -> IrValue:
        """A vector in the order of memory of its elements in order, or the other way round."""
        if not address.place.transposed:
            return vector
        none = IrValue("poison", vector.element, vector.lanes)
        return self.builder.shuffled(vector, none, LANE_ORDER)

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

    def _may_touch_whole(self, address: Address, mask: Mask) -> bool:
        """Whether a vector at a local address stays in its memory; there is slack behind."""
        if mask.dynamic is None and mask.active[0]:
            return True
        return self._inside(address, 1)

    def idle_lanes_in_padding(self, address: Address, mask: Mask) -> bool:
        place = address.place
        if not mask.is_prefix or any(k % place.row for _, k in address.terms):
            return False
        first = address.constant % place.row
        return first + mask.count >= place.length and first + mask.width <= place.row

    def _store_lanes(self, address: Address, raw: IrValue, mask: Mask) -> None:
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


WORD = 4
"""Bytes of an integer that vectors are truncated from."""

WORDS = ("float32", "int32")
"""The element types that one instruction permutes, by places that are computed."""

NEAR = 4
"""Lanes from which on a vector and a permutation cost less than a load of each."""


def _memory_element(dtype: str) -> str:
    """The LLVM type of an element in memory."""
    return "i8" if dtype == "bool" else ELEMENTS[dtype]


def _padded(length: int, lanes: int) -> int:
    """The next power of two below `lanes`, a multiple of `lanes` from there on."""
    if length < lanes:
        return 1 << max(length - 1, 0).bit_length()
    return -(-length // lanes) * lanes
