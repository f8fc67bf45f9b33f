"""Writes the text of one LLVM function: typed values, vectors, calls, structured control flow.

In: one method call for each instruction or control structure.  Out: `lines` (the body), `entry`
(the allocas) and `declarations` (of the functions that were called).  What always holds: control
flow is structured, so a value computed in a block dominates everything nested in that block and
everything behind it in the same body; `remembered` rests on this.  A scalar operand is broadcast
where the other operand is a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from graphflow.base.dtypes import DTYPES, STORED
from graphflow.base.target import Target

ELEMENTS = {
    "float32": "float",
    "float64": "double",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "bool": "i1",
    **{name: f"i{8 * DTYPES[name].itemsize}" for name in STORED},
}
"""The LLVM type of a value of each dtype; in memory a bool is a byte.  Of what is only stored the
value is its bits."""

MANGLED = {"float": "f32", "double": "f64", "ptr": "p0"}

MASK_FEATURES = ("avx512vl", "avx512dq", "avx512bw")
"""With these, LLVM keeps vectors of i1 in mask registers whatever their width."""
MASK_ADDITION = {8: "b", 16: "w", 32: "d", 64: "q"}
"""Suffixes of `llvm.x86.avx512.kadd`, by the number of lanes."""


class IrValue(NamedTuple):
    """An SSA value or constant: its text, the type of one element, how many lanes (1: a scalar)."""

    text: str
    element: str
    lanes: int = 1

    @property
    def type(self) -> str:
        return vector_type(self.element, self.lanes)

    @property
    def is_constant(self) -> bool:
        return not self.text.startswith("%")


def vector_type(element: str, lanes: int) -> str:
    """`float`, or `<16 x float>`."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mangled(element: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic: `f32`, `v16f32`."""
    name = MANGLED.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


def integer(value: int, element: str = "i64") -> IrValue:
    """An integer constant."""
    return IrValue(str(int(value)), element)


def boolean(value: bool) -> IrValue:
    """A constant truth value."""
    return IrValue("true" if value else "false", "i1")


def lanes_of(values: Iterable[int | bool], element: str) -> IrValue:
    """A vector of integer constants."""
    items = [int(v) for v in values]
    text = ", ".join(f"{element} {v}" for v in items)
    return IrValue(f"<{text}>", element, len(items))


def literal(value: float | int | bool, dtype: str) -> IrValue:
    """A constant of `dtype`, exact to the bit."""
    element = ELEMENTS[dtype]
    if dtype == "bool":
        return boolean(bool(value))
    if dtype in STORED:
        code = np.asarray(value, DTYPES[dtype]).view(f"u{DTYPES[dtype].itemsize}")
        return integer(int(code), element)
    if element not in ("float", "double"):
        return integer(int(np.asarray(value).astype(DTYPES[dtype])), element)
    wide = np.asarray(value, DTYPES[dtype]).astype(np.float64)
    return IrValue(f"0x{int(wide.view(np.uint64)):016X}", element)


class IrBuilder:
    """The LLVM function under construction."""

    def __init__(self, target: Target) -> None:
        features = target.features.split(",")
        self.has_mask_registers = all(f"+{name}" in features for name in MASK_FEATURES)
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.block = "body"
        self._count = 0
        self._known: list[dict[Hashable, IrValue]] = [{}]

    # ---- instructions

    def emit(self, text: str, element: str, lanes: int = 1) -> IrValue:
        """Append `%name = text`; returns the value that it defines."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return IrValue(name, element, lanes)

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def remembered(self, key: Hashable, make: Callable[[], IrValue]) -> IrValue:
        """The value made earlier for `key` if it dominates this point, else a new one."""
        for known in reversed(self._known):
            value = known.get(key)
            if value is not None:
                return value
        value = self._known[-1][key] = make()
        return value

    def splat(self, value: IrValue, lanes: int) -> IrValue:
        """`value` in every lane; a vector as it is."""
        if value.lanes == lanes:
            return value
        if value.is_constant:
            return IrValue(f"splat ({value.type} {value.text})", value.element, lanes)
        return self.remembered(("splat", value.text, lanes), lambda: self._splat(value, lanes))

    def _splat(self, value: IrValue, lanes: int) -> IrValue:
        vector = vector_type(value.element, lanes)
        one = self.emit(
            f"insertelement {vector} poison, {value.type} {value.text}, i64 0", value.element, lanes
        )
        return self.emit(
            f"shufflevector {vector} {one.text}, {vector} poison, <{lanes} x i32> zeroinitializer",
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
        """`if_true` in the lanes where `condition` is true."""
        c, a, b = self.matched(condition, if_true, if_false)
        if condition.lanes == 1:
            c = condition
        return self.emit(
            f"select {c.type} {c.text}, {a.type} {a.text}, {b.type} {b.text}", a.element, a.lanes
        )

    def convert(self, operation: str, value: IrValue, element: str) -> IrValue:
        """`sitofp`, `zext`, `bitcast` … to another element type with as many lanes."""
        to = vector_type(element, value.lanes)
        return self.emit(f"{operation} {value.type} {value.text} to {to}", element, value.lanes)

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

    def lanes_from(self, begin: int, width: int) -> IrValue:
        """Truth in the lanes from `begin` on, of `width` lanes.

        Where there are mask registers, LLVM does not know which lanes these are: of selections by
        lanes that it knows it makes shuffles, more of them than selections.
        """
        if not self.has_mask_registers:
            return lanes_of((lane >= begin for lane in range(width)), "i1")
        known, key = self._known[0], ("lanes from", begin, width)
        if key not in known:
            name, bits = f"%lanes{begin}.{width}", f"i{width} {-1 << begin}"
            self.entry.append(f'  {name}.bits = call i{width} asm "", "=r,0"({bits})')
            self.entry.append(f"  {name} = bitcast i{width} {name}.bits to <{width} x i1>")
            known[key] = IrValue(name, "i1", width)  # at the entry, so it dominates everything
        return known[key]

    def readable(self, truths: IrValue) -> IrValue:
        """A vector of i1 whose lanes are about to be read as scalars.

        With mask registers: `truths` plus zero.  Where the mask of a sign test is moved to a
        general register (vpmovq2m, kmov), LLVM 22 (X86CompressEVEX) makes that one instruction
        (vmovmskpd) and drops the mask register, although it may be read again by an instruction
        that overwrites it (kshift, kor).  The sum stands between the two instructions, so that
        LLVM does not combine them, and LLVM has no rule that simplifies it.
        """
        plain = truths.element != "i1" or truths.lanes == 1 or truths.is_constant
        if plain or not self.has_mask_registers:
            return truths
        return self.remembered(("readable", truths.text), lambda: self._plus_zero(truths))

    def _plus_zero(self, truths: IrValue) -> IrValue:
        # Frozen, because the sum of lanes is one number: one that is poison would spoil all.
        truths, lanes = self.freeze(truths), truths.lanes
        width = max(lanes, min(MASK_ADDITION))
        none = IrValue("zeroinitializer", "i1", lanes)
        if lanes < width:
            truths = self.shuffled(truths, none, [min(k, lanes) for k in range(width)])
        name = f"llvm.x86.avx512.kadd.{MASK_ADDITION[width]}"
        total = self.call(name, truths.type, truths, none._replace(lanes=width))
        return self.part(IrValue(total.text, "i1", width), 0, lanes)

    def extract(self, vector: IrValue, lane: int) -> IrValue:
        """One lane of a vector; a scalar as it is."""
        if vector.lanes == 1:
            return vector
        if vector.element == "i1":
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

    def widened(self, vector: IrValue, lanes: int) -> IrValue:
        """The vector extended to `lanes` lanes, of which the new ones are poison."""
        none = IrValue("poison", vector.element, vector.lanes)
        return self.shuffled(vector, none, [min(k, vector.lanes) for k in range(lanes)])

    def shuffled(self, low: IrValue, high: IrValue, places: list[int]) -> IrValue:
        """The lanes at these positions of two vectors; positions go on from `low` to `high`."""
        wanted = ", ".join(f"i32 {place}" for place in places)
        text = f"shufflevector {low.type} {low.text}, {high.type} {high.text}, "
        return self.emit(f"{text}<{len(places)} x i32> <{wanted}>", low.element, len(places))

    def gathered(self, items: list[IrValue], lanes: int) -> IrValue:
        """A vector whose first lanes are these scalars, the others poison."""
        element = items[0].element
        vector = IrValue("poison", element, lanes)
        for lane, item in enumerate(items):
            vector = self.emit(
                f"insertelement {vector.type} {vector.text}, {item.type} {item.text}, i64 {lane}",
                element,
                lanes,
            )
        return vector

    # ---- calls

    def call(self, name: str, result: str, *arguments: IrValue, flags: str = "") -> IrValue:
        """A call of a function by its full name; `result` is its type, of one element."""
        types = ", ".join(a.type for a in arguments)
        self.declarations[name] = f"declare {result} @{name}({types})"
        passed = ", ".join(f"{a.type} {a.text}" for a in arguments)
        prefix = f"{flags} " if flags else ""
        return self.emit(f"call {prefix}{result} @{name}({passed})", result)

    def intrinsic(self, name: str, *arguments: IrValue, flags: str = "") -> IrValue:
        """An elementwise intrinsic overloaded on its result type, as `llvm.fma`."""
        matched = self.matched(*arguments)
        first = matched[0]
        full = f"llvm.{name}.{mangled(first.element, first.lanes)}"
        value = self.call(full, first.type, *matched, flags=flags)
        return IrValue(value.text, first.element, first.lanes)

    def call_void(self, name: str, *arguments: IrValue) -> None:
        """A call without a result."""
        types = ", ".join(a.type for a in arguments)
        self.declarations[name] = f"declare void @{name}({types})"
        passed = ", ".join(f"{a.type} {a.text}" for a in arguments)
        self.do(f"call void @{name}({passed})")

    # ---- control flow

    def _label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def _start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._known.append({})
        yield
        self._known.pop()

    def loop(
        self, start: IrValue, stop: IrValue, may_be_empty: bool, body: Callable[[IrValue], None]
    ) -> None:
        """Emit `body(i)` for each `start <= i < stop`.

        The loop tests its condition at the end; a test in front of it is emitted only if it may be
        empty.
        """
        head, end = self._label("loop"), self._label("end")
        if may_be_empty:
            guard, before = self.compare("icmp slt", start, stop), self._label("enter")
            self.do(f"br i1 {guard.text}, label %{before}, label %{end}")
            self._start(before)
        before = self.block
        self.do(f"br label %{head}")
        self._start(head)
        index, following = f"%i.{head}", f"%next.{head}"
        position = len(self.lines)
        self.lines.append("")
        with self._nested():
            body(IrValue(index, "i64"))
        self.lines[position] = (
            f"  {index} = phi i64 [ {start.text}, %{before} ], [ {following}, %{self.block} ]"
        )
        self.do(f"{following} = add nsw i64 {index}, 1")
        more = self.emit(f"icmp slt i64 {following}, {stop.text}", "i1")
        self.do(f"br i1 {more.text}, label %{head}, label %{end}")
        self._start(end)

    def when(
        self,
        condition: IrValue,
        then: Callable[[], None],
        orelse: Callable[[], None] | None = None,
    ) -> None:
        """Emit `then()` for the case that the scalar `condition` holds, else `orelse()`."""
        yes, end = self._label("then"), self._label("endif")
        no = self._label("else") if orelse else end
        self.do(f"br i1 {condition.text}, label %{yes}, label %{no}")
        for label, body in ((yes, then), (no, orelse)):
            if body is not None:
                self._start(label)
                with self._nested():
                    body()
                self.do(f"br label %{end}")
        self._start(end)

    def choose(
        self, condition: IrValue, if_true: Callable[[], IrValue], if_false: Callable[[], IrValue]
    ) -> IrValue:
        """The value of that computation of two which `condition` selects; only it is executed."""
        results: list[tuple[IrValue, str]] = []

        def keep(side: Callable[[], IrValue]) -> Callable[[], None]:
            return lambda: results.append((side(), self.block))

        self.when(condition, keep(if_true), keep(if_false))
        (a, a_block), (b, b_block) = results
        return self.emit(
            f"phi {a.type} [ {a.text}, %{a_block} ], [ {b.text}, %{b_block} ]", a.element, a.lanes
        )
