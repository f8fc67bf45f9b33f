"""Random kernels for the schedule fuzzer, written as text; one seed gives one kernel.

In: a `Dice` (a seeded generator).  Out: a `Kernel`: a definition that `verify` accepts, with the
values that its inputs may have.  Each family is a function that draws one kernel: elementwise,
reductions, products, windows, stencils, prefix sums, triangular loops, movement, and several
stages.  Half of the kernels have names that are chosen to clash with names that primitives or
proofs derive, and with each other once a dot is replaced.  Where it is asked for, some extents are
scalars of the kernel (`sized_extents.py`): then buffers have room for the most of them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from graphflow.tir import PrimFunc, parse, verify
from support.kernels.sized_extents import Extent

Lines = list[str]

FLOATS = ("f32", "f64")
INTEGERS = ("i8", "u8", "i16", "i32", "i64")

CLASHING = (
    "i",
    "j",
    "k",
    "i0",
    "i1",
    "p0",
    "p1",
    "p2",
    "v_i",
    "i_in",
    "i_out",
    "i_tail",
    "a.b",
    "a_dot_b",
    "a.i",
    "a_dot_i",
    "x",
    "w",
    "y",
    "t",
    "x_padding_0",
    "y_padding_0",
    "y_padding_1",
    "xc_copy_0",
    "v_p0",
    "i_u",
    "n1",
    "e.e_dot_e",
    "e_dot_e.e",
    "min",
    "mod",
    "floor.x",
)
"""Names of loops that something else might take for its own."""

BUFFERS = ("i", "p0", "i0", "v_x", "t", "xc", "x_copy", "j")
BLOCKS = ("compute", "x_padding", "y_padding", "i.b", "xc_copy", "v_i", "block 1", "p0.c")


class Dice:
    """Random choices; the same seed gives the same ones."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def among(self, options: Iterable[Any]) -> Any:
        pool = tuple(options)
        return pool[int(self.rng.integers(len(pool)))]

    def weighted(self, options: dict[Any, float]) -> Any:
        shares = np.array(list(options.values()))
        return list(options)[int(self.rng.choice(len(options), p=shares / shares.sum()))]

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return int(self.rng.integers(low, high + 1))

    def shuffled(self, items: Iterable[Any]) -> list[Any]:
        pool = list(items)
        return [pool[k] for k in self.rng.permutation(len(pool))]


@dataclass(frozen=True)
class Kernel:
    """A definition, and what its numbers may be.

    With `exact` floats must be small whole numbers, infinities or NaN, so that sums and products
    are exact in any order.  `limits` says what is assumed of an input.  With `minus_zero` a sum
    starts at −0.0, and stays there only if all that it takes in is −0.0.  With `rounded` floats are
    finite, and results in another order may differ by rounding.  `sizes` are the bounds of its
    scalars, `extents` those of parameters as texts in them, and `behind` what an input is assumed
    to hold behind its extents.
    """

    func: PrimFunc
    family: str
    exact: bool
    limits: dict[str, str]
    minus_zero: bool
    rounded: bool = False
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    extents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)


def whole_numbers(func: PrimFunc, family: str) -> Kernel:
    """A kernel whose floats, if it has any, are small whole numbers."""
    return Kernel(func, family, exact=True, limits={}, minus_zero=False)


@dataclass
class Sketch:
    """A kernel under construction: parameters, lines, names that are taken."""

    dice: Dice
    clashing: bool
    params: list[str] = field(default_factory=list)
    lines: Lines = field(default_factory=list)
    limits: dict[str, str] = field(default_factory=dict)
    exact: bool = False
    rounded: bool = False
    taken: set[str] = field(default_factory=set)
    whole: PrimFunc | None = None
    """The kernel, of a family that does not write it as lines."""
    sized: int = 0
    """How many scalars extents may still become."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    extents: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    neutral: dict[str, str] = field(default_factory=dict)
    """By input the literal that changes nothing in the reduction that takes it in."""

    # -- names

    def fresh(self, wanted: str, pool: Sequence[str]) -> str:
        names = self.dice.shuffled(pool) if self.clashing and self.dice.chance(0.7) else []
        for name in (*names, wanted, *(f"{wanted}{k}" for k in range(2, 99))):
            if name not in self.taken:
                self.taken.add(name)
                return name
        raise AssertionError("a hundred names are taken")

    def loops(self, *wanted: str, pair: float = 0.35) -> list[str]:
        """Names of loops; the first two may differ in how a dot is written alone."""
        if self.clashing and len(wanted) > 1 and self.dice.chance(pair):
            names = self.dice.among([("a.b", "a_dot_b"), ("a.i", "a_dot_i"), ("v_i", "i")])
            if not self.taken & set(names):
                self.taken |= set(names)
                return [*names, *(self.fresh(name, CLASHING) for name in wanted[2:])]
        return [self.fresh(name, CLASHING) for name in wanted]

    def input(self, wanted: str, dtype: str, shape: Sequence[int]) -> str:
        # A buffer may have the name of a loop, so these do not count as taken.
        name = wanted
        used = [p.split(":")[0] for p in self.params]
        if self.clashing and self.dice.chance(0.2):
            name = self.dice.among([b for b in BUFFERS if b not in used])
        self.params.append(f"{name}: {dtype}[{', '.join(str(int(n)) for n in shape)}]")
        self.extents[name] = tuple(shape)
        return name

    def output(self, dtype: str, shape: Sequence[int], name: str = "y", role: str = "out") -> str:
        self.params.append(f"{name}: {role}[{dtype}[{', '.join(str(int(n)) for n in shape)}]]")
        self.extents[name] = tuple(shape)
        return name

    # -- extents

    def extent(self, most: int) -> int:
        """The number, or a scalar that is at most so much."""
        if not self.sized or most < 2 or not (self.dice.chance(0.7) or not self.sizes):
            return most
        self.sized -= 1
        name = self.fresh("n", ())
        self.sizes[name] = int(self.dice.weighted({0: 4, 1: 2, min(2, most): 1})), most
        return Extent(most, name, self.dice.chance(0.4))

    def shape(self, rank: int) -> list[int]:
        """Small extents, of which some are scalars."""
        shape = small_shape(self.dice, rank)
        return [self.extent(n) for n in shape]

    def assumed(self) -> tuple[Lines, dict[str, str]]:
        """What the kernel assumes of its scalars and of some inputs behind their extents, and what
        is there."""
        lines = [
            f"assume(unless({n} >= {least} and {n} <= {most}), bool(False))"
            for n, (least, most) in self.sizes.items()
        ]
        behind: dict[str, str] = {}
        for param in self.params:
            name, _, dtype = param.partition("[")[0].partition(": ")
            shape = self.extents[name]
            sized = any(isinstance(n, Extent) for n in shape)
            if dtype not in ("bool", *FLOATS, *INTEGERS) or not sized or name in self.limits:
                continue
            if self.dice.chance(0.5):
                behind[name] = self.neutral.get(name, zero(dtype))
                names = [self.fresh(f"b{k}", ()) for k in range(len(shape))]
                inside = " and ".join(
                    f"{v} < {n}" for v, n in zip(names, shape, strict=True) if isinstance(n, Extent)
                )
                claim = f"{indexed(name, names)} == {behind[name]}"
                rooms = [(v, int(n)) for v, n in zip(names, shape, strict=True)]
                lines += nest(rooms, [f"assume(unless({inside}), {claim})"])
        return lines, behind

    def block(self, wanted: str, lines: Lines) -> None:
        """The lines as a stage; one of eight kernels has none."""
        if self.dice.chance(0.12):
            self.lines += lines
            return
        pool = [name for name in BLOCKS if name not in self.taken]
        name = self.dice.among(pool) if self.clashing and self.dice.chance(0.4) else wanted
        while name in self.taken:
            name += "2"
        self.taken.add(name)
        self.lines += [f'with block("{name}"):', *indented(lines)]

    # -- numbers

    def dtype(self, reduces: bool = False) -> str:
        shares = {
            "i32": 4.0,
            "f32": 4.0,
            "i64": 1.0,
            "f64": 1.0,
            "i8": 1.0,
            "u8": 1.0,
            "i16": 0.5,
            "bool": 0.3 if reduces else 0.7,
        }
        return str(self.dice.weighted(shares))

    def literal(self, dtype: str) -> str:
        if dtype == "bool":
            return f"bool({self.dice.chance(0.5)})"
        if dtype in FLOATS:
            plain = (0.0, 1.0, 2.0, -1.0, 3.0, -0.0)
            odd = plain if self.exact else (*plain, 0.5, "inf", "-inf", 1e-40, 0.1)
            return f"{dtype}({self.dice.among(odd if self.dice.chance(0.4) else plain)})"
        value = self.dice.among((0, 1, 2, 3, 5) if dtype == "u8" else (0, 1, 2, -1, 3, -2))
        return f"{dtype}({value})"

    def value(self, dtype: str, loads: Sequence[tuple[str, str]], depth: int, test: str) -> str:
        """An expression over `loads` (text, dtype); `test` is an index predicate."""
        dice = self.dice
        if depth == 0 or dice.chance(0.15):
            return self.leaf(dtype, loads)

        def sub() -> str:
            return self.value(dtype, loads, depth - 1, test)

        kind = dice.weighted(
            {"binary": 5, "unary": 2, "select": 1.5, "data": 1, "minmax": 2, "cast": 0.7}
        )
        if kind == "cast" and (other := self.castable(dtype, loads)):
            return f"cast({dtype}, {other})"
        if kind == "select":
            return f"select({test}, {sub()}, {sub()})"
        if kind == "data":
            other = self.leaf(loads[0][1], loads)
            sign = dice.among(("<", "<=", ">", "==", "!="))
            return f"select(data({loads[0][0]} {sign} {other}), {sub()}, {sub()})"
        if dtype == "bool":
            return f"(~{sub()})" if kind == "unary" else f"({sub()} {dice.among('&|')} {sub()})"
        if kind == "minmax":
            return f"{dice.among(('max', 'min'))}({sub()}, {sub()})"
        if kind == "unary":
            smooth = ("exp", "sigmoid", "tanh", "floor", "sqrt")
            fine = dtype in FLOATS and not self.exact and dice.chance(0.4)
            op = dice.among(smooth if fine else ("abs", "-"))
            return f"(-{sub()})" if op == "-" else f"{op}({sub()})"
        signs = ("+", "-", "*", "*", "+") if self.exact or dtype in INTEGERS else ("+", "*", "/")
        return f"({sub()} {dice.among(signs)} {sub()})"

    def castable(self, dtype: str, loads: Sequence[tuple[str, str]]) -> str | None:
        """A load whose conversion to `dtype` is defined for every value, if there is one."""
        fine = [text for text, d in loads if d != dtype and (dtype in FLOATS or d not in FLOATS)]
        return str(self.dice.among(fine)) if fine else None

    def leaf(self, dtype: str, loads: Sequence[tuple[str, str]]) -> str:
        fitting = [text for text, d in loads if d == dtype]
        if fitting and self.dice.chance(0.8):
            return str(self.dice.among(fitting))
        return self.literal(dtype)

    def kernel(self, family: str) -> Kernel:
        lines, behind = self.assumed() if self.sizes else ([], {})
        params = [*self.params, *(f"{n}: index" for n in self.sizes)]
        head = f"@primfunc\ndef k({', '.join(params)}):"
        func = self.whole or parse("\n".join([head, *indented([*lines, *self.lines])]))
        verify(func, "definition")
        sized = {
            name: tuple(map(str, shape))
            for name, shape in self.extents.items()
            if any(isinstance(n, Extent) for n in shape)
        }
        minus_zero = any("= f32(-0.0)" in line or "= f64(-0.0)" in line for line in self.lines)
        return Kernel(
            func,
            family,
            self.exact,
            dict(self.limits),
            minus_zero,
            self.rounded,
            dict(self.sizes),
            sized,
            behind,
        )


def zero(dtype: str) -> str:
    return {"bool": "bool(False)"}.get(dtype, f"{dtype}(0{'.0' if dtype in FLOATS else ''})")


def indented(lines: Lines) -> Lines:
    return ["    " + line for line in lines]


def nest(loops: Sequence[tuple[str, Any]], body: Lines) -> Lines:
    """Loops from the outermost in; a bound is a number, or a text `start, stop`."""
    for name, stop in reversed(loops):
        if isinstance(stop, Extent) and stop.guarded:
            stop, body = int(stop), [f"if {name} < {stop}:", *indented(body)]
        bounds = stop if isinstance(stop, str) else f"0, {stop}"
        body = [f"for {name} in serial({bounds}):", *indented(body)]
    return body


def indexed(buffer: str, indices: Iterable[str]) -> str:
    return f"{buffer}[{', '.join(indices)}]"


Family = Callable[[Sketch], None]
FAMILIES: dict[str, tuple[float, Family]] = {}
"""By name: how often it is drawn, and what writes its parameters and lines."""


def family(weight: float) -> Callable[[Family], Family]:
    def register(make: Family) -> Family:
        FAMILIES[make.__name__] = weight, make
        return make

    return register


def random_kernel(seed: int, family: str | None = None, sized: int = 0) -> Kernel:
    """The kernel of a seed, of a family if one is named, with at most so many scalars."""
    dice = Dice(seed, 1)
    drawn = dice.weighted({name: weight for name, (weight, _) in FAMILIES.items()})
    name = drawn if family is None else family
    sketch = Sketch(dice, dice.chance(0.5), sized=sized)
    FAMILIES[name][1](sketch)
    return sketch.kernel(name)


def small_shape(dice: Dice, rank: int, most: int = 60) -> list[int]:
    while True:
        shape = [dice.among((1, 2, 3, 4, 5, 6, 7, 9, 10, 13, 14)) for _ in range(rank)]
        if prod(shape) <= most:
            return shape


def index_test(dice: Dice, names: Sequence[str], shape: Sequence[int]) -> str:
    """An index predicate over loops from 0 to `shape`, seldom always or never true."""
    k = dice.between(0, len(names) - 1)
    name, extent = names[k], shape[k]
    at = dice.between(0, extent)
    tests = [f"{name} < {at}", f"{name} >= {at}", f"{name} != {at}", f"{name} % 2 == 0"]
    if len(names) > 1:
        other = names[k - 1]
        tests += [f"{name} + {other} >= {at}", f"{name} <= {other}", f"{name} - {other} < {at}"]
    test = str(dice.among(tests))
    return f"{test} and {index_test(dice, names, shape)}" if dice.chance(0.2) else test


def placed_read(dice: Dice, names: list[str], shape: list[int]) -> tuple[list[str], list[int]]:
    """Affine indices of an input over the loops, and the shape they need."""
    order = dice.shuffled(range(len(names))) if dice.chance(0.3) else list(range(len(names)))
    keep = [k for k in order if dice.chance(0.85)] or order[:1]
    indices, extents = [], []
    for k in keep:
        n, name = shape[k], names[k]
        kind = dice.weighted(
            {"same": 12, "shift": 2, "reverse": 1.5, "stride": 1, "half": 1, "mod": 1}
        )
        a, b = dice.between(1, 2), dice.between(1, 3)
        text, extent = {
            "same": (name, n),
            "shift": (f"{name} + {a}", n + a),
            "reverse": (f"{n - 1} - {name}", n),
            "stride": (f"{a + 1}*{name} + {b - 1}", (a + 1) * (n - 1) + b),
            "half": (f"{name} // {b + 1}", (n - 1) // (b + 1) + 1),
            "mod": (f"({a + 1}*{name} + {b}) % {b + 2}", b + 2),
        }[kind]
        indices.append(text)
        extents.append(extent)
    return indices, extents
