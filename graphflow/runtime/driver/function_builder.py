"""Writes native functions as LLVM IR: structured control flow, calls, local variables.

In: a decorated Python function for each native function; it is called once, with a `Body` and the
parameters, and writes the instructions.  Out: `module_text`, the IR of the exported functions and
of all that they call.  What always holds: each block ends with exactly one jump or return.

Local variables are stack slots.  The text is to be run through LLVM's SROA pass, which keeps those
in registers whose address is passed to no call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from graphflow.errors import CodegenError
from graphflow.runtime.driver.instructions import (
    Address,
    Instructions,
    Operand,
    Place,
    Value,
    llvm_type,
)
from graphflow.runtime.driver.structs import INT64, POINTER, Array, DataType, Scalar, Struct


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A native function: name, parameters, result, and `write`, which writes its body.

    Functions without `write` are LLVM's intrinsics or the system's.
    """

    name: str
    parameters: Mapping[str, Scalar | Address] = field(default_factory=dict)
    result: Scalar | None = None
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
    result: Scalar | None = None, exported: bool = False, **parameters: Scalar | Address
) -> Callable[[Callable[..., None]], Function]:
    """Decorates what writes a body: called with the `Body`, then a `Value` or a `Place` (for an
    `Address`) for each parameter."""

    def made(write: Callable[..., None]) -> Function:
        return Function(write.__name__, parameters, result, write, exported)

    return made


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop under construction, which only `leave` or the end of the function ends."""

    body: Body
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


class Body(Instructions):
    """The body of one function under construction."""

    def __init__(self, result: Scalar | None) -> None:
        super().__init__()
        self.called: dict[str, Function] = {}
        self.slots: list[str] = []
        self._result = result

    # ---- memory

    def place(self, address: Value, kind: DataType) -> Place:
        """The memory that a pointer points to."""
        return Place(self, address, kind)

    def array(self, address: Value, element: DataType) -> Place:
        """The elements that a pointer points to."""
        return Place(self, address, Array(element, 0))

    def local(self, kind: DataType, initial: Operand = None, alignment: int = 0) -> Place:
        """A variable on the stack, undefined where `initial` is not given."""
        name = f"%{self._name('slot')}"
        self.slots.append(f"  {name} = alloca {kind.llvm}, align {alignment or kind.alignment}")
        place = Place(self, Value(self, name, POINTER), kind)
        if initial is not None:
            place.store(initial)
        return place

    # ---- calls

    def call(self, callee: Function, *arguments: Operand) -> Value:
        """Call a function that has a result."""
        if callee.result is None:
            raise CodegenError(f"{callee.name} has no result")
        return self.value(self._called(callee, arguments), callee.result)

    def run(self, callee: Function, *arguments: Operand) -> None:
        """Call a function for its effect; its result, if any, is ignored."""
        if callee.result is None:
            self.do(self._called(callee, arguments))
        else:
            self.call(callee, *arguments)

    def run_pointer(self, callee: Value, *arguments: tuple[Scalar, Operand]) -> None:
        """Call a function without a result by its address, with arguments of stated types."""
        passed = ", ".join(f"{kind.llvm} {self.operand(value, kind)}" for kind, value in arguments)
        self.do(f"call void {callee.text}({passed})")

    def address_of(self, callee: Function) -> Value:
        """The address of a function."""
        self.called[callee.name] = callee
        return Value(self, f"@{callee.name}", POINTER)

    def _called(self, callee: Function, arguments: Sequence[Operand]) -> str:
        self.called[callee.name] = callee
        kinds: list[Scalar | Address] = list(callee.parameters.values())
        if callee.variadic:
            kinds += [self._promoted(argument) for argument in arguments[len(kinds) :]]
        passed = ", ".join(
            f"{llvm_type(kind)} {self.operand(argument, kind)}"
            for argument, kind in zip(arguments, kinds, strict=True)
        )
        listed = f" ({callee.parameter_types})" if callee.variadic else ""
        return f"call {callee.result_type}{listed} @{callee.name}({passed})"

    def _promoted(self, argument: Operand) -> Scalar:
        """The type of an argument that the callee does not state: of 64 bits, or as it is."""
        if isinstance(argument, int):
            return INT64
        return argument.type if isinstance(argument, Value) else POINTER

    # ---- control flow

    def give(self, value: Operand = None) -> None:
        """Return from the function, with the null pointer where a pointer is not given."""
        result = self._result
        self._end(f"ret {result.llvm} {self.operand(value, result)}" if result else "ret void")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """What is written inside happens only if the condition holds."""
        then, end = self._name("then"), self._name("end")
        self._end(f"br i1 {condition.text}, label %{then}, label %{end}")
        self._begin(then)
        yield
        self._fall_through(end)

    @contextmanager
    def either(self, condition: Value) -> Iterator[Callable[[], None]]:
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
    def loop(self) -> Iterator[Loop]:
        """What is written inside happens again and again, until `leave`."""
        loop = Loop(self, self._name("loop"), self._name("end"))
        self._fall_through(loop.head)
        yield loop
        if self._is_open:
            loop.again()
        if loop.ended:
            self._begin(loop.end)

    @contextmanager
    def counted(self, start: int, stop: Value) -> Iterator[Value]:
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


def module_text(exported: Sequence[Function], structs: Sequence[Struct], triple: str) -> str:
    """The IR of the exported functions and of all that they call, directly or not."""
    todo, written = list(exported), dict[str, str]()
    while todo:
        callee = todo.pop(0)
        if callee.name not in written:
            written[callee.name], called = _text(callee)
            todo += called
    heads = [f'target triple = "{triple}"', *(struct.llvm_definition for struct in structs)]
    return "\n\n".join(["\n".join(heads), *written.values()]) + "\n"


def _text(callee: Function) -> tuple[str, list[Function]]:
    """The definition or declaration of a function, and the functions that it calls."""
    if callee.write is None:
        return f"declare {callee.result_type} @{callee.name}({callee.parameter_types})", []
    body = Body(callee.result)
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


def _argument(body: Body, name: str, kind: Scalar | Address) -> Value | Place:
    if isinstance(kind, Address):
        return Place(body, Value(body, f"%{name}", POINTER), kind.target)
    return Value(body, f"%{name}", kind)
