"""Windows and scalars of a call that an instruction performs.

In: a call, and the kernel under construction.  Out: the operands as LLVM's values, and the result
stored.  What always holds: an instruction is emitted only where its windows are contiguous and
nothing that it writes is a window of a buffer that it also reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from graphflow.base.target import Target
from graphflow.codegen.emit_index import Indices
from graphflow.codegen.matrices import MatrixRegisters, MatrixWindow, matrix_window
from graphflow.codegen.memory import Address, Memory
from graphflow.llvm import IrBuilder, IrValue, lanes_of
from graphflow.tir import Call, PrimFunc, Role, constant_operand


class Instruction(Struct, frozen=True):
    """A definition, the target feature that it needs, and the operation that performs it."""

    definition: PrimFunc
    feature: str | tuple[str, ...] | None
    """Of several any one will do; None for what LLVM emits for every target."""
    emit: Callable[[CallOperands], None]
    """Emits the operation on the operands, and stores what the definition writes."""
    flushes: bool = False
    """Whether it takes denormals for zeros whatever the control register says."""
    composed: bool = False
    """Whether it is several operations of the processor: no data is laid out for its sake."""

    def is_of(self, target: Target) -> bool:
        """Whether the target has the instruction, and permits it."""
        if self.flushes and not target.flushes_denormals:
            return False
        if self.feature is None:
            return True
        needed = (self.feature,) if isinstance(self.feature, str) else self.feature
        return not _listed(target.features).isdisjoint(needed)


@lru_cache(maxsize=16)
def _listed(features: str) -> frozenset[str]:
    return frozenset(features.split(","))


class CallOperands:
    """The windows and scalars of a call that is about to be emitted."""

    def __init__(
        self,
        call: Call,
        builder: IrBuilder,
        indices: Indices,
        memory: Memory,
        matrices: MatrixRegisters,
    ) -> None:
        self.call, self.builder, self.indices, self.memory = call, builder, indices, memory
        self.matrices = matrices
        self.addresses: dict[str, Address] = {}

    def emit(self, instruction: Instruction) -> bool:
        """Emit the instruction; False, with nothing emitted, where the windows do not permit it."""
        if not self.placed():
            return False
        instruction.emit(self)
        return True

    def placed(self) -> bool:
        """Find where the windows are, under the bindings now in force; False where an instruction
        cannot take them."""
        params = self.call.definition.params
        pairs = list(zip(params, self.call.windows, strict=True))
        written = [window.buffer for param, window in pairs if param.role is not Role.INPUT]
        buffers = [window.buffer for _, window in pairs]
        if any(buffers.count(buffer) > 1 for buffer in written):
            return False
        for param, window in pairs:
            address = self.memory.window(window, param.buffer.shape, rows_apart=param.strided)
            if address is None:
                return False
            self.addresses[param.buffer.name] = address
        return True

    def store(self, name: str, value: IrValue) -> None:
        """Store all elements of a parameter."""
        self.memory.store_window(self.addresses[name], value)

    def is_transposed(self, name: str) -> bool:
        """Whether the lanes of a parameter are kept in the order of `transposed_sums`."""
        return self.addresses[name].place.transposed

    def pointer(self, name: str) -> IrValue:
        """The address of the first element of a parameter."""
        return self.memory.pointer_to(self.addresses[name])

    def matrix(self, name: str) -> MatrixWindow:
        """The place of a parameter in memory, as a matrix register takes it."""
        pairs = zip(self.call.definition.params, self.call.windows, strict=True)
        window = next(window for param, window in pairs if param.buffer.name == name)
        shape = self.call.definition.param(name).shape
        return matrix_window(self.addresses[name], window, shape)

    def vector(self, name: str) -> IrValue:
        """All elements of a parameter."""
        size = self.call.definition.param(name).size
        return self.memory.load_window(self.addresses[name], size)

    def operand(self, text: str) -> IrValue:
        """All elements of a parameter, or a constant such as `i32 8`."""
        constant = constant_operand(text)
        return self.vector(text) if constant is None else IrValue(constant[1], constant[0])

    def repeated(self, name: str, times: int) -> IrValue:
        """The elements of a parameter, again and again."""
        value = self.vector(name)
        if value.lanes == 1:
            return self.builder.splat(value, times)
        none = IrValue("poison", value.element, value.lanes)
        return self.builder.shuffled(value, none, [*range(value.lanes)] * times)

    def in_rows(self, vectors: Sequence[IrValue], row: int, lanes: int) -> IrValue:
        """The first `lanes` lanes of the first vector, then the next ones of the second, and so on;
        the first vector stands for row number `row` of the result."""
        if len(vectors) == 1:
            return vectors[0]
        half = len(vectors) // 2
        low = self.in_rows(vectors[:half], row, lanes)
        high = self.in_rows(vectors[half:], row + half, lanes)
        later = self.builder.lanes_from((row + half) * lanes, low.lanes)
        return self.builder.select(later, high, low)

    def first(self, name: str, count: str) -> IrValue:
        """The first elements of a parameter, as many as the scalar `count` says, then zeros."""
        scalars = {
            v.name: e for v, e in zip(self.call.definition.scalars, self.call.scalars, strict=True)
        }
        lanes = self.call.definition.param(name).size
        numbers = lanes_of(range(lanes), "i64")
        limit = self.builder.splat(self.indices.value(scalars[count]), lanes)
        truth = self.builder.compare("icmp slt", numbers, limit)
        return self.memory.load_first(self.addresses[name], truth)
