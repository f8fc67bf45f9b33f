"""Where the buffers of a kernel lie: flattened addresses, pointers, and local buffers on the stack.

In: a buffer and index expressions.  Out: an `Address`, a pointer, and whole vectors at it.  What
always holds: local buffers (scopes "register" and "scratch") have a padded last axis and spare
elements at their end.  A whole vector may therefore be loaded from them, and stored to them where
the inactive lanes fall into the padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd, prod

from msgspec import Struct

from graphflow.arith import IndexExpr, evaluate, linear, variables, weighted
from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.emit_index import Indices, Terms
from graphflow.codegen.emit_mask import Mask, mask_value
from graphflow.codegen.transposed_sums import LANE_ORDER
from graphflow.llvm import ELEMENTS, IrBuilder, IrValue, int_constant
from graphflow.tir import DTYPES, Buffer, BufferWindow

ALIGNMENT = 64
"""Bytes; of local buffers: a cache line, and the widest vector."""
SLACK_VECTORS = 4
"""Spare float32 vectors at the end of a local buffer: as many as a vectorized loop may span, so
that a load of all its lanes from the last element on stays in the buffer's memory."""
LOCAL_BYTES_LIMIT = 4 * 1024 * 1024
"""Stack that one kernel may take; a thread's stack is commonly 8 MiB."""
WORD = 4
"""Bytes of an integer that vectors are truncated from."""


class BufferAddress(Struct, frozen=True):
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


class Address(Struct, frozen=True):
    """A flattened element offset; `stride` is the lane's, None where it is not linear."""

    place: BufferAddress
    terms: Terms
    constant: int
    stride: int | None


class BufferPlaces:
    """The buffers of one kernel, and where their elements lie."""

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

    def _lane_terms(self, address: Address, lane: int) -> tuple[Terms, int]:
        if address.stride is None:
            return self.indices.at_lane(address.terms, address.constant, lane)
        return address.terms, address.constant + lane * address.stride

    def _in_lanes(self, address: Address, mask: Mask) -> tuple[Terms, dict[int, int]] | None:
        """What of an address is the same in all lanes, and the constant that each lane of the mask
        adds to it; None where loops around decide how far lanes are apart."""
        if address.stride is not None:
            stride = address.stride
            return address.terms, {k: address.constant + stride * k for k in mask.lanes()}
        (moving, rest), lanes = self._parted(address), self.indices.lanes
        assert lanes is not None
        if any(variables(atom) != {lanes.var} for atom, _ in moving):
            return None
        place = linear(moving, address.constant)
        return rest, {k: evaluate(place, {lanes.var: k}) for k in mask.lanes()}

    def _parted(self, address: Address) -> tuple[Terms, Terms]:
        """The terms of an address in which the lane occurs, and the others."""
        lanes = self.indices.lanes
        assert lanes is not None
        moving = tuple(term for term in address.terms if lanes.var in variables(term[0]))
        return moving, tuple(term for term in address.terms if term not in moving)

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

    # ---- elements of memory

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

    def _reordered(self, address: Address, vector: IrValue) -> IrValue:
        """A vector in the order of memory of its elements in order, or the other way round."""
        if not address.place.transposed:
            return vector
        none = IrValue("poison", vector.element, vector.lanes)
        return self.builder.shuffled(vector, none, LANE_ORDER)

    # ---- masks

    def _any(self, mask: Mask) -> IrValue:
        name = f"llvm.vector.reduce.or.v{mask.width}i1"
        return self.builder.call(name, "i1", self.builder.readable(mask_value(self.builder, mask)))

    def _all(self, mask: Mask) -> IrValue:
        """Whether all lanes of a mask run, of which each may."""
        truth = mask_value(self.builder, mask)
        return self.builder.call(f"llvm.vector.reduce.and.v{mask.width}i1", "i1", truth)


def _memory_element(dtype: str) -> str:
    """The LLVM type of an element in memory."""
    return "i8" if dtype == "bool" else ELEMENTS[dtype]


def _padded(length: int, lanes: int) -> int:
    """The next power of two below `lanes`, a multiple of `lanes` from there on."""
    if length < lanes:
        return 1 << max(length - 1, 0).bit_length()
    return -(-length // lanes) * lanes
