"""Writes the text of one LLVM function: instructions on scalars and vectors, calls, control flow.

In: one method call for each instruction or control structure.  Out: `entry` (the allocas), `lines`
(the body) and `declarations` (of the functions that were called).  What always holds: each block
ends with exactly one jump or return; and control flow is structured, so a value computed in a block
dominates everything nested in that block and everything behind it in the same body, on which
`remembered` rests.  A scalar operand is broadcast where the other operand is a vector.

The builder is right for every processor.  Where an instruction set asks for other instructions, a
subclass in `codegen` overrides methods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from graphflow.base.errors import CodegenError
from graphflow.llvm.ir_values import (
    IrValue,
    call_text,
    int_constant,
    lanes_of,
    mangled,
    vector_type,
)

Found = TypeVar("Found")

RARELY = '!{!"branch_weights", i32 1, i32 4096}'
"""How often a branch is taken that is expected not to be, and the other one."""


class IrBuilder:
    """The LLVM function under construction, whose first block is called `block`."""

    lanes_of_registers: tuple[int, ...] = (4, 8)
    """How many numbers of 32 bits vector registers hold."""
    register_letter = "x"
    """LLVM's constraint for these registers in asm statements."""

    def __init__(self, block: str = "entry") -> None:
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.block = block
        self.is_open = True
        """Whether an instruction may follow: the current block has no jump or return yet."""
        self.may_compute_halves = False
        """Whether the processor may have arithmetic on float16 (AVX512-FP16)."""
        self._count = 0
        self._known: list[dict[Hashable, IrValue]] = [{}]
        self._in_block: dict[Hashable, Any] = {}
        self._zero_outside: dict[str, str] = {}
        """The masks outside of which values are zero."""

    # ---- instructions

    def emit(self, text: str, element: str, lanes: int = 1) -> IrValue:
        """Append `%name = text`; returns the value that it defines."""
        # Not by `fresh` and `do`: nearly every line of a kernel is written here.
        if not self.is_open:
            raise self._closed(text)
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return IrValue(name, element, lanes)

    def do(self, text: str) -> None:
        """Append an instruction without a result; CodegenError behind the end of a block."""
        if not self.is_open:
            raise self._closed(text)
        self.lines.append(f"  {text}")

    def _closed(self, text: str) -> CodegenError:
        return CodegenError(f"{text!r} stands behind the end of its block")

    def fresh(self, hint: str) -> str:
        """A name of a value or a label that nothing else in the function has."""
        self._count += 1
        return f"{hint}{self._count}"

    def remembered(self, key: Hashable, make: Callable[[], IrValue]) -> IrValue:
        """The value made earlier for `key` if it dominates this point, else a new one."""
        for known in reversed(self._known):
            value = known.get(key)
            if value is not None:
                return value
        value = self._known[-1][key] = make()
        return value

    def remembered_in_block(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """What `make` gave earlier in this block for `key`, else what it gives now."""
        known = self._in_block
        if key in known:
            found: Found = known[key]
        else:
            found = known[key] = make()
        return found

    def remembered_at_entry(self, key: Hashable, make: Callable[[], IrValue]) -> IrValue:
        """`remembered` of a value that `make` adds to `entry`, which dominates everything."""
        known = self._known[0]
        if key not in known:
            known[key] = make()
        return known[key]

    def splat(self, value: IrValue, lanes: int) -> IrValue:
        """`value` in every lane; a vector as it is."""
        if value.lanes == lanes:
            return value
        if value.is_constant:
            return IrValue(f"splat ({value.type} {value.text})", value.element, lanes)
        return self.remembered(("splat", value.text, lanes), lambda: self._splat(value, lanes))

    def _splat(self, value: IrValue, lanes: int) -> IrValue:
        one = self._inserted(IrValue("poison", value.element, lanes), value, 0)
        return self.emit(
            f"shufflevector {one.type} {one.text}, {one.type} poison, "
            f"<{lanes} x i32> zeroinitializer",
            value.element,
            lanes,
        )

    def matched(self, *values: IrValue) -> tuple[IrValue, ...]:
        """The values, all with as many lanes as the widest."""
        lanes = max(v.lanes for v in values)
        return tuple(self.splat(v, lanes) for v in values)

    def binary(self, operation: str, left: IrValue, right: IrValue) -> IrValue:
        """An instruction of two operands of one type, as `fadd contract` or `mul nsw`."""
        a, b = self.matched(left, right)
        return self.emit(f"{operation} {a.type} {a.text}, {b.text}", a.element, a.lanes)

    def compare(self, operation: str, left: IrValue, right: IrValue) -> IrValue:
        """`icmp slt`, `fcmp olt` …; the result is i1."""
        a, b = self.matched(left, right)
        return self.emit(f"{operation} {a.type} {a.text}, {b.text}", "i1", a.lanes)

    def select(self, condition: IrValue, if_true: IrValue, if_false: IrValue) -> IrValue:
        """`if_true` in the lanes where `condition` is true.

        No instruction for zeros where a load under the same mask has them: LLVM 22 makes another
        one of such a choice, an expansion (vexpandpd) for whole pairs of lanes.
        """
        c, a, b = self.matched(condition, if_true, if_false)
        if self._zero_outside.get(a.text) == c.text and b.is_zero:
            return a
        if condition.lanes == 1:
            c = condition
        return self.emit(
            f"select {c.type} {c.text}, {a.type} {a.text}, {b.type} {b.text}", a.element, a.lanes
        )

    def convert(self, operation: str, value: IrValue, element: str) -> IrValue:
        """`sitofp`, `zext`, `bitcast` … to another element type with as many lanes."""
        to = vector_type(element, value.lanes)
        return self.emit(f"{operation} {value.type} {value.text} to {to}", element, value.lanes)

    def rounded(self, value: IrValue, element: str) -> IrValue:
        """A float rounded to a narrower type, which LLVM does not look through.

        LLVM does an operation on two widened numbers that is rounded again in the narrower type,
        which has the same bits, and would contract a product that is rounded so with a sum.
        """
        return self.intrinsic("arithmetic.fence", self.convert("fptrunc", value, element))

    def half(self, value: IrValue) -> IrValue:
        """A float32 rounded to float16.

        Where the processor computes in float16, LLVM does an operation of float32 on two widened
        float16 that is rounded to float16 in that type.  Its result is the same: float32 has two
        more than twice the bits, so that rounding twice is rounding once (Figueroa, When is double
        rounding innocuous?, 1995).  But contracted with a sum the product would not be rounded.
        """
        if self.may_compute_halves:
            return self.rounded(value, "half")
        return self.convert("fptrunc", value, "half")

    def nearest(self, value: IrValue) -> IrValue:
        """A float32 rounded to the nearest i32, ties to even."""
        suffix = f"v{value.lanes}" if value.lanes > 1 else ""
        name = f"llvm.lrint.{suffix}i32.{suffix}f32"
        return self.call(name, "i32", value, lanes=value.lanes)

    def unless_nan(self, x: IrValue, otherwise: IrValue) -> IrValue:
        """`otherwise` in the lanes where `x` is a number; where `x` is NaN, `x` as a quiet NaN.

        Both are float32.
        """
        quiet = self.binary("or", self.convert("bitcast", x, "i32"), int_constant(1 << 22, "i32"))
        is_nan = self.compare("fcmp uno", x, x)
        return self.select(is_nan, self.convert("bitcast", quiet, "float"), otherwise)

    def freeze(self, value: IrValue) -> IrValue:
        """`value`, with an arbitrary but fixed value where it is poison or undefined.

        The same for every caller that this value dominates; constants are returned as they are.
        """
        if value.is_constant:
            return value
        text = f"freeze {value.type} {value.text}"
        return self.remembered(text, lambda: self.emit(text, value.element, value.lanes))

    def opaque(self, value: IrValue) -> IrValue:
        """A copy of a scalar about which LLVM knows nothing: the result of an empty asm statement.

        If a test of the copy guards its uses, the uses see the value that was tested.  `freeze`
        does not guarantee that: LLVM 22 may read a frozen undefined value from two different
        registers, one in the test and one in the use.
        """
        return self.emit(
            f'call {value.type} asm "", "=r,0"({value.type} {value.text})', value.element
        )

    def computed_here(self, value: IrValue) -> IrValue:
        """`value`, which LLVM computes at this place; as it is where it does not fill a register.

        LLVM moves what is only read behind a loop to where it is read, and then everything that it
        is computed from stays in memory until then.
        """
        if value.lanes not in self.lanes_of_registers:
            return value
        constraint = f'"", "={self.register_letter},0"'
        text = f"call {value.type} asm sideeffect {constraint}({value.type} {value.text})"
        only = "memory(inaccessiblemem: readwrite) nounwind willreturn"
        return self.emit(f"{text} {only}", value.element, value.lanes)

    # ---- lanes

    def lanes_from(self, begin: int, width: int) -> IrValue:
        """Truth in the lanes from `begin` on, of `width` lanes."""
        return self.chosen_lanes((1 << width) - (1 << begin), width)

    def chosen_lanes(self, bits: int, width: int) -> IrValue:
        """Truth in those of `width` lanes whose bits are ones."""
        return lanes_of((bits >> lane & 1 for lane in range(width)), "i1")

    def readable(self, truths: IrValue) -> IrValue:
        """A vector of i1 whose lanes are about to be read as scalars; anything else as it is."""
        return truths

    def extract(self, vector: IrValue, lane: int) -> IrValue:
        """One lane of a vector; a scalar as it is."""
        if vector.lanes == 1:
            return vector
        vector = self.readable(vector)
        return self.emit(f"extractelement {vector.type} {vector.text}, i64 {lane}", vector.element)

    def part(self, vector: IrValue, start: int, lanes: int) -> IrValue:
        """`lanes` lanes of a vector, from lane `start` on."""
        if (start, lanes) == (0, vector.lanes):
            return vector
        if lanes == 1:
            return self.extract(vector, start)
        none = IrValue("poison", vector.element, vector.lanes)
        return self.shuffled(vector, none, [*range(start, start + lanes)])

    def widened(self, value: IrValue, lanes: int) -> IrValue:
        """A value of `lanes` lanes that begins with those of `value`; the new ones are poison."""
        if value.lanes == lanes:
            return value
        if value.lanes == 1:
            return self.gathered([value], lanes)
        none = IrValue("poison", value.element, value.lanes)
        return self.shuffled(value, none, [min(k, value.lanes) for k in range(lanes)])

    def shuffled(self, low: IrValue, high: IrValue, places: list[int]) -> IrValue:
        """The lanes at these positions of two vectors; positions go on from `low` to `high`."""
        wanted = ", ".join(f"i32 {place}" for place in places)
        text = f"shufflevector {low.type} {low.text}, {high.type} {high.text}, "
        return self.emit(f"{text}<{len(places)} x i32> <{wanted}>", low.element, len(places))

    def joined(self, parts: Sequence[IrValue]) -> IrValue:
        """All lanes of vectors of one width, one vector after the other; poison behind."""
        while len(parts) > 1:
            none = IrValue("poison", parts[0].element, parts[0].lanes)
            pairs = [(low, parts[k + 1 : k + 2]) for k, low in enumerate(parts) if k % 2 == 0]
            parts = [
                self.shuffled(low, high[0] if high else none, [*range(2 * low.lanes)])
                for low, high in pairs
            ]
        return parts[0]

    def gathered(self, items: list[IrValue], lanes: int) -> IrValue:
        """A vector whose first lanes are these scalars, the others poison."""
        vector = IrValue("poison", items[0].element, lanes)
        for lane, item in enumerate(items):
            vector = self._inserted(vector, item, lane)
        return vector

    def _inserted(self, vector: IrValue, item: IrValue, lane: int) -> IrValue:
        return self.emit(
            f"insertelement {vector.type} {vector.text}, {item.type} {item.text}, i64 {lane}",
            vector.element,
            vector.lanes,
        )

    # ---- memory

    def alloca(self, kind: str, alignment: int, name: str) -> IrValue:
        """The address of memory on the stack for a value of an LLVM type, once in the function."""
        self.entry.append(f"  %{name} = alloca {kind}, align {alignment}")
        return IrValue(f"%{name}", "ptr")

    def element_address(self, source: str, base: IrValue, indices: Iterable[IrValue]) -> IrValue:
        """The address that indices lead to, from memory that holds the LLVM type `source` on."""
        listed = ", ".join([f"{index.type} {index.text}" for index in indices])
        return self.emit(f"getelementptr {source}, ptr {base.text}, {listed}", "ptr")

    def load(
        self, address: IrValue, element: str, alignment: int, lanes: int = 1, order: str = ""
    ) -> IrValue:
        """The value at an address; an `order` of memory makes the access atomic."""
        atomic, suffix = _atomic(order) if order else ("", "")
        kind = vector_type(element, lanes)
        text = f"load {atomic}{kind}, ptr {address.text}{suffix}, align {alignment}"
        return self.emit(text, element, lanes)

    def masked_load(
        self, address: IrValue, element: str, alignment: int, truth: IrValue
    ) -> IrValue:
        """The values at an address in the lanes of `truth`; zero in the others, which it skips."""
        lanes = truth.lanes
        name = f"llvm.masked.load.{mangled(element, lanes)}.p0"
        none = IrValue("zeroinitializer", element, lanes)
        aligned = int_constant(alignment, "i32")
        value = self.call(name, element, address, aligned, truth, none, lanes=lanes)
        self._zero_outside[value.text] = truth.text
        return value

    def store(self, value: IrValue, address: IrValue, alignment: int, order: str = "") -> None:
        """Write a value to an address; an `order` of memory makes the access atomic."""
        atomic, suffix = _atomic(order) if order else ("", "")
        to = f"ptr {address.text}{suffix}, align {alignment}"
        self.do(f"store {atomic}{value.type} {value.text}, {to}")

    # ---- calls

    def call(
        self, name: str, element: str, *arguments: IrValue, lanes: int = 1, flags: str = ""
    ) -> IrValue:
        """A call of a function by its full name, whose result has `lanes` elements."""
        result = vector_type(element, lanes)
        self._declare(name, result, arguments)
        prefix = f"{flags} " if flags else ""
        return self.emit(call_text(f"@{name}", result, arguments, prefix), element, lanes)

    def intrinsic(self, name: str, *arguments: IrValue) -> IrValue:
        """An elementwise intrinsic overloaded on its result type, as `llvm.fma`."""
        matched = self.matched(*arguments)
        element, lanes = matched[0].element, matched[0].lanes
        full = f"llvm.{name}.{mangled(element, lanes)}"
        return self.call(full, element, *matched, lanes=lanes)

    def call_void(self, name: str, *arguments: IrValue) -> None:
        """A call without a result."""
        self._declare(name, "void", arguments)
        self.do(call_text(f"@{name}", "void", arguments))

    def _declare(self, name: str, result: str, arguments: Iterable[IrValue]) -> None:
        types = ", ".join(a.type for a in arguments)
        self.declarations[name] = f"declare {result} @{name}({types})"

    # ---- control flow

    def end_block(self, text: str) -> None:
        """Append the jump or return that ends the block; no instruction may follow."""
        self.do(text)
        self.is_open = False

    def begin_block(self, label: str) -> None:
        """Begin another block, to which the current one goes on if it has no end yet."""
        if self.is_open:
            self.jump(label)
        self.lines.append(f"{label}:")
        self.block, self.is_open, self._in_block = label, True, {}

    def jump(self, label: str) -> None:
        """Continue with another block."""
        self.end_block(f"br label %{label}")

    def branch(self, condition: IrValue, if_true: str, if_false: str, rarely: bool = False) -> None:
        """Continue with one of two blocks, and write the first one next, which is out of the way
        where the condition holds `rarely`."""
        weights = f", !prof {RARELY}" if rarely else ""
        self.end_block(f"br i1 {condition.text}, label %{if_true}, label %{if_false}{weights}")
        self.begin_block(if_true)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """What is written inside does not dominate what follows the context."""
        self._known.append({})
        yield
        self._known.pop()

    @contextmanager
    def when(self, condition: IrValue) -> Iterator[None]:
        """What is written inside happens only if the scalar `condition` holds."""
        then, end = self.fresh("then"), self.fresh("end")
        self.branch(condition, then, end)
        with self.nested():
            yield
        self.begin_block(end)

    @contextmanager
    def either(self, condition: IrValue, rarely: bool = False) -> Iterator[Callable[[], None]]:
        """What is written inside happens if the scalar `condition` holds.

        The context is a function that begins the other side: what follows its call happens if the
        condition does not hold.
        """
        then, other, end = self.fresh("then"), self.fresh("else"), self.fresh("end")
        reached: list[bool] = []

        def finish() -> None:
            if self.is_open:
                reached.append(True)
                self.jump(end)

        def otherwise() -> None:
            finish()
            self.begin_block(other)
            self._known[-1] = {}

        self.branch(condition, then, other, rarely)
        with self.nested():
            yield otherwise
        finish()
        if reached:
            self.begin_block(end)

    def choose(
        self,
        condition: IrValue,
        if_true: Callable[[], IrValue],
        if_false: Callable[[], IrValue],
        rarely: bool = False,
    ) -> IrValue:
        """The value of that computation of two which `condition` selects; only it is executed.

        The first one is out of the way of the second where the condition holds `rarely`.
        """
        with self.either(condition, rarely) as otherwise:
            a, a_block = if_true(), self.block
            otherwise()
            b, b_block = if_false(), self.block
        return self.emit(
            f"phi {a.type} [ {a.text}, %{a_block} ], [ {b.text}, %{b_block} ]", a.element, a.lanes
        )

    @contextmanager
    def counted(
        self,
        start: IrValue,
        stop: IrValue,
        may_be_empty: bool,
        goes_on: Callable[[], IrValue] | None = None,
    ) -> Iterator[IrValue]:
        """What is written inside happens for each `start <= i < stop`; the context is i.

        The loop tests its condition at the end; a test in front of it is emitted only if it may be
        empty.  It ends too where the scalar that `goes_on` writes, ahead of an iteration, is false.
        """
        head, end = self.fresh("loop"), self.fresh("end")
        if may_be_empty:
            guard = self.compare("icmp slt", start, stop)
            self.branch(guard, self.fresh("enter"), end)
        before = self.block
        self.begin_block(head)
        index, following = f"%i.{head}", f"%next.{head}"
        position = len(self.lines)
        self.lines.append("")
        with self.nested():
            if goes_on is not None:
                self.branch(goes_on(), self.fresh("then"), end)
            yield IrValue(index, "i64")
        self.lines[position] = (
            f"  {index} = phi i64 [ {start.text}, %{before} ], [ {following}, %{self.block} ]"
        )
        self.do(f"{following} = add nsw i64 {index}, 1")
        more = self.compare("icmp slt", IrValue(following, "i64"), stop)
        self.end_block(f"br i1 {more.text}, label %{head}, label %{end}")
        self.begin_block(end)


def _atomic(order: str) -> tuple[str, str]:
    return "atomic ", f" {order}"
