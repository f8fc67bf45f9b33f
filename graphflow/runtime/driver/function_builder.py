"""Writes native functions as LLVM IR: parameters, local variables, calls, loops that are left.

In: a decorated Python function for each native function; it is called once, with a `NativeBody`
and the parameters, and writes the instructions.  Out: `module_text`, the IR of the exported
functions and of all that they call.  What always holds: each block ends with exactly one jump or
return.

Local variables are stack slots.  The text is to be run through LLVM's SROA pass, which keeps those
in registers whose address is passed to no call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from msgspec import Struct, field

from graphflow.base.errors import CodegenError
from graphflow.llvm import IrBuilder, IrValue, call_text
from graphflow.runtime.driver.instructions import (
    AddressOf,
    NativePlace,
    NativeValue,
    Operand,
    as_ir,
)
from graphflow.runtime.driver.structs import (
    INT64,
    POINTER,
    ArrayType,
    DataType,
    ScalarType,
    StructType,
)


class NativeFunction(Struct, frozen=True, eq=False):
    """A native function: name, parameters, result, and `write`, which writes its body.

    Functions without `write` are LLVM's intrinsics or the system's.
    """

    name: str
    parameters: Mapping[str, ScalarType | AddressOf] = field(default_factory=dict)
    result: ScalarType | None = None
    write: Callable[..., None] | None = None
    exported: bool = False
    variadic: bool = False

    @property
    def result_type(self) -> str:
        """The LLVM type of the result."""
        return self.result.llvm if self.result else "void"

    @property
    def parameter_types(self) -> str:
        """The LLVM types of the parameters, as a declaration lists them."""
        types = [kind.llvm for kind in self.parameters.values()]
        return ", ".join([*types, "..."] if self.variadic else types)


def function(
    result: ScalarType | None = None, exported: bool = False, **parameters: ScalarType | AddressOf
) -> Callable[[Callable[..., None]], NativeFunction]:
    """Makes a `NativeFunction` of the decorated Python function, which writes its body.

    The Python function is called with a `NativeBody` and then one argument for each parameter: a
    `NativePlace` where the parameter is an `AddressOf`, a `NativeValue` otherwise.
    """

    def made(write: Callable[..., None]) -> NativeFunction:
        return NativeFunction(write.__name__, parameters, result, write, exported)

    return made


class NativeLoop(Struct, frozen=True, eq=False):
    """A loop under construction, which only `leave` or the end of the function ends."""

    builder: IrBuilder
    head: str
    end: str
    ended: list[bool] = field(default_factory=list)

    def leave(self) -> None:
        """Go on behind the loop."""
        self.ended.append(True)
        self.builder.jump(self.end)

    def again(self) -> None:
        """Begin the next iteration."""
        self.builder.jump(self.head)


class NativeBody:
    """The body of one function under construction."""

    def __init__(self, result: ScalarType | None) -> None:
        self.builder = IrBuilder()
        self.called: dict[str, NativeFunction] = {}
        self._result = result

    # ---- memory

    def place(self, address: NativeValue, kind: DataType) -> NativePlace:
        """The memory that a pointer points to."""
        return NativePlace(address, kind)

    def array(self, address: NativeValue, element: DataType) -> NativePlace:
        """The elements that a pointer points to."""
        return NativePlace(address, ArrayType(element, 0))

    def local(self, kind: DataType, initial: Operand = None, alignment: int = 0) -> NativePlace:
        """A variable on the stack, undefined where `initial` is not given."""
        name = self.builder.fresh("slot")
        address = self.builder.alloca(kind.llvm, alignment or kind.alignment, name)
        place = NativePlace(NativeValue(self.builder, address), kind)
        if initial is not None:
            place.store(initial)
        return place

    # ---- values and calls

    def select(
        self, condition: NativeValue, if_true: Operand, if_false: Operand, kind: ScalarType
    ) -> NativeValue:
        """`if_true` where the condition holds, else `if_false`."""
        sides = (as_ir(if_true, kind.llvm), as_ir(if_false, kind.llvm))
        return NativeValue(self.builder, self.builder.select(condition.ir, *sides))

    def call(self, callee: NativeFunction, *arguments: Operand) -> NativeValue:
        """Call a function that has a result."""
        if callee.result is None:
            raise CodegenError(f"{callee.name} has no result")
        text = self._called(callee, arguments)
        return NativeValue(self.builder, self.builder.emit(text, callee.result.llvm))

    def run(self, callee: NativeFunction, *arguments: Operand) -> None:
        """Call a function for its effect; its result, if any, is ignored."""
        if callee.result is None:
            self.builder.do(self._called(callee, arguments))
        else:
            self.call(callee, *arguments)

    def run_pointer(self, callee: NativeValue, *arguments: tuple[ScalarType, Operand]) -> None:
        """Call a function without a result by its address, with arguments of stated types."""
        passed = [as_ir(value, kind.llvm) for kind, value in arguments]
        self.builder.do(call_text(callee.ir.text, "void", passed))

    def address_of(self, callee: NativeFunction) -> NativeValue:
        """The address of a function."""
        self.called[callee.name] = callee
        return NativeValue(self.builder, IrValue(f"@{callee.name}", POINTER.llvm))

    def _called(self, callee: NativeFunction, arguments: Sequence[Operand]) -> str:
        self.called[callee.name] = callee
        kinds = [kind.llvm for kind in callee.parameters.values()]
        result = callee.result_type
        if callee.variadic:
            kinds += [_promoted(argument) for argument in arguments[len(kinds) :]]
            result = f"{result} ({callee.parameter_types})"
        passed = [as_ir(value, kind) for value, kind in zip(arguments, kinds, strict=True)]
        return call_text(f"@{callee.name}", result, passed)

    # ---- control flow

    def give(self, value: Operand = None) -> None:
        """Return from the function, with the null pointer where a pointer is not given."""
        if self._result is None:
            self.builder.end_block("ret void")
        else:
            returned = as_ir(value, self._result.llvm)
            self.builder.end_block(f"ret {returned.type} {returned.text}")

    def when(self, condition: NativeValue) -> AbstractContextManager[None]:
        """What is written inside happens only if the condition holds."""
        return self.builder.when(condition.ir)

    def either(self, condition: NativeValue) -> AbstractContextManager[Callable[[], None]]:
        """What is written inside happens if the condition holds, and what follows the call of the
        context if it does not."""
        return self.builder.either(condition.ir)

    @contextmanager
    def loop(self) -> Iterator[NativeLoop]:
        """What is written inside happens again and again, until `leave`."""
        builder = self.builder
        loop = NativeLoop(builder, builder.fresh("loop"), builder.fresh("end"))
        builder.begin_block(loop.head)
        with builder.nested():
            yield loop
        if builder.is_open:
            loop.again()
        if loop.ended:
            builder.begin_block(loop.end)

    @contextmanager
    def counted(self, start: int, stop: NativeValue) -> Iterator[NativeValue]:
        """What is written inside happens for each i with start <= i < stop."""
        counter = self.local(INT64, start)
        with self.loop() as loop:
            i = counter.load()
            with self.when(i.at_least(stop)):
                loop.leave()
            yield i
            counter.store(i + 1)


def _promoted(argument: Operand) -> str:
    """The LLVM type of an argument that the callee does not state: of 64 bits, or as it is."""
    if isinstance(argument, int):
        return INT64.llvm
    return argument.ir.element if isinstance(argument, NativeValue) else POINTER.llvm


def module_text(
    exported: Sequence[NativeFunction], structs: Sequence[StructType], triple: str
) -> str:
    """The IR of the exported functions and of all that they call, directly or not."""
    todo, written = list(exported), dict[str, str]()
    while todo:
        callee = todo.pop(0)
        if callee.name not in written:
            written[callee.name], called = _text(callee)
            todo += called
    heads = [f'target triple = "{triple}"', *(struct.llvm_definition for struct in structs)]
    return "\n\n".join(["\n".join(heads), *written.values()]) + "\n"


def _text(callee: NativeFunction) -> tuple[str, list[NativeFunction]]:
    """The definition or declaration of a function, and the functions that it calls."""
    if callee.write is None:
        return f"declare {callee.result_type} @{callee.name}({callee.parameter_types})", []
    body = NativeBody(callee.result)
    builder = body.builder
    callee.write(body, *(_argument(builder, *each) for each in callee.parameters.items()))
    if builder.is_open:
        if callee.result is not None:
            raise CodegenError(f"{callee.name} may end without a result")
        body.give()
    listed = ", ".join(f"{kind.llvm} %{name}" for name, kind in callee.parameters.items())
    linkage = "" if callee.exported else "internal "
    head = f"define {linkage}{callee.result_type} @{callee.name}({listed}) {{"
    lines = [head, "entry:", *builder.entry, *builder.lines, "}"]
    return "\n".join(lines), list(body.called.values())


def _argument(
    builder: IrBuilder, name: str, kind: ScalarType | AddressOf
) -> NativeValue | NativePlace:
    value = NativeValue(builder, IrValue(f"%{name}", kind.llvm))
    return NativePlace(value, kind.target) if isinstance(kind, AddressOf) else value
