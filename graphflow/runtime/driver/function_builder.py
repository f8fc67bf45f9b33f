"""Writes native functions as LLVM IR: structured control flow, calls, local variables.

In: a decorated Python function for each native function; it is called once, with a `NativeBody`
and the parameters, and writes the instructions.  Out: `module_text`, the IR of the exported
functions and of all that they call.  What always holds: each block ends with exactly one jump or
return.

Local variables are stack slots.  The text is to be run through LLVM's SROA pass, which keeps those
in registers whose address is passed to no call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from graphflow.base.errors import CodegenError
from graphflow.runtime.driver.instructions import (
    AddressOf,
    Instructions,
    NativePlace,
    NativeValue,
    Operand,
    llvm_type,
)
from graphflow.runtime.driver.structs import (
    INT64,
    POINTER,
    ArrayType,
    DataType,
    ScalarType,
    StructType,
)


@dataclass(frozen=True, slots=True, eq=False)
class NativeFunction:
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
        types = [llvm_type(kind) for kind in self.parameters.values()]
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


@dataclass(frozen=True, slots=True, eq=False)
class NativeLoop:
    """A loop under construction, which only `leave` or the end of the function ends."""

    body: NativeBody
    head: str
    end: str
    ended: list[bool] = field(default_factory=list)

    def leave(self) -> None:
        """Go on behind the loop."""
        self.ended.append(True)
        self.body.jump(self.end)

    def again(self) -> None:
        """Begin the next iteration."""
        self.body.jump(self.head)


class NativeBody(Instructions):
    """The body of one function under construction."""

    def __init__(self, result: ScalarType | None) -> None:
        super().__init__()
        self.called: dict[str, NativeFunction] = {}
        self.slots: list[str] = []
        self._result = result

    # ---- memory

    def place(self, address: NativeValue, kind: DataType) -> NativePlace:
        """The memory that a pointer points to."""
        return NativePlace(self, address, kind)

    def array(self, address: NativeValue, element: DataType) -> NativePlace:
        """The elements that a pointer points to."""
        return NativePlace(self, address, ArrayType(element, 0))

    def local(self, kind: DataType, initial: Operand = None, alignment: int = 0) -> NativePlace:
        """A variable on the stack, undefined where `initial` is not given."""
        name = f"%{self._name('slot')}"
        self.slots.append(f"  {name} = alloca {kind.llvm}, align {alignment or kind.alignment}")
        place = NativePlace(self, NativeValue(self, name, POINTER), kind)
        if initial is not None:
            place.store(initial)
        return place

    # ---- calls

    def call(self, callee: NativeFunction, *arguments: Operand) -> NativeValue:
        """Call a function that has a result."""
        if callee.result is None:
            raise CodegenError(f"{callee.name} has no result")
        return self.value(self._called(callee, arguments), callee.result)

    def run(self, callee: NativeFunction, *arguments: Operand) -> None:
        """Call a function for its effect; its result, if any, is ignored."""
        if callee.result is None:
            self.do(self._called(callee, arguments))
        else:
            self.call(callee, *arguments)

    def run_pointer(self, callee: NativeValue, *arguments: tuple[ScalarType, Operand]) -> None:
        """Call a function without a result by its address, with arguments of stated types."""
        passed = ", ".join(f"{kind.llvm} {self.operand(value, kind)}" for kind, value in arguments)
        self.do(f"call void {callee.text}({passed})")

    def address_of(self, callee: NativeFunction) -> NativeValue:
        """The address of a function."""
        self.called[callee.name] = callee
        return NativeValue(self, f"@{callee.name}", POINTER)

    def _called(self, callee: NativeFunction, arguments: Sequence[Operand]) -> str:
        self.called[callee.name] = callee
        kinds: list[ScalarType | AddressOf] = list(callee.parameters.values())
        if callee.variadic:
            kinds += [self._promoted(argument) for argument in arguments[len(kinds) :]]
        passed = ", ".join(
            f"{llvm_type(kind)} {self.operand(argument, kind)}"
            for argument, kind in zip(arguments, kinds, strict=True)
        )
        listed = f" ({callee.parameter_types})" if callee.variadic else ""
        return f"call {callee.result_type}{listed} @{callee.name}({passed})"

    def _promoted(self, argument: Operand) -> ScalarType:
        """The type of an argument that the callee does not state: of 64 bits, or as it is."""
        if isinstance(argument, int):
            return INT64
        return argument.type if isinstance(argument, NativeValue) else POINTER

    # ---- control flow

    def give(self, value: Operand = None) -> None:
        """Return from the function, with the null pointer where a pointer is not given."""
        result = self._result
        self._end(f"ret {result.llvm} {self.operand(value, result)}" if result else "ret void")

    @contextmanager
    def when(self, condition: NativeValue) -> Iterator[None]:
        """What is written inside happens only if the condition holds."""
        then, end = self._name("then"), self._name("end")
        self._end(f"br i1 {condition.text}, label %{then}, label %{end}")
        self._begin(then)
        yield
        self._fall_through(end)

    @contextmanager
    def either(self, condition: NativeValue) -> Iterator[Callable[[], None]]:
        """What is written inside happens if the condition holds.

        The context is a function that begins the other side: what follows its call happens if the
        condition does not hold.
        """
        then, other, end = self._name("then"), self._name("else"), self._name("end")
        reached: list[bool] = []

        def finish() -> None:
            if self._is_open:
                reached.append(True)
                self.jump(end)

        def otherwise() -> None:
            finish()
            self._begin(other)

        self._end(f"br i1 {condition.text}, label %{then}, label %{other}")
        self._begin(then)
        yield otherwise
        finish()
        if reached:
            self._begin(end)

    @contextmanager
    def loop(self) -> Iterator[NativeLoop]:
        """What is written inside happens again and again, until `leave`."""
        loop = NativeLoop(self, self._name("loop"), self._name("end"))
        self._fall_through(loop.head)
        yield loop
        if self._is_open:
            loop.again()
        if loop.ended:
            self._begin(loop.end)

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

    def jump(self, label: str) -> None:
        """Continue with another block."""
        self._end(f"br label %{label}")

    def _fall_through(self, label: str) -> None:
        if self._is_open:
            self.jump(label)
        self._begin(label)


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
    callee.write(body, *(_argument(body, *each) for each in callee.parameters.items()))
    if body.is_open:
        if callee.result is not None:
            raise CodegenError(f"{callee.name} may end without a result")
        body.give()
    listed = ", ".join(f"{llvm_type(kind)} %{name}" for name, kind in callee.parameters.items())
    linkage = "" if callee.exported else "internal "
    head = f"define {linkage}{callee.result_type} @{callee.name}({listed}) {{"
    lines = [head, "entry:", *body.slots, *body.lines, "}"]
    return "\n".join(lines), list(body.called.values())


def _argument(
    body: NativeBody, name: str, kind: ScalarType | AddressOf
) -> NativeValue | NativePlace:
    if isinstance(kind, AddressOf):
        return NativePlace(body, NativeValue(body, f"%{name}", POINTER), kind.target)
    return NativeValue(body, f"%{name}", kind)
